/* loss_log - a line in the server's log for entries that go away without having been acknowledged.
 * Their lane was deleted, expired, overwritten, flushed or reset. Somebody will ask where the mail
 * went. */
#ifndef DOVELANE_REDIS_MODULE_KEYSPACE_LOSS_LOG_H
#define DOVELANE_REDIS_MODULE_KEYSPACE_LOSS_LOG_H

#include "redis-module/keyspace/value.h"

/* The server unlinks a value: because the key is deleted or overwritten, or to put it elsewhere
 * (RENAME, MOVE). Which of these, it says later: by an event, by attaching the value again, or
 * not at all. */
void loss_log_note(const struct value *);
void loss_log_cancel(const struct value *);
void loss_log_event(RedisModuleCtx *, const char *event, RedisModuleString *key);
void loss_log_flush(RedisModuleCtx *); /* what nothing was said about was overwritten */

/* db -1: all */
void loss_log_all(RedisModuleCtx *, int db, uint64_t lanes, uint64_t entries, uint64_t bytes);
void loss_log_reset(RedisModuleCtx *, const struct value *, uint64_t entries, uint64_t bytes);

#endif
