/* ack - removing by id, as PUSH's ACK parts and LANE.ACK do. */
#ifndef DOVELANE_REDIS_MODULE_COMMANDS_ACK_H
#define DOVELANE_REDIS_MODULE_COMMANDS_ACK_H

#include <stdbool.h>

#include "redis-module/keyspace/value.h"
#include "redis-module/propagate/effect.h"
#include "redis-module/commands/selector.h"

struct acked {
    uint64_t removed, absent;
};

/* Acknowledges in an open lane key, which may be empty; sends the effect. Ids that are not held are
 * remembered. */
struct acked ack_in(RedisModuleCtx *, struct lane_key *, const struct selector *);

/* Whether the caller may do LANE.ACK with this key: what only adds entries must not be able to
 * remove others' by an ACK part. False: the error is answered. */
bool ack_allowed(RedisModuleCtx *, RedisModuleString *key);

#endif
