/* sched - see sched.h. */
#include "sched.h"

#include <stdlib.h>

#include "clock.h"
#include "metrics.h"
#include "worker.h"

#define OTHER_WAY 16 /* every so many picks begin with the last queue */

TAILQ_HEAD(user_queue, user);

struct sched {
    struct replicator *r;
    struct user_queue queue[USER_CLASSES], slow;
    size_t waiting, nslow; /* in queue, in slow */
    unsigned picks;
};

struct sched *sched_open(struct replicator *r)
{
    struct sched *s = mem_zero(sizeof *s);
    s->r = r;
    for (int c = 0; c < USER_CLASSES; c++)
        TAILQ_INIT(&s->queue[c]);
    TAILQ_INIT(&s->slow);
    return s;
}

void sched_close(struct sched *s)
{
    free(s);
}

static void say_waiting(const struct sched *s)
{
    metric_set(replicator_waiting, (long long)(s->waiting + s->nslow));
}

void sched_dequeue(struct sched *s, struct user *u)
{
    if (u->queued == USER_NOTHING)
        return;
    TAILQ_REMOVE(u->slow ? &s->slow : &s->queue[u->queued], u, in_queue);
    (*(u->slow ? &s->nslow : &s->waiting))--;
    u->queued = USER_NOTHING;
    say_waiting(s);
}

void sched_queue(struct sched *s, struct user *u, enum user_class c)
{
    if (u->queued == c)
        return;
    sched_dequeue(s, u);
    if (c == USER_NOTHING)
        return;
    TAILQ_INSERT_TAIL(u->slow ? &s->slow : &s->queue[c], u, in_queue);
    (*(u->slow ? &s->nslow : &s->waiting))++;
    u->queued = c;
    say_waiting(s);
}

static bool may_be_slow(const struct sched *s)
{
    return s->nslow > 0 && !workers_slow(s->r->workers);
}

size_t sched_waiting(const struct sched *s)
{
    return s->waiting + (may_be_slow(s) ? 1 : 0);
}

static struct user *pick(struct sched *s)
{
    bool other_way = (s->picks + 1) % OTHER_WAY == 0;
    struct user *slow = may_be_slow(s) ? TAILQ_FIRST(&s->slow) : NULL;
    if (slow && other_way)
        return slow;
    for (int i = 0; i < USER_CLASSES; i++) {
        struct user *u = TAILQ_FIRST(&s->queue[other_way ? USER_CLASSES - 1 - i : i]);
        if (u)
            return u;
    }
    return slow;
}

void sched_run(struct sched *s)
{
    struct workers *ws = s->r->workers;
    size_t coming = workers_go_on(ws, sched_waiting(s));
    while (sched_waiting(s) > coming && !s->r->stopping) {
        struct user *u = pick(s);
        struct worker *w = workers_free(ws, u);
        if (!w)
            break;
        s->picks++;
        sched_dequeue(s, u);
        worker_open_user(w, u);
    }
    /* Those who still wait need workers that are warm with somebody else. */
    while (sched_waiting(s) > coming && !s->r->stopping && workers_release_warm(ws))
        coming++;
}
