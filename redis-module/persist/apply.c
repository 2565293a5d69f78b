/* apply - LANE.APPLY: effects of a primary, or of an append-only file. The grammar stands in
 * effect.h.
 *
 * What does not fit (a replica that was written to) is skipped and logged: the stream must go
 * on. */
#include <string.h>
#include <strings.h>

#include "redis-module/keyspace/value.h"
#include "redis-module/propagate/effect.h"
#include "redis-module/propagate/packed.h"

struct apply {
    RedisModuleCtx *ctx;
    RedisModuleString **argv;
    int argc;
    struct lane_key key;
};

static const char *text(const struct apply *a, int i, size_t *len)
{
    return RedisModule_StringPtrLen(a->argv[i], len);
}

static bool number(const struct apply *a, int i, uint64_t *x)
{
    size_t len;
    const char *p = text(a, i, &len);
    if (len == 0 || len > 19)
        return false;
    *x = 0;
    for (; len; len--, p++) {
        if (*p < '0' || *p > '9')
            return false;
        *x = *x * 10 + (uint64_t)(*p - '0');
    }
    return true;
}

/* A delay as it was, less what has passed since when this is read from a file. */
static int64_t due_of(const struct apply *a, uint64_t delay, uint64_t wall)
{
    int64_t left = (int64_t)delay;
    if (delay > TIME_MAX)
        return 0;
    if (RedisModule_GetContextFlags(a->ctx) & REDISMODULE_CTX_FLAGS_LOADING)
        left = delay_left(left, (int64_t)wall);
    return left ? now_ms() + left : 0;
}

static const char *apply_set(struct apply *a)
{
    uint64_t maxlen, maxbytes, strict, attempts;
    if (a->argc != 8 || !number(a, 3, &maxlen) || !number(a, 4, &maxbytes) ||
        !number(a, 5, &strict) || !number(a, 6, &attempts) || attempts > UINT32_MAX)
        return "SET";
    lane_key_make(a->ctx, &a->key);
    *lane_settings(a->key.value->lane) = (struct lane_settings){.maxlen = maxlen,
                                                                .maxbytes = maxbytes,
                                                                .strict = strict != 0,
                                                                .maxattempts = (uint32_t)attempts,
                                                                .created = true};
    size_t len;
    const char *dead = text(a, 7, &len);
    value_set_dead(a->key.value, dead, len);
    return NULL;
}

static const char *apply_add(struct apply *a)
{
    uint64_t wall;
    size_t len;
    if (a->argc < 5 || !number(a, 3, &wall))
        return "ADD";
    const char *p = text(a, 4, &len);
    if (len == 0 || len % 32 || (size_t)a->argc != 5 + len / 32 * 2)
        return "ADD";
    lane_key_make(a->ctx, &a->key);
    enum lane_result worst = LANE_OK;
    for (int i = 5; i < a->argc; i += 2, p += 32) {
        uint64_t delay = get64(p + 24);
        bool has_id = delay >> 63;
        struct lane_new entry = {.seq = get64(p),
                                 .id = has_id ? (const uint8_t *)p + 8 : NULL,
                                 .born = now_ms(),
                                 .unbounded = true};
        entry.meta = text(a, i, &entry.meta_len);
        entry.body = text(a, i + 1, &entry.body_len);
        entry.due = due_of(a, delay & ~((uint64_t)1 << 63), wall);
        enum lane_result result =
            entry.seq ? lane_push(a->key.value->lane, &entry, NULL) : LANE_ORDER;
        worst = result == LANE_OK ? worst : result;
    }
    return worst == LANE_OK ? NULL : "ADD of what is there already";
}

static const char *apply_pack(struct apply *a)
{
    uint64_t wall, delay, n;
    size_t len, answers_len;
    if (a->argc != 7 || !number(a, 3, &wall) || !number(a, 4, &delay))
        return "PACK";
    const char *answer = text(a, 5, &answers_len), *p = text(a, 6, &len);
    if (packed_check(p, len, 0, &n) || answers_len != n * 8)
        return "PACK";
    lane_key_make(a->ctx, &a->key);
    enum lane_result worst = LANE_OK;
    for (uint64_t i = 0; i < n; i++) {
        struct packed e = packed_next(&p);
        struct lane_new entry = {.seq = get64(answer + 8 * i),
                                 .id = e.id,
                                 .meta = e.meta,
                                 .meta_len = e.meta_len,
                                 .body = e.body,
                                 .body_len = e.body_len,
                                 .born = now_ms(),
                                 .due = due_of(a, delay, wall),
                                 .unbounded = true};
        enum lane_result result = entry.seq ? lane_push(a->key.value->lane, &entry, NULL) : LANE_OK;
        worst = result == LANE_OK ? worst : result;
    }
    return worst == LANE_OK ? NULL : "PACK of what is there already";
}

static const char *apply_load(struct apply *a)
{
    size_t len;
    uint64_t n;
    if (a->argc != 4)
        return "LOAD";
    const char *chunk = text(a, 3, &len);
    lane_key_make(a->ctx, &a->key);
    return chunk_load(a->key.value->lane, chunk, len, &n);
}

static const char *apply_meta(struct apply *a)
{
    size_t len;
    if (a->argc < 4)
        return "META";
    const char *p = text(a, 3, &len);
    if (len % 16 || (size_t)a->argc != 4 + len / 16)
        return "META";
    enum lane_result worst = LANE_OK;
    for (int i = 4; i < a->argc; i++, p += 16) {
        size_t meta_len;
        const char *meta = text(a, i, &meta_len);
        struct lane *lane = a->key.value ? a->key.value->lane : NULL;
        uint64_t revision = get64(p + 8);
        enum lane_result result = !lane || revision > UINT32_MAX ? LANE_ABSENT : LANE_OK;
        if (result == LANE_OK)
            result = lane_set_meta(lane, get64(p), (uint32_t)revision, meta, meta_len);
        worst = result == LANE_OK ? worst : result;
    }
    return worst == LANE_OK ? NULL : "META of what is not there";
}

/* Calls fn for every entry within the ranges of argument i. */
static const char *each_in(struct apply *a, int i, void (*fn)(struct lane *, uint64_t seq, void *),
                           void *arg)
{
    size_t len;
    const char *p = text(a, i, &len);
    if (len % 16)
        return "ranges";
    if (!a->key.value)
        return len ? "an effect on a lane that is not there" : NULL;
    for (; len; len -= 16, p += 16) {
        struct lane_entry e;
        uint64_t to = get64(p + 8);
        for (uint64_t seq = get64(p); lane_next(a->key.value->lane, seq, &e) && e.seq <= to;
             seq = e.seq + 1)
            fn(a->key.value->lane, e.seq, arg);
    }
    return NULL;
}

static void remove_one(struct lane *lane, uint64_t seq, void *arg)
{
    lane_remove(lane, seq);
}

struct back {
    bool attempt;
    int64_t due;
};

static void back_one(struct lane *lane, uint64_t seq, void *arg)
{
    const struct back *b = arg;
    lane_put_back(lane, seq, b->attempt, b->due);
}

static const char *apply_back(struct apply *a)
{
    uint64_t attempt, delay, wall;
    if (a->argc != 7 || !number(a, 3, &attempt) || !number(a, 4, &delay) || !number(a, 5, &wall))
        return "BACK";
    return each_in(a, 6, back_one, &(struct back){attempt != 0, due_of(a, delay, wall)});
}

static const char *apply_del(struct apply *a)
{
    return a->argc == 4 ? each_in(a, 3, remove_one, NULL) : "DEL";
}

static const char *apply_clear(struct apply *a)
{
    if (a->key.value)
        value_empty(a->key.value);
    return NULL;
}

static const struct {
    const char *name;
    const char *(*apply)(struct apply *);
} effects[] = {{"SET", apply_set},   {"ADD", apply_add},    {"PACK", apply_pack},
               {"LOAD", apply_load}, {"META", apply_meta},  {"BACK", apply_back},
               {"DEL", apply_del},   {"CLEAR", apply_clear}};

/* LANE.APPLY <key> <effect> ... */
int apply_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    struct apply a = {.ctx = ctx, .argv = argv, .argc = argc};
    const char *wrong = "unknown effect";
    if (argc < 3)
        return RedisModule_WrongArity(ctx);
    if (!(RedisModule_GetContextFlags(ctx) &
          (REDISMODULE_CTX_FLAGS_REPLICATED | REDISMODULE_CTX_FLAGS_LOADING)))
        return RedisModule_ReplyWithError(
            ctx, "ERR LANE.APPLY is for replication and the append-only file only");
    if (!lane_key_open_or_reply(ctx, argv[1], true, &a.key))
        return REDISMODULE_OK;
    const char *name = RedisModule_StringPtrLen(argv[2], NULL);
    server_must_store(true);
    for (size_t i = 0; i < sizeof effects / sizeof *effects; i++)
        if (strcasecmp(name, effects[i].name) == 0)
            wrong = effects[i].apply(&a);
    server_must_store(false);
    if (wrong) {
        char lane[NAME_SHOWN], what[NAME_SHOWN];
        size_t lane_len, len = strlen(name);
        const char *key = RedisModule_StringPtrLen(argv[1], &lane_len);
        lane_len = name_show(lane, key, lane_len);
        len = name_show(what, name, len);
        RedisModule_Log(ctx, "warning",
                        "lane: effect %.*s on %.*s does not fit: %s; this copy may differ",
                        (int)len, what, (int)lane_len, lane, wrong);
    }
    lane_key_close(ctx, &a.key);
    /* The same effect, for this server's own replicas and file. */
    RedisModule_ReplicateVerbatim(ctx);
    return wrong ? RedisModule_ReplyWithError(ctx, "ERR effect does not fit")
                 : RedisModule_ReplyWithSimpleString(ctx, "OK");
}
