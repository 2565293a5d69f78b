/* bridge - see bridge.h. */
#include "../../compat.h"

#include <ioloop.h>

#include <ev.h>
#include <unistd.h>

#include "bridge.h"

#define PREPARE_WATCHERS 1 /* run in each iteration, whether there is something or not */
#define ITERATIONS_MAX 100 /* then Dovecot's own turn comes */

struct bridge {
    struct ev_loop *loop;
    int fd; /* its epoll descriptor */
    struct io *io;
    struct timeout *tick;
    unsigned invoked; /* callbacks of the iteration under way */
};

static void invoke(struct ev_loop *loop)
{
    struct bridge *b = ev_userdata(loop);

    b->invoked += ev_pending_count(loop);
    ev_invoke_pending(loop);
}

/* What callbacks start (watchers, timers, work for the next turn) takes effect with the next iteration: so one without any has to be the last.
 * And that twice: what the watcher that runs each time has sent leaves with a watcher of its own, in the iteration behind. */
static void turn(struct bridge *b)
{
    unsigned quiet = 0;

    for (int i = 0; i < ITERATIONS_MAX && quiet < 2; i++) {
        b->invoked = 0;
        ev_run(b->loop, EVRUN_NOWAIT);
        quiet = b->invoked <= PREPARE_WATCHERS ? quiet + 1 : 0;
    }
}

static bool is_epoll(int fd)
{
    static const char kind[] = "anon_inode:[eventpoll]";
    char target[64];
    ssize_t n = readlink(t_strdup_printf("/proc/self/fd/%d", fd), target, sizeof target);

    return n == (ssize_t)strlen(kind) && memcmp(target, kind, strlen(kind)) == 0;
}

struct bridge *bridge_open(void)
{
    struct bridge *b = i_new(struct bridge, 1);

    b->fd = dup(STDERR_FILENO);
    if (b->fd < 0 || close(b->fd) < 0)
        i_fatal("dup(stderr): %m");
    b->loop = ev_loop_new(EVBACKEND_EPOLL | EVFLAG_NOENV);
    if (b->loop == NULL)
        i_fatal("libev: no loop on epoll");
    if (!is_epoll(b->fd))
        i_fatal("libev: descriptor %d is not the epoll descriptor of the loop that was just made", b->fd);
    ev_set_userdata(b->loop, b);
    ev_set_invoke_pending_cb(b->loop, invoke);
    return b;
}

struct ev_loop *bridge_loop(struct bridge *b)
{
    return b->loop;
}

void bridge_start(struct bridge *b)
{
    b->io = io_add(b->fd, IO_READ, turn, b);
    b->tick = timeout_add_short(BRIDGE_TICK_MSECS, turn, b);
    turn(b);
}

void bridge_close(struct bridge **_b)
{
    struct bridge *b = *_b;

    *_b = NULL;
    io_remove(&b->io);
    timeout_remove(&b->tick);
    ev_loop_destroy(b->loop);
    i_free(b);
}
