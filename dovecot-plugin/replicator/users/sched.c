/* sched - puts users into queues and takes the next one. */
#include "dovecot-plugin/replicator/users/sched.h"

#include <stdlib.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/metrics.h"
#include "dovecot-plugin/replicator/users/holders.h"
#include "dovecot-plugin/replicator/users/turn.h"

#define USED_UP_EVERY 4 /* every so many turns are of those who used one up */
/* every so many picks begin with the last queue; and as many with those who wait apart */
#define OTHER_WAY 16

TAILQ_HEAD(user_queue, user);

struct sched {
    struct replicator *r;
    struct user_queue queue[USER_CLASSES], unknown[USER_CLASSES], apart[USER_KINDS];
    struct user_queue in_turn[2]; /* those who used their last turn up: the second */
    size_t waiting, napart[USER_KINDS], nunknown, nin_turn[2]; /* in queue; the others */
    unsigned picks, turns, lookups;
};

struct sched *sched_open(struct replicator *r)
{
    struct sched *s = mem_zero(sizeof *s);
    s->r = r;
    for (int c = 0; c < USER_CLASSES; c++) {
        TAILQ_INIT(&s->queue[c]);
        TAILQ_INIT(&s->unknown[c]);
    }
    for (int k = 0; k < USER_KINDS; k++)
        TAILQ_INIT(&s->apart[k]);
    TAILQ_INIT(&s->in_turn[0]);
    TAILQ_INIT(&s->in_turn[1]);
    return s;
}

void sched_close(struct sched *s)
{
    free(s);
}

/* Where it waits: to be looked up first, for its turn to exchange, apart with all slow or lengthy
 * ones, or in its class. */
static struct user_queue *queue_of(struct sched *s, const struct user *u, enum user_class c,
                                   size_t **n)
{
    enum user_kind k = u->queued_as;
    if (c == USER_IN_TURN && u->credentials != 0) {
        *n = &s->nin_turn[u->turn.used > 0];
        return &s->in_turn[u->turn.used > 0];
    }
    if (c == USER_IN_TURN)
        c = USER_SECOND;
    *n = u->credentials == 0 ? &s->nunknown : k != USER_ORDINARY ? &s->napart[k] : &s->waiting;
    return u->credentials == 0 ? &s->unknown[c] : k != USER_ORDINARY ? &s->apart[k] : &s->queue[c];
}

static void say_waiting(const struct sched *s)
{
    size_t apart = s->napart[USER_LENGTHY] + s->napart[USER_SLOW];
    metric_set(replicator_waiting,
               (long long)(s->waiting + apart + s->nunknown + sched_in_turn(s)));
}

void sched_dequeue(struct sched *s, struct user *u)
{
    size_t *n;
    if (u->queued == USER_NOTHING)
        return;
    struct user_queue *queue = queue_of(s, u, u->queued, &n);
    ASSERT(*n > 0);
    TAILQ_REMOVE(queue, u, in_queue);
    (*n)--;
    u->queued = USER_NOTHING;
    say_waiting(s);
}

void sched_queue(struct sched *s, struct user *u, enum user_class c)
{
    size_t *n;
    if (u->queued == c && (c == USER_NOTHING || u->queued_as == user_kind(u)))
        return;
    sched_dequeue(s, u);
    if (c == USER_NOTHING)
        return;
    u->queued_as = user_kind(u);
    struct user_queue *queue = queue_of(s, u, c, &n);
    struct user *before = TAILQ_LAST(queue, user_queue);
    if (queue == &s->in_turn[0] || queue == &s->in_turn[1]) {
        /* It keeps its place while it is opened for something else. */
        u->turn.waits_since = u->turn.waits_since != 0 ? u->turn.waits_since : clock_monotonic();
        while (before && before->turn.waits_since > u->turn.waits_since)
            before = TAILQ_PREV(before, user_queue, in_queue);
    }
    if (before)
        TAILQ_INSERT_AFTER(queue, before, u, in_queue);
    else
        TAILQ_INSERT_HEAD(queue, u, in_queue);
    (*n)++;
    u->queued = c;
    say_waiting(s);
}

/* Who is not ordinary, and may have a worker now. */
static struct user *first_apart(const struct sched *s, enum user_kind k)
{
    return s->napart[k] > 0 && holders_have_room(s->r, k) ? TAILQ_FIRST(&s->apart[k]) : NULL;
}

/* Whose turn to exchange it is now. Who used one up has one of so many, and what the others
 * leave. */
static struct user *first_in_turn(const struct sched *s)
{
    int first = s->turns % USED_UP_EVERY == USED_UP_EVERY - 1;
    for (int i = 0; i < 2; i++) {
        int used = i == 0 ? first : !first;
        if (s->nin_turn[used] > 0 && turn_is_free(s->r, used))
            return TAILQ_FIRST(&s->in_turn[used]);
    }
    return NULL;
}

bool sched_is_next(const struct sched *s, const struct user *u)
{
    for (int used = 0; used <= (u->turn.used > 0); used++) {
        const struct user *first = TAILQ_FIRST(&s->in_turn[used]);
        bool longer = u->turn.waits_since != 0 && (u->turn.used > 0) == used;
        if (first && !(longer && u->turn.waits_since < first->turn.waits_since))
            return false;
    }
    return true;
}

size_t sched_in_turn(const struct sched *s)
{
    return s->nin_turn[0] + s->nin_turn[1];
}

size_t sched_waiting(const struct sched *s)
{
    return s->waiting + (first_in_turn(s) != NULL) + (first_apart(s, USER_LENGTHY) != NULL) +
           (first_apart(s, USER_SLOW) != NULL);
}

size_t sched_apart(const struct sched *s, enum user_kind k)
{
    return s->napart[k];
}

size_t sched_unknown(const struct sched *s)
{
    return s->nunknown;
}

/* The first of the first class that has any; NULL: none. */
static struct user *first_of(const struct user_queue *queue, const int *order)
{
    for (int i = 0; i < USER_CLASSES; i++) {
        struct user *u = TAILQ_FIRST(&queue[order[i]]);
        if (u)
            return u;
    }
    return NULL;
}

/* In which order the classes come. Whichever is never empty, each of the others has its turns. */
static const int *order(size_t picks)
{
    static const int ordinary[] = {USER_FIRST, USER_SECOND, USER_LAST},
                     last[] = {USER_LAST, USER_SECOND, USER_FIRST},
                     second[] = {USER_SECOND, USER_LAST, USER_FIRST};
    return picks % OTHER_WAY != 0 ? ordinary : picks / OTHER_WAY % 2 ? last : second;
}

struct user *sched_first(const struct sched *s)
{
    size_t picks = s->picks + 1;
    struct user *lengthy = first_apart(s, USER_LENGTHY), *slow = first_apart(s, USER_SLOW),
                *apart = lengthy && (!slow || picks / OTHER_WAY % 2) ? lengthy : slow;
    struct user *in_turn = first_in_turn(s), *u = first_of(s->queue, order(picks));
    if (apart && picks % OTHER_WAY == OTHER_WAY / 2)
        return apart;
    /* Every other pick, but never all workers (turn_is_free). */
    if (in_turn && (!u || picks % 2))
        return in_turn;
    return u ? u : apart;
}

bool sched_take(struct sched *s, struct user *u)
{
    bool in_turn = u->queued == USER_IN_TURN;
    s->picks++;
    s->turns += in_turn;
    sched_dequeue(s, u);
    return in_turn;
}

struct user *sched_take_unknown(struct sched *s)
{
    struct user *u = s->nunknown > 0 ? first_of(s->unknown, order(++s->lookups)) : NULL;
    if (u)
        sched_dequeue(s, u);
    return u;
}
