/* move - LANE.MOVE: entries to another lane of this server, atomically. */
#include <string.h>

#include "redis-module/commands/commands.h"
#include "redis-module/keyspace/lease_end.h"
#include "redis-module/keyspace/lease_holder.h"
#include "redis-module/keyspace/tombstones.h"
#include "redis-module/commands/selector.h"

struct moving {
    RedisModuleCtx *ctx;
    struct lane_key from, to;
    struct chunk chunk;
    struct ranges gone;
    uint64_t moved, leased, absent;
    struct ahead ahead;
};

static void move_ahead(void *arg, const uint8_t *id)
{
    struct moving *m = arg;
    if (id) {
        ahead_add(&m->ahead, id);
        return;
    }
    if (m->to.value)
        lane_ahead(m->to.value->lane, m->ahead.hash, m->ahead.n);
    ahead_fetch(&m->ahead);
}

static void move_entry(void *arg, const struct lane_entry *e)
{
    struct moving *m = arg;
    uint64_t seq = e->seq, there;
    struct lane_entry moved;
    if (e->state == LANE_LEASED) {
        m->leased++;
        return;
    }
    if (!lane_key_make(m->ctx, &m->to))
        return;
    /* The id is remembered while the view of it is good; should the move fail for want of
     * memory, the lane still holds the id, and what a lane holds is asked first. */
    tombstone_remember(m->from.value->hash, e->id, TOMBSTONE_MOVED, now_ms());
    enum lane_result result = lane_hand_over(m->from.value->lane, seq, m->to.value->lane, &there);
    if (result == LANE_HELD) {
        lane_remove(m->from.value->lane, seq);
    } else if (result == LANE_OK) {
        lane_get(m->to.value->lane, there, &moved);
        effect_load_add(m->ctx, m->to.name, &m->chunk, &moved);
    } else {
        return;
    }
    ranges_add(&m->gone, seq);
    m->moved++;
}

static void move_absent(void *arg, const uint8_t *id)
{
    struct moving *m = arg;
    m->absent++;
}

static void move_all(RedisModuleCtx *ctx, struct moving *m, const struct selector *s)
{
    if (m->from.value)
        lane_due(m->from.value->lane, now_ms());
    ahead_begin(&m->ahead, m->from.value ? m->from.value->hash : 0, m->from.value);
    selector_each(s, m->from.value ? m->from.value->lane : NULL,
                  &(struct selector_calls){move_entry, move_absent, m, NULL, move_ahead});
    effect_load(ctx, m->to.name, &m->chunk);
    effect_del(ctx, m->from.name, &m->gone);
    if (m->moved) {
        lane_event(ctx, "lane.move_from", m->from.name);
        lane_event(ctx, "lane.move_to", m->to.name);
    }
}

static bool same(RedisModuleString *a, RedisModuleString *b)
{
    size_t a_len, b_len;
    const char *pa = RedisModule_StringPtrLen(a, &a_len), *pb = RedisModule_StringPtrLen(b, &b_len);
    return a_len == b_len && memcmp(pa, pb, a_len) == 0;
}

/* -LATE: the time in which the caller knows what the other lane's other owners hold is over. */
static int reply_late(RedisModuleCtx *ctx)
{
    return RedisModule_ReplyWithError(
        ctx, "LATE BEFORE is not later than this server's clock-ms: nothing was moved");
}

/* LANE.MOVE <from-key> <to-key> [BEFORE <clock-ms>] <selector> */
int move_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    struct args a = {ctx, argv, argc, 3};
    struct moving m = {.ctx = ctx};
    struct selector s;
    if (argc < 3)
        return RedisModule_WrongArity(ctx);
    uint64_t before = INT64_MAX;
    if (args_word(&a, "BEFORE") && !args_number(&a, "clock-ms", 0, INT64_MAX, &before))
        return REDISMODULE_OK;
    if (!args_selector(&a, &s) || !args_end(&a))
        return REDISMODULE_OK;
    turn_ends(); /* the clock itself: the server may have stood still since this turn began */
    if (now_ms() >= (int64_t)before)
        return reply_late(ctx);
    if (same(argv[1], argv[2]))
        return args_bad_value(&a, "to-key", argv[2], "another lane than from-key"), REDISMODULE_OK;
    lease_holders_settle(ctx);
    if (!lane_key_open_or_reply(ctx, argv[1], true, &m.from))
        return REDISMODULE_OK;
    if (!lane_key_open_or_reply(ctx, argv[2], true, &m.to)) {
        lane_key_close(ctx, &m.from);
        return REDISMODULE_OK;
    }
    move_all(ctx, &m, &s);
    lane_key_close(ctx, &m.to);
    lane_key_close(ctx, &m.from);
    RedisModule_ReplyWithArray(ctx, 3);
    RedisModule_ReplyWithLongLong(ctx, (long long)m.moved);
    RedisModule_ReplyWithLongLong(ctx, (long long)m.leased);
    return RedisModule_ReplyWithLongLong(ctx, (long long)m.absent);
}
