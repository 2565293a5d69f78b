/* extra - what most entries do not have: a lease, a place in a heap, a revision, attempts, a
 * replaced meta.
 *
 *      slot --number--> | 0 | 1 | 2 | .. | n-1 |        no holes: when one leaves, the last takes its number
 *                         '--seq--> slot                and tells its slot and its heaps
 */
#include "redis-module/core/internal.h"

static const struct page_kind kind = {7, sizeof(struct extra)};

struct extra *extra_at(const struct lane *lane, uint32_t number)
{
    return pages_at(&lane->extras.pages, kind, number);
}

struct extra *extra_of(const struct lane *lane, const struct slot *slot)
{
    return slot->extra ? extra_at(lane, slot->extra - 1) : NULL;
}

struct extra *extra_make(struct lane *lane, struct slot *slot, uint64_t seq)
{
    struct extras *x = &lane->extras;
    if (slot->extra)
        return extra_at(lane, slot->extra - 1);
    if (!pages_reserve(lane, &x->pages, kind, (uint64_t)x->n + 1))
        return NULL;
    struct extra *e = extra_at(lane, x->n);
    *e = (struct extra){.seq = seq};
    slot->extra = ++x->n;
    return e;
}

static struct heap *heap_of(struct lane *lane, const struct slot *slot, uint64_t seq)
{
    if (slot->state == LANE_LEASED)
        return &lane->leased;
    if (slot->state == LANE_DELAYED)
        return &lane->delayed;
    return seq < lane->fresh ? &lane->back : NULL;
}

void extra_drop(struct lane *lane, struct slot *slot)
{
    struct extras *x = &lane->extras;
    if (!slot->extra)
        return;
    LANE_ASSERT(slot->extra <= x->n);
    uint32_t hole = slot->extra - 1, last = --x->n;
    slot->extra = 0;
    if (hole != last) {
        struct extra *e = extra_at(lane, hole);
        /* may change its extra */
        struct slot *moved = blocks_find(lane, extra_at(lane, last)->seq);
        LANE_ASSERT(moved && moved->extra == last + 1);
        *e = *extra_at(lane, last);
        moved->extra = hole + 1;
        struct heap *heap = heap_of(lane, moved, e->seq);
        if (heap)
            heap_at(heap, e->place)->extra = hole;
        if (e->expires)
            heap_at(&lane->expiry, e->expiry_place)->extra = hole;
    }
    pages_trim(lane, &x->pages, kind, x->n);
    if (x->n == 0)
        extra_free(lane);
}

void extra_free(struct lane *lane)
{
    pages_free(lane, &lane->extras.pages, kind);
    lane->extras.n = 0;
}

const char *extra_check(const struct lane *lane)
{
    for (uint32_t i = 0; i < lane->extras.n; i++) {
        const struct slot *slot = blocks_find(lane, extra_at(lane, i)->seq);
        if (!slot || slot->extra != i + 1)
            return "extra: its slot does not know it";
    }
    return lane->extras.n <= lane->extras.pages.room ? NULL : "extra: room";
}
