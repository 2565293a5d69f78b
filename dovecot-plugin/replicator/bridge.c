/* bridge - runs the libev loop from the ioloop, and sets an alarm for its next timer. */
#include "dovecot-plugin/compat.h"

#include <fd-util.h>
#include <ioloop.h>

#include <ev.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "dovecot-plugin/replicator/bridge.h"
#include "lib/base/clock.h"

#define PREPARE_WATCHERS 1 /* run in each iteration, whether there is something or not */
#define ITERATIONS_MAX 100 /* then Dovecot's own turn comes */
#define TICK_MSECS 10      /* where libev does not tell how long it may wait */
#define EARLY 0.001        /* seconds; an alarm is not set again to come sooner by less */

struct bridge {
    struct ev_loop *loop;
    int fd; /* its epoll descriptor */
    struct io *io;
    int alarm; /* a timerfd: not Dovecot's timeouts, which follow jumps of the wall clock */
    struct io *alarm_io;
    double alarm_at;  /* clock_monotonic(); 0: it is not set */
    int flags;        /* of ev_run */
    unsigned invoked; /* callbacks of the iteration under way */
};

/* What libev asks of epoll: how long its loop may wait, which is until its next timer. */
static struct {
    int fd; /* -1: none that we want to know of */
    int msecs;
} asked = {-1, TICK_MSECS};
/* This thread's next epoll_wait() is the bridge's loop's. */
static _Thread_local bool learns;

/* Takes the place of the C library's, in libev as in all else of this process. The bridge's loop
 * never waits here. */
int epoll_wait(int fd, struct epoll_event *events, int max, int msecs)
{
    if (learns) {
        learns = FALSE;
        asked.fd = fd;
    }
    if (fd == asked.fd) {
        asked.msecs = msecs;
        msecs = 0;
    }
    return epoll_pwait(fd, events, max, msecs, NULL);
}

static void invoke(struct ev_loop *loop)
{
    struct bridge *b = ev_userdata(loop);

    b->invoked += ev_pending_count(loop);
    ev_invoke_pending(loop);
}

static void set_alarm(struct bridge *b, int msecs)
{
    double at = clock_monotonic() + msecs / 1000.;
    struct itimerspec t = {.it_value = {(time_t)at, (long)((at - (double)(time_t)at) * 1e9)}};

    /* A timer that was stopped since leaves an alarm that comes for nothing, once. */
    if (b->alarm_at != 0 && b->alarm_at <= at + EARLY)
        return;
    if (timerfd_settime(b->alarm, TFD_TIMER_ABSTIME, &t, NULL) < 0)
        i_fatal("timerfd_settime: %m");
    b->alarm_at = at;
}

/* What callbacks start (watchers, timers, work for the next turn) takes effect with the next
 * iteration: so one without any has to be the last. And that twice: what the watcher that runs
 * each time has sent leaves with a watcher of its own, in the iteration behind. */
static void turn(struct bridge *b)
{
    unsigned quiet = 0;

    for (int i = 0; i < ITERATIONS_MAX && quiet < 2; i++) {
        b->invoked = 0;
        ev_run(b->loop, b->flags);
        quiet = b->invoked <= PREPARE_WATCHERS ? quiet + 1 : 0;
    }
    set_alarm(b, quiet < 2 ? 0 : asked.msecs);
}

static void on_alarm(struct bridge *b)
{
    b->alarm_at = 0;
    turn(b);
}

static void on_probe(struct ev_loop *loop, ev_timer *t, int events)
{
    (void)loop, (void)t, (void)events;
}

/* Has the loop wait for a timer of 1 ms, and sees whether it asks us, and of which descriptor. If
 * not, it must not be made to wait again. */
static bool tells_its_wait(struct ev_loop *loop)
{
    ev_timer probe;

    asked.fd = asked.msecs = -1;
    learns = TRUE;
    ev_timer_init(&probe, on_probe, 0.001, 0.);
    ev_timer_start(loop, &probe);
    ev_run(loop, EVRUN_ONCE);
    ev_timer_stop(loop, &probe);
    learns = FALSE;
    return asked.fd >= 0;
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

    int lowest = dup(STDERR_FILENO);
    if (lowest < 0 || close(lowest) < 0)
        i_fatal("dup(stderr): %m");
    b->loop = ev_loop_new(EVBACKEND_EPOLL | EVFLAG_NOENV);
    if (b->loop == NULL)
        i_fatal("libev: no loop on epoll");
    b->alarm = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (b->alarm < 0)
        i_fatal("timerfd_create: %m");
    b->flags = EVRUN_ONCE;
    if (!tells_its_wait(b->loop)) {
        i_warning("libev: its loop does not wait by epoll_wait(): asked every %d ms instead",
                  TICK_MSECS);
        b->flags = EVRUN_NOWAIT;
        asked.fd = lowest;
        asked.msecs = TICK_MSECS;
    }
    b->fd = asked.fd;
    if (!is_epoll(b->fd))
        i_fatal("libev: descriptor %d is not the epoll descriptor of the loop that was just made",
                b->fd);
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
    b->alarm_io = io_add(b->alarm, IO_READ, on_alarm, b);
    turn(b);
}

void bridge_wake(struct bridge *b)
{
    set_alarm(b, 0);
}

void bridge_close(struct bridge **_b)
{
    struct bridge *b = *_b;

    *_b = NULL;
    io_remove(&b->io);
    io_remove(&b->alarm_io);
    asked.fd = -1;
    ev_loop_destroy(b->loop);
    i_close_fd(&b->alarm);
    i_free(b);
}
