/* blocks - the slots of a lane, in blocks of up to 128, found through a directory sorted by block number.
 *
 *      begin                                    end
 *        v                                       v
 *   +---+------+------+------+------+------+------+---
 *   |   | 512  | 513  | dead | dead | 516  | 1024 |      a number is the high part of sequences;
 *   +---+--|---+--|---+ +2   + +1   +--|---+--|---+---    1024 began a new stretch
 *          v      v                    v      v
 *        slots  slots                slots  slots
 *
 * A block lives as long as one of its slots does. When a block in the middle dies its place stays, says how
 * far the next one may be (hops are shortened as they are walked), and is swept out when half of the
 * directory is dead: so a stuck old entry in front of a million removed ones costs nothing, and a removal is
 * O(1) amortised. A block begins with room for 4 slots at the index it needs first: ten thousand lanes of one
 * entry are cheap. */
#include "internal.h"

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

/* The first place alive from i on. The last place is alive, so there is one for every i below end. */
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

struct slot *blocks_find(const struct lane *lane, uint64_t seq)
{
    const struct blocks *b = &lane->blocks;
    size_t i = lower(b, seq / BLOCK_SLOTS);
    if (i == b->end || b->place[i].number != seq / BLOCK_SLOTS || !b->place[i].block)
        return NULL;
    struct block *block = b->place[i].block;
    uint32_t index = seq % BLOCK_SLOTS;
    if (!(block->live[index / 64] >> (index % 64) & 1))
        return NULL;
    return &block->slot[index - block->first];
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
            *seq = b->place[i].number * BLOCK_SLOTS + index;
            return &block->slot[index - block->first];
        }
        if (i + 1 == b->end)
            return NULL;
    }
}

static size_t block_size(uint32_t room)
{
    return sizeof(struct block) + room * sizeof(struct slot);
}

/* Moves what is alive to the front of a directory with that much room (the same one when it is the old room).
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
    if (room != b->room)
        lane_release(lane, b->place, b->room * sizeof *to);
    *b = (struct blocks){.place = to, .begin = 0, .end = n, .room = room, .dead = 0};
    return true;
}

static struct place *new_place(struct lane *lane, uint64_t number)
{
    struct blocks *b = &lane->blocks;
    if (b->end == b->room) {
        size_t live = b->end - b->begin - b->dead;
        if (!resweep(lane, live <= b->room / 2 && b->room ? b->room : b->room ? 2 * b->room : 2))
            return NULL;
    }
    struct place *place = &b->place[b->end];
    *place = (struct place){.number = number};
    return place; /* not counted yet: the caller may fail */
}

/* Room for one slot more at the block's end. */
static bool widen(struct lane *lane, struct place *place, uint32_t first)
{
    struct block *old = place->block;
    if (old && old->used < old->room)
        return true;
    uint32_t room = old ? old->room * 4 : 4, base = old ? old->first : first;
    if (room > BLOCK_SLOTS - base)
        room = BLOCK_SLOTS - base;
    struct block *block = lane_alloc(lane, block_size(room));
    if (!block)
        return false;
    if (old) {
        memcpy(block, old, block_size(old->used));
        lane_release(lane, old, block_size(old->room));
    } else {
        memset(block, 0, sizeof *block);
        block->first = first;
    }
    block->room = room;
    place->block = block;
    return true;
}

struct slot *blocks_append(struct lane *lane, uint64_t seq)
{
    struct blocks *b = &lane->blocks;
    uint64_t number = seq / BLOCK_SLOTS;
    uint32_t index = seq % BLOCK_SLOTS;
    bool fresh = b->begin == b->end || b->place[b->end - 1].number != number;
    struct place *place = fresh ? new_place(lane, number) : &b->place[b->end - 1];
    if (!place)
        return NULL;
    /* Sequences may be skipped (a replica stores only what the primary kept): the slots between are dead
     * ones. They may be there already, from an append of a higher sequence that found no memory half-way. */
    while (fresh || place->block->first + place->block->used <= index) {
        if (!widen(lane, place, index))
            return NULL; /* a fresh place was not counted, and its block is not there yet */
        memset(&place->block->slot[place->block->used++], 0, sizeof(struct slot));
        b->end += fresh;
        fresh = false;
    }
    struct block *block = place->block;
    block->live[index / 64] |= (uint64_t)1 << (index % 64);
    block->nlive++;
    return &block->slot[index - block->first];
}

static void bury(struct lane *lane, size_t i)
{
    struct blocks *b = &lane->blocks;
    lane_release(lane, b->place[i].block, block_size(b->place[i].block->room));
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
    if (b->begin == b->end)
        b->begin = b->end = 0;
    else if (b->dead > 8 && b->dead > (b->end - b->begin) / 2)
        resweep(lane, b->room);
}

/* The last block never counts as dead to blocks_append while it has a live slot; when it dies, a later
 * sequence of the same number simply begins a new block at its own index. */
void blocks_remove(struct lane *lane, uint64_t seq)
{
    struct blocks *b = &lane->blocks;
    size_t i = lower(b, seq / BLOCK_SLOTS);
    struct block *block = b->place[i].block;
    uint32_t index = seq % BLOCK_SLOTS;
    block->live[index / 64] &= ~((uint64_t)1 << (index % 64));
    if (--block->nlive == 0)
        bury(lane, i);
}

void blocks_free(struct lane *lane)
{
    struct blocks *b = &lane->blocks;
    for (size_t i = b->begin; i < b->end; i++)
        if (b->place[i].block)
            lane_release(lane, b->place[i].block, block_size(b->place[i].block->room));
    lane_release(lane, b->place, b->room * sizeof *b->place);
    *b = (struct blocks){0};
}

const char *blocks_check(const struct lane *lane)
{
    const struct blocks *b = &lane->blocks;
    size_t dead = 0;
    if (b->begin > b->end || b->end > b->room)
        return "directory: bounds";
    if (b->begin < b->end && (!b->place[b->begin].block || !b->place[b->end - 1].block))
        return "directory: dead at an end";
    for (size_t i = b->begin; i < b->end; i++) {
        const struct block *block = b->place[i].block;
        if (i > b->begin && b->place[i].number <= b->place[i - 1].number)
            return "directory: not rising";
        if (!block) {
            dead++;
            for (size_t j = i; j < i + b->place[i].skip; j++)
                if (j >= b->end || b->place[j].block)
                    return "directory: a hop over a live block";
            continue;
        }
        uint32_t live =
            (uint32_t)(__builtin_popcountll(block->live[0]) + __builtin_popcountll(block->live[1]));
        if (live != block->nlive || live == 0)
            return "block: live count";
        if (live_index(block, 0) < block->first || block->first + block->used > BLOCK_SLOTS ||
            block->used > block->room)
            return "block: bounds";
        if (block->used < BLOCK_SLOTS && live_index(block, block->first + block->used) < BLOCK_SLOTS)
            return "block: live behind its end";
    }
    return dead == b->dead ? NULL : "directory: dead count";
}
