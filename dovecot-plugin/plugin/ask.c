/* ask - connects, asks, and waits for one line. */
#include "dovecot-plugin/plugin/ask.h"

#include <net.h>

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SOCKET "dovelane-commit"
#define AGAIN 20 /* milliseconds, until a lost connection is made again */

int64_t ask_now(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

const char *ask_path(const struct mail_user *user)
{
    return t_strconcat(user->set->base_dir, "/" SOCKET, NULL);
}

static void pause_for(const struct ask *w, int milliseconds)
{
    int64_t left = w->end - ask_now();

    if (left > 0)
        (void)poll(NULL, 0, (int)I_MIN(left, milliseconds));
}

void ask_end(struct ask *w)
{
    if (w->fd != -1)
        i_close_fd(&w->fd);
}

/* FALSE: nobody listens. Where too many do already, it is tried again. */
static bool connect_once(struct ask *w)
{
    w->fd = net_connect_unix(w->path);
    if (w->fd != -1 || errno == EAGAIN || errno == EINTR)
        return TRUE;
    w->why = t_strdup_printf("%s: %m", w->path);
    return FALSE;
}

/* A line's first bytes; 0: the connection was lost; -1: the time is over. */
static ssize_t read_reply(struct ask *w, char *reply, size_t size)
{
    size_t n = 0;

    for (;;) {
        struct pollfd in = {.fd = w->fd, .events = POLLIN};
        int64_t left = w->end - ask_now();
        ssize_t r;

        if (left <= 0)
            return -1;
        if (poll(&in, 1, (int)left) <= 0)
            continue;
        r = read(w->fd, reply + n, size - 1 - n);
        if (r < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (r <= 0)
            return 0;
        n += (size_t)r;
        reply[n] = '\0';
        if (memchr(reply, '\n', n) != NULL || n == size - 1) {
            reply[strcspn(reply, "\n")] = '\0';
            return (ssize_t)n;
        }
    }
}

int ask(struct ask *w, const char *line, size_t size)
{
    char reply[512];
    ssize_t n;

    do {
        if (w->fd == -1 && !connect_once(w))
            return 0;
        if (w->fd == -1 || send(w->fd, line, size, MSG_NOSIGNAL) != (ssize_t)size)
            n = 0;
        else
            n = read_reply(w, reply, sizeof(reply));
        if (n > 0 && reply[0] == '+')
            return 1;
        if (n > 0) {
            w->why = t_strdup(reply + (reply[0] == '-' ? 1 : 0));
            return 0;
        }
        ask_end(w);
        if (n < 0)
            return -1;
        pause_for(w, AGAIN);
    } while (ask_now() < w->end);
    return -1;
}
