/* value - makes, attaches, finds and frees lanes. */
#include "redis-module/keyspace/value.h"

#include <stdio.h>
#include <string.h>

#include "redis-module/keyspace/loss_log.h"
#include "redis-module/keyspace/tombstones.h"
#include "redis-module/keyspace/ready_waiters.h"
#include "redis-module/keyspace/lane_timer.h"

struct cursor_list all_lanes, ready_lanes;

static int reply_about_key(RedisModuleCtx *ctx, const char *before, RedisModuleString *key,
                           const char *behind)
{
    char text[350];
    size_t len;
    const char *name = RedisModule_StringPtrLen(key, &len);
    int n =
        snprintf(text, sizeof text, "%s%.*s%s", before, len < 250 ? (int)len : 250, name, behind);
    for (int i = 0; i < n; i++)
        if (text[i] < ' ' || text[i] > '~')
            text[i] = '?'; /* an error is one line */
    return RedisModule_ReplyWithError(ctx, text);
}

/* ---- Life ---- */

struct value *value_create(void)
{
    struct value *v = RedisModule_TryAlloc(sizeof *v);
    struct lane *lane = v ? lane_create(&server.env) : NULL;
    if (!lane) {
        if (v)
            RedisModule_Free(v);
        return NULL;
    }
    *v = (struct value){.lane = lane, .wake = LANE_NEVER};
    *lane_owner(lane) = v;
    return v;
}

void value_free(struct value *v)
{
    RedisModule_Assert(!v->attached);
    lane_free(v->lane);
    if (v->dead)
        RedisModule_Free(v->dead);
    if (v->name)
        RedisModule_Free(v->name);
    RedisModule_Free(v);
}

uint64_t value_empty(struct value *v)
{
    uint64_t n = lane_counts(v->lane).length;
    struct lane *old = n ? lane_empty(v->lane) : NULL;
    if (old)
        free_aside(old);
    if (server.env.over)
        lane_timer_soon();
    struct lane_entry e;
    while (n && lane_next(v->lane, 0, &e)) /* there was no memory to do it at once */
        lane_remove(v->lane, e.seq);
    return n;
}

size_t name_show(char *to, const char *name, size_t len)
{
    size_t n = len < NAME_SHOWN ? len : NAME_SHOWN;
    for (size_t i = 0; i < n; i++)
        to[i] = (char)(name[i] >= ' ' && name[i] <= '~' ? name[i] : '?');
    return n;
}

uint64_t name_hash(int db, const char *name, size_t len)
{
    return lane_hash(server.env.key, name, len) + (uint64_t)db * 0x9e3779b97f4a7c15u;
}

void value_set_dead(struct value *v, const char *name, size_t len)
{
    char *copy = NULL;
    if (len) {
        copy = must_alloc(len);
        memcpy(copy, name, len);
    }
    if (v->dead)
        RedisModule_Free(v->dead);
    v->dead = copy;
    v->dead_len = len;
}

void value_attach(struct value *v, int db, const char *name, size_t len)
{
    if (v->attached && v->db == db && v->name_len == len && memcmp(v->name, name, len) == 0)
        return;
    if (v->attached)
        value_detach(v);
    if (v->name)
        RedisModule_Free(v->name);
    v->name = must_alloc(len);
    memcpy(v->name, name, len);
    v->name_len = len;
    v->db = db;
    v->hash = name_hash(db, name, len);
    v->attached = true;
    loss_log_cancel(v);
    v->listed = cursor_list_add(&all_lanes, v);
    server.lanes++;
    value_changed(NULL, v, NULL);
}

static void tell_totals(struct value *v, uint64_t entries, uint64_t bytes, uint64_t leased)
{
    RedisModule_Assert(server.entries >= v->told_entries && server.bytes >= v->told_bytes &&
                       server.leased >= v->told_leased);
    server.entries += entries - v->told_entries;
    server.bytes += bytes - v->told_bytes;
    server.leased += leased - v->told_leased;
    v->told_entries = entries;
    v->told_bytes = bytes;
    v->told_leased = leased;
}

void value_end_leases(struct value *v)
{
    lane_end_leases(v->lane);
    if (server.env.over)
        lane_timer_soon();
}

void value_detach(struct value *v)
{
    if (!v->attached)
        return;
    value_end_leases(v);
    lane_timer_set(v, LANE_NEVER);
    cursor_list_remove(&all_lanes, v->listed);
    if (v->ready)
        cursor_list_remove(&ready_lanes, v->ready);
    tell_totals(v, 0, 0, 0);
    RedisModule_Assert(v->listed && server.lanes);
    server.lanes--;
    v->listed = v->ready = 0;
    v->takeable = v->attached = false;
}

void value_changed(RedisModuleCtx *ctx, struct value *v, RedisModuleString *name)
{
    struct lane_counts n = lane_counts(v->lane);
    tell_totals(v, n.length, n.bytes, n.leased);
    int64_t wake = lane_wake(v->lane);
    if (n.expiring && lane_expiry(v->lane) < wake && !is_replica(server.ctx))
        wake = lane_expiry(v->lane);
    lane_timer_set(v, wake);
    bool takeable = lane_takeable(v->lane) && !v->expired_ahead;
    if (takeable == v->takeable)
        return;
    v->takeable = takeable;
    if (!takeable) {
        if (v->ready)
            cursor_list_remove(&ready_lanes, v->ready);
        v->ready = 0;
        return;
    }
    if (ctx && name)
        RedisModule_SignalKeyAsReady(ctx, name);
    if (v->db == 0) {
        v->ready = cursor_list_add(&ready_lanes, v);
        ready_wake();
    }
}

/* ---- By key ---- */

bool lane_key_open(RedisModuleCtx *ctx, RedisModuleString *name, bool write, struct lane_key *k)
{
    /* A key opened for reading that does not exist is NULL; the calls below take that for an
     * empty one. */
    *k = (struct lane_key){.name = name, .write = write};
    k->key = RedisModule_OpenKey(ctx, name,
                                 write ? REDISMODULE_READ | REDISMODULE_WRITE : REDISMODULE_READ);
    if (!k->key || RedisModule_KeyType(k->key) == REDISMODULE_KEYTYPE_EMPTY)
        return true;
    if (RedisModule_ModuleTypeGetType(k->key) != server.type) {
        RedisModule_CloseKey(k->key);
        k->key = NULL;
        return false;
    }
    k->value = RedisModule_ModuleTypeGetValue(k->key);
    size_t len;
    const char *text = RedisModule_StringPtrLen(name, &len);
    value_attach(k->value, RedisModule_GetSelectedDb(ctx), text, len);
    return true;
}

bool lane_key_open_or_reply(RedisModuleCtx *ctx, RedisModuleString *name, bool write,
                            struct lane_key *k)
{
    if (lane_key_open(ctx, name, write, k))
        return true;
    reply_about_key(ctx, "WRONGTYPE ", name, " holds something else than a lane");
    return false;
}

bool lane_key_make(RedisModuleCtx *ctx, struct lane_key *k)
{
    if (k->value)
        return true;
    k->value = value_create();
    if (!k->value)
        return false;
    RedisModule_ModuleTypeSetValue(k->key, server.type, k->value);
    size_t len;
    const char *text = RedisModule_StringPtrLen(k->name, &len);
    value_attach(k->value, RedisModule_GetSelectedDb(ctx), text, len);
    return true;
}

void lane_key_close(RedisModuleCtx *ctx, struct lane_key *k)
{
    bool vanished = false;
    if (k->value && k->write) {
        value_changed(ctx, k->value, k->name);
        vanished =
            lane_counts(k->value->lane).length == 0 && !lane_settings(k->value->lane)->created;
        if (vanished)
            RedisModule_DeleteKey(k->key);
    }
    if (k->key)
        RedisModule_CloseKey(k->key);
    if (vanished)
        RedisModule_NotifyKeyspaceEvent(ctx, REDISMODULE_NOTIFY_GENERIC, "del", k->name);
    k->key = NULL;
    k->value = NULL;
}

/* What it holds beyond is written before it is read; it is large beside a command of a few
 * entries. */
void ahead_begin(struct ahead *a, uint64_t lane, struct value *v)
{
    a->lane = lane;
    a->value = v;
    a->n = 0;
}

void ahead_add(struct ahead *a, const uint8_t *id)
{
    if (a->n < LANE_AHEAD)
        a->hash[a->n++] = lane_id_hash(&server.env, id);
}

void ahead_fetch(struct ahead *a)
{
    tombstone_ahead(a->lane, a->hash, a->n);
    if (a->value)
        lane_ahead(a->value->lane, a->hash, a->n);
    a->n = 0;
}

void lane_event(RedisModuleCtx *ctx, const char *event, RedisModuleString *key)
{
    RedisModule_NotifyKeyspaceEvent(ctx, REDISMODULE_NOTIFY_MODULE, event, key);
}

int reply_nolane(RedisModuleCtx *ctx, RedisModuleString *key)
{
    return reply_about_key(ctx, "NOLANE ", key, "");
}
