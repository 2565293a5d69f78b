/* backoff_state - what a next hop asked for, and for how long that counts. A rule that takes backoff
 * back ends it at once. */
#include "lib/base/clock.h"
#include "relay/shape/gate_work.h"

bool backoff_now(const struct gate *g, enum backoff_kind kind, double *value_r)
{
    *value_r = g->backoff[kind].value;
    return g->shape.backoff && g->backoff[kind].until > clock_monotonic();
}

bool backoff_begin(struct gate *g, enum backoff_kind kind, double value, int64_t milliseconds)
{
    double was, now = clock_monotonic(), until = now + (double)milliseconds / 1000.;
    bool counted = backoff_now(g, kind, &was);
    g->backoff[kind].value = counted && was < value ? was : value;
    if (g->backoff[kind].until < until)
        g->backoff[kind].until = until;
    return !counted;
}

double backoff_next_end(const struct gate *g)
{
    double now = clock_monotonic(), next = 0.;
    for (int i = 0; i < BACKOFF_KINDS; i++) {
        double left = g->backoff[i].until - now;
        if (left > 0. && (next <= 0. || left < next))
            next = left;
    }
    return next;
}
