/* ack - LANE.ACK, LANE.REVOKE, LANE.META. */
#include "redis-module/commands/ack.h"

#include <string.h>

#include "redis-module/commands/commands.h"
#include "redis-module/keyspace/lease_holder.h"
#include "redis-module/keyspace/tombstones.h"

struct acking {
    struct lane *lane;
    uint64_t hash;
    int64_t now;
    struct ranges gone;
    struct acked n;
    struct ahead ahead;
};

static void ack_ahead(void *arg, const uint8_t *id)
{
    struct acking *a = arg;
    if (id)
        ahead_add(&a->ahead, id);
    else
        ahead_fetch(&a->ahead);
}

static void going(void *arg, uint64_t from, uint64_t to)
{
    struct acking *a = arg;
    if (server.streams)
        ranges_add_run(&a->gone, from, to);
}

static void going_id(void *arg, const uint8_t *id)
{
    struct acking *a = arg;
    tombstone_remember(a->hash, id, TOMBSTONE_ACKED, a->now);
}

static void ack_entry(void *arg, const struct lane_entry *e)
{
    struct acking *a = arg;
    going(a, e->seq, e->seq);
    if (e->id)
        going_id(a, e->id);
    lane_remove(a->lane, e->seq);
    a->n.removed++;
}

static void ack_range(void *arg, uint64_t from, uint64_t to)
{
    struct acking *a = arg;
    a->n.removed += lane_remove_range(a->lane, from, to, &(struct lane_going){going, going_id, a});
}

static void ack_absent(void *arg, const uint8_t *id)
{
    struct acking *a = arg;
    tombstone_remember(a->hash, id, TOMBSTONE_ACKED, a->now);
    a->n.absent++;
}

static uint64_t hash_of(RedisModuleCtx *ctx, const struct lane_key *k)
{
    if (k->value)
        return k->value->hash;
    size_t len;
    const char *name = RedisModule_StringPtrLen(k->name, &len);
    return name_hash(RedisModule_GetSelectedDb(ctx), name, len);
}

struct acked ack_in(RedisModuleCtx *ctx, struct lane_key *k, const struct selector *s)
{
    struct acking a;
    a.lane = k->value ? k->value->lane : NULL;
    a.hash = hash_of(ctx, k);
    a.now = now_ms();
    a.gone = (struct ranges){0};
    a.n = (struct acked){0};
    ahead_begin(&a.ahead, a.hash, k->value);
    selector_each(s, a.lane,
                  &(struct selector_calls){ack_entry, ack_absent, &a, ack_range, ack_ahead});
    effect_del(ctx, k->name, &a.gone);
    if (a.n.removed)
        lane_event(ctx, "lane.ack", k->name);
    return a.n;
}

/* A replica and a file that is being loaded repeat what somebody was allowed to do. */
bool ack_allowed(RedisModuleCtx *ctx, RedisModuleString *key)
{
    static RedisModuleString *words[3];
    bool allowed = false;
    if (RedisModule_GetContextFlags(ctx) &
        (REDISMODULE_CTX_FLAGS_REPLICATED | REDISMODULE_CTX_FLAGS_LOADING))
        return true;
    RedisModuleString *name = RedisModule_GetCurrentUserName(ctx);
    if (!name) /* no client's */
        return true;
    if (!words[0]) {
        words[0] = RedisModule_CreateString(NULL, "LANE.ACK", strlen("LANE.ACK"));
        words[1] = RedisModule_CreateString(NULL, "UPTO", strlen("UPTO"));
        words[2] = RedisModule_CreateString(NULL, "0", 1);
    }
    RedisModuleUser *user = RedisModule_GetModuleUserFromUserName(name);
    if (user) {
        RedisModuleString *ack[] = {words[0], key, words[1], words[2]};
        allowed = RedisModule_ACLCheckCommandPermissions(user, ack, 4) == REDISMODULE_OK;
        RedisModule_FreeModuleUser(user);
    }
    RedisModule_FreeString(ctx, name);
    if (!allowed)
        RedisModule_ReplyWithError(ctx, "NOPERM an ACK part, or a sequence to remove up to, needs "
                                        "the right to LANE.ACK for this key");
    return allowed;
}

/* LANE.ACK <key> <selector> */
int ack_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    struct args a = {ctx, argv, argc, 2};
    struct selector s;
    struct lane_key k;
    if (argc < 2)
        return RedisModule_WrongArity(ctx);
    if (!args_selector(&a, &s) || !args_end(&a))
        return REDISMODULE_OK;
    lease_holders_settle(ctx);
    if (!lane_key_open_or_reply(ctx, argv[1], true, &k))
        return REDISMODULE_OK;
    struct acked n = ack_in(ctx, &k, &s);
    lane_key_close(ctx, &k);
    RedisModule_ReplyWithArray(ctx, 2);
    RedisModule_ReplyWithLongLong(ctx, (long long)n.removed);
    return RedisModule_ReplyWithLongLong(ctx, (long long)n.absent);
}

/* ---- REVOKE ---- */

static const char *revoke(struct lane_key *k, uint64_t hash, const uint8_t *id, int64_t now,
                          struct ranges *gone)
{
    struct lane_entry e;
    struct lane *lane = k->value ? k->value->lane : NULL;
    if (lane && lane_find(lane, id, &e)) {
        if (e.state == LANE_LEASED) {
            lane_mark_revoked(lane, e.seq);
            return "LEASED";
        }
        ranges_add(gone, e.seq);
        lane_remove(lane, e.seq);
        tombstone_remember(hash, id, TOMBSTONE_REVOKED, now);
        return "REMOVED";
    }
    switch (tombstone_find(hash, id, now)) {
    case TOMBSTONE_ACKED: return "GONE";
    case TOMBSTONE_REVOKED: tombstone_remember(hash, id, TOMBSTONE_REVOKED, now); return "REMOVED";
    default: tombstone_remember(hash, id, TOMBSTONE_REVOKED, now); return "ABSENT";
    }
}

/* LANE.REVOKE <key> <id> ... */
int revoke_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    struct args a = {ctx, argv, argc, 2};
    struct lane_key k;
    struct ranges gone = {0};
    const uint8_t *id;
    if (argc < 3)
        return RedisModule_WrongArity(ctx);
    while (a.at < argc)
        if (!args_id(&a, false, &id))
            return REDISMODULE_OK;
    lease_holders_settle(ctx);
    if (!lane_key_open_or_reply(ctx, argv[1], true, &k))
        return REDISMODULE_OK;
    int64_t now = now_ms();
    uint64_t hash = hash_of(ctx, &k);
    RedisModule_ReplyWithArray(ctx, argc - 2);
    for (int i = 2; i < argc; i++) {
        id = (const uint8_t *)RedisModule_StringPtrLen(argv[i], NULL);
        RedisModule_ReplyWithSimpleString(ctx, revoke(&k, hash, id, now, &gone));
    }
    if (gone.n)
        lane_event(ctx, "lane.revoke", argv[1]);
    effect_del(ctx, argv[1], &gone);
    lane_key_close(ctx, &k);
    return REDISMODULE_OK;
}

/* ---- META ---- */

struct changes {
    char *records;
    RedisModuleString **meta;
    size_t n;
};

static const char *set_meta(RedisModuleCtx *ctx, struct lane *lane, RedisModuleString **arg,
                            struct changes *c)
{
    struct args a = {ctx, arg, 3, 1};
    struct lane_entry e;
    uint64_t revision;
    size_t len;
    const char *meta = RedisModule_StringPtrLen(arg[2], &len);
    args_number(&a, "revision", 0, UINT32_MAX, &revision); /* checked before */
    if (!lane || !lane_find(lane, (const uint8_t *)RedisModule_StringPtrLen(arg[0], NULL), &e))
        return "ABSENT";
    if (revision <= e.revision)
        return "STALE";
    if (len > e.meta_len && over_memory(ctx))
        return "MEMORY";
    switch (lane_set_meta(lane, e.seq, (uint32_t)revision, meta, len)) {
    case LANE_OK: break;
    case LANE_FULL: return "FULL";
    default: return "MEMORY";
    }
    put64(c->records + 16 * c->n, e.seq);
    put64(c->records + 16 * c->n + 8, revision);
    c->meta[c->n++] = arg[2];
    return "OK";
}

static bool check_metas(struct args *a, uint64_t *n)
{
    const uint8_t *id;
    uint64_t revision;
    RedisModuleString *meta;
    size_t len;
    if (!args_count(a, "number of entries", 1, 3, n))
        return false;
    while (args_left(a)) {
        if (!args_id(a, false, &id) || !args_number(a, "revision", 0, UINT32_MAX, &revision) ||
            !args_string(a, "a meta", &meta))
            return false;
        RedisModule_StringPtrLen(meta, &len);
        if (len > LANE_META_MAX) {
            RedisModule_ReplyWithError(
                a->ctx, "ERR value: length of a meta is above 1 MiB, allowed is 0 to 1048576");
            return false;
        }
        if ((uint64_t)(a->at - 3) == 3 * *n)
            return args_end(a);
    }
    return args_expected(a, "an entry");
}

/* LANE.META <key> <n> (<id> <revision> <meta>) x n */
int meta_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    struct args a = {ctx, argv, argc, 2};
    struct lane_key k;
    uint64_t n;
    if (argc < 2)
        return RedisModule_WrongArity(ctx);
    if (!check_metas(&a, &n))
        return REDISMODULE_OK;
    lease_holders_settle(ctx);
    if (!lane_key_open_or_reply(ctx, argv[1], true, &k))
        return REDISMODULE_OK;
    struct changes c = {.records = must_alloc(n * 16),
                        .meta = must_alloc(n * sizeof(RedisModuleString *))};
    RedisModule_ReplyWithArray(ctx, (long)n);
    for (uint64_t i = 0; i < n; i++)
        RedisModule_ReplyWithSimpleString(
            ctx, set_meta(ctx, k.value ? k.value->lane : NULL, argv + 3 + 3 * i, &c));
    if (c.n) {
        if (server.streams)
            RedisModule_Replicate(ctx, APPLY, "scbv", argv[1], "META", c.records, c.n * 16, c.meta,
                                  c.n);
        lane_event(ctx, "lane.meta", argv[1]);
    }
    RedisModule_Free(c.records);
    RedisModule_Free(c.meta);
    lane_key_close(ctx, &k);
    return REDISMODULE_OK;
}
