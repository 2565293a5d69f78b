/* check - every invariant of a lane, for the tests that follow each operation with it. */
#include "redis-module/core/internal.h"

static const char *check_slots(const struct lane *lane)
{
    uint64_t seq = 0, length = 0, bytes = 0, leased = 0, delayed = 0, ids = 0, back = 0, extras = 0,
             expiring = 0;
    for (const struct slot *slot; (slot = blocks_next(lane, &seq)); seq++) {
        length++;
        bytes += (uint64_t)slot->body_len + slot->meta_len;
        ids += slot->has_id;
        leased += slot->state == LANE_LEASED;
        delayed += slot->state == LANE_DELAYED;
        back += slot->state == LANE_WAITING && seq < lane->fresh;
        if (seq > lane->last)
            return "slot: above the last sequence";
        if ((slot->state != LANE_WAITING || seq < lane->fresh) && !slot->extra)
            return "slot: no extra";
        if (slot->extra > lane->extras.n)
            return "slot: an extra that is not there";
        extras += slot->extra != 0;
        const struct extra *x = extra_of(lane, slot);
        if (x && x->seq != seq)
            return "slot: somebody else's extra";
        if (x && (slot->state == LANE_LEASED) != (x->lease != NULL))
            return "slot: lease and state";
        if (slot->state == LANE_LEASED && seq >= lane->fresh)
            return "slot: leased, but not below fresh";
        if (x && x->revoked && slot->state != LANE_LEASED)
            return "slot: revoked, but not leased";
        expiring += x && x->expires;
        if (slot->state == 0)
            return "slot: state";
    }
    if (length != lane->length || bytes != lane->bytes)
        return "lane: length or bytes";
    if (leased != lane->leased.n || delayed != lane->delayed.n || back != lane->back.n)
        return "lane: heap sizes";
    if (expiring != lane->expiry.n)
        return "lane: what expires";
    if (extras != lane->extras.n)
        return "lane: number of extras";
    return ids == lane->ids.n ? NULL : "lane: number of ids";
}

static const char *check_leases(const struct lane *lane)
{
    uint64_t live = 0;
    const struct leasing *l = lane->leasing;
    if (l && (l->lane != lane || !l->first))
        return "leasing: its lane, or no leases";
    for (const struct lane_lease *lease = l ? l->first : NULL; lease; lease = lease->lane_next) {
        uint32_t mine = 0;
        for (uint32_t i = 0; i < lease->n; i++) {
            const struct slot *slot = blocks_find(lane, lease->seq[i]);
            mine += slot && slot->state == LANE_LEASED && extra_of(lane, slot)->lease == lease;
        }
        if (mine != lease->live || (mine == 0 && !lease->open))
            return "lease: live count";
        if (lease->leasing != l || (lease->lane_next && lease->lane_next->lane_prev != lease))
            return "lease: list of the lane";
        if (lease->prev ? lease->prev->next != lease : lease->holder->first != lease)
            return "lease: list of the holder";
        live += mine;
    }
    return live == lane->leased.n ? NULL : "lease: number of leased entries";
}

const char *lane_check(const struct lane *lane)
{
    const char *wrong = blocks_check(lane);
    if (!wrong)
        wrong = arena_check(lane);
    if (!wrong)
        wrong = idindex_check(lane);
    if (!wrong)
        wrong = extra_check(lane);
    if (!wrong)
        wrong = heap_check(lane, &lane->back, LANE_WAITING);
    if (!wrong)
        wrong = heap_check(lane, &lane->delayed, LANE_DELAYED);
    if (!wrong)
        wrong = heap_check(lane, &lane->leased, LANE_LEASED);
    if (!wrong)
        wrong = heap_check(lane, &lane->expiry, 0);
    if (!wrong)
        wrong = check_slots(lane);
    if (!wrong)
        wrong = check_leases(lane);
    if (!wrong && lane->back.pages.room < (uint64_t)lane->back.n + lane->delayed.n + lane->leased.n)
        wrong = "lane: no room to give back";
    if (!wrong && lane->delayed.pages.room < (uint64_t)lane->delayed.n + lane->leased.n)
        wrong = "lane: no room to delay";
    return wrong;
}
