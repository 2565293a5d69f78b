/* store - stores one entry in a lane for PUSH and PUT. What is held or was removed is not stored
 * again, and memory is looked at. */
#ifndef DOVELANE_REDIS_MODULE_KEYSPACE_STORE_H
#define DOVELANE_REDIS_MODULE_KEYSPACE_STORE_H

#include "redis-module/keyspace/sessions.h"
#include "redis-module/keyspace/value.h"

struct store {
    RedisModuleCtx *ctx;
    int64_t now, delay, expire; /* milliseconds; delay 0: waits at once; expire 0: never */
    int flags;                  /* of the context */
    uint64_t unlooked;          /* bytes stored since memory was looked at */
};

void store_begin(struct store *, RedisModuleCtx *, int64_t delay, int64_t expire);

/* The entry's sequence, or one of enum answer. The key is open for writing; lane: its
 * name_hash(). The entry has id, meta and body; when it was born and is due is filled in. */
int64_t store_entry(struct store *, struct lane_key *, uint64_t lane, struct lane_new *);

/* Stores entries that have a body and a meta only, as far as that can be done at once. Returns how
 * many, often 0, and the first one's sequence. Asks no bound and no id: the next one is for
 * store_entry. */
size_t store_plain(struct store *, const struct lane_key *, const struct lane_data *, size_t n,
                   uint64_t *seq_r);

/* As PUSH and PUT answer: the sequence, or a word. */
int store_reply(RedisModuleCtx *, int64_t answer);

#endif
