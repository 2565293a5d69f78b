/* lease - giving entries out and getting them back.
 *
 *    holder (a connection)
 *    first --> lease 7 (A: 1, 2, 5) --> lease 8 (B: 4)
 *
 * Each lease is also on the list of its lane's leasing. A lane that goes away lets go of that: its
 * leases are nobody's then, and are taken off their holders' lists some at a time.
 *
 * What is given next, in SKIP order, is the lower of two: the first entry given back (heap
 * `back`, all below `fresh`) and the first one waiting from `fresh` on. `fresh` only rises, so
 * an entry is passed once, however many are leased or delayed before it. */
#include "redis-module/core/internal.h"

#include <string.h>

/* ---- Candidates ---- */

static uint64_t first_waiting(struct lane *lane)
{
    if (lane->back.n)
        return heap_first_seq(lane, &lane->back);
    uint64_t seq = lane->fresh;
    struct slot *slot;
    while ((slot = blocks_next(lane, &seq)) && slot->state != LANE_WAITING)
        seq++;
    /* What was passed is delayed; when it is due it goes to the heap of those given back. */
    lane->fresh = slot ? seq : lane->last + 1;
    return slot ? seq : 0;
}

/* In STRICT order only the first entry, or the one right behind what this lease has, and only if
 * nobody else holds any. */
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

/* The memory of leases counts as the lane's as long as they have one. */
static void *lease_alloc(struct leasing *l, size_t n)
{
    void *p = lane_alloc(l->lane, n);
    if (p)
        l->memory += n;
    return p;
}

static void lease_release(struct leasing *l, void *p, size_t n)
{
    if (!p)
        return;
    LANE_ASSERT(l->memory >= n);
    l->memory -= n;
    if (l->lane)
        lane_release(l->lane, p, n);
    else
        l->env->free(p);
}

static struct leasing *leasing_of(struct lane *lane)
{
    if (lane->leasing)
        return lane->leasing;
    struct leasing *l = lane_alloc(lane, sizeof *l);
    if (l)
        *l = (struct leasing){.lane = lane, .env = lane->env, .memory = sizeof *l};
    return lane->leasing = l;
}

/* One that is over is freed by the sweep. */
static void end_leasing(struct leasing *l)
{
    if (l->first || !l->lane)
        return;
    l->lane->leasing = NULL;
    lane_release(l->lane, l, sizeof *l);
}

static void unlink_lease(struct lane_lease *lease)
{
    struct leasing *l = lease->leasing;
    LANE_ASSERT(!lease->live || !l->lane); /* all of it is back, or its lane is gone */
    if (lease->next)
        lease->next->prev = lease->prev;
    if (lease->prev)
        lease->prev->next = lease->next;
    else
        lease->holder->first = lease->next;
    if (lease->lane_next)
        lease->lane_next->lane_prev = lease->lane_prev;
    if (lease->lane_prev)
        lease->lane_prev->lane_next = lease->lane_next;
    else
        l->first = lease->lane_next;
    lease_release(l, lease->seq, lease->room * sizeof *lease->seq);
    lease_release(l, lease, sizeof *lease);
    end_leasing(l);
}

struct lane_lease *lane_lease_open(struct lane *lane, struct lane_holder *holder, uint64_t number)
{
    struct leasing *l = leasing_of(lane);
    struct lane_lease *lease = l ? lease_alloc(l, sizeof *lease) : NULL;
    if (!lease) {
        if (l)
            end_leasing(l);
        return NULL;
    }
    *lease = (struct lane_lease){.number = number,
                                 .leasing = l,
                                 .holder = holder,
                                 .next = holder->first,
                                 .lane_next = l->first,
                                 .open = true};
    if (lease->next)
        lease->next->prev = lease;
    if (lease->lane_next)
        lease->lane_next->lane_prev = lease;
    holder->first = l->first = lease;
    return lease;
}

static bool lease_room(struct lane_lease *lease)
{
    if (lease->n < lease->room)
        return true;
    if (lease->room > UINT32_MAX / 2)
        return false;
    uint32_t room = lease->room ? lease->room * 4 : 1;
    uint64_t *seq = lease_alloc(lease->leasing, room * sizeof *seq);
    if (!seq)
        return false;
    if (lease->n)
        memcpy(seq, lease->seq, lease->n * sizeof *seq);
    lease_release(lease->leasing, lease->seq, lease->room * sizeof *seq);
    lease->seq = seq;
    lease->room = room;
    return true;
}

bool lane_lease_add(struct lane_lease *lease, uint64_t seq, int64_t until)
{
    struct lane *lane = lease->leasing->lane;
    struct slot *slot = blocks_find(lane, seq);
    struct extra *x;
    LANE_ASSERT(slot && slot->state == LANE_WAITING);
    if (!lease_room(lease) || !lane_reserve_one(lane, true) || !(x = extra_make(lane, slot, seq)))
        return false;
    if (seq < lane->fresh)
        heap_remove(lane, &lane->back, x->place);
    else
        lane->fresh = seq + 1;
    slot->state = LANE_LEASED;
    x->lease = lease;
    x->life = lane->life & LIFE_MAX;
    heap_add(lane, &lane->leased, until, slot->extra - 1);
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

void lease_leave(struct extra *x)
{
    struct lane_lease *lease = x->lease;
    LANE_ASSERT(lease && lease->live);
    x->lease = NULL;
    if (--lease->live == 0 && !lease->open)
        unlink_lease(lease);
}

static void drop_all(struct lane *lane)
{
    struct leasing *l = lane->leasing;
    if (!l)
        return;
    lane->leasing = NULL;
    LANE_ASSERT(lane->memory >= l->memory);
    lane->memory -= l->memory;
    l->lane = NULL;
    l->next = l->env->over;
    l->env->over = l;
}

void lane_lease_forget(struct lane_lease *lease)
{
    unlink_lease(lease);
}

bool lane_sweep(struct lane_env *env, uint64_t leases)
{
    while (env->over && leases) {
        struct leasing *l = env->over;
        for (; l->first && leases; leases--)
            unlink_lease(l->first);
        if (l->first)
            break;
        env->over = l->next;
        env->free(l);
    }
    return env->over != NULL;
}

struct lane_lease *lane_lease_find(struct lane *lane, uint64_t number)
{
    struct lane_lease *lease = lane->leasing ? lane->leasing->first : NULL;
    while (lease && lease->number != number)
        lease = lease->lane_next;
    return lease;
}

struct lane *lane_lease_lane(const struct lane_lease *lease)
{
    return lease->leasing->lane;
}

uint64_t lane_lease_next(struct lane_lease *lease, uint64_t after)
{
    const struct lane *lane = lease->leasing->lane;
    uint32_t low = lease->gone, high = lease->n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (lease->seq[middle] <= after)
            low = middle + 1;
        else
            high = middle;
    }
    bool front = low == lease->gone;
    for (; low < lease->n; low++, lease->gone += front) {
        const struct slot *slot = blocks_find(lane, lease->seq[low]);
        if (slot && slot->state == LANE_LEASED && extra_of(lane, slot)->lease == lease)
            return lease->seq[low];
    }
    return 0;
}

/* ---- Giving back ---- */

/* Its time to expire may have come while it was leased. */
static void expire_in_time(struct lane *lane, const struct extra *x)
{
    if (x->expires && heap_at(&lane->expiry, x->expiry_place)->key != x->expires)
        heap_change(lane, &lane->expiry, x->expiry_place, x->expires);
}

static void wait_again(struct lane *lane, uint64_t seq, struct slot *slot)
{
    LANE_ASSERT(slot);
    slot->state = LANE_WAITING;
    if (seq < lane->fresh)
        heap_add(lane, &lane->back, (int64_t)seq, slot->extra - 1);
}

bool lane_put_back(struct lane *lane, uint64_t seq, bool attempt, int64_t due)
{
    struct slot *slot = blocks_find(lane, seq);
    if (!slot)
        return true;
    struct extra *x = extra_of(lane, slot);
    if (slot->state == LANE_WAITING) {
        if (!due && !attempt)
            return true;
        /* What was leased or delayed has all that it needs. */
        if ((due && !lane_reserve_one(lane, false)) || !(x = extra_make(lane, slot, seq)))
            return false;
        if (due && seq < lane->fresh)
            heap_remove(lane, &lane->back, x->place);
    } else if (slot->state == LANE_LEASED) {
        heap_remove(lane, &lane->leased, x->place);
        lease_leave(x);
        x->revoked = false;
        expire_in_time(lane, x);
    } else {
        heap_remove(lane, &lane->delayed, x->place);
    }
    if (attempt && x->attempts < UINT32_MAX)
        x->attempts++;
    if (due) {
        slot->state = LANE_DELAYED;
        heap_add(lane, &lane->delayed, due, slot->extra - 1);
    } else if (slot->state != LANE_WAITING) {
        wait_again(lane, seq, slot);
    }
    return true;
}

void lane_extend(struct lane *lane, uint64_t seq, int64_t until)
{
    const struct slot *slot = blocks_find(lane, seq);
    if (slot && slot->state == LANE_LEASED)
        heap_change(lane, &lane->leased, extra_of(lane, slot)->place, until);
}

void lane_mark_revoked(struct lane *lane, uint64_t seq)
{
    const struct slot *slot = blocks_find(lane, seq);
    if (slot && slot->state == LANE_LEASED)
        extra_of(lane, slot)->revoked = true;
}

void lease_tell(struct lane *lane, struct slot *slot)
{
    struct extra *x = extra_of(lane, slot);
    if (x->life == (lane->life & LIFE_MAX))
        return;
    slot->state = LANE_WAITING;
    x->lease = NULL;
    x->revoked = false;
    expire_in_time(lane, x);
}

/* The entries are told when they are looked at. All of them, and those given back before, stand
 * behind `fresh` from now on, where what waits needs no heap. */
void lane_end_leases(struct lane *lane)
{
    drop_all(lane);
    if (!lane->leased.n)
        return;
    lane->leased.n = lane->back.n = 0;
    lane->fresh = 0;
    /* The number of a life comes back after a million of them: nobody may still believe in the
     * first by then. */
    if ((++lane->life & LIFE_MAX) != 0)
        return;
    uint64_t seq = 0;
    while (blocks_next(lane, &seq))
        seq++;
}

/* ---- Time ---- */

static bool over(const struct heap *h, int64_t now)
{
    return h->n && heap_at(h, 0)->key <= now;
}

#define DUE_AT_ONCE 1000

bool lane_due(struct lane *lane, int64_t now)
{
    for (int i = 0; i < DUE_AT_ONCE && over(&lane->delayed, now); i++) {
        uint64_t seq = heap_first_seq(lane, &lane->delayed);
        heap_remove(lane, &lane->delayed, 0);
        wait_again(lane, seq, blocks_find(lane, seq));
    }
    return over(&lane->delayed, now);
}

uint64_t lane_overdue(const struct lane *lane, int64_t now)
{
    return over(&lane->leased, now) ? heap_first_seq(lane, &lane->leased) : 0;
}

#define LEASED_AT_ONCE 1000

/* What is leased is looked at again when the lease ends, so that it hides nobody; should all
 * leases end at once before, then at the latest. What is left of very many of them follows at
 * the next call. */
uint64_t lane_expired(struct lane *lane, int64_t now)
{
    for (int i = 0; i < LEASED_AT_ONCE && over(&lane->expiry, now); i++) {
        const struct extra *x = extra_at(lane, heap_at(&lane->expiry, 0)->extra);
        if (blocks_find(lane, x->seq)->state != LANE_LEASED)
            return x->seq;
        int64_t end = heap_at(&lane->leased, x->place)->key;
        heap_change(lane, &lane->expiry, 0, end > now ? end : now + 1);
    }
    return 0;
}

void lane_keep(struct lane *lane, uint64_t seq)
{
    const struct slot *slot = blocks_find(lane, seq);
    struct extra *x = slot ? extra_of(lane, slot) : NULL;
    if (!x || !x->expires)
        return;
    heap_remove(lane, &lane->expiry, x->expiry_place);
    x->expires = 0;
}

int64_t lane_expiry(const struct lane *lane)
{
    return lane->expiry.n ? heap_at(&lane->expiry, 0)->key : LANE_NEVER;
}

int64_t lane_wake(const struct lane *lane)
{
    int64_t wake = LANE_NEVER;
    if (lane->delayed.n)
        wake = heap_at(&lane->delayed, 0)->key;
    if (lane->leased.n && heap_at(&lane->leased, 0)->key < wake)
        wake = heap_at(&lane->leased, 0)->key;
    return wake;
}
