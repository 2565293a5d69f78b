#include "relay/tables/class_shares.h"

#include "lib/base/assert.h"

unsigned class_shares_next(struct class_shares *s, unsigned waiting, const double *weight)
{
    unsigned best = CLASS_SHARES_MOST;
    ASSERT(waiting);
    for (unsigned c = 0; c < CLASS_SHARES_MOST; c++) {
        if (!(waiting >> c & 1))
            continue;
        if (!(s->waited >> c & 1) && s->used[c] < s->now)
            s->used[c] = s->now;
        /* of two with the same time the heavier one */
        if (best == CLASS_SHARES_MOST || s->used[c] < s->used[best] ||
            (s->used[c] <= s->used[best] && weight[c] > weight[best]))
            best = c;
    }
    s->waited = waiting;
    s->now = s->used[best];
    return best;
}

void class_shares_took(struct class_shares *s, unsigned class, const double *weight)
{
    ASSERT(class < CLASS_SHARES_MOST && weight[class] > 0.);
    s->used[class] += 1. / weight[class];
}

size_t class_shares_part(size_t most, unsigned class, unsigned wanting, const double *weight)
{
    double all = weight[class];
    for (unsigned c = 0; c < CLASS_SHARES_MOST; c++)
        if (c != class && wanting >> c & 1)
            all += weight[c];
    size_t part = (size_t)((double)most * weight[class] / all);
    return part || !most ? part : 1;
}
