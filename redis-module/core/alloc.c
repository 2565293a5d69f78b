/* alloc - a lane's memory: what its environment gives, counted. */
#include "redis-module/core/internal.h"

void *lane_alloc(struct lane *lane, size_t n)
{
    void *p = lane->env->alloc(n);
    if (p)
        lane->memory += n;
    return p;
}

void lane_release(struct lane *lane, void *p, size_t n)
{
    if (!p)
        return;
    LANE_ASSERT(lane->memory >= n);
    lane->memory -= n;
    lane->env->free(p);
}
