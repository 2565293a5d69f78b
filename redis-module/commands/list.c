/* list - LANE.LIST: all lanes of the selected database, a page at a time. The cursor is a number
 * on the cursor list of all lanes, which a lane keeps as long as it lives: what is there from
 * the first page to the last is told exactly once. */
#include <string.h>

#include "redis-module/server/args.h"
#include "redis-module/commands/commands.h"
#include "redis-module/commands/glob.h"
#include "redis-module/keyspace/value.h"

#define LIST_COUNT 1000
#define LIST_COUNT_MAX 100000
#define LOOKS_PER_LANE 10 /* a page with a rare pattern ends after so many times its count */

struct listing {
    uint64_t cursor, count;
    const char *match;
    size_t match_len;
};

static bool read_listing(struct args *a, struct listing *l)
{
    RedisModuleString *match;
    *l = (struct listing){.count = LIST_COUNT};
    if (!args_number(a, "cursor", 0, INT64_MAX, &l->cursor))
        return false;
    while (args_left(a)) {
        if (args_word(a, "MATCH")) {
            if (!args_string(a, "a pattern", &match))
                return false;
            l->match = RedisModule_StringPtrLen(match, &l->match_len);
        } else if (args_word(a, "COUNT")) {
            if (!args_number(a, "count", 1, LIST_COUNT_MAX, &l->count))
                return false;
        } else {
            return args_expected(a, "MATCH or COUNT");
        }
    }
    return true;
}

static const struct value *page_item(const struct listing *l, size_t i, int db)
{
    const struct value *v = all_lanes.item[i].value;
    if (!v || v->db != db ||
        (l->match && !glob_match(l->match, l->match_len, v->name, v->name_len)))
        return NULL;
    return v;
}

/* LANE.LIST <cursor> [MATCH <glob>] [COUNT <n>] */
int list_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    struct args a = {ctx, argv, argc, 1};
    struct listing l;
    if (argc < 2)
        return RedisModule_WrongArity(ctx);
    if (!read_listing(&a, &l))
        return REDISMODULE_OK;
    int db = RedisModule_GetSelectedDb(ctx);
    size_t begin = cursor_list_after(&all_lanes, l.cursor), end = begin;
    uint64_t n = 0;
    for (uint64_t looks = 0; end < all_lanes.end && n < l.count && looks < LOOKS_PER_LANE * l.count;
         end++, looks++)
        n += page_item(&l, end, db) != NULL;
    RedisModule_ReplyWithArray(ctx, 2);
    RedisModule_ReplyWithLongLong(ctx,
                                  end < all_lanes.end ? (long long)all_lanes.item[end - 1].no : 0);
    RedisModule_ReplyWithArray(ctx, (long)(3 * n));
    for (size_t i = begin; i < end; i++) {
        const struct value *v = page_item(&l, i, db);
        if (!v)
            continue;
        struct lane_counts counts = lane_counts(v->lane);
        RedisModule_ReplyWithStringBuffer(ctx, v->name, v->name_len);
        RedisModule_ReplyWithLongLong(ctx, (long long)counts.length);
        RedisModule_ReplyWithLongLong(ctx, (long long)counts.bytes);
    }
    return REDISMODULE_OK;
}
