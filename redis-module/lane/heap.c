/* heap - binary heaps of sequences, smallest key first, equal keys by sequence.
 *
 *                 [0] key 3
 *                /         \               every slot in a heap knows its place, so that an entry which is
 *         [1] key 5      [2] key 4         acknowledged leaves from the middle in O(log n)
 *          /     \
 *    [3] key 9  [4] key 5
 *
 * A live slot is in at most one heap: leased, delayed, or waiting below `fresh`. Room is reserved when an
 * entry enters the first of them, so that moving between them cannot fail. */
#include "internal.h"

#include <string.h>

static bool less(struct heap_item a, struct heap_item b)
{
    return a.key != b.key ? a.key < b.key : a.seq < b.seq;
}

static void set(struct lane *lane, struct heap *h, uint32_t place, struct heap_item item)
{
    h->item[place] = item;
    blocks_find(lane, item.seq)->place = place;
}

static void sift_up(struct lane *lane, struct heap *h, uint32_t place, struct heap_item item)
{
    while (place > 0 && less(item, h->item[(place - 1) / 2])) {
        set(lane, h, place, h->item[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    set(lane, h, place, item);
}

static void sift(struct lane *lane, struct heap *h, uint32_t place, struct heap_item item)
{
    for (;;) {
        uint64_t child = 2 * (uint64_t)place + 1;
        if (child >= h->n)
            break;
        if (child + 1 < h->n && less(h->item[child + 1], h->item[child]))
            child++;
        if (!less(h->item[child], item))
            break;
        set(lane, h, place, h->item[child]);
        place = (uint32_t)child;
    }
    sift_up(lane, h, place, item);
}

bool heap_reserve(struct lane *lane, struct heap *h, uint64_t room)
{
    if (room <= h->room)
        return true;
    if (room > UINT32_MAX / 2)
        return false;
    uint32_t more = h->room ? h->room : 4;
    while (more < room)
        more *= 2;
    struct heap_item *item = lane_alloc(lane, more * sizeof *item);
    if (!item)
        return false;
    if (h->n)
        memcpy(item, h->item, h->n * sizeof *item);
    lane_release(lane, h->item, h->room * sizeof *item);
    h->item = item;
    h->room = more;
    return true;
}

void heap_add(struct lane *lane, struct heap *h, int64_t key, uint64_t seq)
{
    sift_up(lane, h, h->n++, (struct heap_item){key, seq});
}

void heap_remove(struct lane *lane, struct heap *h, uint32_t place)
{
    struct heap_item last = h->item[--h->n];
    if (place < h->n)
        sift(lane, h, place, last);
}

void heap_change(struct lane *lane, struct heap *h, uint32_t place, int64_t key)
{
    sift(lane, h, place, (struct heap_item){key, h->item[place].seq});
}

void heap_free(struct lane *lane, struct heap *h)
{
    lane_release(lane, h->item, h->room * sizeof *h->item);
    *h = (struct heap){0};
}

const char *heap_check(const struct lane *lane, const struct heap *h, enum lane_state state)
{
    for (uint32_t i = 0; i < h->n; i++) {
        const struct slot *slot = blocks_find(lane, h->item[i].seq);
        if (!slot || slot->place != i)
            return "heap: a slot does not know its place";
        if (slot->state != state)
            return "heap: an entry of another state";
        if (i > 0 && less(h->item[i], h->item[(i - 1) / 2]))
            return "heap: order";
    }
    return h->n <= h->room ? NULL : "heap: room";
}
