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
    struct user_queue queue[USER_CLASSES];
    size_t waiting;
    unsigned picks;
};

struct sched *sched_open(struct replicator *r)
{
    struct sched *s = mem_zero(sizeof *s);
    s->r = r;
    for (int c = 0; c < USER_CLASSES; c++)
        TAILQ_INIT(&s->queue[c]);
    return s;
}

void sched_close(struct sched *s)
{
    free(s);
}

void sched_dequeue(struct sched *s, struct user *u)
{
    if (u->queued == USER_NOTHING)
        return;
    TAILQ_REMOVE(&s->queue[u->queued], u, in_queue);
    u->queued = USER_NOTHING;
    metric_set(replicator_waiting, (long long)--s->waiting);
}

void sched_queue(struct sched *s, struct user *u, enum user_class c)
{
    if (u->queued == c)
        return;
    sched_dequeue(s, u);
    if (c == USER_NOTHING)
        return;
    TAILQ_INSERT_TAIL(&s->queue[c], u, in_queue);
    u->queued = c;
    metric_set(replicator_waiting, (long long)++s->waiting);
}

size_t sched_waiting(const struct sched *s)
{
    return s->waiting;
}

static struct user *pick(struct sched *s)
{
    bool other_way = ++s->picks % OTHER_WAY == 0;
    for (int i = 0; i < USER_CLASSES; i++) {
        struct user *u = TAILQ_FIRST(&s->queue[other_way ? USER_CLASSES - 1 - i : i]);
        if (u)
            return u;
    }
    return NULL;
}

void sched_run(struct sched *s)
{
    struct workers *ws = s->r->workers;
    size_t coming = workers_go_on(ws, s->waiting);
    while (s->waiting > coming && !s->r->stopping) {
        struct worker *w = workers_free(ws);
        if (!w)
            break;
        struct user *u = pick(s);
        sched_dequeue(s, u);
        worker_open_user(w, u);
    }
    /* Those who still wait need workers that are warm with somebody else. */
    while (s->waiting > coming && !s->r->stopping && workers_release_warm(ws))
        coming++;
}
