/* lane_timer - when a lane wants to be looked at by itself: a delay is due, or a lease is over.
 * One heap over all lanes, one timer. */
#ifndef DOVELANE_REDIS_MODULE_KEYSPACE_LANE_TIMER_H
#define DOVELANE_REDIS_MODULE_KEYSPACE_LANE_TIMER_H

#include "redis-module/keyspace/value.h"

/* Sets, moves or (LANE_NEVER) takes away a value's time. */
void lane_timer_set(struct value *, int64_t when);

/* Looks at the connections that ended and at what is due, on the timer's next turn at the
 * latest. */
void lane_timer_soon(void);

#endif
