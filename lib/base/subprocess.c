/* subprocess - spawns it, writes and reads in one poll loop, and kills it when it takes too long.
 * posix_spawn, because the callers have threads. */
#include "lib/base/subprocess.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST (16u << 20)

static long long now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (long long)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void shut(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* False when there is nothing more to come. */
static bool drain(int fd, struct buf *to, bool *cut)
{
    char bytes[65536];
    ssize_t n = read(fd, bytes, sizeof bytes);
    if (n > 0 && to->len < MOST)
        buf_add(to, bytes, (size_t)n);
    else if (n > 0)
        *cut = true;
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

/* Feeds and reads until all ends are closed. False when the time is over. */
static bool talk(int in, int out, int err, const char *input, size_t len, long long until,
                 struct subprocess_result *r)
{
    if (!len)
        shut(&in);
    while (out >= 0 || err >= 0) {
        struct pollfd p[3] = {{in, POLLOUT, 0}, {out, POLLIN, 0}, {err, POLLIN, 0}};
        long long left = until - now_ms();
        int n = left > 0 ? poll(p, 3, (int)left) : 0;
        if (n == 0)
            break;
        if (p[0].revents) {
            ssize_t written = write(in, input, len);
            if (written > 0) {
                input += written;
                len -= (size_t)written;
            }
            if (!len || (written < 0 && errno != EAGAIN && errno != EINTR))
                shut(&in);
        }
        if (p[1].revents && !drain(out, &r->out, &r->cut))
            shut(&out);
        if (p[2].revents && !drain(err, &r->err, &r->cut))
            shut(&err);
    }
    bool all = out < 0 && err < 0;
    shut(&in);
    shut(&out);
    shut(&err);
    return all;
}

static bool ended(pid_t pid, int *status, long long until)
{
    for (;;) {
        pid_t done = waitpid(pid, status, WNOHANG);
        if (done == pid)
            return true;
        if (done < 0 && errno != EINTR) {
            /* exit(127); somebody else waited for it: how it ended is not known, and so not well */
            *status = 127 << 8;
            return true;
        }
        if (now_ms() >= until)
            return false;
        usleep(500);
    }
}

static int spawn(pid_t *pid, const char *const *argv, int in, int out, int err)
{
    static const char *const environment[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C",
                                              NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    sigset_t none, usual;
    sigemptyset(&none);
    sigfillset(&usual);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&how);
    posix_spawnattr_setsigmask(&how, &none);
    posix_spawnattr_setsigdefault(&how, &usual);
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawn_file_actions_adddup2(&files, in, 0);
    posix_spawn_file_actions_adddup2(&files, out, 1);
    posix_spawn_file_actions_adddup2(&files, err, 2);
    int failed =
        posix_spawnp(pid, argv[0], &files, &how, (char *const *)argv, (char *const *)environment);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&how);
    return failed;
}

struct subprocess_result subprocess_run(const char *const *argv, const char *input,
                                        size_t input_len, int timeout_ms)
{
    struct subprocess_result r = {.status = -1};
    int in[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1}, status = 0;
    pid_t pid;
    long long until = now_ms() + timeout_ms;
    if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC)) {
        r.failure = "no descriptors left";
    } else {
        int failed = spawn(&pid, argv, in[0], out[1], err[1]);
        if (failed)
            r.failure = failed == ENOENT ? "no such program" : "cannot be started";
    }
    shut(&in[0]);
    shut(&out[1]);
    shut(&err[1]);
    if (r.failure) {
        shut(&in[1]);
        shut(&out[0]);
        shut(&err[0]);
        return r;
    }
    fcntl(in[1], F_SETFL, O_NONBLOCK);
    /* It may end before it has read all. Daemons ignore SIGPIPE anyway. */
    void (*was)(int) = signal(SIGPIPE, SIG_IGN);
    bool all = talk(in[1], out[0], err[0], input, input_len, until, &r);
    signal(SIGPIPE, was);
    if (all && ended(pid, &status, until)) {
        r.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        return r;
    }
    kill(pid, SIGKILL);
    ended(pid, &status, now_ms() + 10000);
    r.failure = "took too long";
    r.late = true;
    return r;
}

void subprocess_free(struct subprocess_result *r)
{
    buf_free(&r->out);
    buf_free(&r->err);
}

bool subprocess_exists(const char *program)
{
    const char *path = getenv("PATH");
    bool found = false;
    for (const char *at = path && *path ? path : "/usr/sbin:/usr/bin"; *at && !found;) {
        size_t n = strcspn(at, ":");
        char *file = mem_printf("%.*s/%s", (int)n, at, program);
        found = access(file, X_OK) == 0;
        free(file);
        at += n;
        at += *at == ':';
    }
    return found;
}
