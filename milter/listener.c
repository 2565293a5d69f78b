#include "listener.h"

#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "clock.h"
#include "log.h"
#include "session.h"

#define AT_ONCE 64      /* connections that are taken in one turn of the loop */
#define LOOK_AGAIN 0.05 /* seconds until more are taken, when there were too many */

static struct {
    int fd;
    char *path;
    dev_t device; /* where we listen, once it is ours: somebody else may have taken the path over since */
    ino_t inode;
    ev_io accepting;
    ev_timer again;
} listener = {.fd = -1};

/* ---- connections ---- */

static void pause_accepting(void)
{
    ev_io_stop(milter.loop, &listener.accepting);
    ev_timer_set(&listener.again, LOOK_AGAIN, 0.);
    ev_timer_start(milter.loop, &listener.again);
}

/* Once a second: while descriptors are used up it is tried twenty times. */
static void complain(int error)
{
    static double complained;
    if (complained && clock_monotonic() - complained < 1)
        return;
    complained = clock_monotonic();
    log_error("milter_socket: cannot accept: %s", strerror(error));
}

static void on_again(struct ev_loop *loop, ev_timer *t, int events)
{
    if (listener.fd >= 0)
        ev_io_start(loop, &listener.accepting);
}

/* Without a descriptor they wait in the listener's queue: Postfix's connect_timeout. */
static void on_accept(struct ev_loop *loop, ev_io *io, int events)
{
    for (int i = 0; i < AT_ONCE; i++) {
        int fd = accept4(listener.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            session_new(fd);
        } else if (errno == EAGAIN) {
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            complain(errno);
            pause_accepting();
            return;
        }
    }
}

/* ---- the socket ---- */

static bool answers(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool answered = fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) == 0;
    if (fd >= 0)
        close(fd);
    return answered;
}

/* A milter that was killed a moment ago still answers until it is gone. */
static bool is_free(const char *path)
{
    struct stat st;
    if (lstat(path, &st) < 0)
        return errno == ENOENT;
    if (!S_ISSOCK(st.st_mode)) {
        errno = ENOTSOCK;
        return false;
    }
    for (int i = 0; answers(path); i++) {
        if (i == 30) {
            errno = EADDRINUSE;
            return false;
        }
        usleep(100000);
    }
    return true;
}

static bool guard(const char *beside, const char *path, const char *group)
{
    struct group *g = NULL;
    if (*group && !(g = getgrnam(group))) {
        log_error("milter_socket_group = %s: there is no such group", group);
        return false;
    }
    if ((!g || chown(beside, (uid_t)-1, g->gr_gid) == 0) && chmod(beside, g ? 0660 : 0666) == 0)
        return true;
    log_error("milter_socket = %s: cannot set group and mode: %s", path, strerror(errno));
    return false;
}

/* Bound under another name, which then replaces what was at path: there is no moment without a socket, and a stale one goes. */
static bool listen_beside(const char *beside, const char *path, const char *group)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct stat st;
    memcpy(un.sun_path, beside, strlen(beside));
    unlink(beside);
    listener.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    mode_t before = umask(0177); /* nobody connects between bind and chmod */
    bool bound = listener.fd >= 0 && bind(listener.fd, (struct sockaddr *)&un, sizeof un) == 0;
    umask(before);
    if (!bound || listen(listener.fd, 4096) < 0) {
        log_error("milter_socket = %s: cannot listen: %s (does the directory exist?)", path, strerror(errno));
        return false;
    }
    if (!guard(beside, path, group))
        return false;
    if (stat(beside, &st) < 0 || rename(beside, path) < 0) {
        log_error("milter_socket = %s: cannot be put there: %s", path, strerror(errno));
        return false;
    }
    listener.device = st.st_dev;
    listener.inode = st.st_ino;
    return true;
}

/* One descriptor for each SMTP session; where the limit may not be raised, the unit has set it. */
static void allow_descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

bool listener_open(const char *path, const char *group, bool replace)
{
    struct sockaddr_un fits;
    char *beside = mem_printf("%s.%d", path, (int)getpid());
    bool ok = false;
    if (strlen(beside) >= sizeof fits.sun_path) {
        log_error("milter_socket = %s: longer than the %zu bytes a socket's path may have here", path, sizeof fits.sun_path - 9);
    } else if (!replace && !is_free(path)) {
        log_error("milter_socket = %s: %s", path, errno == EADDRINUSE ? "another milter answers there" : strerror(errno));
    } else {
        ok = listen_beside(beside, path, group);
        if (!ok)
            unlink(beside);
    }
    free(beside);
    if (!ok)
        return false;
    listener.path = mem_strdup(path);
    allow_descriptors();
    ev_io_init(&listener.accepting, on_accept, listener.fd, EV_READ);
    ev_io_start(milter.loop, &listener.accepting);
    ev_init(&listener.again, on_again);
    return true;
}

void listener_close(void)
{
    struct stat st;
    if (listener.fd < 0)
        return;
    if (stat(listener.path, &st) == 0 && st.st_dev == listener.device && st.st_ino == listener.inode)
        unlink(listener.path);
    ev_io_stop(milter.loop, &listener.accepting);
    ev_timer_stop(milter.loop, &listener.again);
    close(listener.fd);
    listener.fd = -1;
}
