/* blocks - the slots of a lane, in blocks of up to 128, found through a directory sorted by block
 * number.
 *
 *      begin                                    end
 *        v                                       v
 *   +---+------+------+------+------+------+------+---
 *   |   | 512  | 513  | dead | dead | 516  | 1024 |      a number is the high part of sequences;
 *   +---+--|---+--|---+ +2   + +1   +--|---+--|---+---    1024 began a new stretch
 *          v      v                    v      v
 *        slots  slots                slots  slots
 *
 * A block lives as long as one of its slots does. When a block in the middle dies its place stays,
 * says how far the next one may be (hops are shortened as they are walked), and is swept out when
 * half of the directory is dead: so a stuck old entry in front of a million removed ones costs
 * nothing, and a removal is O(1) amortised. A block begins with room for 4 slots at the index it
 * needs first: ten thousand lanes of one entry are cheap. A block of which three quarters are dead,
 * except the first and the last one, is packed:
 *
 *    live   ..1....1.1..    what is alive
 *    laid   ..1..1.1.1..    what has a slot; the slot of an index stands behind those of the laid ones below
 *    slots  [2][5][7][9]    (5 died since)
 *
 * A handle finds its block through a table by block ids, which are used again. */
#include "redis-module/core/internal.h"

#include <string.h>

/* The place with the lowest number not below the given one. */
static size_t lower(const struct blocks *b, uint64_t number)
{
    size_t low = b->begin, high = b->end;
    if (low == high || number <= b->place[low].number)
        return low;
    if (number > b->place[high - 1].number)
        return high;
    if (number == b->place[high - 1].number)
        return high - 1;
    uint64_t guess = low + (number - b->place[low].number);
    if (guess < high && b->place[guess].number == number)
        return (size_t)guess;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (b->place[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The first place alive from i on. The last place is alive, so there is one for every i below
 * end. */
static size_t alive(const struct blocks *b, size_t i)
{
    size_t to = i;
    while (!b->place[to].block)
        to += b->place[to].skip;
    while (i < to) {
        size_t next = i + b->place[i].skip;
        b->place[i].skip = to - i;
        i = next;
    }
    return to;
}

/* The first live index of the block from i on, BLOCK_SLOTS when there is none. */
static uint32_t live_index(const struct block *block, uint32_t i)
{
    for (uint32_t word = i / 64; word < BLOCK_SLOTS / 64; word++, i = word * 64) {
        uint64_t bits = block->live[word] >> (i % 64);
        if (bits)
            return i + (uint32_t)__builtin_ctzll(bits);
    }
    return BLOCK_SLOTS;
}

/* ---- Blocks by id ---- */

/* A free id's pointer is odd: the next free id. */
static struct block *free_mark(uint32_t next)
{
    return (struct block *)(uintptr_t)((uint64_t)next << 1 | 1);
}

static struct block *block_of(const struct blocks *b, uint32_t id)
{
    if (id == 0 || id > b->ids || (uintptr_t)b->by_id[id - 1] & 1)
        return NULL;
    return b->by_id[id - 1];
}

#define IDS_MAX (UINT32_MAX / BLOCK_SLOTS)

static bool reserve_id(struct lane *lane)
{
    struct blocks *b = &lane->blocks;
    if (b->free_id || b->ids < b->ids_room)
        return true;
    uint32_t room = b->ids_room ? 2 * b->ids_room : 2;
    if (b->ids >= IDS_MAX)
        return false;
    struct block **by_id = lane_alloc(lane, room * sizeof(*by_id));
    if (!by_id)
        return false;
    if (b->ids)
        memcpy(by_id, b->by_id, b->ids * sizeof(*by_id));
    lane_release(lane, b->by_id, b->ids_room * sizeof(*by_id));
    b->by_id = by_id;
    b->ids_room = room;
    return true;
}

static void take_id(struct blocks *b, struct block *block)
{
    if (b->free_id) {
        block->id = b->free_id;
        b->free_id = (uint32_t)((uintptr_t)b->by_id[block->id - 1] >> 1);
    } else {
        block->id = ++b->ids;
    }
    b->by_id[block->id - 1] = block;
}

static void give_id(struct blocks *b, uint32_t id)
{
    b->by_id[id - 1] = free_mark(b->free_id);
    b->free_id = id;
}

/* ---- Slots ---- */

static bool bit(const uint64_t map[BLOCK_SLOTS / 64], uint32_t index)
{
    return map[index / 64] >> (index % 64) & 1;
}

/* Of one that is alive. */
static struct slot *slot_of(const struct block *block, uint32_t index)
{
    if (!block->packed)
        return &block->slot[index - block->first];
    uint64_t below = block->laid[index / 64] & (((uint64_t)1 << (index % 64)) - 1);
    uint32_t rank = (uint32_t)__builtin_popcountll(below);
    if (index >= 64)
        rank += (uint32_t)__builtin_popcountll(block->laid[0]);
    return &block->slot[rank];
}

static struct block *find_block(const struct blocks *b, uint64_t seq)
{
    size_t i = lower(b, seq / BLOCK_SLOTS);
    return i == b->end || b->place[i].number != seq / BLOCK_SLOTS ? NULL : b->place[i].block;
}

/* What is leased is so only in the present life of the lane's leases. */
static struct slot *told(const struct lane *lane, struct slot *slot)
{
    if (slot->state == LANE_LEASED && lane->life)
        lease_tell((struct lane *)(uintptr_t)lane, slot);
    return slot;
}

struct slot *blocks_find(const struct lane *lane, uint64_t seq)
{
    const struct block *block = find_block(&lane->blocks, seq);
    return block && bit(block->live, seq % BLOCK_SLOTS)
               ? told(lane, slot_of(block, seq % BLOCK_SLOTS))
               : NULL;
}

uint32_t blocks_handle(const struct lane *lane, uint64_t seq)
{
    return find_block(&lane->blocks, seq)->id * BLOCK_SLOTS + (uint32_t)(seq % BLOCK_SLOTS);
}

struct slot *blocks_at(const struct lane *lane, uint32_t handle)
{
    const struct block *block = block_of(&lane->blocks, handle / BLOCK_SLOTS);
    if (!block || !bit(block->live, handle % BLOCK_SLOTS))
        return NULL;
    return told(lane, slot_of(block, handle % BLOCK_SLOTS));
}

uint64_t blocks_seq(const struct lane *lane, uint32_t handle)
{
    return block_of(&lane->blocks, handle / BLOCK_SLOTS)->number * BLOCK_SLOTS +
           handle % BLOCK_SLOTS;
}

void blocks_moved(struct lane *lane, struct block *block)
{
    struct blocks *b = &lane->blocks;
    b->by_id[block->id - 1] = block;
    b->place[lower(b, block->number)].block = block;
}

void blocks_fetch_block(const struct lane *lane, uint32_t handle)
{
    __builtin_prefetch(block_of(&lane->blocks, handle / BLOCK_SLOTS));
}

void blocks_fetch_slot(const struct lane *lane, uint32_t handle)
{
    const struct block *block = block_of(&lane->blocks, handle / BLOCK_SLOTS);
    if (block && !block->packed)
        __builtin_prefetch(&block->slot[handle % BLOCK_SLOTS - block->first]);
}

struct slot *blocks_next(const struct lane *lane, uint64_t *seq)
{
    const struct blocks *b = &lane->blocks;
    size_t i = lower(b, *seq / BLOCK_SLOTS);
    uint32_t from = *seq % BLOCK_SLOTS;
    if (i == b->end)
        return NULL;
    if (b->place[i].number != *seq / BLOCK_SLOTS || !b->place[i].block)
        from = 0;
    for (i = alive(b, i);; i = alive(b, i + 1), from = 0) {
        struct block *block = b->place[i].block;
        uint32_t index = live_index(block, from);
        if (index < BLOCK_SLOTS) {
            *seq = block->number * BLOCK_SLOTS + index;
            return told(lane, slot_of(block, index));
        }
        if (i + 1 == b->end)
            return NULL;
    }
}

/* As many live ones of the block from a live index on as its word of the map shows. */
static uint32_t live_run(const struct block *block, uint32_t index)
{
    uint64_t dead = ~(block->live[index / 64] >> (index % 64));
    return dead ? (uint32_t)__builtin_ctzll(dead) : 64;
}

struct slot *blocks_run(const struct lane *lane, uint64_t *seq, uint64_t to, uint32_t *n_r)
{
    struct slot *slot = blocks_next(lane, seq);
    if (!slot || *seq > to)
        return NULL;
    uint32_t n = live_run(find_block(&lane->blocks, *seq), *seq % BLOCK_SLOTS);
    *n_r = n <= to - *seq ? n : (uint32_t)(to - *seq) + 1;
    return slot;
}

/* ---- The directory ---- */

/* Moves what is alive to the front of a directory with that much room (the same one when it is the
 * old room).
 */
static bool resweep(struct lane *lane, size_t room)
{
    struct blocks *b = &lane->blocks;
    struct place *to = b->place;
    size_t n = 0;
    if (room != b->room) {
        to = lane_alloc(lane, room * sizeof *to);
        if (!to)
            return false;
    }
    for (size_t i = b->begin; i < b->end; i++)
        if (b->place[i].block)
            to[n++] = b->place[i];
    if (room != b->room) {
        lane_release(lane, b->place, b->room * sizeof *to);
        b->place = to;
        b->room = room;
    }
    b->begin = b->dead = 0;
    b->end = n;
    return true;
}

static bool reserve_place(struct lane *lane)
{
    struct blocks *b = &lane->blocks;
    if (b->end < b->room)
        return true;
    size_t live = b->end - b->begin - b->dead;
    return resweep(lane, live <= b->room / 2 && b->room ? b->room : b->room ? 2 * b->room : 2);
}

/* ---- Appending ---- */

static void pack(struct lane *lane, struct block *block);

static bool sparse(const struct block *block)
{
    return block->nlive <= block->room / (block->packed ? 2 : 4);
}

static struct block *new_block(struct lane *lane, uint64_t number, uint32_t first)
{
    struct blocks *b = &lane->blocks;
    if (!reserve_place(lane) || !reserve_id(lane))
        return NULL;
    struct block *block = lane_alloc(lane, sizeof *block);
    if (!block)
        return NULL;
    uint32_t room = BLOCK_SLOTS - first < 4 ? BLOCK_SLOTS - first : 4;
    *block = (struct block){.number = number, .first = (uint8_t)first, .room = (uint8_t)room};
    block->slot = lane_alloc(lane, room * sizeof(struct slot));
    if (!block->slot) {
        lane_release(lane, block, sizeof *block);
        return NULL;
    }
    take_id(b, block);
    b->place[b->end++] = (struct place){.number = number, .block = block};
    /* A lane that is loaded has the holes of the one that was saved. */
    if (b->end - b->begin > 2 && sparse(b->place[b->end - 2].block) &&
        !b->place[b->end - 2].block->packed)
        pack(lane, b->place[b->end - 2].block);
    return block;
}

static void replace_slots(struct lane *lane, struct block *block, uint32_t room, struct slot *slot)
{
    lane_release(lane, block->slot, block->room * sizeof *slot);
    block->slot = slot;
    block->room = (uint8_t)room;
}

/* A packed one became the last, because what came after it could not be had, and is appended to. */
static bool unpack(struct lane *lane, struct block *block)
{
    uint32_t first = live_index(block, 0), room = BLOCK_SLOTS - first, used = 0;
    struct slot *slot = lane_alloc(lane, room * sizeof *slot);
    if (!slot)
        return false;
    for (uint32_t i = first; i < BLOCK_SLOTS; i = live_index(block, i + 1)) {
        used = i - first + 1;
        slot[i - first] = *slot_of(block, i);
    }
    replace_slots(lane, block, room, slot);
    block->packed = false;
    block->first = (uint8_t)first;
    block->used = (uint8_t)used;
    return true;
}

/* Room for the slots up to that index. */
static bool widen(struct lane *lane, struct block *block, uint32_t index)
{
    if (block->packed && !unpack(lane, block))
        return false;
    uint32_t need = index - block->first + 1, room = block->room;
    if (need <= room)
        return true;
    while (room < need)
        room *= 4;
    if (room > BLOCK_SLOTS - block->first)
        room = BLOCK_SLOTS - block->first;
    struct slot *slot = lane_alloc(lane, room * sizeof *slot);
    if (!slot)
        return false;
    memcpy(slot, block->slot, block->used * sizeof *slot);
    replace_slots(lane, block, room, slot);
    return true;
}

struct slot *blocks_append(struct lane *lane, uint64_t seq, uint32_t *handle_r)
{
    struct blocks *b = &lane->blocks;
    uint64_t number = seq / BLOCK_SLOTS;
    uint32_t index = seq % BLOCK_SLOTS;
    bool fresh = b->begin == b->end || b->place[b->end - 1].number != number;
    struct block *block = fresh ? new_block(lane, number, index) : b->place[b->end - 1].block;
    if (!block || !widen(lane, block, index))
        return NULL;
    /* Sequences may be skipped (a replica stores only what the primary kept): the slots between
     * are dead. */
    block->used = (uint8_t)(index - block->first + 1);
    block->live[index / 64] |= (uint64_t)1 << (index % 64);
    block->nlive++;
    *handle_r = block->id * BLOCK_SLOTS + index;
    return &block->slot[index - block->first];
}

struct slot *blocks_room(const struct lane *lane, uint64_t seq, uint32_t *handle_r, uint32_t *n_r)
{
    const struct blocks *b = &lane->blocks;
    uint32_t index = seq % BLOCK_SLOTS;
    if (b->begin == b->end)
        return NULL;
    const struct block *block = b->place[b->end - 1].block;
    if (block->number != seq / BLOCK_SLOTS || block->packed ||
        index - block->first != block->used || block->used == block->room)
        return NULL;
    uint32_t n = (uint32_t)block->room - block->used, word = 64 - index % 64;
    *n_r = n < word ? n : word; /* those that one word of the map has */
    *handle_r = block->id * BLOCK_SLOTS + index;
    return &block->slot[block->used];
}

void blocks_appended(struct lane *lane, uint32_t n)
{
    const struct blocks *b = &lane->blocks;
    struct block *block = b->place[b->end - 1].block;
    uint32_t index = (uint32_t)block->first + block->used;
    block->live[index / 64] |= UINT64_MAX >> (64 - n) << (index % 64);
    block->used = (uint8_t)(block->used + n);
    block->nlive = (uint8_t)(block->nlive + n);
}

/* ---- Removing ---- */

#define SMALL 16u /* places: a directory of that size is kept */

static void bury(struct lane *lane, size_t i)
{
    struct blocks *b = &lane->blocks;
    struct block *block = b->place[i].block;
    give_id(b, block->id);
    lane_release(lane, block->slot, block->room * sizeof(struct slot));
    lane_release(lane, block, sizeof *block);
    b->place[i].block = NULL;
    b->place[i].skip = 1;
    b->dead++;
    while (b->begin < b->end && !b->place[b->begin].block) {
        b->begin++;
        b->dead--;
    }
    while (b->begin < b->end && !b->place[b->end - 1].block) {
        b->end--;
        b->dead--;
    }
    if (b->begin == b->end) {
        b->begin = b->end = b->dead = 0;
        b->ids = b->free_id = 0;
        if (b->room > SMALL)
            blocks_free(lane);
    } else if (b->dead > 8 && b->dead > (b->end - b->begin) / 2) {
        /* Much smaller than it was: a smaller directory, if there is memory for it. */
        size_t live = b->end - b->begin - b->dead, room = b->room;
        while (room > SMALL && live < room / 4)
            room /= 2;
        if (!resweep(lane, room))
            resweep(lane, b->room);
    }
}

/* Without memory it stays as it is. */
static void pack(struct lane *lane, struct block *block)
{
    struct slot *slot = lane_alloc(lane, block->nlive * sizeof *slot);
    uint32_t n = 0;
    if (!slot)
        return;
    for (uint32_t i = live_index(block, 0); i < BLOCK_SLOTS; i = live_index(block, i + 1))
        slot[n++] = *slot_of(block, i);
    block->packed = true;
    memcpy(block->laid, block->live, sizeof block->laid);
    block->used = (uint8_t)n;
    replace_slots(lane, block, n, slot);
}

/* The last block never counts as dead to blocks_append while it has a live slot; when it dies, a
 * later sequence of the same number simply begins a new block at its own index. The last block
 * is not packed; the first one is on its way out. */
void blocks_remove_run(struct lane *lane, uint64_t seq, uint32_t n)
{
    struct blocks *b = &lane->blocks;
    size_t i = lower(b, seq / BLOCK_SLOTS);
    struct block *block = b->place[i].block;
    uint32_t index = seq % BLOCK_SLOTS;
    block->live[index / 64] &= ~(UINT64_MAX >> (64 - n) << (index % 64));
    block->nlive = (uint8_t)(block->nlive - n);
    if (block->nlive == 0)
        bury(lane, i);
    else if (sparse(block) && i + 1 < b->end && i > b->begin)
        pack(lane, block);
}

void blocks_remove(struct lane *lane, uint64_t seq)
{
    blocks_remove_run(lane, seq, 1);
}

void blocks_free(struct lane *lane)
{
    struct blocks *b = &lane->blocks;
    for (size_t i = b->begin; i < b->end; i++) {
        struct block *block = b->place[i].block;
        if (!block)
            continue;
        lane_release(lane, block->slot, block->room * sizeof(struct slot));
        lane_release(lane, block, sizeof *block);
    }
    lane_release(lane, b->place, b->room * sizeof *b->place);
    lane_release(lane, b->by_id, b->ids_room * sizeof(*b->by_id));
    *b = (struct blocks){0};
}

/* ---- Checking ---- */

static const char *check_block(const struct blocks *b, const struct block *block)
{
    uint32_t live =
        (uint32_t)(__builtin_popcountll(block->live[0]) + __builtin_popcountll(block->live[1]));
    if (live != block->nlive || live == 0)
        return "block: live count";
    if (block_of(b, block->id) != block)
        return "block: id";
    if (block->used > block->room)
        return "block: bounds";
    if (block->packed) {
        uint32_t laid =
            (uint32_t)(__builtin_popcountll(block->laid[0]) + __builtin_popcountll(block->laid[1]));
        if (laid != block->used || block->live[0] & ~block->laid[0] ||
            block->live[1] & ~block->laid[1])
            return "block: alive, but without a slot";
        return NULL;
    }
    if (live_index(block, 0) < block->first || block->first + block->used > BLOCK_SLOTS)
        return "block: bounds";
    if (block->first + block->used < BLOCK_SLOTS &&
        live_index(block, block->first + block->used) < BLOCK_SLOTS)
        return "block: live behind its end";
    return NULL;
}

static const char *check_ids(const struct blocks *b, size_t blocks)
{
    size_t n = 0, unused = 0;
    for (uint32_t id = b->free_id; id; unused++) {
        if (id > b->ids || !((uintptr_t)b->by_id[id - 1] & 1) || unused > b->ids)
            return "blocks: list of free ids";
        id = (uint32_t)((uintptr_t)b->by_id[id - 1] >> 1);
    }
    for (uint32_t id = 1; id <= b->ids; id++)
        n += block_of(b, id) != NULL;
    return n == blocks && n + unused == b->ids && b->ids <= b->ids_room ? NULL : "blocks: ids";
}

const char *blocks_check(const struct lane *lane)
{
    const struct blocks *b = &lane->blocks;
    size_t dead = 0;
    const char *wrong = NULL;
    if (b->begin > b->end || b->end > b->room)
        return "directory: bounds";
    if (b->begin < b->end && (!b->place[b->begin].block || !b->place[b->end - 1].block))
        return "directory: dead at an end";
    for (size_t i = b->begin; i < b->end && !wrong; i++) {
        const struct block *block = b->place[i].block;
        if (i > b->begin && b->place[i].number <= b->place[i - 1].number)
            return "directory: not rising";
        if (block) {
            wrong = block->number == b->place[i].number ? check_block(b, block) : "block: number";
            continue;
        }
        dead++;
        for (size_t j = i; j < i + b->place[i].skip; j++)
            if (j >= b->end || b->place[j].block)
                return "directory: a hop over a live block";
    }
    if (wrong)
        return wrong;
    return dead == b->dead ? check_ids(b, b->end - b->begin - dead) : "directory: dead count";
}
