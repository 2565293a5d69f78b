/* store - looks for the id, in the lane and among its tombstones, then appends. */
#include "redis-module/keyspace/store.h"

#include "redis-module/keyspace/tombstones.h"

/* Used memory is looked at again after that much was stored. */
#define LOOK_AGAIN 65536

void store_begin(struct store *s, RedisModuleCtx *ctx, int64_t delay, int64_t expire)
{
    *s = (struct store){
        .ctx = ctx, .now = now_ms(), .delay = delay, .expire = expire, .flags = memory_flags(ctx)};
}

static bool memory_left(struct store *s, size_t bytes)
{
    if (!(s->flags & REDISMODULE_CTX_FLAGS_MAXMEMORY))
        return true;
    if (s->unlooked > LOOK_AGAIN) {
        s->flags = memory_flags(s->ctx);
        s->unlooked = 0;
    }
    s->unlooked += bytes;
    return !(s->flags & REDISMODULE_CTX_FLAGS_OOM);
}

#define SAY_AGAIN 60000 /* ms */

/* Packed answers have no room for words, and whoever configures the server reads its log. */
static int64_t refuse_policy(struct store *s, int64_t answer)
{
    static int64_t said = -SAY_AGAIN;
    if (answer == ANSWER_POLICY && s->now - said >= SAY_AGAIN) {
        said = s->now;
        RedisModule_Log(s->ctx, "warning",
                        "lane: nothing is stored: maxmemory is set and maxmemory-policy is not "
                        "noeviction, so this "
                        "server may drop lanes by itself; CONFIG SET maxmemory-policy noeviction");
    }
    return answer;
}

/* What the lane holds is asked before any refusal. Revoked while it is delivered: it is removed
 * unless it is acked, so nobody may count it as a copy. */
static int64_t held_or(const struct lane_key *k, const struct lane_new *e, int64_t answer)
{
    struct lane_entry there;
    if (!e->id || !k->value || !lane_find(k->value->lane, e->id, &there))
        return answer;
    return there.revoked ? ANSWER_REVOKED : ANSWER_DONE;
}

int64_t store_entry(struct store *s, struct lane_key *k, uint64_t lane, struct lane_new *e)
{
    uint64_t seq;
    e->born = s->now;
    e->due = s->delay ? s->now + s->delay : 0;
    e->expires = s->expire ? s->now + s->expire : 0;
    enum tombstone gone = e->id ? tombstone_find(lane, e->id, s->now) : TOMBSTONE_NONE;
    if (gone != TOMBSTONE_NONE)
        return held_or(k, e, gone == TOMBSTONE_REVOKED ? ANSWER_REVOKED : ANSWER_DONE);
    if (s->flags & REDISMODULE_CTX_FLAGS_EVICT)
        return refuse_policy(s, held_or(k, e, ANSWER_POLICY));
    if (!memory_left(s, e->meta_len + e->body_len) || !lane_key_make(s->ctx, k))
        return held_or(k, e, ANSWER_MEMORY);
    switch (lane_push(k->value->lane, e, &seq)) {
    case LANE_OK: return (int64_t)seq;
    case LANE_HELD: return held_or(k, e, ANSWER_DONE);
    case LANE_FULL: return ANSWER_FULL;
    default: return held_or(k, e, ANSWER_MEMORY);
    }
}

size_t store_plain(struct store *s, const struct lane_key *k, const struct lane_data *data,
                   size_t n, uint64_t *seq_r)
{
    size_t bytes = 0;
    if (!k->value || s->delay || s->expire || s->flags & REDISMODULE_CTX_FLAGS_EVICT)
        return 0;
    for (size_t i = 0; i < n; i++)
        bytes += (size_t)data[i].body_len + data[i].meta_len;
    return memory_left(s, bytes) ? lane_push_plain(k->value->lane, s->now, data, n, seq_r) : 0;
}

int store_reply(RedisModuleCtx *ctx, int64_t answer)
{
    static const char *const word[] = {"",         "DONE",
                                       "REVOKED",  "FULL",
                                       "MEMORY",   "POLICY maxmemory-policy is not noeviction",
                                       "WRONGTYPE"};
    if (answer > 0)
        return RedisModule_ReplyWithLongLong(ctx, answer);
    return RedisModule_ReplyWithSimpleString(ctx, word[-answer]);
}
