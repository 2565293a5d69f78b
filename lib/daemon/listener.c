#include "lib/daemon/listener.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/base/socket_swap.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"

#define AT_ONCE 64      /* connections that are taken in one turn of the loop */
#define LOOK_AGAIN 0.05 /* seconds until more are taken, when there were too many */
#define QUEUE 4096      /* connections that may wait */
#define WAIT 30         /* tenths of a second for one who listens there */

struct listener {
    struct ev_loop *loop;
    const char *setting;
    char *path;
    void (*take)(int fd);
    bool (*has_room)(void);
    int fd;
    /* where we listen, once it is ours: somebody else may have taken the path over since */
    dev_t device;
    ino_t inode;
    double complained;
    ev_io accepting;
    ev_timer again;
    ev_async leave;
    bool leaving;     /* nobody connects any more */
    atomic_bool left; /* and nobody waits */
};

/* ---- connections ---- */

static void pause_accepting(struct listener *l)
{
    ev_io_stop(l->loop, &l->accepting);
    ev_timer_set(&l->again, LOOK_AGAIN, 0.);
    ev_timer_start(l->loop, &l->again);
}

/* Once a second: while descriptors are used up it is tried twenty times. */
static void complain(struct listener *l, int error)
{
    if (l->complained && clock_monotonic() - l->complained < 1)
        return;
    l->complained = clock_monotonic();
    log_error("%s: cannot accept: %s", l->setting, strerror(error));
}

static void on_again(struct ev_loop *loop, ev_timer *t, int events)
{
    struct listener *l = t->data;
    ev_io_start(loop, &l->accepting);
}

/* After its shutdown a socket says so by EINVAL. */
static void nobody_waits(struct listener *l)
{
    ev_io_stop(l->loop, &l->accepting);
    close(l->fd);
    atomic_store(&l->left, true);
}

/* Without room or a descriptor they wait in the socket's queue: Postfix's connect_timeout. */
static void on_accept(struct ev_loop *loop, ev_io *io, int events)
{
    struct listener *l = io->data;
    for (int i = 0; i < AT_ONCE; i++) {
        if (l->has_room && !l->has_room()) {
            pause_accepting(l);
            return;
        }
        int fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            l->take(fd);
        } else if (l->leaving && (errno == EINVAL || errno == EAGAIN)) {
            nobody_waits(l);
            return;
        } else if (errno == EAGAIN) {
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            complain(l, errno);
            pause_accepting(l);
            return;
        }
    }
}

bool listener_send(struct ev_loop *loop, ev_io *writing, struct buf *out)
{
    while (out->len) {
        ssize_t n = send(writing->fd, out->data, out->len, MSG_NOSIGNAL);
        if (n >= 0) {
            buf_consume(out, (size_t)n);
        } else if (errno == EAGAIN) {
            ev_io_start(loop, writing);
            return true;
        } else if (errno != EINTR) {
            return false;
        }
    }
    ev_io_stop(loop, writing);
    return true;
}

/* ---- the end ---- */

static void give_path_back(const struct listener *l)
{
    struct stat st;
    if (lstat(l->path, &st) == 0 && st.st_dev == l->device && st.st_ino == l->inode)
        unlink(l->path);
}

/* The shutdown refuses also those who have found the socket by its path, and are not in its queue
 * yet: nobody comes between the last look at the queue and the end. */
static void on_leave(struct ev_loop *loop, ev_async *a, int events)
{
    struct listener *l = a->data;
    if (l->leaving)
        return;
    l->leaving = true;
    give_path_back(l);
    if (l->fd < 0) {
        atomic_store(&l->left, true);
        return;
    }
    shutdown(l->fd, SHUT_RD);
    if (ev_is_active(&l->accepting)) /* else it waits for room */
        ev_feed_event(loop, &l->accepting, EV_READ);
}

void listener_leave(struct listener *l)
{
    if (l)
        ev_async_send(l->loop, &l->leave);
}

bool listener_left(const struct listener *l)
{
    return !l || atomic_load(&l->left);
}

/* ---- the path ---- */

/* NULL, or why no socket can be there (malloc'd). */
static char *no_place(const char *setting, const char *path)
{
    struct stat st;
    const char *slash = strrchr(path, '/');
    if (strlen(path) > SOCKET_SWAP_PATH_MOST)
        return mem_printf("%s = %s: longer than the %d bytes that a socket's path may have",
                          setting, path, SOCKET_SWAP_PATH_MOST);
    char *directory = mem_strndup(path, slash > path ? (size_t)(slash - path) : 1), *error = NULL;
    if (stat(directory, &st) < 0 ? errno == ENOENT || errno == ENOTDIR : !S_ISDIR(st.st_mode))
        error = mem_printf("%s = %s: there is no directory %s: make it (that of the default: "
                           "`systemd-tmpfiles --create`), or mend the path",
                           setting, path, directory);
    free(directory);
    return error;
}

char *listener_check(const char *setting, const char *path)
{
    bool made_at_start = !strncmp(path, "/run/", 5) && strlen(path) <= SOCKET_SWAP_PATH_MOST;
    return made_at_start ? NULL : no_place(setting, path);
}

/* 0: it may be taken. EADDRINUSE: somebody listens there. */
static int probe(const struct listener_options *o)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct stat st;
    if (lstat(o->path, &st) < 0)
        return errno == ENOENT ? 0 : errno;
    if (!S_ISSOCK(st.st_mode))
        return ENOTSOCK;
    if (o->replace)
        return 0;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errno;
    memcpy(un.sun_path, o->path, strlen(o->path));
    int error =
        connect(fd, (struct sockaddr *)&un, sizeof un) == 0 || errno == EAGAIN ? EADDRINUSE : errno;
    close(fd);
    return error == ECONNREFUSED || error == ENOENT ? 0 : error;
}

static char *not_free(const struct listener_options *o)
{
    int error = probe(o);
    for (int i = 0; i < WAIT && error == EADDRINUSE; i++) {
        usleep(100000);
        error = probe(o);
    }
    if (!error)
        return NULL;
    return mem_printf(
        "%s = %s: %s", o->setting, o->path,
        error == EADDRINUSE ? "another process answers there: stop it, or name another path"
        : error == ENOTSOCK ? "what is there is no socket: name another path, or take it away"
                            : strerror(error));
}

static char *listen_beside(struct listener *l, const struct listener_options *o)
{
    struct socket_swap b;
    struct stat st;
    int bound = o->bind_at ? socket_swap_bind_by(&b, o->path, o->bind_at)
                           : socket_swap_bind(&b, o->path, SOCK_STREAM | SOCK_NONBLOCK);
    if (bound < 0)
        return mem_printf("%s = %s: cannot listen: %s", o->setting, o->path, strerror(errno));
    char *error = NULL;
    l->fd = b.fd;
    if (fchownat(b.directory, b.name, (uid_t)-1, o->group, 0) < 0 ||
        fchmodat(b.directory, b.name, o->mode, 0) < 0)
        error = mem_printf(
            "%s = %s: cannot set group and mode: %s (this process' user must be in that group)",
            o->setting, o->path, strerror(errno));
    else if ((l->fd >= 0 && listen(l->fd, QUEUE) < 0) || fstatat(b.directory, b.name, &st, 0) < 0)
        error = mem_printf("%s = %s: cannot listen: %s", o->setting, o->path, strerror(errno));
    if (error) {
        socket_swap_drop(&b);
        return error;
    }
    if (socket_swap_place(&b) < 0)
        return mem_printf("%s = %s: cannot be put there: %s", o->setting, o->path, strerror(errno));
    l->device = st.st_dev;
    l->inode = st.st_ino;
    return NULL;
}

struct listener *listener_open(const struct listener_options *o, char **error_r)
{
    if ((*error_r = no_place(o->setting, o->path)) || (*error_r = not_free(o)))
        return NULL;
    struct listener *l = mem_zero(sizeof *l);
    *error_r = listen_beside(l, o);
    if (*error_r) {
        free(l);
        return NULL;
    }
    l->loop = o->loop;
    l->setting = o->setting;
    l->path = mem_strdup(o->path);
    l->take = o->take;
    l->has_room = o->has_room;
    ev_io_init(&l->accepting, on_accept, l->fd, EV_READ);
    ev_init(&l->again, on_again);
    ev_async_init(&l->leave, on_leave);
    l->accepting.data = l->again.data = l->leave.data = l;
    ev_async_start(l->loop, &l->leave);
    if (l->fd >= 0)
        ev_io_start(l->loop, &l->accepting);
    return l;
}

unsigned long long listener_descriptors(void)
{
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        rlim_t before = limit.rlim_cur;
        limit.rlim_cur = limit.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
            limit.rlim_cur = before;
    }
    return limit.rlim_cur;
}
