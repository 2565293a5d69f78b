/* clock - libev's own clock follows the wall clock and its jumps; waits and ages of ours must
 * not. */
#ifndef DOVELANE_LIB_BASE_CLOCK_H
#define DOVELANE_LIB_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline double clock_seconds(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Seconds since some fixed point, without the time the host was suspended: for how long we have
 * worked or waited. libev's timers go by it, too. */
static inline double clock_monotonic(void)
{
    return clock_seconds(CLOCK_MONOTONIC);
}

/* The same, with it: for what goes on elsewhere meanwhile. So is the age of what another host said,
 * a lease, a promise, and how long somebody waits for us. */
static inline double clock_boottime(void)
{
    return clock_seconds(CLOCK_BOOTTIME);
}

/* Microseconds since 1970: for what other hosts compare. */
static inline int64_t clock_wall(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

#endif
