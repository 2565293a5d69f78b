/* lease_end - ends leases one by one, of one connection, or of all that are due. */
#include "redis-module/keyspace/lease_end.h"

#include <string.h>

#include "redis-module/keyspace/tombstones.h"

/* So many leases end, and so many entries expire, in one look at a lane: about a millisecond's
 * work. The rest at the next, which follows at once. */
#define OVERDUE_PER_LOOK 1000

static void remove_leased(struct lease_end *g, const struct lane_entry *e, enum tombstone what)
{
    uint64_t seq = e->seq;
    tombstone_remember(g->key->value->hash, e->id, what, now_ms());
    lane_remove(g->key->value->lane, seq);
    ranges_add(&g->gone, seq);
    g->dead++;
}

static void die_later(struct lease_end *g, uint64_t seq)
{
    if (g->ndying == g->room) {
        size_t room = g->room ? 2 * g->room : 16;
        g->dying = must_grow(g->dying, g->ndying * sizeof *g->dying, room * sizeof *g->dying);
        g->room = room;
    }
    g->dying[g->ndying++] = seq;
}

void lease_end_entry(struct lease_end *g, const struct lane_entry *e)
{
    struct value *v = g->key->value;
    uint32_t most = lane_settings(v->lane)->maxattempts;
    bool attempt = g->how == LEASE_END_RETRY;
    bool dies = g->how == LEASE_END_FATAL || (attempt && most && e->attempts + 1 >= most) ||
                (e->expires && e->expires <= now_ms());
    if (e->revoked) {
        remove_leased(g, e, TOMBSTONE_REVOKED);
    } else if (!dies) {
        ranges_add(&g->back, e->seq);
        lane_put_back(v->lane, e->seq, attempt, g->delay ? now_ms() + g->delay : 0);
        g->given++;
    } else if (!v->dead) {
        remove_leased(g, e, TOMBSTONE_MOVED);
    } else {
        /* The dead expire no more, nor does what cannot be buried. */
        uint64_t seq = e->seq;
        die_later(g, seq);
        lane_keep(v->lane, seq);
        lane_put_back(v->lane, seq, attempt, 0);
    }
}

/* Another lane than the one it leaves, and a lane: else the dead stay where they are. A mail is
 * rather tried for ever than lost. */
static bool open_grave(struct lease_end *g, RedisModuleString *name, struct lane_key *grave)
{
    if (!lane_key_open(g->ctx, name, true, grave))
        return false;
    if (grave->value != g->key->value && lane_key_make(g->ctx, grave))
        return true;
    RedisModule_CloseKey(grave->key);
    return false;
}

static void stay(struct lease_end *g, uint64_t seq)
{
    lane_put_back(g->key->value->lane, seq, false, g->delay ? now_ms() + g->delay : 0);
    ranges_add(&g->back, seq);
    g->given++;
}

static void bury(struct lease_end *g, struct lane_key *grave, uint64_t seq, struct chunk *chunk)
{
    struct lane *from = g->key->value->lane, *to = grave->value->lane;
    struct lane_entry e;
    uint64_t there;
    uint8_t id[ID_LEN];
    if (!lane_get(from, seq, &e))
        return;
    bool has_id = e.id != NULL;
    if (has_id)
        memcpy(id, e.id, ID_LEN);
    enum lane_result result = lane_hand_over(from, seq, to, &there);
    if (result == LANE_OK) {
        lane_get(to, there, &e);
        effect_load_add(g->ctx, grave->name, chunk, &e);
    } else if (result == LANE_HELD) {
        lane_remove(from, seq);
    } else {
        stay(g, seq);
        return;
    }
    tombstone_remember(g->key->value->hash, has_id ? id : NULL, TOMBSTONE_MOVED, now_ms());
    ranges_add(&g->gone, seq);
    g->dead++;
}

static void bury_all(struct lease_end *g)
{
    struct value *v = g->key->value;
    struct lane_key grave;
    struct chunk chunk = {0};
    RedisModuleString *name = RedisModule_CreateString(g->ctx, v->dead, v->dead_len);
    if (open_grave(g, name, &grave)) {
        for (size_t i = 0; i < g->ndying; i++)
            bury(g, &grave, g->dying[i], &chunk);
        effect_load(g->ctx, name, &chunk);
        lane_key_close(g->ctx, &grave);
        lane_event(g->ctx, "lane.dead", name);
    } else {
        char lane[NAME_SHOWN], dead[NAME_SHOWN];
        int lane_len = (int)name_show(lane, v->name, v->name_len),
            dead_len = (int)name_show(dead, v->dead, v->dead_len);
        RedisModule_Log(g->ctx, "warning",
                        "lane: dead-letter lane %.*s of %.*s is not a lane (its key holds "
                        "something else, or memory is out): %zu entries stay. LANE.CREATE %.*s "
                        "DEAD names another",
                        dead_len, dead, lane_len, lane, g->ndying, lane_len, lane);
        for (size_t i = 0; i < g->ndying; i++)
            stay(g, g->dying[i]);
    }
    RedisModule_FreeString(g->ctx, name);
}

void lease_end_finish(struct lease_end *g)
{
    if (g->ndying)
        bury_all(g);
    effect_back(g->ctx, g->key->name, &g->back, g->how == LEASE_END_RETRY, g->delay);
    effect_del(g->ctx, g->key->name, &g->gone);
    if (g->dying)
        RedisModule_Free(g->dying);
    g->dying = NULL;
}

uint64_t lease_end_lost(RedisModuleCtx *ctx, struct lane_lease *lease, uint64_t most)
{
    struct value *v = *lane_owner(lane_lease_lane(lease));
    int db = RedisModule_GetSelectedDb(ctx);
    RedisModuleString *name = RedisModule_CreateString(ctx, v->name, v->name_len);
    struct lane_key k;
    uint64_t seq, number = 0, n = 0;
    struct lane_entry e;
    RedisModule_SelectDb(ctx, v->db);
    seq = lane_lease_next(lease, 0);
    if (lane_get(v->lane, seq, &e))
        number = e.lease;
    /* Opening may find that the key has expired, and free the lane with its leases: nothing is
     * left to do then. */
    if (lane_key_open(ctx, name, true, &k)) {
        if (k.value == v && number) {
            struct lease_end g = {.ctx = ctx, .key = &k, .how = LEASE_END_RETRY};
            for (; seq && n < most; n++) {
                uint64_t after = lane_lease_next(lease, seq);
                lane_get(v->lane, seq, &e);
                lease_end_entry(&g, &e);
                seq = after;
            }
            lease_end_finish(&g);
        }
        lane_key_close(ctx, &k);
    }
    RedisModule_SelectDb(ctx, db);
    RedisModule_FreeString(ctx, name);
    return n;
}

/* A replica waits for its primary to say so. */
static void expire(RedisModuleCtx *ctx, struct lane_key *k, int64_t now)
{
    struct lane *lane = k->value->lane;
    struct lease_end g = {.ctx = ctx, .key = k, .how = LEASE_END_KEEP};
    uint64_t seq;
    struct lane_entry e;
    if (lane_expiry(lane) > now || is_replica(ctx))
        return;
    for (int i = 0; i < OVERDUE_PER_LOOK && (seq = lane_expired(lane, now)); i++) {
        lane_get(lane, seq, &e);
        lease_end_entry(&g, &e);
    }
    lease_end_finish(&g);
    if (g.dead)
        lane_event(ctx, "lane.expired", k->name);
}

void lease_end_overdue(RedisModuleCtx *ctx, struct lane_key *k)
{
    struct lane *lane = k->value->lane;
    struct lease_end g = {.ctx = ctx, .key = k, .how = LEASE_END_RETRY};
    int64_t now = now_ms();
    uint64_t seq;
    struct lane_entry e;
    k->value->expired_ahead = false;
    expire(ctx, k, now);
    lane_due(lane, now);
    for (int i = 0; i < OVERDUE_PER_LOOK && (seq = lane_overdue(lane, now)); i++) {
        lane_get(lane, seq, &e);
        lease_end_entry(&g, &e);
    }
    lease_end_finish(&g);
}
