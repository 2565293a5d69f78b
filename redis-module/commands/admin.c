/* admin - LANE.CREATE, LANE.LEN, LANE.INFO, LANE.RESET, LANE.CHECK. */
#include <stdio.h>
#include <string.h>

#include "redis-module/server/args.h"
#include "redis-module/commands/commands.h"
#include "redis-module/propagate/effect.h"
#include "redis-module/keyspace/loss_log.h"
#include "redis-module/keyspace/lease_holder.h"
#include "redis-module/keyspace/tombstones.h"
#include "redis-module/keyspace/sessions.h"
#include "redis-module/keyspace/value.h"

/* ---- CREATE ---- */

struct settings {
    struct lane_settings lane;
    RedisModuleString *dead; /* NULL: not named */
};

static bool read_settings(struct args *a, struct settings *s)
{
    uint64_t attempts;
    while (args_left(a)) {
        bool fine = true;
        if (args_option(a, "MAXLEN", 1)) {
            fine = args_number(a, "maxlen", 0, INT64_MAX, &s->lane.maxlen);
        } else if (args_option(a, "MAXBYTES", 2)) {
            fine = args_number(a, "maxbytes", 0, INT64_MAX, &s->lane.maxbytes);
        } else if (args_option(a, "MAXATTEMPTS", 4)) {
            fine = args_number(a, "maxattempts", 0, UINT32_MAX, &attempts);
            s->lane.maxattempts = fine ? (uint32_t)attempts : 0;
        } else if (args_option(a, "STRICT", 8)) {
            s->lane.strict = true;
        } else if (args_option(a, "SKIP", 8)) {
            s->lane.strict = false;
        } else if (args_option(a, "DEAD", 16)) {
            fine = args_string(a, "the key of a dead-letter lane", &s->dead);
        } else {
            fine = args_expected(
                a, "MAXLEN, MAXBYTES, STRICT or SKIP, MAXATTEMPTS or DEAD, each once");
        }
        if (!fine)
            return false;
    }
    return true;
}

static bool equal(RedisModuleString *key, const char *name, size_t name_len)
{
    size_t len;
    const char *k = RedisModule_StringPtrLen(key, &len);
    return len == name_len && memcmp(k, name, len) == 0;
}

/* Another lane than the one that it is for; not one whose own dead-letter lane that is: entries
 * would go round for ever. */
static bool check_dead(struct args *a, RedisModuleString *key, RedisModuleString *dead)
{
    struct lane_key k;
    size_t len;
    const char *name = dead ? RedisModule_StringPtrLen(dead, &len) : NULL;
    if (!dead || !len)
        return true;
    if (equal(key, name, len))
        return args_bad_value(a, "DEAD", dead, "another lane than the lane itself");
    if (!lane_key_open_or_reply(a->ctx, dead, false, &k))
        return false;
    bool round = k.value && k.value->dead && equal(key, k.value->dead, k.value->dead_len);
    lane_key_close(a->ctx, &k);
    return !round ||
           args_bad_value(a, "DEAD", dead, "a lane whose own dead-letter lane is not this one");
}

/* LANE.CREATE <key> [MAXLEN <n>] [MAXBYTES <n>] [STRICT|SKIP] [MAXATTEMPTS <n>] [DEAD
 * <dead-key>] */
int create_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    struct args a = {ctx, argv, argc, 2, 0};
    struct settings s = {.dead = NULL};
    struct lane_key k;
    if (argc < 2)
        return RedisModule_WrongArity(ctx);
    /* Once to check the arguments before anything is made, once on top of what the lane has. */
    if (!read_settings(&a, &s) || !check_dead(&a, argv[1], s.dead))
        return REDISMODULE_OK;
    lease_holders_settle(ctx);
    if (!lane_key_open_or_reply(ctx, argv[1], true, &k))
        return REDISMODULE_OK;
    /* It stays when it is empty: lanes without end would be memory without end. */
    if ((!k.value && over_memory(ctx)) || !lane_key_make(ctx, &k)) {
        lane_key_close(ctx, &k);
        return RedisModule_ReplyWithError(ctx, "OOM no memory for a lane");
    }
    struct lane_settings *now = lane_settings(k.value->lane);
    s.lane = *now;
    a = (struct args){ctx, argv, argc, 2, 0};
    read_settings(&a, &s);
    s.lane.created = true;
    *now = s.lane;
    if (s.dead) {
        size_t len;
        const char *dead = RedisModule_StringPtrLen(s.dead, &len);
        value_set_dead(k.value, dead, len);
    }
    effect_settings(ctx, argv[1], k.value->lane, k.value->dead ? k.value->dead : "",
                    k.value->dead_len);
    lane_key_close(ctx, &k);
    lane_event(ctx, "lane.create", argv[1]);
    return RedisModule_ReplyWithSimpleString(ctx, "OK");
}

/* ---- LEN and RESET ---- */

/* LANE.LEN <key> */
int len_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    struct lane_key k;
    if (argc != 2)
        return RedisModule_WrongArity(ctx);
    if (!lane_key_open_or_reply(ctx, argv[1], false, &k))
        return REDISMODULE_OK;
    long long length = k.value ? (long long)lane_counts(k.value->lane).length : 0;
    lane_key_close(ctx, &k);
    return RedisModule_ReplyWithLongLong(ctx, length);
}

/* LANE.RESET <key> */
int reset_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    struct lane_key k;
    if (argc != 2)
        return RedisModule_WrongArity(ctx);
    lease_holders_settle(ctx);
    if (!lane_key_open_or_reply(ctx, argv[1], true, &k))
        return REDISMODULE_OK;
    uint64_t bytes = k.value ? lane_counts(k.value->lane).bytes : 0;
    long long n = k.value ? (long long)value_empty(k.value) : 0;
    if (n) {
        loss_log_reset(ctx, k.value, (uint64_t)n, bytes);
        effect_clear(ctx, argv[1]);
        lane_event(ctx, "lane.reset", argv[1]);
    }
    lane_key_close(ctx, &k);
    return RedisModule_ReplyWithLongLong(ctx, n);
}

/* LANE.CHECK <key> */
int check_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    struct lane_key k;
    char text[128];
    if (argc != 2)
        return RedisModule_WrongArity(ctx);
    if (!lane_key_open_or_reply(ctx, argv[1], false, &k))
        return REDISMODULE_OK;
    const char *wrong = k.value ? lane_check(k.value->lane) : NULL;
    lane_key_close(ctx, &k);
    if (!wrong)
        return RedisModule_ReplyWithSimpleString(ctx, "OK");
    snprintf(text, sizeof text, "BROKEN %s", wrong);
    return RedisModule_ReplyWithError(ctx, text);
}

/* ---- INFO ---- */

static void field(RedisModuleCtx *ctx, const char *name, uint64_t value)
{
    RedisModule_ReplyWithCString(ctx, name);
    RedisModule_ReplyWithLongLong(ctx, (long long)value);
}

static void text_field(RedisModuleCtx *ctx, const char *name, const char *value, size_t len)
{
    RedisModule_ReplyWithCString(ctx, name);
    RedisModule_ReplyWithStringBuffer(ctx, value, len);
}

static int lane_info(RedisModuleCtx *ctx, RedisModuleString *key)
{
    struct lane_key k;
    struct lane_entry oldest;
    if (!lane_key_open_or_reply(ctx, key, false, &k))
        return REDISMODULE_OK;
    if (!k.value) {
        lane_key_close(ctx, &k);
        return reply_nolane(ctx, key);
    }
    struct lane *lane = k.value->lane;
    int64_t now = now_ms();
    lane_due(lane, now);
    const struct lane_settings *s = lane_settings(lane);
    struct lane_counts n = lane_counts(lane);
    bool any = lane_next(lane, 0, &oldest);
    RedisModule_ReplyWithArray(ctx, 32);
    field(ctx, "length", n.length);
    field(ctx, "waiting", n.waiting);
    field(ctx, "delayed", n.delayed);
    field(ctx, "leased", n.leased);
    field(ctx, "expiring", n.expiring);
    field(ctx, "bytes", n.bytes);
    field(ctx, "first-sequence", lane_first_seq(lane));
    field(ctx, "next-sequence", lane_next_seq(lane));
    field(ctx, "maxlen", s->maxlen);
    field(ctx, "maxbytes", s->maxbytes);
    text_field(ctx, "order", s->strict ? "STRICT" : "SKIP", s->strict ? 6 : 4);
    field(ctx, "maxattempts", s->maxattempts);
    text_field(ctx, "dead", k.value->dead ? k.value->dead : "", k.value->dead_len);
    field(ctx, "created", s->created);
    field(ctx, "oldest-age", any ? (uint64_t)(now - oldest.born) : 0);
    field(ctx, "memory", n.memory + sizeof *k.value + k.value->name_len + k.value->dead_len);
    value_changed(ctx, k.value, key);
    lane_key_close(ctx, &k);
    return REDISMODULE_OK;
}

static void server_field(RedisModuleCtx *ctx, RedisModuleServerInfoData *data, const char *name,
                         const char *field_name)
{
    const char *value = RedisModule_ServerInfoGetFieldC(data, field_name);
    text_field(ctx, name, value ? value : "", value ? strlen(value) : 0);
}

static void server_number(RedisModuleCtx *ctx, RedisModuleServerInfoData *data, const char *name,
                          const char *field_name)
{
    int err;
    field(ctx, name, RedisModule_ServerInfoGetFieldUnsigned(data, field_name, &err));
}

static int server_info(RedisModuleCtx *ctx)
{
    int64_t now = now_ms();
    RedisModuleServerInfoData *info = RedisModule_GetServerInfo(ctx, "server");
    RedisModuleServerInfoData *memory = RedisModule_GetServerInfo(ctx, "memory");
    sessions_trim(now);
    RedisModule_ReplyWithArray(ctx, 34);
    text_field(ctx, "version", DOVELANE_VERSION, strlen(DOVELANE_VERSION));
    field(ctx, "grammar", GRAMMAR_VERSION);
    server_field(ctx, info, "run-id", "run_id");
    text_field(ctx, "node", server.node, strlen(server.node));
    server_field(ctx, memory, "policy", "maxmemory_policy");
    server_number(ctx, memory, "maxmemory", "maxmemory");
    server_number(ctx, memory, "used-memory", "used_memory");
    field(ctx, "lanes", server.lanes);
    field(ctx, "entries", server.entries);
    field(ctx, "bytes", server.bytes);
    field(ctx, "leased", server.leased);
    field(ctx, "sessions", sessions_count());
    field(ctx, "remembered", tombstone_count(now));
    field(ctx, "settle-ms", (uint64_t)server.settle_ms);
    server_number(ctx, info, "uptime-s", "uptime_in_seconds");
    field(ctx, "clock-ms", (uint64_t)now);
    field(ctx, "loaded-ms", (uint64_t)server.loaded_at);
    RedisModule_FreeServerInfo(ctx, info);
    RedisModule_FreeServerInfo(ctx, memory);
    return REDISMODULE_OK;
}

/* LANE.INFO [<key>] */
int info_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    if (argc > 2)
        return RedisModule_WrongArity(ctx);
    return argc == 2 ? lane_info(ctx, argv[1]) : server_info(ctx);
}
