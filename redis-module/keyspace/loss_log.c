/* loss_log - gathers what one command or flush loses, and writes the line. */
#include "redis-module/keyspace/loss_log.h"

#include <stdio.h>
#include <string.h>

#include "redis-module/keyspace/lane_timer.h"
#include "redis-module/keyspace/whole_sets.h"

struct loss {
    const struct value *value; /* only ever compared: it may be freed by now */
    int db;
    uint64_t entries, bytes;
    size_t shown;
    uint64_t hash; /* of database and name */
    char name[NAME_SHOWN];
    struct loss *next;
};

static struct loss *open_ones;

static void say(RedisModuleCtx *ctx, const char *how, int db, const char *name, size_t shown,
                uint64_t entries, uint64_t bytes)
{
    RedisModule_Log(
        ctx, "warning", "lane: %llu entries of %llu bytes went with lane %.*s of database %d: %s",
        (unsigned long long)entries, (unsigned long long)bytes, (int)shown, name, db, how);
}

static void say_and_free(RedisModuleCtx *ctx, struct loss *f, const char *how)
{
    say(ctx, how, f->db, f->name, f->shown, f->entries, f->bytes);
    RedisModule_Free(f);
}

void loss_log_note(const struct value *v)
{
    struct lane_counts n = lane_counts(v->lane);
    if (!n.length || !v->attached)
        return;
    whole_lost_with(v); /* also by a RENAME: nobody finds them under the name that they had */
    struct loss *f = must_alloc(sizeof *f);
    *f = (struct loss){.value = v,
                       .db = v->db,
                       .entries = n.length,
                       .bytes = n.bytes,
                       .hash = v->hash,
                       .next = open_ones};
    f->shown = name_show(f->name, v->name, v->name_len);
    open_ones = f;
    lane_timer_soon();
}

void loss_log_cancel(const struct value *v)
{
    for (struct loss **at = &open_ones; *at;) {
        struct loss *f = *at;
        if (f->value != v) {
            at = &f->next;
            continue;
        }
        *at = f->next;
        RedisModule_Free(f);
    }
}

static const char *meaning(const char *event)
{
    static const char *const known[][2] = {
        {"del", "deleted"}, {"expired", "the key expired"}, {"evicted", "evicted"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(event, known[i][0]) == 0)
            return known[i][1];
    return NULL;
}

void loss_log_event(RedisModuleCtx *ctx, const char *event, RedisModuleString *key)
{
    const char *how = open_ones ? meaning(event) : NULL;
    size_t len;
    if (!how)
        return;
    const char *name = RedisModule_StringPtrLen(key, &len);
    uint64_t hash = name_hash(RedisModule_GetSelectedDb(ctx), name, len);
    for (struct loss **at = &open_ones; *at; at = &(*at)->next)
        if ((*at)->hash == hash) {
            struct loss *f = *at;
            *at = f->next;
            say_and_free(ctx, f, how);
            return;
        }
}

void loss_log_flush(RedisModuleCtx *ctx)
{
    while (open_ones) {
        struct loss *f = open_ones;
        open_ones = f->next;
        say_and_free(ctx, f, "overwritten by something else");
    }
}

void loss_log_all(RedisModuleCtx *ctx, int db, uint64_t lanes, uint64_t entries, uint64_t bytes)
{
    if (!entries)
        return;
    char which[32] = "all databases";
    if (db >= 0)
        snprintf(which, sizeof which, "database %d", db);
    RedisModule_Log(
        ctx, "warning", "lane: %llu entries of %llu bytes went with %llu lanes of %s: flushed",
        (unsigned long long)entries, (unsigned long long)bytes, (unsigned long long)lanes, which);
}

void loss_log_reset(RedisModuleCtx *ctx, const struct value *v, uint64_t entries, uint64_t bytes)
{
    char name[NAME_SHOWN];
    whole_lost_with(v);
    say(ctx, "reset", v->db, name, name_show(name, v->name, v->name_len), entries, bytes);
}
