#include "relay/cluster/takeover_rules.h"

#include <stdlib.h>

#include "lib/base/assert.h"

#define FLAP 600. /* seconds in which returns count as one restless time */
#define RETURNS 16

struct role {
    struct liveness *l;
    size_t n, self;
    struct role_times times;
    enum node_state role;
    bool *taken;
    double entered; /* the role */
    double settle_from;
    double began[RETURNS]; /* the last returns, latest last */
    size_t nbegan;
    unsigned turn;
    const char *why;
    bool told; /* that it returns */
};

struct role *role_open(struct liveness *l, size_t n, size_t self, struct role_times times,
                       double now)
{
    struct role *d = mem_zero(sizeof *d);
    d->l = l;
    d->n = n;
    d->self = self;
    d->times = times;
    d->taken = mem_zero((n + 1) * sizeof *d->taken);
    role_return(d, "start", now);
    return d;
}

void role_free(struct role *d)
{
    if (!d)
        return;
    free(d->taken);
    free(d);
}

void role_add(struct role *d)
{
    d->taken = mem_grow(d->taken, (d->n + 2) * sizeof *d->taken);
    d->taken[d->n++] = false;
}

/* ---- small questions ---- */

enum node_state role_state(const struct role *d)
{
    return d->role;
}

const bool *role_taken(const struct role *d)
{
    return d->taken;
}

double role_since(const struct role *d, double now)
{
    return now - d->entered;
}

unsigned role_turn(const struct role *d)
{
    return d->turn;
}

/* Whoever placed mail here until it heard that we return, a beat at most, has decided when this
 * is over, too. */
bool role_settled(const struct role *d, double now)
{
    return now - d->settle_from >= d->times.settle + 2 * d->times.beat;
}

double role_damped(const struct role *d)
{
    double wait = 0.;
    size_t recent = 0;
    for (size_t i = 0; i < d->nbegan; i++)
        recent += d->began[d->nbegan - 1] - d->began[i] < FLAP;
    for (size_t i = 1; i < recent && wait < d->times.restless_most; i++)
        wait = wait > 0. ? 2 * wait : d->times.dead_after;
    return wait < d->times.restless_most ? wait : d->times.restless_most;
}

static enum node_state state(const struct role *d, const struct role_view *v, int node)
{
    return node < 0 || v->called_dead[node] ? STATE_SILENT
                                            : liveness_state(d->l, (size_t)node, v->now);
}

static bool hears_somebody(const struct role *d, const struct role_view *v)
{
    for (size_t j = 0; j < d->n; j++)
        if (j != d->self && state(d, v, (int)j) > STATE_SILENT)
            return true;
    return false;
}

static bool not_alone(const struct role *d, const struct role_view *v)
{
    bool others = false;
    for (size_t j = 0; j < d->n; j++)
        others |= j != d->self && !v->called_dead[j];
    return !others || hears_somebody(d, v) ||
           liveness_silence_of_all(d->l, v->now) >= d->times.alone_wait;
}

static bool others_hear(const struct role *d, const struct role_view *v, int node)
{
    return node >= 0 && !v->called_dead[node] && liveness_others_hear(d->l, (size_t)node, v->now);
}

/* ---- changing the role ---- */

static void enter(struct role *d, enum node_state role, double now)
{
    d->role = role;
    d->entered = now;
    liveness_forget(d->l, now);
}

void role_return(struct role *d, const char *why, double now)
{
    if (d->role == STATE_LEAVING)
        return;
    /* a server that stood still and then turns out to be another one is one return */
    bool anew = d->role != STATE_RETURNING || !d->nbegan;
    enter(d, STATE_RETURNING, now);
    for (size_t j = 0; j < d->n; j++)
        d->taken[j] = false;
    d->settle_from = now;
    d->why = why;
    d->told = false;
    d->turn++;
    if (!anew) {
        d->began[d->nbegan - 1] = now;
        return;
    }
    if (d->nbegan == RETURNS) {
        for (size_t i = 1; i < RETURNS; i++)
            d->began[i - 1] = d->began[i];
        d->nbegan--;
    }
    d->began[d->nbegan++] = now;
}

void role_up(struct role *d, double now)
{
    d->settle_from = now;
}

void role_leave(struct role *d, double now)
{
    d->role = STATE_LEAVING;
    d->entered = now;
}

/* ---- alive ---- */

/* Who was found dead by somebody who lives must not go on as if nothing were: both would
 * deliver. */
static bool found_taken(const struct role *d, const struct role_view *v)
{
    for (size_t j = 0; j < d->n; j++)
        if (j != d->self && state(d, v, (int)j) == STATE_ALIVE &&
            liveness_has_taken_over(d->l, j, d->self))
            return true;
    return false;
}

/* Not whole, and another owner is there to become whole with. */
static bool lost(const struct role *d, const struct role_view *v)
{
    for (size_t i = 0; i < v->nsets; i++) {
        if (!v->set[i].whole && !v->set[i].n)
            return true; /* copies = 1: there is nobody to wait for */
        for (size_t k = 0; !v->set[i].whole && k < v->set[i].n; k++)
            if (state(d, v, v->set[i].other[k]) > STATE_SILENT ||
                others_hear(d, v, v->set[i].other[k]))
                return true;
    }
    return false;
}

static struct role_event look_alive(struct role *d, const struct role_view *v)
{
    bool may = not_alone(d, v);
    for (size_t j = 0; j < d->n; j++) {
        if (j == d->self)
            continue;
        bool dead = v->called_dead[j] || (liveness_dead(d->l, j, v->now) && may);
        if (!d->taken[j] && dead) {
            ASSERT(j != d->self && d->role == STATE_ALIVE);
            d->taken[j] = true;
            return (struct role_event){ROLE_TOOK, j, NULL};
        }
        if (d->taken[j] && state(d, v, (int)j) == STATE_READY && !v->busy[j]) {
            d->taken[j] = false;
            return (struct role_event){ROLE_GAVE, j, NULL};
        }
    }
    return (struct role_event){ROLE_SAME};
}

/* ---- returning ---- */

/* Whether this set is no reason any more to stay away: it was compared; or there is nobody to
 * compare with, for a whole node nobody whole that it can reach, for one that is not nobody at
 * all that anyone hears. */
static bool set_done(const struct role *d, const struct role_view *v, const struct role_set *s)
{
    if (s->whole && s->checked)
        return true;
    for (size_t k = 0; k < s->n; k++) {
        enum node_state h = state(d, v, s->other[k]);
        bool gone = h == STATE_SILENT;
        if (s->whole && !(gone || s->reach[k] == REACH_NOT_WHOLE ||
                          (s->reach[k] == REACH_NOT && h != STATE_UNKNOWN)))
            return false;
        if (!s->whole && (!gone || others_hear(d, v, s->other[k])))
            return false;
    }
    return s->whole || not_alone(d, v);
}

static struct role_event look_returning(struct role *d, const struct role_view *v)
{
    if (!v->own_up || v->in_flight || v->comparing || !role_settled(d, v->now) ||
        role_since(d, v->now) < role_damped(d))
        return (struct role_event){ROLE_SAME};
    for (size_t i = 0; i < v->nsets; i++)
        if (!set_done(d, v, &v->set[i]))
            return (struct role_event){ROLE_SAME};
    ASSERT(d->role == STATE_RETURNING && !v->in_flight);
    enter(d, STATE_READY, v->now);
    return (struct role_event){ROLE_READY};
}

static bool waits(const struct role *d, const struct role_view *v)
{
    for (size_t j = 0; j < d->n; j++) {
        enum node_state h = j == d->self ? STATE_SILENT : state(d, v, (int)j);
        if (h == STATE_UNKNOWN)
            return true;
        if (h == STATE_ALIVE && (liveness_has_taken_over(d->l, j, d->self) ||
                                 liveness_reported_state(d->l, j, d->self) != STATE_READY))
            return true;
    }
    return false;
}

static struct role_event look_ready(struct role *d, const struct role_view *v)
{
    bool over = role_since(d, v->now) >= d->times.handover_wait;
    if (!v->own_up || (waits(d, v) && !over))
        return (struct role_event){ROLE_SAME};
    bool hurried = waits(d, v);
    ASSERT(d->role == STATE_READY && v->own_up);
    enter(d, STATE_ALIVE, v->now);
    return (struct role_event){ROLE_ALIVE, 0, hurried ? "handover_wait is over" : NULL};
}

struct role_event role_next(struct role *d, const struct role_view *v)
{
    if (d->role == STATE_LEAVING)
        return (struct role_event){ROLE_SAME};
    if (d->role == STATE_ALIVE && found_taken(d, v))
        role_return(d, "taken over", v->now);
    else if (d->role == STATE_ALIVE && lost(d, v))
        role_return(d, "not whole", v->now);
    if (!d->told) {
        d->told = true;
        return (struct role_event){ROLE_RETURNS, 0, d->why};
    }
    return d->role == STATE_ALIVE   ? look_alive(d, v)
           : d->role == STATE_READY ? look_ready(d, v)
                                    : look_returning(d, v);
}

bool role_serves(const struct role *d, const int *before, size_t n, const bool *called_dead,
                 double now)
{
    if (d->role != STATE_ALIVE || called_dead[d->self])
        return false;
    ASSERT(!d->taken[d->self]);
    for (size_t i = 0; i < n; i++) {
        if (before[i] < 0 || called_dead[before[i]])
            continue;
        enum node_state h = liveness_state(d->l, (size_t)before[i], now);
        if (!d->taken[before[i]] || (h != STATE_SILENT && h != STATE_RETURNING))
            return false;
    }
    return true;
}
