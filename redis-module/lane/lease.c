/* lease - giving entries out and getting them back.
 *
 *    holder (a connection)
 *    first --> lease 7 (A: 1, 2, 5) --> lease 8 (B: 4)
 *
 * Each lease is also on the list of its lane, so that a lane that goes away takes its leases off their
 * holders.
 *
 * What is given next, in SKIP order, is the lower of two: the first entry given back (heap `back`, all below
 * `fresh`) and the first one waiting from `fresh` on. `fresh` only rises, so an entry is passed once, however
 * many are leased or delayed before it. */
#include "internal.h"

#include <string.h>

/* ---- Candidates ---- */

static uint64_t first_waiting(struct lane *lane)
{
    if (lane->back.n)
        return lane->back.item[0].seq;
    uint64_t seq = lane->fresh;
    struct slot *slot;
    while ((slot = blocks_next(lane, &seq)) && slot->state != LANE_WAITING)
        seq++;
    /* What was passed is delayed; when it is due it goes to the heap of those given back. */
    lane->fresh = slot ? seq : lane->last + 1;
    return slot ? seq : 0;
}

/* In STRICT order only the first entry, or the one right behind what this lease has, and only if nobody else
 * holds any. */
static uint64_t strictly_next(const struct lane *lane, const struct lane_lease *lease)
{
    uint64_t seq = lease && lease->n ? lease->seq[lease->n - 1] + 1 : 0;
    if (lane->leased.n != (lease ? lease->live : 0))
        return 0;
    const struct slot *slot = blocks_next(lane, &seq);
    return slot && slot->state == LANE_WAITING ? seq : 0;
}

bool lane_candidate(struct lane *lane, const struct lane_lease *lease, struct lane_entry *e)
{
    if (lane->length == (uint64_t)lane->leased.n + lane->delayed.n)
        return false;
    uint64_t seq = lane->settings.strict ? strictly_next(lane, lease) : first_waiting(lane);
    return seq && lane_get(lane, seq, e);
}

bool lane_takeable(struct lane *lane)
{
    if (lane->length == (uint64_t)lane->leased.n + lane->delayed.n)
        return false;
    return !lane->settings.strict || strictly_next(lane, NULL) != 0;
}

/* ---- Leases ---- */

static void unlink_lease(struct lane_lease *lease)
{
    struct lane *lane = lease->lane;
    if (lease->next)
        lease->next->prev = lease->prev;
    if (lease->prev)
        lease->prev->next = lease->next;
    else if (lease->holder)
        lease->holder->first = lease->next;
    if (lease->lane_next)
        lease->lane_next->lane_prev = lease->lane_prev;
    if (lease->lane_prev)
        lease->lane_prev->lane_next = lease->lane_next;
    else
        lane->leases = lease->lane_next;
    lane_release(lane, lease->seq, lease->room * sizeof *lease->seq);
    lane_release(lane, lease, sizeof *lease);
}

struct lane_lease *lane_lease_open(struct lane *lane, struct lane_holder *holder, uint64_t number)
{
    struct lane_lease *lease = lane_alloc(lane, sizeof *lease);
    if (!lease)
        return NULL;
    *lease = (struct lane_lease){.number = number,
                                 .lane = lane,
                                 .holder = holder,
                                 .next = holder->first,
                                 .lane_next = lane->leases,
                                 .open = true};
    if (lease->next)
        lease->next->prev = lease;
    if (lease->lane_next)
        lease->lane_next->lane_prev = lease;
    holder->first = lane->leases = lease;
    return lease;
}

static bool lease_room(struct lane_lease *lease)
{
    if (lease->n < lease->room)
        return true;
    if (lease->room > UINT32_MAX / 2)
        return false;
    uint32_t room = lease->room ? lease->room * 4 : 1;
    uint64_t *seq = lane_alloc(lease->lane, room * sizeof *seq);
    if (!seq)
        return false;
    if (lease->n)
        memcpy(seq, lease->seq, lease->n * sizeof *seq);
    lane_release(lease->lane, lease->seq, lease->room * sizeof *seq);
    lease->seq = seq;
    lease->room = room;
    return true;
}

bool lane_lease_add(struct lane_lease *lease, uint64_t seq, int64_t until)
{
    struct lane *lane = lease->lane;
    struct slot *slot = blocks_find(lane, seq);
    if (!lease_room(lease) || !lane_reserve_one(lane, true))
        return false;
    if (seq < lane->fresh)
        heap_remove(lane, &lane->back, slot->place);
    else
        lane->fresh = seq + 1;
    slot->state = LANE_LEASED;
    slot->lease = lease;
    heap_add(lane, &lane->leased, until, seq);
    lease->seq[lease->n++] = seq;
    lease->live++;
    return true;
}

void lane_lease_close(struct lane_lease *lease)
{
    lease->open = false;
    if (lease->live == 0)
        unlink_lease(lease);
}

void lease_leave(struct slot *slot)
{
    struct lane_lease *lease = slot->lease;
    slot->lease = NULL;
    if (--lease->live == 0 && !lease->open)
        unlink_lease(lease);
}

struct lane_lease *lane_lease_find(struct lane *lane, uint64_t number)
{
    struct lane_lease *lease = lane->leases;
    while (lease && lease->number != number)
        lease = lease->lane_next;
    return lease;
}

struct lane *lane_lease_lane(const struct lane_lease *lease)
{
    return lease->lane;
}

uint64_t lane_lease_next(const struct lane_lease *lease, uint64_t after)
{
    uint32_t low = 0, high = lease->n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (lease->seq[middle] <= after)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < lease->n; low++) {
        const struct slot *slot = blocks_find(lease->lane, lease->seq[low]);
        if (slot && slot->lease == lease)
            return lease->seq[low];
    }
    return 0;
}

/* ---- Giving back ---- */

static void wait_again(struct lane *lane, uint64_t seq, struct slot *slot)
{
    slot->state = LANE_WAITING;
    if (seq < lane->fresh)
        heap_add(lane, &lane->back, (int64_t)seq, seq);
}

bool lane_put_back(struct lane *lane, uint64_t seq, bool attempt, int64_t due)
{
    struct slot *slot = blocks_find(lane, seq);
    if (!slot)
        return true;
    if (slot->state == LANE_WAITING && due) {
        if (!lane_reserve_one(lane, false))
            return false;
        if (seq < lane->fresh)
            heap_remove(lane, &lane->back, slot->place);
    } else if (slot->state == LANE_LEASED) {
        heap_remove(lane, &lane->leased, slot->place);
        lease_leave(slot);
        slot->revoked = false;
    } else if (slot->state == LANE_DELAYED) {
        heap_remove(lane, &lane->delayed, slot->place);
    }
    if (attempt && slot->attempts < UINT32_MAX)
        slot->attempts++;
    if (due) {
        slot->state = LANE_DELAYED;
        heap_add(lane, &lane->delayed, due, seq);
    } else if (slot->state != LANE_WAITING) {
        wait_again(lane, seq, slot);
    }
    return true;
}

void lane_extend(struct lane *lane, uint64_t seq, int64_t until)
{
    const struct slot *slot = blocks_find(lane, seq);
    if (slot && slot->state == LANE_LEASED)
        heap_change(lane, &lane->leased, slot->place, until);
}

void lane_mark_revoked(struct lane *lane, uint64_t seq)
{
    struct slot *slot = blocks_find(lane, seq);
    if (slot && slot->state == LANE_LEASED)
        slot->revoked = true;
}

void lane_end_leases(struct lane *lane)
{
    while (lane->leased.n)
        lane_put_back(lane, lane->leased.item[0].seq, false, 0);
}

/* ---- Time ---- */

void lane_due(struct lane *lane, int64_t now)
{
    while (lane->delayed.n && lane->delayed.item[0].key <= now) {
        uint64_t seq = lane->delayed.item[0].seq;
        heap_remove(lane, &lane->delayed, 0);
        wait_again(lane, seq, blocks_find(lane, seq));
    }
}

uint64_t lane_overdue(const struct lane *lane, int64_t now)
{
    return lane->leased.n && lane->leased.item[0].key <= now ? lane->leased.item[0].seq : 0;
}

int64_t lane_wake(const struct lane *lane)
{
    int64_t wake = LANE_NEVER;
    if (lane->delayed.n && lane->delayed.item[0].key < wake)
        wake = lane->delayed.item[0].key;
    if (lane->leased.n && lane->leased.item[0].key < wake)
        wake = lane->leased.item[0].key;
    return wake;
}
