/* server - what the module knows of the server it is loaded in: settings, totals, clocks. One
 * thread only. */
#ifndef DOVELANE_REDIS_MODULE_SERVER_SERVER_H
#define DOVELANE_REDIS_MODULE_SERVER_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "redis-module/core/lane.h"
#include "redis-module/server/redisapi.h"

#define GRAMMAR_VERSION 1
#define ID_LEN LANE_ID_LEN

/* The longest time in a command: a year of milliseconds. Keeps sums of times far from the end of
 * their type.
 */
#define TIME_MAX 31536000000LL

struct server {
    struct lane_env env;
    RedisModuleType *type;
    RedisModuleCtx *ctx; /* for timers and the log only, where no command's context is at hand */

    /* settings, see config.c */
    char *node;
    long long settle_ms, lease_ms, max_sessions;

    /* totals over all lanes of all databases */
    uint64_t lanes, entries, bytes, leased;

    uint64_t leases;   /* the number of the last lease */
    int64_t loaded_at; /* now_ms() when a file, or a primary's data, was loaded; 0 when none was */

    bool streams; /* there may be somebody to whom effects go, see effect.h */
};

extern struct server server;

void server_start(RedisModuleCtx *ctx);
bool on_main_thread(void);

/* The server's loop has woken, and is about to sleep. Between the two one reading of the clock
 * serves all commands; outside of turns (while a file is loaded) each gets its own. */
void turn_begins(void);
void turn_ends(void);

/* Milliseconds since the host's boot, standing still included: what leases, delays, ages and
 * `settle` are measured with. */
int64_t now_ms(void);

/* The context's flags as far as they speak of memory (MAXMEMORY, EVICT, OOM); without a limit
 * asked once a turn. */
int memory_flags(RedisModuleCtx *);

/* Milliseconds of the wall clock: only ever written beside a duration, to know how long a server
 * was down. */
int64_t wall_ms(void);

/* Memory that ends the server when there is none left, as Redis does itself. */
void *must_alloc(size_t);
void *must_grow(void *, size_t old, size_t size);

/* Frees a lane that nobody sees any more, on another thread when it is large. */
void free_aside(struct lane *);

/* While on, lanes take their memory so, too: for effects, which a replica cannot refuse. */
void server_must_store(bool on);

static inline bool is_replica(RedisModuleCtx *ctx)
{
    return RedisModule_GetContextFlags(ctx) & REDISMODULE_CTX_FLAGS_SLAVE;
}

static inline bool over_memory(RedisModuleCtx *ctx)
{
    return RedisModule_GetContextFlags(ctx) & REDISMODULE_CTX_FLAGS_OOM;
}

/* A blocking call would get an error from the server here, and go on. */
static inline bool may_block(RedisModuleCtx *ctx)
{
    return !(RedisModule_GetContextFlags(ctx) &
             (REDISMODULE_CTX_FLAGS_MULTI | REDISMODULE_CTX_FLAGS_LUA |
              REDISMODULE_CTX_FLAGS_DENY_BLOCKING));
}

#endif
