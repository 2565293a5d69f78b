/* tombstones - a hash table whose records die of age: extendible hashing over small tables.
 *
 *    by the top `depth` bits of the hash     a table, of 160 bytes to 4 KB
 *      00 ----> | head | tags: a byte for each place | records: id ^ lane, time, what |
 *      01 ----> (none: nothing of it is remembered)
 *      10 -.
 *      11 -'--> ...
 *
 * Linear probing over the tags: an id that is not remembered, as that of every new mail, costs
 * one access to memory that is not at hand, one that is remembered two, however many there are.
 * Those over time are thrown out when their table is full, and by a hand that goes round; a
 * table left with few gets smaller. No step costs more than a table. */
#include "redis-module/keyspace/tombstones.h"

#include <string.h>

struct record {
    uint64_t id[2]; /* the id's halves, mixed with the lane: one-to-one for each lane */
    int64_t at;
    uint32_t hash;
    uint8_t what, tag;
};

/* Head and tags of a full-sized table are two cache lines. The records stand behind them. */
struct table {
    uint16_t room, used;
    uint8_t tag[]; /* 0: free */
};

struct place {
    struct table *table; /* NULL: nothing is remembered here */
    uint32_t depth;
};

static struct {
    struct place *place; /* 2^depth */
    uint32_t depth;
    uint64_t n;    /* records, those over time that nobody came by since, too */
    uint32_t hand; /* a place */
    uint32_t turn;
} memory;

/* Records of a table: with its head they fill size classes of the allocator, 160 bytes to 4 KB. */
static const uint32_t rooms[] = {4, 8, 18, 38, 76, 123};
#define ROOMS (sizeof rooms / sizeof *rooms)
#define DEPTH_MAX 22u

/* A full table is split when it has more live records than that; else it has room again without. */
#define SPLIT_ABOVE 72u

/* So many calls to a step of the hand; so many steps when the number is asked for. */
#define CALLS_PER_STEP 64
#define STEPS_PER_COUNT 2000

#define AHEAD_FROM 10000 /* records: what is below is in the cache */

static uint64_t half(const uint8_t *p)
{
    uint64_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

/* The half that chooses table and place; the other half makes the tag. */
static uint32_t mixed(uint64_t lane, uint64_t hash)
{
    return (uint32_t)((hash ^ lane) >> 32);
}

static struct record record_of(uint64_t lane, const uint8_t *id)
{
    uint64_t hash = lane_id_hash(&server.env, id);
    return (struct record){.id = {half(id) ^ lane, half(id + 8) ^ (lane << 32 | lane >> 32)},
                           .hash = mixed(lane, hash),
                           .tag = (uint8_t)((uint32_t)hash % 255 + 1)};
}

static uint32_t place_of(uint32_t hash)
{
    return memory.depth ? hash >> (32 - memory.depth) : 0;
}

/* The top bits, up to DEPTH_MAX, choose the table: they are equal for all in it, so the place
 * comes from the others. */
static uint32_t home(uint32_t room, uint32_t hash)
{
    return (uint32_t)((uint64_t)(hash << DEPTH_MAX) * room >> 32);
}

static size_t head_size(uint32_t room)
{
    return (sizeof(struct table) + room + 7) & ~(size_t)7;
}

static struct record *record_at(const struct table *t, uint32_t i)
{
    return (struct record *)(void *)((char *)(uintptr_t)t + head_size(t->room)) + i;
}

/* The place of the record, or the free one where it would be. */
static uint32_t seek(const struct table *t, const struct record *r)
{
    uint32_t i = home(t->room, r->hash);
    uint8_t tag = r->tag;
    for (; t->tag[i]; i = i + 1 == t->room ? 0 : i + 1)
        if (t->tag[i] == tag && memcmp(record_at(t, i)->id, r->id, sizeof r->id) == 0)
            break;
    return i;
}

static bool over(const struct record *r, int64_t now)
{
    return now - r->at >= server.settle_ms;
}

static struct table *table_make(uint32_t room)
{
    struct table *t = must_alloc(head_size(room) + room * sizeof(struct record));
    memset(t, 0, head_size(room));
    t->room = (uint16_t)room;
    return t;
}

/* A table for so many records, and one more. */
static struct table *table_for(uint32_t live)
{
    size_t i = 0;
    while (i + 1 < ROOMS && (live + 1) * 2 > rooms[i])
        i++;
    return table_make(rooms[i]);
}

/* Sets all places that share what stands at place i. */
static void point(uint32_t i, struct table *t, uint32_t depth)
{
    uint32_t n = 1u << (memory.depth - depth);
    for (uint32_t k = i & ~(n - 1), end = k + n; k < end; k++)
        memory.place[k] = (struct place){t, depth};
}

static void copy_live(struct table *from, struct table *to, int64_t now, uint32_t bit, bool up)
{
    for (uint32_t i = 0; i < from->room; i++) {
        const struct record *r = record_at(from, i);
        if (!from->tag[i] || over(r, now) || (bit && up != ((r->hash & bit) != 0)))
            continue;
        uint32_t k = seek(to, r);
        to->tag[k] = r->tag;
        *record_at(to, k) = *r;
        to->used++;
        memory.n++;
    }
}

static uint32_t live_in(const struct table *t, int64_t now)
{
    uint32_t live = 0;
    for (uint32_t i = 0; i < t->room; i++)
        live += t->tag[i] && !over(record_at(t, i), now);
    return live;
}

static void forget_all(void)
{
    RedisModule_Free(memory.place);
    memory.place = NULL;
    memory.depth = memory.hand = 0;
}

/* The table at place i, made anew from what is alive in it, of the size that it needs. */
static void renew_for_more(uint32_t i, uint32_t live, int64_t now)
{
    struct table *old = memory.place[i].table, *t = table_for(live);
    memory.n -= old->used;
    copy_live(old, t, now, 0, false);
    point(i, t, memory.place[i].depth);
    RedisModule_Free(old);
}

/* The same, or none when nothing is alive. */
static void renew(uint32_t i, uint32_t live, int64_t now)
{
    struct table *old = memory.place[i].table;
    if (live) {
        renew_for_more(i, live, now);
        return;
    }
    memory.n -= old->used;
    point(i, NULL, memory.place[i].depth);
    RedisModule_Free(old);
    if (memory.n == 0)
        forget_all();
}

static void double_places(void)
{
    size_t n = (size_t)1 << memory.depth;
    struct place *place = must_alloc(2 * n * sizeof *place);
    for (size_t i = 0; i < 2 * n; i++)
        place[i] = memory.place[i / 2];
    RedisModule_Free(memory.place);
    memory.place = place;
    memory.depth++;
    memory.hand *= 2;
}

static void split(uint32_t hash, int64_t now)
{
    if (memory.place[place_of(hash)].depth == memory.depth)
        double_places();
    uint32_t i = place_of(hash), depth = memory.place[i].depth + 1, bit = 1u << (32 - depth);
    struct table *old = memory.place[i].table, *low = table_make(rooms[ROOMS - 1]),
                 *up = table_make(rooms[ROOMS - 1]);
    memory.n -= old->used;
    copy_live(old, low, now, bit, false);
    copy_live(old, up, now, bit, true);
    point(place_of(hash & ~bit), low, depth);
    point(place_of(hash | bit), up, depth);
    RedisModule_Free(old);
}

/* The table of a hash, with room for one record more. */
static struct table *room_for(uint32_t hash, int64_t now)
{
    if (!memory.place) {
        memory.place = must_alloc(sizeof *memory.place);
        *memory.place = (struct place){NULL, 0};
    }
    struct place *at = &memory.place[place_of(hash)];
    if (!at->table) {
        point(place_of(hash), table_make(rooms[0]), at->depth);
    } else if ((at->table->used + 1) * 4 > at->table->room * 3) {
        uint32_t live = live_in(at->table, now);
        if (live > SPLIT_ABOVE && at->depth < DEPTH_MAX)
            split(hash, now);
        else
            renew_for_more(place_of(hash), live, now);
    }
    return memory.place[place_of(hash)].table;
}

/* Looks at one table, if any is there, and goes on to the next. */
static void step(int64_t now)
{
    const struct place *at = &memory.place[memory.hand];
    uint32_t i = memory.hand;
    memory.hand = (memory.hand + (1u << (memory.depth - at->depth))) & ((1u << memory.depth) - 1);
    if (!at->table)
        return;
    uint32_t live = live_in(at->table, now);
    if (live * 4 < at->table->room ? at->table->room > rooms[0] || live == 0
                                   : live * 2 < at->table->used)
        renew(i, live, now);
}

static void turn(int64_t now)
{
    if (memory.place && ++memory.turn % CALLS_PER_STEP == 0)
        step(now);
}

void tombstone_remember(uint64_t lane, const uint8_t *id, enum tombstone what, int64_t now)
{
    if (!id || server.settle_ms == 0)
        return;
    turn(now);
    struct record r = record_of(lane, id);
    struct table *t = room_for(r.hash, now);
    uint32_t i = seek(t, &r);
    if (!t->tag[i]) {
        if (t->used + 1 == t->room)
            return; /* as many as there can be, hundreds of millions */
        t->tag[i] = r.tag;
        t->used++;
        memory.n++;
    }
    r.at = now;
    r.what = (uint8_t)what;
    *record_at(t, i) = r;
}

enum tombstone tombstone_find(uint64_t lane, const uint8_t *id, int64_t now)
{
    turn(now);
    if (!memory.n)
        return TOMBSTONE_NONE;
    struct record r = record_of(lane, id);
    struct table *t = memory.place[place_of(r.hash)].table;
    if (!t)
        return TOMBSTONE_NONE;
    uint32_t i = seek(t, &r);
    return t->tag[i] && !over(record_at(t, i), now) ? (enum tombstone)record_at(t, i)->what
                                                    : TOMBSTONE_NONE;
}

void tombstone_ahead(uint64_t lane, const uint64_t *hash, size_t n)
{
    if (memory.n < AHEAD_FROM)
        return;
    for (size_t i = 0; i < n; i++)
        __builtin_prefetch(&memory.place[place_of(mixed(lane, hash[i]))]);
    for (size_t i = 0; i < n; i++) {
        const struct place *at = &memory.place[place_of(mixed(lane, hash[i]))];
        if (!at->table)
            continue;
        __builtin_prefetch(at->table);
        __builtin_prefetch((const char *)at->table + 64);
    }
}

uint64_t tombstone_count(int64_t now)
{
    for (int i = 0; i < STEPS_PER_COUNT && memory.place; i++)
        step(now);
    return memory.n;
}
