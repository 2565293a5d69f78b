/* effect - sending effects. Applying them is in apply.c. */
#include "redis-module/propagate/effect.h"

#include <string.h>

void ranges_add_run(struct ranges *r, uint64_t from, uint64_t to)
{
    if (r->n && r->pair[2 * r->n - 1] + 1 == from) {
        r->pair[2 * r->n - 1] = to;
        return;
    }
    if (r->n == r->room) {
        size_t room = r->room ? 2 * r->room : 8;
        r->pair = must_grow(r->pair, r->n * 2 * sizeof *r->pair, room * 2 * sizeof *r->pair);
        r->room = room;
    }
    r->pair[2 * r->n] = from;
    r->pair[2 * r->n + 1] = to;
    r->n++;
}

void ranges_add(struct ranges *r, uint64_t seq)
{
    ranges_add_run(r, seq, seq);
}

static void ranges_free(struct ranges *r)
{
    if (r->pair)
        RedisModule_Free(r->pair);
    *r = (struct ranges){0};
}

/* The ranges as they are sent, in place. */
static const char *ranges_bytes(struct ranges *r, size_t *len)
{
    for (size_t i = 0; i < 2 * r->n; i++) {
        uint64_t seq = r->pair[i];
        put64((char *)&r->pair[i], seq);
    }
    *len = r->n * 16;
    return (const char *)r->pair;
}

static void put_record(char *p, uint64_t seq, const uint8_t *id, int64_t delay)
{
    put64(p, seq);
    if (id)
        memcpy(p + 8, id, ID_LEN);
    else
        memset(p + 8, 0, ID_LEN);
    put64(p + 24, (uint64_t)delay | (id ? (uint64_t)1 << 63 : 0));
}

void effect_add_entry(struct effect_add *a, uint64_t seq, const uint8_t *id, int64_t delay,
                      RedisModuleString *meta, RedisModuleString *body)
{
    if (a->n == a->room) {
        size_t room = a->room ? 2 * a->room : 16;
        a->records = must_grow(a->records, a->n * 32, room * 32);
        a->data = must_grow(a->data, a->n * 2 * sizeof(void *), room * 2 * sizeof(void *));
        a->room = room;
    }
    put_record(a->records + a->n * 32, seq, id, delay);
    a->data[2 * a->n] = meta;
    a->data[2 * a->n + 1] = body;
    a->n++;
}

void effect_add_send(RedisModuleCtx *ctx, RedisModuleString *key, struct effect_add *a)
{
    if (a->n && server.streams)
        RedisModule_Replicate(ctx, APPLY, "sclbv", key, "ADD", (long long)wall_ms(), a->records,
                              a->n * 32, a->data, a->n * 2);
    a->n = 0;
}

void effect_pack(RedisModuleCtx *ctx, RedisModuleString *key, const int64_t *answer, size_t n,
                 int64_t delay, RedisModuleString *whole, const char *entries, size_t len)
{
    char few[64 * 8], *bytes = few;
    if (!server.streams)
        return;
    if (n > 64)
        bytes = must_alloc(n * 8);
    for (size_t i = 0; i < n; i++)
        put64(bytes + 8 * i, answer[i] > 0 ? (uint64_t)answer[i] : 0);
    if (whole)
        RedisModule_Replicate(ctx, APPLY, "scllbs", key, "PACK", (long long)wall_ms(),
                              (long long)delay, bytes, n * 8, whole);
    else
        RedisModule_Replicate(ctx, APPLY, "scllbb", key, "PACK", (long long)wall_ms(),
                              (long long)delay, bytes, n * 8, entries, len);
    if (bytes != few)
        RedisModule_Free(bytes);
}

void effect_put(RedisModuleCtx *ctx, RedisModuleString *key, uint64_t seq, const uint8_t *id,
                const char *meta, size_t meta_len, RedisModuleString *body)
{
    char record[32];
    if (!server.streams)
        return;
    put_record(record, seq, id, 0);
    RedisModule_Replicate(ctx, APPLY, "sclbbs", key, "ADD", (long long)wall_ms(), record,
                          sizeof record, meta, meta_len, body);
}

void effect_del(RedisModuleCtx *ctx, RedisModuleString *key, struct ranges *r)
{
    size_t len;
    if (r->n && server.streams) {
        const char *bytes = ranges_bytes(r, &len);
        RedisModule_Replicate(ctx, APPLY, "scb", key, "DEL", bytes, len);
    }
    ranges_free(r);
}

void effect_back(RedisModuleCtx *ctx, RedisModuleString *key, struct ranges *r, bool attempt,
                 int64_t delay)
{
    size_t len;
    if (r->n && (attempt || delay) && server.streams) {
        const char *bytes = ranges_bytes(r, &len);
        RedisModule_Replicate(ctx, APPLY, "sclllb", key, "BACK", (long long)attempt,
                              (long long)delay, (long long)wall_ms(), bytes, len);
    }
    ranges_free(r);
}

void effect_load_add(RedisModuleCtx *ctx, RedisModuleString *key, struct chunk *c,
                     const struct lane_entry *e)
{
    if (!server.streams)
        return;
    chunk_add(c, e);
    if (c->len >= CHUNK_TARGET)
        effect_load(ctx, key, c);
}

void effect_load(RedisModuleCtx *ctx, RedisModuleString *key, struct chunk *c)
{
    if (c->entries && server.streams)
        RedisModule_Replicate(ctx, APPLY, "scb", key, "LOAD", c->data, c->len);
    chunk_free(c);
}

void effect_settings(RedisModuleCtx *ctx, RedisModuleString *key, struct lane *lane,
                     const char *dead, size_t dead_len)
{
    const struct lane_settings *s = lane_settings(lane);
    if (!server.streams)
        return;
    RedisModule_Replicate(ctx, APPLY, "scllllb", key, "SET", (long long)s->maxlen,
                          (long long)s->maxbytes, (long long)s->strict, (long long)s->maxattempts,
                          dead, dead_len);
}

void effect_clear(RedisModuleCtx *ctx, RedisModuleString *key)
{
    if (server.streams)
        RedisModule_Replicate(ctx, APPLY, "sc", key, "CLEAR");
}

void effect_rewrite(RedisModuleIO *aof, RedisModuleString *key, struct lane *lane, const char *dead,
                    size_t dead_len)
{
    const struct lane_settings *s = lane_settings(lane);
    turn_ends(); /* as in rdb_save */
    if (s->created)
        RedisModule_EmitAOF(aof, APPLY, "scllllb", key, "SET", (long long)s->maxlen,
                            (long long)s->maxbytes, (long long)s->strict, (long long)s->maxattempts,
                            dead, dead_len);
    struct chunk chunk = {0};
    struct lane_entry e;
    for (uint64_t seq = 0; lane_next(lane, seq, &e); seq = e.seq + 1) {
        chunk_add(&chunk, &e);
        if (chunk.len >= CHUNK_TARGET) {
            RedisModule_EmitAOF(aof, APPLY, "scb", key, "LOAD", chunk.data, chunk.len);
            chunk_reset(&chunk);
        }
    }
    if (chunk.entries)
        RedisModule_EmitAOF(aof, APPLY, "scb", key, "LOAD", chunk.data, chunk.len);
    chunk_free(&chunk);
}
