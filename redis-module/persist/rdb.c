/* rdb - lanes in RDB files, DUMP payloads and full synchronisations.
 *
 *    maxlen, maxbytes, maxattempts, flags (1 strict, 2 created)   unsigned
 *    dead-letter key                                              string
 *    last sequence ever stored, entries                           unsigned
 *    chunks (chunk.h), of about 1 MiB, until all entries are there    strings
 *
 * RESTORE gives anybody a way in here: nothing in a payload is believed. What is allocated is
 * bounded by what was really read, sequences must rise, ids must differ, and what is wrong is
 * logged and refused as a whole.
 */
#include "redis-module/propagate/chunk.h"
#include "redis-module/persist/type.h"

#define FLAG_STRICT 1u
#define FLAG_CREATED 2u

/* Sequences of a client's payload stay below this, so that no payload can use up all numbers. A
 * file may have more: what came by such a payload raised all that came after it. */
#define PAYLOAD_SEQ_MAX ((uint64_t)1 << 62)

void rdb_save(RedisModuleIO *rdb, void *value)
{
    struct value *v = value;
    const struct lane_settings *s = lane_settings(v->lane);
    struct chunk chunk = {0};
    struct lane_entry e;
    /* a child that saves for long has the time of its fork, and what is left of a delay is told
     * with the wall clock's time */
    turn_ends();
    RedisModule_SaveUnsigned(rdb, s->maxlen);
    RedisModule_SaveUnsigned(rdb, s->maxbytes);
    RedisModule_SaveUnsigned(rdb, s->maxattempts);
    RedisModule_SaveUnsigned(rdb, (s->strict ? FLAG_STRICT : 0) | (s->created ? FLAG_CREATED : 0));
    RedisModule_SaveStringBuffer(rdb, v->dead ? v->dead : "", v->dead_len);
    RedisModule_SaveUnsigned(rdb, lane_last_seq(v->lane));
    RedisModule_SaveUnsigned(rdb, lane_counts(v->lane).length);
    for (uint64_t seq = 0; lane_next(v->lane, seq, &e); seq = e.seq + 1) {
        chunk_add(&chunk, &e);
        if (chunk.len >= CHUNK_TARGET) {
            RedisModule_SaveStringBuffer(rdb, chunk.data, chunk.len);
            chunk_reset(&chunk);
        }
    }
    if (chunk.entries)
        RedisModule_SaveStringBuffer(rdb, chunk.data, chunk.len);
    chunk_free(&chunk);
}

static const char *load_settings(RedisModuleIO *rdb, struct value *v)
{
    struct lane_settings *s = lane_settings(v->lane);
    s->maxlen = RedisModule_LoadUnsigned(rdb);
    s->maxbytes = RedisModule_LoadUnsigned(rdb);
    uint64_t attempts = RedisModule_LoadUnsigned(rdb), flags = RedisModule_LoadUnsigned(rdb);
    if (RedisModule_IsIOError(rdb))
        return "the settings are cut off";
    if (s->maxlen > INT64_MAX || s->maxbytes > INT64_MAX || attempts > UINT32_MAX ||
        flags > (FLAG_STRICT | FLAG_CREATED))
        return "a setting is out of range";
    s->maxattempts = (uint32_t)attempts;
    s->strict = flags & FLAG_STRICT;
    s->created = flags & FLAG_CREATED;
    size_t len;
    char *dead = RedisModule_LoadStringBuffer(rdb, &len);
    if (!dead)
        return "the dead-letter key is cut off";
    value_set_dead(v, dead, len);
    RedisModule_Free(dead);
    return NULL;
}

/* RESTORE of few bytes must not take much memory: entries almost without meta and body, each of
 * which stands alone in a block, would be four times as large here. A server that loads its own
 * file, or its primary's, takes what there is. */
#define FREE_MEMORY 65536

static bool by_client(void)
{
    return !(RedisModule_GetContextFlags(server.ctx) &
             (REDISMODULE_CTX_FLAGS_LOADING | REDISMODULE_CTX_FLAGS_SLAVE));
}

static bool too_large(const struct lane *lane, uint64_t bytes)
{
    return lane_counts(lane).memory > 2 * bytes + FREE_MEMORY && by_client();
}

static const char *load_entries(RedisModuleIO *rdb, struct lane *lane)
{
    uint64_t bytes = 0;
    uint64_t last = RedisModule_LoadUnsigned(rdb), left = RedisModule_LoadUnsigned(rdb);
    if (RedisModule_IsIOError(rdb))
        return "the numbers are cut off";
    while (left) {
        size_t len;
        uint64_t n = 0;
        char *chunk = RedisModule_LoadStringBuffer(rdb, &len);
        if (!chunk)
            return "the entries are cut off";
        const char *wrong = chunk_load(lane, chunk, len, &n);
        RedisModule_Free(chunk);
        bytes += len;
        if (!wrong && too_large(lane, bytes))
            wrong = "it would need more than twice its own size of memory";
        if (wrong)
            return wrong;
        if (n > left)
            return "more entries than announced";
        left -= n;
    }
    /* A replica that goes on from here has seen numbers of entries that are gone by now. */
    if ((last > PAYLOAD_SEQ_MAX && by_client()) || !lane_raise_last(lane, last))
        return "a sequence is out of range";
    return NULL;
}

void *rdb_load(RedisModuleIO *rdb, int version)
{
    if (version < 1 || version > RDB_VERSION) {
        RedisModule_LogIOError(
            rdb, "warning",
            "lane: written by version %d, this module reads 1 to %d: load it with the module "
            "that wrote it, or a later one",
            version, RDB_VERSION);
        return NULL;
    }
    turn_ends();
    /* A stretch counter raised by sequences of a payload that is refused in the end comes back:
     * they were never given out. */
    uint64_t stretches = server.env.stretches;
    struct value *v = value_create();
    const char *wrong = v ? load_settings(rdb, v) : "no memory";
    if (!wrong)
        wrong = load_entries(rdb, v->lane);
    if (!wrong && lane_counts(v->lane).length == 0 && !lane_settings(v->lane)->created)
        wrong = "an empty lane that nobody created";
    if (wrong) {
        RedisModule_LogIOError(rdb, "warning", "lane: %s", wrong);
        if (v)
            value_free(v);
        server.env.stretches = stretches;
        return NULL;
    }
    const RedisModuleString *key = RedisModule_GetKeyNameFromIO(rdb);
    if (key) {
        size_t len;
        const char *name = RedisModule_StringPtrLen(key, &len);
        value_attach(v, RedisModule_GetDbIdFromIO(rdb), name, len);
    }
    return v;
}
