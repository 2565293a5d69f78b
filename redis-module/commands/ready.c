/* ready - LANE.READY. A cursor is a number on the cursor list of lanes with something to take. */
#include "redis-module/commands/ready.h"

#include "redis-module/server/args.h"
#include "redis-module/commands/commands.h"
#include "redis-module/keyspace/ready_waiters.h"
#include "redis-module/keyspace/value.h"

#define READY_COUNT 1000
#define READY_COUNT_MAX 100000

static uint64_t first_cursor;

void ready_start(void)
{
    RedisModule_GetRandomBytes((unsigned char *)&first_cursor, sizeof first_cursor);
    first_cursor = first_cursor >> 2 | (uint64_t)1 << 32;
    ready_lanes.last = first_cursor;
}

struct request {
    uint64_t cursor, count, block;
    bool blocks;
};

static bool read_request(struct args *a, struct request *r)
{
    *r = (struct request){.count = READY_COUNT};
    if (!args_number(a, "cursor", 0, INT64_MAX, &r->cursor))
        return false;
    while (args_left(a)) {
        bool fine;
        if (args_word(a, "BLOCK"))
            fine = r->blocks = args_number(a, "block", 0, TIME_MAX, &r->block);
        else if (args_word(a, "COUNT"))
            fine = args_number(a, "count", 1, READY_COUNT_MAX, &r->count);
        else
            fine = args_expected(a, "BLOCK or COUNT");
        if (!fine)
            return false;
    }
    if (r->cursor < first_cursor || r->cursor > ready_lanes.last)
        r->cursor = 0;
    return true;
}

static int reply(RedisModuleCtx *ctx, const struct request *r)
{
    size_t i = cursor_list_after(&ready_lanes, r->cursor);
    uint64_t n = 0, cursor = ready_lanes.last;
    for (size_t j = i; j < ready_lanes.end; j++) {
        if (!ready_lanes.item[j].value)
            continue;
        if (n == r->count)
            break;
        cursor = ready_lanes.item[j].no;
        n++;
    }
    if (n < r->count)
        cursor = ready_lanes.last;
    RedisModule_ReplyWithArray(ctx, 2);
    RedisModule_ReplyWithLongLong(ctx, (long long)cursor);
    RedisModule_ReplyWithArray(ctx, (long)n);
    for (; n; i++) {
        const struct value *v = ready_lanes.item[i].value;
        if (!v)
            continue;
        RedisModule_ReplyWithStringBuffer(ctx, v->name, v->name_len);
        n--;
    }
    return REDISMODULE_OK;
}

/* ---- Waiting ---- */

static int ready_reply(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    struct args a = {ctx, argv, argc, 1};
    struct request r;
    return read_request(&a, &r) ? reply(ctx, &r) : REDISMODULE_OK;
}

static int ready_timeout(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    ready_leave(RedisModule_GetBlockedClientHandle(ctx));
    return ready_reply(ctx, argv, argc);
}

static void ready_disconnect(RedisModuleCtx *ctx, RedisModuleBlockedClient *client)
{
    ready_leave(client);
}

/* LANE.READY <cursor> [BLOCK <ms>] [COUNT <n>] */
int ready_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    struct args a = {ctx, argv, argc, 1};
    struct request r;
    if (argc < 2)
        return RedisModule_WrongArity(ctx);
    if (!read_request(&a, &r))
        return REDISMODULE_OK;
    size_t next = cursor_list_after(&ready_lanes, r.cursor);
    if (!r.blocks || next < ready_lanes.end || !may_block(ctx))
        return reply(ctx, &r);
    RedisModuleBlockedClient *client =
        RedisModule_BlockClient(ctx, ready_reply, ready_timeout, NULL, (long long)r.block);
    ready_wait(client);
    RedisModule_SetDisconnectCallback(client, ready_disconnect);
    return REDISMODULE_OK;
}
