/* idindex - from an id to its handle: extendible hashing.
 *
 *    top `depth` bits of the hash           tables of up to 512 words: a head, then places with linear probing
 *      00 -----------------------------.
 *      01 --------------------------.   '--> | head | 0 | h,5 | h,9 |  0  | ..    a place has 32 bits of the
 *      10 ---.                       '-----> | head | ...                         hash and the handle; 0: free
 *      11 ----'----------------------------> | head | ...     depth 1: shared by two
 *
 * A table that is 3/4 full is split in two by the next bit of the hash, so no step costs more
 * than a table and the index never has to be made anew. Two tables that became mostly empty join
 * again. What leaves a table closes its gap, so there are no tombstones. */
#include "redis-module/core/internal.h"

#include <string.h>

#define WORDS_MAX 512u
#define WORDS_MIN 8u
#define DEPTH_MAX 22u

/* The head of a table. */
static uint32_t words(const uint64_t *t)
{
    return (uint32_t)(t[0] & 0xffff);
}

static uint32_t used(const uint64_t *t)
{
    return (uint32_t)(t[0] >> 16 & 0xffff);
}

static uint32_t depth_of(const uint64_t *t)
{
    return (uint32_t)(t[0] >> 32);
}

static uint64_t head(uint32_t words, uint32_t used, uint32_t depth)
{
    return (uint64_t)depth << 32 | (uint64_t)used << 16 | words;
}

#define ONE_MORE ((uint64_t)1 << 16)

/* The top bits, up to DEPTH_MAX, choose the table: they are equal for all in it, so the place
 * comes from the others. */
static uint32_t home_in(uint32_t words, uint32_t hash)
{
    return 1 + (uint32_t)((uint64_t)(hash << DEPTH_MAX) * (words - 1) >> 32);
}

static uint32_t home(const uint64_t *t, uint32_t hash)
{
    return home_in(words(t), hash);
}

static uint32_t step(const uint64_t *t, uint32_t i)
{
    return i + 1 == words(t) ? 1 : i + 1;
}

static uint64_t **at(const struct idindex *x, uint32_t hash)
{
    return &x->table[x->depth ? hash >> (32 - x->depth) : 0];
}

static uint32_t high(uint64_t word)
{
    return (uint32_t)(word >> 32);
}

uint32_t idindex_find(const struct lane *lane, const uint8_t *id, uint64_t hash64)
{
    const struct idindex *x = &lane->ids;
    uint32_t hash = high(hash64);
    if (!x->n)
        return 0;
    const uint64_t *t = *at(x, hash);
    for (uint32_t i = home(t, hash); t[i]; i = step(t, i))
        if (high(t[i]) == hash && memcmp(blocks_at(lane, (uint32_t)t[i])->id, id, LANE_ID_LEN) == 0)
            return (uint32_t)t[i];
    return 0;
}

/* Each step is a wait for memory, so it is done for all before the next one. */
void idindex_ahead(const struct lane *lane, const uint64_t *hash, size_t n)
{
    const struct idindex *x = &lane->ids;
    uint32_t handle[LANE_AHEAD];
    if (!x->depth)
        return;
    for (size_t i = 0; i < n && i < LANE_AHEAD; i++) {
        /* The head tells the number of words, but it is not here yet; with several tables all
         * have as many. */
        const uint64_t *t = *at(x, high(hash[i]));
        uint32_t k = home_in(WORDS_MAX, high(hash[i]));
        __builtin_prefetch(t);
        __builtin_prefetch(&t[k]);
        if (k % 8 > 4)
            __builtin_prefetch(&t[k + 8 < WORDS_MAX ? k + 8 : 1]);
    }
    for (size_t i = 0; i < n && i < LANE_AHEAD; i++) {
        const uint64_t *t = *at(x, high(hash[i]));
        uint32_t k = home(t, high(hash[i]));
        for (; t[k] && high(t[k]) != high(hash[i]); k = step(t, k))
            ;
        handle[i] = (uint32_t)t[k];
        if (handle[i])
            blocks_fetch_block(lane, handle[i]);
    }
    for (size_t i = 0; i < n && i < LANE_AHEAD; i++)
        if (handle[i])
            blocks_fetch_slot(lane, handle[i]);
}

static void put(uint64_t *t, uint64_t word)
{
    uint32_t i = home(t, high(word));
    while (t[i])
        i = step(t, i);
    t[i] = word;
    t[0] += ONE_MORE;
}

static uint64_t *new_table(struct lane *lane, uint32_t room, uint32_t depth)
{
    uint64_t *t = lane_alloc(lane, room * sizeof *t);
    if (!t)
        return NULL;
    memset(t, 0, room * sizeof *t);
    t[0] = head(room, 0, depth);
    return t;
}

static void free_table(struct lane *lane, uint64_t *t)
{
    lane_release(lane, t, words(t) * sizeof *t);
}

/* Points all places of the directory that share the table of `hash` at depth `depth` to t. */
static void point(struct idindex *x, uint32_t hash, uint32_t depth, uint64_t *t)
{
    uint32_t n = 1u << (x->depth - depth),
             first = depth ? hash >> (32 - depth) << (x->depth - depth) : 0;
    for (uint32_t i = first; i < first + n; i++)
        x->table[i] = t;
}

static bool set_directory(struct lane *lane, uint32_t depth)
{
    struct idindex *x = &lane->ids;
    uint64_t **table = lane_alloc(lane, ((size_t)1 << depth) * sizeof(*table));
    if (!table)
        return false;
    for (uint32_t i = 0; i < 1u << depth; i++)
        table[i] = depth > x->depth ? x->table[i >> 1] : x->table[i << 1];
    lane_release(lane, x->table, ((size_t)1 << x->depth) * sizeof(*table));
    x->table = table;
    x->depth = depth;
    return true;
}

/* While there is one table only, and no directory of it, it may have any size. */
static bool resize(struct lane *lane, uint32_t room)
{
    struct idindex *x = &lane->ids;
    uint64_t *old = x->table[0], *t = new_table(lane, room, 0);
    if (!t)
        return false;
    for (uint32_t i = 1; i < words(old); i++)
        if (old[i])
            put(t, old[i]);
    free_table(lane, old);
    x->table[0] = t;
    return true;
}

static bool split(struct lane *lane, uint32_t hash)
{
    struct idindex *x = &lane->ids;
    uint64_t *old = *at(x, hash);
    uint32_t depth = depth_of(old) + 1;
    bool raised = depth > x->depth;
    if (depth > DEPTH_MAX)
        return false;
    uint64_t *low = new_table(lane, WORDS_MAX, depth),
             *up = low ? new_table(lane, WORDS_MAX, depth) : NULL;
    if (!up || (raised && !set_directory(lane, depth))) {
        if (low)
            free_table(lane, low);
        if (up)
            free_table(lane, up);
        return false;
    }
    x->deepest = raised ? 2 : x->deepest + (depth == x->depth ? 2 : 0);
    for (uint32_t i = 1; i < words(old); i++)
        if (old[i])
            put(high(old[i]) >> (32 - depth) & 1 ? up : low, old[i]);
    uint32_t bit = 1u << (32 - depth);
    point(x, hash & ~bit, depth, low);
    point(x, hash | bit, depth, up);
    free_table(lane, old);
    x->tables++;
    return true;
}

static bool full(const uint64_t *t)
{
    return (used(t) + 1) * 4 > (words(t) - 1) * 3;
}

bool idindex_reserve(struct lane *lane, uint64_t hash64)
{
    struct idindex *x = &lane->ids;
    uint32_t hash = high(hash64);
    if (!x->table) {
        x->table = lane_alloc(lane, sizeof(*x->table));
        if (!x->table)
            return false;
        x->table[0] = new_table(lane, WORDS_MIN, 0);
        if (!x->table[0]) {
            lane_release(lane, x->table, sizeof(*x->table));
            x->table = NULL;
            return false;
        }
        x->depth = 0;
        x->tables = x->deepest = 1;
    }
    for (;;) {
        const uint64_t *t = *at(x, hash);
        if (!full(t))
            return true;
        if (words(t) < WORDS_MAX ? resize(lane, 2 * words(t)) : split(lane, hash))
            continue;
        return used(t) + 2 < words(t); /* one place always stays free: searches end there */
    }
}

void idindex_add(struct lane *lane, uint64_t hash64, uint32_t handle)
{
    put(*at(&lane->ids, high(hash64)), (hash64 & ~(uint64_t)UINT32_MAX) | handle);
    lane->ids.n++;
}

/* Joins the table of `hash` with the other half of what was split, when both are mostly empty. */
static void join(struct lane *lane, uint32_t hash)
{
    struct idindex *x = &lane->ids;
    uint64_t *t = *at(x, hash);
    uint32_t depth = depth_of(t);
    uint64_t *other = *at(x, hash ^ 1u << (32 - depth));
    if (depth_of(other) != depth || used(t) + used(other) > WORDS_MAX / 2)
        return;
    for (uint32_t i = 1; i < words(other); i++)
        if (other[i])
            put(t, other[i]);
    free_table(lane, other);
    t[0] = head(words(t), used(t), depth - 1);
    point(x, hash, depth - 1, t);
    x->tables--;
    if (depth < x->depth || (x->deepest -= 2) > 0)
        return;
    /* Nobody needs the last bit. When there is no memory for a smaller directory the larger one
     * is right. */
    if (!set_directory(lane, x->depth - 1))
        return;
    for (uint32_t i = 0; i < 1u << x->depth; i++)
        x->deepest += depth_of(x->table[i]) == x->depth;
}

/* Places from one to the other, forwards. */
static uint32_t distance(const uint64_t *t, uint32_t from, uint32_t to)
{
    return to >= from ? to - from : to + words(t) - 1 - from;
}

void idindex_remove(struct lane *lane, uint64_t hash64, uint32_t handle)
{
    struct idindex *x = &lane->ids;
    uint32_t hash = high(hash64);
    uint64_t *t = *at(x, hash);
    uint32_t gap = home(t, hash);
    while ((uint32_t)t[gap] != handle)
        gap = step(t, gap);
    for (uint32_t i = step(t, gap); t[i]; i = step(t, i)) {
        /* Only what does not have its home behind the gap may close it. */
        if (distance(t, home(t, high(t[i])), i) >= distance(t, gap, i)) {
            t[gap] = t[i];
            gap = i;
        }
    }
    t[gap] = 0;
    t[0] -= ONE_MORE;
    if (--x->n == 0) {
        idindex_free(lane);
        return;
    }
    if (used(t) >= words(t) / 4)
        return;
    if (depth_of(t))
        join(lane, hash);
    else if (x->depth == 0 && words(t) > 64 && used(t) < words(t) / 8)
        resize(lane, words(t) / 2); /* when it fails it stays large */
}

void idindex_free(struct lane *lane)
{
    struct idindex *x = &lane->ids;
    if (!x->table)
        return;
    for (uint32_t i = 0; i < 1u << x->depth;) {
        uint64_t *t = x->table[i];
        i += 1u << (x->depth - depth_of(t));
        free_table(lane, t);
    }
    lane_release(lane, x->table, ((size_t)1 << x->depth) * sizeof(*x->table));
    *x = (struct idindex){0};
}

static const char *check_table(const struct lane *lane, const uint64_t *t, uint32_t first)
{
    const struct idindex *x = &lane->ids;
    uint32_t depth = depth_of(t), n = 0, away = 0;
    if (depth > x->depth || (x->depth && words(t) != WORDS_MAX))
        return "id index: head of a table";
    for (uint32_t i = first; i < first + (1u << (x->depth - depth)); i++)
        if (x->table[i] != t)
            return "id index: a table is not where its depth says";
    for (uint32_t i = 1; i < words(t); i++) {
        if (!t[i])
            continue;
        n++;
        away += distance(t, home(t, high(t[i])), i);
        const struct slot *slot = blocks_at(lane, (uint32_t)t[i]);
        if (!slot || !slot->has_id)
            return "id index: names an entry that is not there";
        uint64_t hash = lane_hash(lane->env->key, slot->id, LANE_ID_LEN);
        if (*at(x, high(hash)) != t || idindex_find(lane, slot->id, hash) != (uint32_t)t[i])
            return "id index: an id is not found";
    }
    /* 1.5 places on average when it is full, if the hash spreads them. */
    if (away > 8 * n + 64)
        return "id index: places are far from their homes";
    return n == used(t) && n + 1 < words(t) ? NULL : "id index: used places";
}

const char *idindex_check(const struct lane *lane)
{
    const struct idindex *x = &lane->ids;
    uint64_t n = 0;
    uint32_t tables = 0, deepest = 0;
    for (uint32_t i = 0; x->table && i < 1u << x->depth; tables++) {
        const uint64_t *t = x->table[i];
        const char *wrong = check_table(lane, t, i);
        if (wrong)
            return wrong;
        n += used(t);
        deepest += depth_of(t) == x->depth;
        i += 1u << (x->depth - depth_of(t));
    }
    return n == x->n && tables == x->tables && deepest == x->deepest ? NULL : "id index: count";
}
