/* idindex - from an id to its sequence: open addressing with linear probing.
 *
 *     seq:  |  0  | 771 |  0  | 640 | 512 |  0  | ...      0 is free
 *     hash: |     | h1  |     | h3  | h3' |     | ...      32 bits of the keyed hash: they spare most looks
 * at slots, and tell an entry's home
 *
 * At most 3/4 full; what leaves closes its gap, so there are no tombstones. Shrinks when 1/8 full. */
#include "internal.h"

#include <string.h>

static uint32_t hash_of(const struct lane *lane, const uint8_t *id)
{
    return (uint32_t)lane_hash(lane->env->key, id, LANE_ID_LEN);
}

static size_t size_of(size_t room)
{
    return room * (sizeof(uint64_t) + sizeof(uint32_t));
}

uint64_t idindex_find(const struct lane *lane, const uint8_t *id)
{
    const struct idindex *x = &lane->ids;
    if (!x->n)
        return 0;
    uint32_t hash = hash_of(lane, id);
    for (size_t i = hash & (x->room - 1); x->seq[i]; i = (i + 1) & (x->room - 1))
        if (x->hash[i] == hash && memcmp(blocks_find(lane, x->seq[i])->id, id, LANE_ID_LEN) == 0)
            return x->seq[i];
    return 0;
}

static void put(struct idindex *x, uint32_t hash, uint64_t seq)
{
    size_t i = hash & (x->room - 1);
    while (x->seq[i])
        i = (i + 1) & (x->room - 1);
    x->seq[i] = seq;
    x->hash[i] = hash;
    x->n++;
}

static bool resize(struct lane *lane, size_t room)
{
    struct idindex old = lane->ids, x = {.room = room};
    x.seq = lane_alloc(lane, size_of(room));
    if (!x.seq)
        return false;
    x.hash = (uint32_t *)(x.seq + room);
    memset(x.seq, 0, room * sizeof *x.seq);
    for (size_t i = 0; i < old.room; i++)
        if (old.seq[i])
            put(&x, old.hash[i], old.seq[i]);
    lane_release(lane, old.seq, size_of(old.room));
    lane->ids = x;
    return true;
}

bool idindex_reserve(struct lane *lane)
{
    const struct idindex *x = &lane->ids;
    if ((x->n + 1) * 4 <= x->room * 3)
        return true;
    if (x->room > UINT32_MAX / 2)
        return x->n + 1 < x->room;
    return resize(lane, x->room ? 2 * x->room : 8);
}

void idindex_add(struct lane *lane, const uint8_t *id, uint64_t seq)
{
    put(&lane->ids, hash_of(lane, id), seq);
}

void idindex_remove(struct lane *lane, const uint8_t *id, uint64_t seq)
{
    struct idindex *x = &lane->ids;
    size_t mask = x->room - 1, gap = hash_of(lane, id) & mask;
    while (x->seq[gap] != seq)
        gap = (gap + 1) & mask;
    for (size_t i = (gap + 1) & mask; x->seq[i]; i = (i + 1) & mask) {
        /* Only what does not have its home behind the gap may close it. */
        if (((i - x->hash[i]) & mask) >= ((i - gap) & mask)) {
            x->seq[gap] = x->seq[i];
            x->hash[gap] = x->hash[i];
            gap = i;
        }
    }
    x->seq[gap] = 0;
    if (--x->n == 0)
        idindex_free(lane);
    else if (x->room > 64 && x->n < x->room / 8)
        resize(lane, x->room / 2); /* when it fails it stays large */
}

void idindex_free(struct lane *lane)
{
    lane_release(lane, lane->ids.seq, size_of(lane->ids.room));
    lane->ids = (struct idindex){0};
}

const char *idindex_check(const struct lane *lane)
{
    const struct idindex *x = &lane->ids;
    size_t n = 0;
    for (size_t i = 0; i < x->room; i++) {
        if (!x->seq[i])
            continue;
        n++;
        const struct slot *slot = blocks_find(lane, x->seq[i]);
        if (!slot || !slot->has_id)
            return "id index: names an entry that is not there";
        if (idindex_find(lane, slot->id) != x->seq[i])
            return "id index: an id is not found";
    }
    return n == x->n ? NULL : "id index: count";
}
