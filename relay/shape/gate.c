#include "relay/shape/gate.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "relay/shape/gate_work.h"
#include "relay/tables/waiting_line.h"

#define IN_HAND 2.     /* seconds that a rate's mails in hand take to leave */
#define LOOK_AGAIN 60. /* seconds: a plan goes on with the days */
#define A_MOMENT 0.001 /* seconds behind the end of something, so that it is over by then */

static struct destination *head_of(struct destination *d)
{
    return d->head ? d->head : d;
}

/* ---- what all hosts of a next hop have together ---- */

struct totals {
    size_t queued, connected, carrying;
};

static struct totals totals(struct destination *head)
{
    struct destination *at;
    struct totals all = {0};
    for (unsigned n = 0; (at = destination_hop(head, n)); n++) {
        all.queued += at->queued;
        all.connected += at->nready + at->nopening;
        all.carrying += at->ncarrying;
    }
    return all;
}

/* ---- the rate ---- */

static void bucket_need(void *arg, struct bucket_need *out)
{
    struct gate *g = arg;
    struct destination *at;
    *out = (struct bucket_need){0};
    if (g->shut)
        return;
    out->mails = totals(g->head).queued;
    for (unsigned n = 0; g->shape.byte_rate > 0. && (at = destination_hop(g->head, n)); n++)
        out->bytes += (double)waiting_bytes(at);
}

static void bucket_filled(void *arg)
{
    struct gate *g = arg;
    g->head->relay->shape->calls->wake(g->head);
}

static const struct bucket_calls bucket_calls = {bucket_need, bucket_filled};

static void set_rates(struct gate *g)
{
    const struct shape *s = &g->shape;
    struct relay *r = g->head->relay;
    double factor, burst = s->burst, rate = shape_rate_at(s, clock_wall(), &burst);
    if (!backoff_now(g, BACKOFF_RATE, &factor))
        factor = 1.;
    struct bucket_rates rates = {rate * factor, burst, s->byte_rate * factor, s->byte_burst};
    if (!g->bucket && rates.rate <= 0. && rates.byte_rate <= 0.)
        return;
    if (!g->bucket)
        g->bucket = bucket_open(r, r->shape->arbiters, g->head->name, &bucket_calls, g);
    bucket_set(g->bucket, &rates);
}

static bool is_rated(const struct gate *g)
{
    return g->shape.rate > 0. || g->shape.byte_rate > 0. || g->shape.warmup.n;
}

/* ---- connections ---- */

/* What the whole next hop may have here: by the group's number, and by what it asked for. */
static size_t connections_most(const struct gate *g)
{
    double value, most;
    size_t may = slots_may(g->slots);
    if (!backoff_now(g, BACKOFF_CONNECTIONS, &value) &&
        (is_rated(g) || !backoff_now(g, BACKOFF_RATE, &value)))
        return may;
    most = (double)destination_concurrency(g->head);
    most = value < 1. ? (most < (double)may ? most : (double)may) * value : value;
    if (most < 1.)
        most = 1.;
    return most < (double)may ? (size_t)most : may;
}

static bool slots_need(void *arg, size_t *held_r, size_t *wanted_r)
{
    struct gate *g = arg;
    struct totals all = totals(g->head);
    size_t held = all.connected, wanted = all.queued + all.carrying,
           most = destination_concurrency(g->head);
    wanted = wanted > held ? wanted : held;
    *held_r = held;
    *wanted_r = g->shut ? 0 : wanted < most ? wanted : most;
    return held || !TAILQ_EMPTY(&g->head->lanes);
}

static void slots_changed(void *arg)
{
    struct gate *g = arg;
    g->head->relay->shape->calls->wake(g->head);
}

static void slots_backoff(void *arg, enum backoff_kind kind, double value, int64_t left)
{
    struct gate *g = arg;
    if (!backoff_begin(g, kind, value, left))
        return;
    log_info("next hop %s is backed off from for %lld s: another relay of the group was told so",
             g->head->name, (long long)left / 1000);
    gate_refresh(g->head);
}

static const struct slots_calls slots_calls = {slots_need, slots_changed, slots_backoff};

static void set_slots(struct gate *g)
{
    struct relay *r = g->head->relay;
    if (!g->slots && !g->shape.connections && !g->shape.backoff)
        return;
    if (!g->slots)
        g->slots = slots_open(r, r->shape->arbiters, g->head->name, &slots_calls, g);
    slots_set(g->slots, g->shape.connections, g->shape.backoff);
}

/* ---- suspended ---- */

static bool is_shut(const struct gate *g, const char **why)
{
    double value;
    *why = *g->shape.suspended_why ? g->shape.suspended_why : "an admin suspended it";
    if (shape_suspended_at(&g->shape, clock_wall()))
        return true;
    *why = "the next hop asked for that in a reply (backoff)";
    return backoff_now(g, BACKOFF_SUSPEND, &value);
}

static void set_shut(struct gate *g)
{
    const char *why;
    bool shut = is_shut(g, &why), was = g->shut,
         suspended = shape_suspended_at(&g->shape, clock_wall());
    if (g->suspended && !suspended)
        g->resumed = clock_monotonic();
    g->suspended = suspended;
    if (shut)
        snprintf(g->why, sizeof g->why, "%s", why);
    if (shut == was)
        return;
    g->shut = shut;
    if (shut)
        log_info("next hop %s is suspended: %s", g->head->name, g->why);
    else
        log_info("next hop %s is not suspended any more", g->head->name);
    if (shut)
        g->head->relay->shape->calls->let_go(g->head);
}

/* ---- by time ---- */

static void on_change(struct ev_loop *loop, ev_timer *t, int events)
{
    struct gate *g = t->data;
    gate_refresh(g->head);
}

static void set_change(struct gate *g)
{
    double next = backoff_next_end(g);
    const struct shape *s = &g->shape;
    if (s->suspended && s->suspended_until) {
        double left = (double)(s->suspended_until - clock_wall()) / 1e6;
        if (left > 0. && (next <= 0. || left < next))
            next = left;
    }
    if (s->warmup.n && (next <= 0. || next > LOOK_AGAIN))
        next = LOOK_AGAIN;
    ev_timer_stop(g->head->relay->loop, &g->change);
    if (next <= 0.)
        return;
    ev_timer_set(&g->change, (next < LOOK_AGAIN ? next : LOOK_AGAIN) + A_MOMENT, 0.);
    ev_timer_start(g->head->relay->loop, &g->change);
}

void gate_refresh(struct destination *head)
{
    struct gate *g = head->gate;
    struct shape_control *c = head->relay->shape;
    if (!g)
        return;
    shape_of(c->shapes, head->name, NULL, &g->shape);
    head->concurrency = (size_t)g->shape.relay_connections;
    set_rates(g);
    set_slots(g);
    set_shut(g);
    set_change(g);
    c->calls->wake(head);
}

/* ---- begin and end ---- */

static struct gate *open_gate(struct destination *head)
{
    struct gate *g = head->gate = mem_zero(sizeof *g);
    g->head = head;
    ev_timer_init(&g->change, on_change, 0., 0.);
    g->change.data = g;
    shape_of(head->relay->shape->shapes, head->name, NULL, &g->shape);
    gate_refresh(head);
    return g;
}

struct gate *gate_of(struct destination *d)
{
    struct destination *head = head_of(d);
    if (!d->relay->shape->any || head->own)
        return NULL;
    return head->gate ? head->gate : open_gate(head);
}

void gate_forget(struct destination *d)
{
    struct gate *g = d->gate;
    if (!g)
        return;
    ev_timer_stop(d->relay->loop, &g->change);
    if (g->bucket)
        bucket_close(g->bucket);
    if (g->slots)
        slots_close(g->slots);
    free(g);
    d->gate = NULL;
}

/* ---- interface ---- */

bool gate_suspended(struct destination *d, const char **why_r)
{
    struct gate *g = gate_of(d);
    if (why_r)
        *why_r = g && g->shut ? g->why : NULL;
    return g && g->shut;
}

/* By the rules, which outlast this relay and are known to all others. A time that is still to come
 * is of a clock that was set back: it has just been. */
static bool rules_resumed_within(const struct gate *g, int64_t milliseconds)
{
    int64_t wall = clock_wall(), at = shape_resumed_at(&g->shape, wall);
    return at && (wall - at) / 1000 < milliseconds;
}

bool gate_unsuspended_for(const struct destination *d, int64_t milliseconds)
{
    const struct gate *g = d->gate;
    if (!g)
        return true;
    bool seen = g->resumed > 0. && clock_monotonic() - g->resumed < (double)milliseconds / 1000.;
    return !g->suspended && !seen && !rules_resumed_within(g, milliseconds);
}

bool gate_opens(struct destination *d)
{
    struct gate *g = gate_of(d);
    if (!g)
        return true;
    if (g->slots)
        slots_want(g->slots);
    return !g->shut && (!g->bucket || bucket_opens(g->bucket));
}

bool gate_opens_soon(struct destination *d)
{
    struct gate *g = gate_of(d);
    return !g || !g->bucket || bucket_opens_soon(g->bucket);
}

void gate_passed(struct destination *d, const struct smtp_mail *m)
{
    struct gate *g = gate_of(d);
    if (g && g->bucket)
        bucket_passed(g->bucket, m->body_len);
}

size_t gate_connections(struct destination *d, size_t most)
{
    struct gate *g = gate_of(d);
    if (!g || !g->slots)
        return most;
    slots_want(g->slots);
    size_t all = connections_most(g), own = d->nready + d->nopening,
           others = totals(g->head).connected - own;
    all = all > others ? all - others : 0;
    return all < most ? all : most;
}

bool gate_is_crowded(struct destination *d)
{
    struct gate *g = gate_of(d);
    return g && g->slots && totals(g->head).connected > connections_most(g);
}

unsigned gate_connection_mails(struct destination *d)
{
    struct gate *g = gate_of(d);
    int64_t most = g ? g->shape.connection_mails : 0;
    return (unsigned)(most ? most : d->relay->config->connection_reuse);
}

double gate_grows_by(struct destination *d, double window)
{
    struct gate *g = gate_of(d);
    return g && g->shape.has_feedback ? shape_feedback(&g->shape.positive, window) : 1. / window;
}

double gate_shrinks_by(struct destination *d, double window)
{
    struct gate *g = gate_of(d);
    return g && g->shape.has_feedback ? shape_feedback(&g->shape.negative, window) : 1.;
}

size_t gate_in_hand(struct destination *d, size_t most)
{
    struct gate *g = gate_of(d);
    double burst, rate;
    if (!g)
        return most;
    if (g->shut)
        return 0;
    rate = shape_rate_at(&g->shape, clock_wall(), &burst);
    if (rate <= 0. || rate * IN_HAND >= (double)most)
        return most;
    return rate * IN_HAND < 1. ? 1 : (size_t)(rate * IN_HAND);
}
