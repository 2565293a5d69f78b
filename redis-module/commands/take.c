/* take - LANE.TAKE, LANE.NACK, LANE.EXTEND: leasing entries and giving them back. */
#include "redis-module/commands/commands.h"
#include "redis-module/keyspace/lease_end.h"
#include "redis-module/keyspace/lease_holder.h"
#include "redis-module/commands/selector.h"

#define COUNT_MAX 1000000

struct take {
    RedisModuleString **keys;
    uint64_t nkeys, count, bytes, lease, block;
    bool blocks;
    uint64_t taken, taken_bytes, lanes;
};

static bool read_take(struct args *a, struct take *t)
{
    *t = (struct take){.count = 1, .bytes = UINT64_MAX, .lease = (uint64_t)server.lease_ms};
    if (!args_keys(a, &t->keys, &t->nkeys))
        return false;
    while (args_left(a)) {
        bool fine;
        if (args_option(a, "COUNT", 1))
            fine = args_number(a, "count", 1, COUNT_MAX, &t->count);
        else if (args_option(a, "BYTES", 2))
            fine = args_number(a, "bytes", 0, INT64_MAX, &t->bytes);
        else if (args_option(a, "LEASE", 4))
            fine = args_number(a, "lease", 1, TIME_MAX, &t->lease);
        else if (args_option(a, "BLOCK", 8))
            fine = t->blocks = args_number(a, "block", 0, TIME_MAX, &t->block);
        else
            fine = args_expected(a, "COUNT, BYTES, LEASE or BLOCK, each once");
        if (!fine)
            return false;
    }
    return true;
}

static void reply_entry(RedisModuleCtx *ctx, const struct lane_entry *e, int64_t now)
{
    RedisModule_ReplyWithArray(ctx, 7);
    RedisModule_ReplyWithLongLong(ctx, (long long)e->seq);
    RedisModule_ReplyWithStringBuffer(ctx, (const char *)e->id, e->id ? ID_LEN : 0);
    RedisModule_ReplyWithLongLong(ctx, e->revision);
    RedisModule_ReplyWithLongLong(ctx, e->attempts);
    RedisModule_ReplyWithLongLong(ctx, now - e->born);
    RedisModule_ReplyWithStringBuffer(ctx, e->meta, e->meta_len);
    RedisModule_ReplyWithStringBuffer(ctx, e->body, e->body_len);
}

/* Fills one lease from one lane. The reply's arrays begin with the first entry: a TAKE that gets
 * nothing has not answered yet. */
static void take_from(RedisModuleCtx *ctx, struct take *t, struct lane_key *k,
                      struct lane_holder *holder)
{
    struct lane *lane = k->value->lane;
    struct lane_entry e;
    long n = 0;
    int64_t now = now_ms();
    if (t->taken == t->count || !lane_candidate(lane, NULL, &e))
        return;
    struct lane_lease *lease = lane_lease_open(lane, holder, ++server.leases);
    while (lease && t->taken < t->count && lane_candidate(lane, lease, &e)) {
        if (e.expires && e.expires <= now) {
            k->value->expired_ahead = true;
            break;
        }
        uint64_t size = (uint64_t)e.meta_len + e.body_len;
        if (t->taken && (size > t->bytes || t->taken_bytes > t->bytes - size)) {
            t->count = t->taken; /* and no smaller one of a later lane either */
            break;
        }
        if (!lane_lease_add(lease, e.seq, now + (int64_t)t->lease))
            break;
        if (t->lanes == 0)
            RedisModule_ReplyWithArray(ctx, REDISMODULE_POSTPONED_LEN);
        if (n++ == 0) {
            t->lanes++;
            RedisModule_ReplyWithArray(ctx, 3);
            RedisModule_ReplyWithString(ctx, k->name);
            RedisModule_ReplyWithLongLong(ctx, (long long)server.leases);
            RedisModule_ReplyWithArray(ctx, REDISMODULE_POSTPONED_LEN);
        }
        reply_entry(ctx, &e, now);
        t->taken++;
        t->taken_bytes += size;
    }
    if (n)
        RedisModule_ReplySetArrayLength(ctx, n);
    if (lease)
        lane_lease_close(lease);
    if (n)
        lane_event(ctx, "lane.take", k->name);
}

static void take_all(RedisModuleCtx *ctx, struct take *t, bool overdue)
{
    struct lane_holder *holder = lease_holder_of(RedisModule_GetClientId(ctx));
    struct lane_entry e;
    for (uint64_t i = 0; i < t->nkeys && t->taken < t->count; i++) {
        struct lane_key k;
        if (!lane_key_open(ctx, t->keys[i], true, &k))
            continue;
        if (k.value && overdue)
            lease_end_overdue(ctx, &k);
        /* One that stood behind many others, or that nobody looked at since its lease ended with
         * all others. */
        if (k.value && overdue && lane_candidate(k.value->lane, NULL, &e) && e.expires &&
            e.expires <= now_ms())
            lease_end_overdue(ctx, &k);
        if (k.value)
            take_from(ctx, t, &k, holder);
        lane_key_close(ctx, &k);
    }
    if (t->lanes)
        RedisModule_ReplySetArrayLength(ctx, (long)t->lanes);
}

/* A key became ready. What is not served stays blocked. */
static int take_ready(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    struct args a = {ctx, argv, argc, 1};
    struct take t;
    if (!read_take(&a, &t))
        return REDISMODULE_OK;
    take_all(ctx, &t, false);
    return t.lanes ? REDISMODULE_OK : REDISMODULE_ERR;
}

static int take_timeout(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    return RedisModule_ReplyWithEmptyArray(ctx);
}

/* Before anything is leased: an error cannot follow half a reply. */
static bool check_types(RedisModuleCtx *ctx, const struct take *t)
{
    for (uint64_t i = 0; i < t->nkeys; i++) {
        struct lane_key k;
        if (!lane_key_open_or_reply(ctx, t->keys[i], false, &k))
            return false;
        lane_key_close(ctx, &k);
    }
    return true;
}

/* LANE.TAKE <numkeys> <key> ... [COUNT <n>] [BYTES <b>] [LEASE <ms>] [BLOCK <ms>] */
int take_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    struct args a = {ctx, argv, argc, 1};
    struct take t;
    if (argc < 2)
        return RedisModule_WrongArity(ctx);
    if (!read_take(&a, &t))
        return REDISMODULE_OK;
    if (is_replica(ctx))
        return RedisModule_ReplyWithError(ctx,
                                          "READONLY a replica leases nothing, its primary does");
    lease_holders_settle(ctx);
    if (!check_types(ctx, &t))
        return REDISMODULE_OK;
    take_all(ctx, &t, true);
    if (t.lanes)
        return REDISMODULE_OK;
    if (!t.blocks || !may_block(ctx))
        return RedisModule_ReplyWithEmptyArray(ctx);
    RedisModule_BlockClientOnKeys(ctx, take_ready, take_timeout, NULL, (long long)t.block, t.keys,
                                  (int)t.nkeys, NULL);
    return REDISMODULE_OK;
}

/* ---- NACK and EXTEND ---- */

struct leased {
    struct lease_end give; /* NACK */
    struct lane *lane;     /* EXTEND */
    int64_t until;
    uint64_t extended, absent;
};

static void nack_entry(void *arg, const struct lane_entry *e)
{
    struct leased *l = arg;
    lease_end_entry(&l->give, e);
}

static void extend_entry(void *arg, const struct lane_entry *e)
{
    struct leased *l = arg;
    lane_extend(l->lane, e->seq, l->until);
    l->extended++;
}

static void count_absent(void *arg, const uint8_t *id)
{
    struct leased *l = arg;
    l->absent++;
}

static bool read_how(struct args *a, enum lease_end_how *how)
{
    if (args_word(a, "RETRY"))
        *how = LEASE_END_RETRY;
    else if (args_word(a, "KEEP"))
        *how = LEASE_END_KEEP;
    else if (args_word(a, "FATAL"))
        *how = LEASE_END_FATAL;
    else
        return args_expected(a, "RETRY, KEEP or FATAL");
    return true;
}

/* LANE.NACK <key> <lease> RETRY|KEEP|FATAL <delay-ms> <selector> */
int nack_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    struct args a = {ctx, argv, argc, 2};
    struct lane_key k;
    struct leased l = {.give = {.ctx = ctx, .key = &k}};
    struct selector s;
    uint64_t lease, delay;
    if (argc < 2)
        return RedisModule_WrongArity(ctx);
    if (!args_number(&a, "lease", 1, INT64_MAX, &lease) || !read_how(&a, &l.give.how) ||
        !args_number(&a, "delay", 0, TIME_MAX, &delay) || !args_selector(&a, &s) || !args_end(&a))
        return REDISMODULE_OK;
    lease_holders_settle(ctx);
    if (!lane_key_open_or_reply(ctx, argv[1], true, &k))
        return REDISMODULE_OK;
    l.give.delay = (int64_t)delay;
    selector_each_leased(&s, k.value ? k.value->lane : NULL, lease,
                         &(struct selector_calls){nack_entry, count_absent, &l});
    if (k.value)
        lease_end_finish(&l.give);
    if (l.give.given)
        lane_event(ctx, "lane.nack", argv[1]);
    lane_key_close(ctx, &k);
    RedisModule_ReplyWithArray(ctx, 3);
    RedisModule_ReplyWithLongLong(ctx, (long long)l.give.given);
    RedisModule_ReplyWithLongLong(ctx, (long long)l.give.dead);
    return RedisModule_ReplyWithLongLong(ctx, (long long)l.absent);
}

/* LANE.EXTEND <key> <lease> <ms> <selector> */
int extend_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    struct args a = {ctx, argv, argc, 2};
    struct lane_key k;
    struct leased l = {0};
    struct selector s;
    uint64_t lease, ms;
    if (argc < 2)
        return RedisModule_WrongArity(ctx);
    if (!args_number(&a, "lease", 1, INT64_MAX, &lease) ||
        !args_number(&a, "ms", 0, TIME_MAX, &ms) || !args_selector(&a, &s) || !args_end(&a))
        return REDISMODULE_OK;
    lease_holders_settle(ctx);
    if (!lane_key_open_or_reply(ctx, argv[1], true, &k))
        return REDISMODULE_OK;
    l.lane = k.value ? k.value->lane : NULL;
    l.until = now_ms() + (int64_t)ms;
    selector_each_leased(&s, l.lane, lease,
                         &(struct selector_calls){extend_entry, count_absent, &l});
    lane_key_close(ctx, &k);
    RedisModule_ReplyWithArray(ctx, 2);
    RedisModule_ReplyWithLongLong(ctx, (long long)l.extended);
    return RedisModule_ReplyWithLongLong(ctx, (long long)l.absent);
}
