/* lease_holder - the connections that hold leases. A lease ends with its connection. */
#ifndef DOVELANE_REDIS_MODULE_KEYSPACE_LEASE_HOLDER_H
#define DOVELANE_REDIS_MODULE_KEYSPACE_LEASE_HOLDER_H

#include "redis-module/server/server.h"

/* The holder of a client, made when there is none. */
struct lane_holder *lease_holder_of(uint64_t client);

/* The client's connection is gone. Its leases end at the next lease_holders_settle: the event
 * may come in the middle of another command. */
void lease_holder_gone(uint64_t client);

/* Ends the leases of the connections that are gone. Every command that writes to lanes begins
 * with it, and the timer. What is left of a connection with very many of them follows at once,
 * but bit by bit. */
void lease_holders_settle(RedisModuleCtx *ctx);
bool lease_holders_gone(void); /* there is something left to do for it */

#endif
