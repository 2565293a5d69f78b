/* read - LANE.READ, LANE.GET, LANE.IDS: looking without leasing. */
#include <string.h>

#include "redis-module/propagate/chunk.h"
#include "redis-module/commands/commands.h"
#include "redis-module/commands/selector.h"
#include "redis-module/keyspace/value.h"

#define READ_COUNT 100
#define READ_BYTES (1u << 20)
/* one command of somebody who may only read takes no more memory, but for one larger entry */
#define READ_BYTES_MAX (64u << 20)
#define READ_COUNT_MAX 1000000
#define IDS_COUNT 1000
#define IDS_COUNT_MAX 100000
#define IDS_RECORD 32
#define READ_RECORD 52

struct reading {
    RedisModuleCtx *ctx;
    int64_t now;
    bool nobody, packed;
    long n;
};

static const char *state_name(enum lane_state state)
{
    return state == LANE_WAITING ? "waiting" : state == LANE_DELAYED ? "delayed" : "leased";
}

/* A delay may be over without anybody having looked at the lane since. */
static enum lane_state state_now(const struct reading *r, const struct lane_entry *e)
{
    return e->state == LANE_DELAYED && e->until <= r->now ? LANE_WAITING : e->state;
}

static void reply_entry(void *arg, const struct lane_entry *e)
{
    struct reading *r = arg;
    RedisModuleCtx *ctx = r->ctx;
    RedisModule_ReplyWithArray(ctx, 8);
    RedisModule_ReplyWithLongLong(ctx, (long long)e->seq);
    RedisModule_ReplyWithStringBuffer(ctx, (const char *)e->id, e->id ? ID_LEN : 0);
    RedisModule_ReplyWithLongLong(ctx, e->revision);
    RedisModule_ReplyWithLongLong(ctx, e->attempts);
    RedisModule_ReplyWithLongLong(ctx, r->now - e->born);
    RedisModule_ReplyWithStringBuffer(ctx, e->meta, e->meta_len);
    if (r->nobody)
        RedisModule_ReplyWithNull(ctx);
    else
        RedisModule_ReplyWithStringBuffer(ctx, e->body, e->body_len);
    RedisModule_ReplyWithSimpleString(ctx, state_name(state_now(r, e)));
    r->n++;
}

/* Returns where the next one goes. */
static char *pack_entry(const struct reading *r, const struct lane_entry *e, char *p)
{
    size_t body_len = r->nobody ? 0 : e->body_len;
    put64(p, e->seq);
    if (e->id)
        memcpy(p + 8, e->id, ID_LEN);
    else
        memset(p + 8, 0, ID_LEN);
    put32(p + 24, e->revision);
    put32(p + 28, e->attempts);
    put64(p + 32, (uint64_t)(r->now - e->born));
    put32(p + 40, e->meta_len);
    put32(p + 44, e->body_len);
    put32(p + 48, (uint32_t)state_now(r, e));
    memcpy(p + READ_RECORD, e->meta, e->meta_len);
    memcpy(p + READ_RECORD + e->meta_len, e->body, body_len);
    return p + READ_RECORD + e->meta_len + body_len;
}

/* n entries from a sequence on, meta and body of which have so many bytes. */
static void reply_packed(const struct reading *r, const struct lane *lane, uint64_t from,
                         uint64_t n, uint64_t bytes)
{
    struct lane_entry e;
    char *packed = must_alloc(n * READ_RECORD + bytes), *at = packed;
    for (; n && lane_next(lane, from, &e); n--, from = e.seq + 1)
        at = pack_entry(r, &e, at);
    RedisModule_ReplyWithStringBuffer(r->ctx, packed, (size_t)(at - packed));
    RedisModule_Free(packed);
}

/* LANE.READ <key> <from-sequence> [COUNT <n>] [BYTES <b>] [NOBODY] [PACKED] */
int read_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    struct args a = {ctx, argv, argc, 2};
    struct reading r = {.ctx = ctx, .now = now_ms()};
    struct lane_key k;
    uint64_t from, count = READ_COUNT, bytes = READ_BYTES, used = 0;
    if (argc < 3)
        return RedisModule_WrongArity(ctx);
    if (!args_number(&a, "from-sequence", 0, LANE_SEQ_MAX, &from))
        return REDISMODULE_OK;
    while (args_left(&a)) {
        bool fine = true;
        if (args_option(&a, "COUNT", 1))
            fine = args_number(&a, "count", 1, READ_COUNT_MAX, &count);
        else if (args_option(&a, "BYTES", 2))
            fine = args_number(&a, "bytes", 0, INT64_MAX, &bytes);
        else if (args_option(&a, "NOBODY", 4))
            r.nobody = true;
        else if (args_option(&a, "PACKED", 8))
            r.packed = true;
        else
            fine = args_expected(&a, "COUNT, BYTES, NOBODY or PACKED, each once");
        if (!fine)
            return REDISMODULE_OK;
    }
    if (!lane_key_open_or_reply(ctx, argv[1], false, &k))
        return REDISMODULE_OK;
    if (bytes > READ_BYTES_MAX)
        bytes = READ_BYTES_MAX;
    /* `next` stands before the entries but is known after them: two passes, of which the first only
     * counts.
     */
    struct lane_entry e;
    uint64_t n = 0, at = from, next = 0;
    while (k.value && lane_next(k.value->lane, at, &e)) {
        uint64_t size = e.meta_len + (r.nobody ? 0 : (uint64_t)e.body_len);
        if (n == count || (n && used + size > bytes)) {
            next = e.seq;
            break;
        }
        used += size;
        at = e.seq + 1;
        n++;
    }
    RedisModule_ReplyWithArray(ctx, 2);
    RedisModule_ReplyWithLongLong(ctx, (long long)next);
    if (r.packed) {
        reply_packed(&r, n ? k.value->lane : NULL, from, n, used);
    } else {
        RedisModule_ReplyWithArray(ctx, (long)n);
        for (; n && lane_next(k.value->lane, from, &e); n--, from = e.seq + 1)
            reply_entry(&r, &e);
    }
    lane_key_close(ctx, &k);
    return REDISMODULE_OK;
}

/* LANE.GET <key> <selector> [NOBODY] */
int get_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    struct args a = {ctx, argv, argc, 2};
    struct reading r = {.ctx = ctx, .now = now_ms()};
    struct lane_key k;
    struct selector s;
    if (argc < 4)
        return RedisModule_WrongArity(ctx);
    if (!args_selector(&a, &s))
        return REDISMODULE_OK;
    r.nobody = args_word(&a, "NOBODY");
    if (!args_end(&a) || !lane_key_open_or_reply(ctx, argv[1], false, &k))
        return REDISMODULE_OK;
    RedisModule_ReplyWithArray(ctx, REDISMODULE_POSTPONED_LEN);
    selector_each(&s, k.value ? k.value->lane : NULL,
                  &(struct selector_calls){reply_entry, NULL, &r});
    RedisModule_ReplySetArrayLength(ctx, r.n);
    lane_key_close(ctx, &k);
    return REDISMODULE_OK;
}

static void put_record(char *p, const struct lane_entry *e, int64_t now)
{
    int64_t age = now - e->born;
    put64(p, e->seq);
    if (e->id)
        memcpy(p + 8, e->id, ID_LEN);
    else
        memset(p + 8, 0, ID_LEN);
    put32(p + 24, e->revision);
    put32(p + 28, age < 0 ? 0 : age > UINT32_MAX ? UINT32_MAX : (uint32_t)age);
}

/* LANE.IDS <key> <from-sequence> [COUNT <n>] */
int ids_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    struct args a = {ctx, argv, argc, 2};
    struct lane_key k;
    struct lane_entry e;
    uint64_t from, count = IDS_COUNT, n = 0, next = 0;
    int64_t now = now_ms();
    if (argc < 3)
        return RedisModule_WrongArity(ctx);
    if (!args_number(&a, "from-sequence", 0, LANE_SEQ_MAX, &from))
        return REDISMODULE_OK;
    bool counted = args_word(&a, "COUNT");
    if (!counted && args_left(&a)) {
        args_expected(&a, "COUNT or the end");
        return REDISMODULE_OK;
    }
    if (counted && (!args_number(&a, "count", 1, IDS_COUNT_MAX, &count) || !args_end(&a)))
        return REDISMODULE_OK;
    if (!lane_key_open_or_reply(ctx, argv[1], false, &k))
        return REDISMODULE_OK;
    uint64_t length = k.value ? lane_counts(k.value->lane).length : 0;
    uint64_t room = count < length ? count : length;
    char *records = must_alloc(room * IDS_RECORD);
    while (k.value && lane_next(k.value->lane, from, &e)) {
        if (n == room) {
            next = e.seq;
            break;
        }
        put_record(records + n++ * IDS_RECORD, &e, now);
        from = e.seq + 1;
    }
    RedisModule_ReplyWithArray(ctx, 2);
    RedisModule_ReplyWithLongLong(ctx, (long long)next);
    RedisModule_ReplyWithStringBuffer(ctx, records, n * IDS_RECORD);
    RedisModule_Free(records);
    lane_key_close(ctx, &k);
    return REDISMODULE_OK;
}
