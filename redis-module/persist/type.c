/* type - the type's methods and the server's events.
 *
 * UNLINK and FLUSHALL ASYNC free a value on another thread. Before that the server either calls
 * unlink or fires the flush event, on the main thread: there the value is detached, and what is
 * left touches nothing but its own memory. RENAME and MOVE call unlink, too, but keep the value;
 * their events attach it again. */
#include "redis-module/persist/type.h"

#include <string.h>

#include "redis-module/propagate/effect.h"
#include "redis-module/keyspace/loss_log.h"
#include "redis-module/keyspace/lease_holder.h"
#include "redis-module/keyspace/whole_sets.h"

/* ---- Methods ---- */

static void free_value(void *value)
{
    struct value *v = value;
    /* Attached still: the server drops a data set without any event. On another thread nothing
     * can be done then that is safe, so the lane stays, unreachable; no server known does that. */
    if (v->attached && !on_main_thread())
        return;
    value_detach(v);
    value_free(v);
}

static void unlink_value(RedisModuleKeyOptCtx *key, const void *value)
{
    struct value *v = (struct value *)(uintptr_t)value;
    loss_log_note(v);
    value_detach(v);
}

/* ---- Defragmentation ---- */

static void *move_piece(void *ctx, void *piece)
{
    return RedisModule_DefragAlloc(ctx, piece);
}

static bool time_is_over(void *ctx)
{
    return RedisModule_DefragShouldStop(ctx);
}

static bool never(void *ctx)
{
    return false;
}

/* Small values are done in one go: the server keeps no cursor for them. */
static int defrag_value(RedisModuleDefragCtx *ctx, RedisModuleString *key, void **value)
{
    const struct value *v = *value;
    unsigned long cursor = 0;
    bool kept = RedisModule_DefragCursorGet(ctx, &cursor) == REDISMODULE_OK;
    uint64_t at = cursor;
    bool more = lane_defrag(
        v->lane, &(struct lane_defrag){move_piece, kept ? time_is_over : never, ctx}, &at);
    if (more)
        RedisModule_DefragCursorSet(ctx, (unsigned long)at);
    return more;
}

static size_t free_effort(RedisModuleKeyOptCtx *key, const void *value)
{
    const struct value *v = value;
    return lane_pieces(v->lane);
}

static size_t memory_usage(RedisModuleKeyOptCtx *key, const void *value, size_t samples)
{
    const struct value *v = value;
    return lane_counts(v->lane).memory + sizeof *v + v->name_len + v->dead_len;
}

static void *copy_value(RedisModuleKeyOptCtx *key, const void *value)
{
    const struct value *from = value;
    struct value *v = RedisModule_TryAlloc(sizeof *v);
    struct lane *lane = v ? lane_copy(from->lane) : NULL;
    if (!lane) {
        if (v)
            RedisModule_Free(v);
        return NULL;
    }
    *v = (struct value){.lane = lane, .wake = LANE_NEVER};
    *lane_owner(lane) = v;
    value_set_dead(v, from->dead, from->dead_len);
    size_t len;
    const char *name = RedisModule_StringPtrLen(RedisModule_GetToKeyNameFromOptCtx(key), &len);
    value_attach(v, RedisModule_GetToDbIdFromOptCtx(key), name, len);
    return v;
}

static void rewrite_value(RedisModuleIO *aof, RedisModuleString *key, void *value)
{
    const struct value *v = value;
    effect_rewrite(aof, key, v->lane, v->dead ? v->dead : "", v->dead_len);
}

/* What a replica, a reload and a replay must have equal: not leases, delays and ages, which
 * belong to a clock. */
static void digest(RedisModuleDigest *md, void *value)
{
    struct value *v = value;
    const struct lane_settings *s = lane_settings(v->lane);
    struct lane_entry e;
    RedisModule_DigestAddLongLong(md, (long long)s->maxlen);
    RedisModule_DigestAddLongLong(md, (long long)s->maxbytes);
    RedisModule_DigestAddLongLong(md, (long long)s->maxattempts * 4 + s->strict * 2 + s->created);
    RedisModule_DigestAddStringBuffer(md, v->dead ? v->dead : "", v->dead_len);
    RedisModule_DigestEndSequence(md);
    for (uint64_t seq = 0; lane_next(v->lane, seq, &e); seq = e.seq + 1) {
        RedisModule_DigestAddLongLong(md, (long long)e.seq);
        RedisModule_DigestAddStringBuffer(md, (const char *)e.id, e.id ? ID_LEN : 0);
        RedisModule_DigestAddLongLong(md, e.revision);
        RedisModule_DigestAddLongLong(md, e.attempts);
        RedisModule_DigestAddStringBuffer(md, e.meta, e.meta_len);
        RedisModule_DigestAddStringBuffer(md, e.body, e.body_len);
        RedisModule_DigestEndSequence(md);
    }
}

/* ---- Events ---- */

static void on_client(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t sub, void *data)
{
    if (sub == REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED)
        lease_holder_gone(((RedisModuleClientInfo *)data)->id);
}

static void on_flush(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t sub, void *data)
{
    const RedisModuleFlushInfo *info = data;
    if (sub != REDISMODULE_SUBEVENT_FLUSHDB_START)
        return;
    if (info->dbnum == -1 || info->dbnum == 0)
        whole_lost();
    /* Detaching may sweep the list, so each step begins where the last one was. */
    uint64_t no = 0, lanes = 0, entries = 0, bytes = 0;
    for (size_t i; (i = cursor_list_after(&all_lanes, no)) < all_lanes.end;) {
        struct value *v = all_lanes.item[i].value;
        no = all_lanes.item[i].no;
        if (!v || (info->dbnum != -1 && info->dbnum != v->db))
            continue;
        struct lane_counts n = lane_counts(v->lane);
        lanes += n.length != 0;
        entries += n.length;
        bytes += n.bytes;
        value_detach(v);
    }
    loss_log_all(ctx, info->dbnum, lanes, entries, bytes);
}

static void on_swap(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t sub, void *data)
{
    const RedisModuleSwapDbInfo *info = data;
    if (info->dbnum_first == 0 || info->dbnum_second == 0)
        whole_lost();
    uint64_t no = 0, last = all_lanes.last; /* what is attached again gets a higher number */
    for (size_t i;
         (i = cursor_list_after(&all_lanes, no)) < all_lanes.end && all_lanes.item[i].no <= last;) {
        struct value *v = all_lanes.item[i].value;
        no = all_lanes.item[i].no;
        if (!v || (v->db != info->dbnum_first && v->db != info->dbnum_second))
            continue;
        int db = v->db == info->dbnum_first ? info->dbnum_second : info->dbnum_first;
        char *name = v->name;
        v->name = NULL; /* value_attach would free it */
        value_detach(v);
        value_attach(v, db, name, v->name_len);
        RedisModule_Free(name);
    }
}

/* A replica leases nothing: what was leased waits, for the next primary of the data. */
static void on_role(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t sub, void *data)
{
    server.streams = true;
    whole_lost();
    for (size_t i = all_lanes.begin; i < all_lanes.end; i++) {
        struct value *v = all_lanes.item[i].value;
        if (!v)
            continue;
        if (sub == REDISMODULE_EVENT_REPLROLECHANGED_NOW_REPLICA)
            value_end_leases(v);
        value_changed(NULL, v, NULL); /* only a primary lets entries expire */
    }
}

/* What was here before is not what is here afterwards. */
static void on_loading(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t sub, void *data)
{
    server.streams = true;
    whole_lost();
    if (sub == REDISMODULE_SUBEVENT_LOADING_ENDED)
        server.loaded_at = now_ms();
}

/* From here on somebody may want every effect. */
static void on_stream(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t sub, void *data)
{
    server.streams = true;
}

static void on_turn(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t sub, void *data)
{
    if (sub == REDISMODULE_SUBEVENT_EVENTLOOP_AFTER_SLEEP)
        turn_begins();
    else
        turn_ends();
}

/* RENAME and MOVE unlinked the value but kept it. */
static int on_key(RedisModuleCtx *ctx, int type, const char *event, RedisModuleString *key)
{
    struct lane_key k;
    if (strcmp(event, "rename_to") == 0 || strcmp(event, "move_to") == 0)
        if (lane_key_open(ctx, key, false, &k)) /* attaches it */
            lane_key_close(ctx, &k);
    loss_log_event(ctx, event, key);
    return REDISMODULE_OK;
}

int type_register(RedisModuleCtx *ctx)
{
    RedisModuleTypeMethods methods = {.version = REDISMODULE_TYPE_METHOD_VERSION,
                                      .rdb_load = rdb_load,
                                      .rdb_save = rdb_save,
                                      .aof_rewrite = rewrite_value,
                                      .digest = digest,
                                      .free = free_value,
                                      .mem_usage2 = memory_usage,
                                      .free_effort2 = free_effort,
                                      .unlink2 = unlink_value,
                                      .defrag = defrag_value,
                                      .copy2 = copy_value};
    const struct {
        uint64_t event;
        RedisModuleEventCallback call;
    } events[] = {{REDISMODULE_EVENT_CLIENT_CHANGE, on_client},
                  {REDISMODULE_EVENT_FLUSHDB, on_flush},
                  {REDISMODULE_EVENT_SWAPDB, on_swap},
                  {REDISMODULE_EVENT_FORK_CHILD, on_stream},
                  {REDISMODULE_EVENT_LOADING, on_loading},
                  {REDISMODULE_EVENT_EVENTLOOP, on_turn},
                  {REDISMODULE_EVENT_REPLICA_CHANGE, on_stream},
                  {REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED, on_role}};
    server.type = RedisModule_CreateDataType(ctx, TYPE_NAME, RDB_VERSION, &methods);
    if (!server.type)
        return REDISMODULE_ERR;
    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        if (RedisModule_SubscribeToServerEvent(ctx, (RedisModuleEvent){events[i].event, 1},
                                               events[i].call) != REDISMODULE_OK)
            return REDISMODULE_ERR;
    return RedisModule_SubscribeToKeyspaceEvents(
        ctx, REDISMODULE_NOTIFY_GENERIC | REDISMODULE_NOTIFY_EXPIRED | REDISMODULE_NOTIFY_EVICTED,
        on_key);
}
