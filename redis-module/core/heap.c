/* heap - binary heaps of extras, smallest key first, equal keys by sequence.
 *
 *                 [0] key 3
 *                /         \               every extra knows its place in its heap, so that an entry which is
 *         [1] key 5      [2] key 4         acknowledged leaves from the middle in O(log n)
 *          /     \
 *    [3] key 9  [4] key 5
 *
 * A live slot is in at most one heap by its state: leased, delayed, or waiting below `fresh`.
 * Room is reserved when an entry enters the first of them, so that moving between them cannot
 * fail. What expires is in a heap of that, too; its room is for all that do. */
#include "redis-module/core/internal.h"

static const struct page_kind kind = {8, sizeof(struct heap_item)};

struct heap_item *heap_at(const struct heap *h, uint32_t place)
{
    return pages_at(&h->pages, kind, place);
}

static bool less(const struct lane *lane, struct heap_item a, struct heap_item b)
{
    return a.key != b.key ? a.key < b.key
                          : extra_at(lane, a.extra)->seq < extra_at(lane, b.extra)->seq;
}

static void set(struct lane *lane, struct heap *h, uint32_t place, struct heap_item item)
{
    struct extra *x = extra_at(lane, item.extra);
    *heap_at(h, place) = item;
    if (h->by_expiry)
        x->expiry_place = place;
    else
        x->place = place;
}

static void sift_up(struct lane *lane, struct heap *h, uint32_t place, struct heap_item item)
{
    while (place > 0 && less(lane, item, *heap_at(h, (place - 1) / 2))) {
        set(lane, h, place, *heap_at(h, (place - 1) / 2));
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
        uint32_t c = (uint32_t)child;
        if (c + 1 < h->n && less(lane, *heap_at(h, c + 1), *heap_at(h, c)))
            c++;
        if (!less(lane, *heap_at(h, c), item))
            break;
        set(lane, h, place, *heap_at(h, c));
        place = c;
    }
    sift_up(lane, h, place, item);
}

bool heap_reserve(struct lane *lane, struct heap *h, uint64_t room)
{
    return room <= h->pages.room || pages_reserve(lane, &h->pages, kind, room);
}

void heap_trim(struct lane *lane, struct heap *h, uint64_t room)
{
    pages_trim(lane, &h->pages, kind, room);
}

void heap_add(struct lane *lane, struct heap *h, int64_t key, uint32_t extra)
{
    LANE_ASSERT(h->n < h->pages.room); /* reserved before */
    sift_up(lane, h, h->n++, (struct heap_item){key, extra});
}

void heap_remove(struct lane *lane, struct heap *h, uint32_t place)
{
    LANE_ASSERT(place < h->n);
    struct heap_item last = *heap_at(h, --h->n);
    if (place < h->n)
        sift(lane, h, place, last);
}

void heap_change(struct lane *lane, struct heap *h, uint32_t place, int64_t key)
{
    LANE_ASSERT(place < h->n);
    sift(lane, h, place, (struct heap_item){key, heap_at(h, place)->extra});
}

void heap_free(struct lane *lane, struct heap *h)
{
    pages_free(lane, &h->pages, kind);
    h->n = 0;
}

uint64_t heap_first_seq(const struct lane *lane, const struct heap *h)
{
    LANE_ASSERT(h->n);
    return extra_at(lane, heap_at(h, 0)->extra)->seq;
}

const char *heap_check(const struct lane *lane, const struct heap *h, enum lane_state state)
{
    for (uint32_t i = 0; i < h->n; i++) {
        if (heap_at(h, i)->extra >= lane->extras.n)
            return "heap: an extra that is not there";
        const struct extra *e = extra_at(lane, heap_at(h, i)->extra);
        const struct slot *slot = blocks_find(lane, e->seq);
        if (!slot || slot->extra != heap_at(h, i)->extra + 1 ||
            (h->by_expiry ? e->expiry_place : e->place) != i)
            return "heap: an entry does not know its place";
        if (state && slot->state != state)
            return "heap: an entry of another state";
        if (h->by_expiry && (!e->expires || e->expires > heap_at(h, i)->key))
            return "heap: an entry that does not expire then";
        if (i > 0 && less(lane, *heap_at(h, i), *heap_at(h, (i - 1) / 2)))
            return "heap: order";
    }
    return h->n <= h->pages.room ? NULL : "heap: room";
}
