/* ending - watches processes by their pidfds, and counts those that are left. */
#include "dovecot-plugin/replicator/workers/ending.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "dovecot-plugin/replicator/users/holders.h"

struct ending {
    TAILQ_ENTRY(ending) next;
    struct endings *all;
    int fd;
    ev_io rd;
    ev_timer patience;
    struct user *user; /* NULL: nobody */
    bool stuck;        /* it cannot be ended, and nobody but its user waits for it */
};
TAILQ_HEAD(ending_list, ending);

struct endings {
    struct replicator *r;
    size_t n;
    struct ending_list list;
};

/* The kernel's timer is due before. A process that is still there waits for a file system that does
 * not answer (FUSE, NFS), and no signal ends it; or it is of a release without that timer. */
static double longest(const struct config *c)
{
    unsigned question = frame_patience((uint64_t)c->worker_timeout);
    return (question > FRAME_ALIVE_MOST ? question : FRAME_ALIVE_MOST) + 2 * FRAME_ENDS_WITHIN;
}

static void forget(struct ending *e)
{
    struct endings *es = e->all;
    ev_io_stop(es->r->loop, &e->rd);
    ev_timer_stop(es->r->loop, &e->patience);
    close(e->fd);
    TAILQ_REMOVE(&es->list, e, next);
    es->n -= !e->stuck;
    if (e->user) {
        holders_remove(e->user);
        e->user->ending = NULL;
        e->user->asked_at = 0;
    }
    free(e);
}

static void judge(struct ending *e, const char *what)
{
    struct user *u = e->user;
    double took = u && u->asked_at != 0 ? clock_monotonic() - u->asked_at : 0;
    if (took >= USER_LENGTHY_AFTER) {
        user_is(u, USER_SLOW);
        if (user_may_say(u))
            log_of(LOG_LEVEL_WARNING, LOG_FIELD_user, u->name,
                   "its worker was done, and its process %s %.0f s later: "
                   "did the user stop it?",
                   what, took);
    } else if (u) {
        user_held(u);
    }
}

static void over(struct ending *e)
{
    struct user *u = e->user;
    judge(e, "ended");
    forget(e);
    if (u)
        user_plan(u);
}

/* What it says now is not heard; the end is. */
static void on_readable(struct ev_loop *loop, ev_io *io, int events)
{
    (void)loop, (void)events;
    char unheard[16384];
    struct ending *e = io->data;
    ssize_t n = recv(e->fd, unheard, sizeof unheard, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        over(e);
}

/* Its user gets no other one before it has ended: that would be left behind, too, and the next. The
 * others wait for it no longer. */
static void on_patience(struct ev_loop *loop, ev_timer *t, int events)
{
    (void)loop, (void)events;
    struct ending *e = t->data;
    judge(e, "was still there");
    e->stuck = true;
    if (e->user)
        holders_remove(e->user);
    e->all->n--;
    log_of(LOG_LEVEL_ERROR, LOG_FIELD_user, e->user ? e->user->name : "-",
           "a worker's process does not end: it takes one of the service's process_limit, and the "
           "user waits: does a file system of his hang?");
}

void endings_add(struct endings *es, int fd, struct user *u, bool judged)
{
    struct ending *e = mem_zero(sizeof *e);
    e->all = es;
    e->fd = fd;
    e->user = u;
    if (u) {
        u->ending = e;
        u->asked_at = judged ? 0 : clock_monotonic();
    }
    TAILQ_INSERT_TAIL(&es->list, e, next);
    es->n++;
    (void)shutdown(fd, SHUT_WR); /* where it fails the end is there to be read */
    ev_io_init(&e->rd, on_readable, fd, EV_READ);
    ev_timer_init(&e->patience, on_patience, longest(es->r->config), 0.);
    e->rd.data = e->patience.data = e;
    ev_io_start(es->r->loop, &e->rd);
    ev_now_update(es->r->loop);
    ev_timer_start(es->r->loop, &e->patience);
}

size_t endings_count(const struct endings *es)
{
    return es->n;
}

struct endings *endings_open(struct replicator *r)
{
    struct endings *es = mem_zero(sizeof *es);
    es->r = r;
    TAILQ_INIT(&es->list);
    return es;
}

void endings_close(struct endings *es)
{
    while (!TAILQ_EMPTY(&es->list))
        forget(TAILQ_FIRST(&es->list));
    free(es);
}
