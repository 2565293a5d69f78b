/* lease_end - what was leased comes back: by NACK, because its connection ended, or because its
 * time is over.
 *
 *    RETRY counts an attempt, KEEP does not: the entry waits where it stood, or is delayed.
 *    FATAL, or an attempt that reaches MAXATTEMPTS: to the dead-letter lane; without one it is
 *    removed. An entry that was revoked while it was leased is removed, whatever ends its lease.
 *    One whose time to expire has come goes the way of FATAL. */
#ifndef DOVELANE_REDIS_MODULE_KEYSPACE_LEASE_END_H
#define DOVELANE_REDIS_MODULE_KEYSPACE_LEASE_END_H

#include "redis-module/keyspace/value.h"
#include "redis-module/propagate/effect.h"

enum lease_end_how { LEASE_END_RETRY, LEASE_END_KEEP, LEASE_END_FATAL };

struct lease_end {
    RedisModuleCtx *ctx;
    struct lane_key *key; /* open for writing */
    enum lease_end_how how;
    int64_t delay; /* milliseconds, 0: waits at once */
    uint64_t given, dead;
    /* collected for the end */
    struct ranges back, gone;
    uint64_t *dying; /* they wait until the end, then go to the dead-letter lane */
    size_t ndying, room;
};

void lease_end_entry(struct lease_end *, const struct lane_entry *); /* a leased one */
void lease_end_finish(struct lease_end *); /* moves the dead ones and sends the effects */

/* What a lease of a lost connection still holds, up to so many entries; returns how many they
 * were. */
uint64_t lease_end_lost(RedisModuleCtx *, struct lane_lease *, uint64_t most);

/* What expires goes; what is due waits; what is leased for too long comes back. */
void lease_end_overdue(RedisModuleCtx *, struct lane_key *);

#endif
