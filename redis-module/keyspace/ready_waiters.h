/* ready_waiters - the clients that wait in LANE.READY. */
#ifndef DOVELANE_REDIS_MODULE_KEYSPACE_READY_WAITERS_H
#define DOVELANE_REDIS_MODULE_KEYSPACE_READY_WAITERS_H

#include "redis-module/server/server.h"

void ready_wait(RedisModuleBlockedClient *);

/* Its time is over, or it went: it waits no more. */
void ready_leave(RedisModuleBlockedClient *);

/* A lane became ready: answers all clients that wait. */
void ready_wake(void);

#endif
