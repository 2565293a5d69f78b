/* arena - bodies and metas, one behind the other in segments.
 *
 *    segment:  | head | owner len  body meta | owner len  body meta | ...             |
 *                     '--- a record ---------'                      ^ used       size ^
 *
 * A record knows its owner, the handle of its slot, so a segment can be walked: a record is alive
 * when its owner says that it is there. New records go to the end of the open segment. When that is
 * full it is closed and stands, by the part of it that is alive, in one of seven buckets (or in
 * none, above 7/8); it is given back when its last record dies, and one is kept for the next that
 * is needed.
 *
 * Segments are as large as the lane needs: 4 KB at first, a sixteenth of what is alive, 1 MB at
 * most. So what a lane in the order of its entries has unused is bounded by an eighth, without
 * anything being copied. Beyond that bound, after removals out of order, each removal moves some
 * records from the emptiest segment to the end of the survivors' one: a few bytes for each that was
 * removed, so no command waits for it.
 *
 * What is large beside the segment it would open gets one of its own size, and is never moved.
 * Allocators round 200 KB up to 224; in a long lane such records go together into segments of up
 * to 4 MB, of the size that leaves least. */
#include "redis-module/core/internal.h"

#include <string.h>

#define SEGMENT_MIN 4096u
#define SEGMENT_MAX (1u << 20)
#define META_BIT 0x80000000u
#define NO_BUCKET 0xff

struct segment {
    uint32_t size, used; /* head included */
    uint32_t live;       /* bytes of live records */
    uint32_t scan;       /* what is before it was moved already */
    uint32_t id;
    uint32_t prev, next; /* of the bucket, by number */
    uint8_t bucket;
    uint8_t alone; /* made for one record */
};

#define HEAD (uint32_t)sizeof(struct segment)

struct record {
    uint32_t owner, len; /* of what follows; META_BIT: a replaced meta */
};

static struct segment *segment_of(const struct arena *a, uint32_t id)
{
    return a->segment[id - 1];
}

static struct record *record_at(const struct arena *a, struct ref ref)
{
    return (struct record *)(void *)((char *)segment_of(a, ref.segment) + ref.at);
}

static uint32_t length_of(const struct record *r)
{
    return r->len & ~META_BIT;
}

char *arena_at(const struct lane *lane, struct ref ref)
{
    return (char *)record_at(&lane->arena, ref) + RECORD_HEAD;
}

bool arena_alone(const struct lane *lane, struct ref ref)
{
    return segment_of(&lane->arena, ref.segment)->alone;
}

/* ---- Segments ---- */

/* The size of a small record's segment. */
static uint32_t wanted(const struct arena *a)
{
    uint64_t part = a->live / 16;
    if (part >= SEGMENT_MAX)
        return SEGMENT_MAX;
    return part < 2 * SEGMENT_MIN ? SEGMENT_MIN : 1u << (31 - __builtin_clz((uint32_t)part));
}

static uint64_t mark(uint32_t next)
{
    return (uint64_t)next << 1 | 1; /* a free number's pointer is odd: the next free number */
}

static bool reserve_number(struct lane *lane)
{
    struct arena *a = &lane->arena;
    if (a->free || a->n < a->room)
        return true;
    uint32_t room = a->room ? 2 * a->room : 4;
    if (a->room > UINT32_MAX / 4)
        return false;
    struct segment **segment = lane_alloc(lane, room * sizeof(*segment));
    if (!segment)
        return false;
    if (a->n)
        memcpy(segment, a->segment, a->n * sizeof(*segment));
    lane_release(lane, a->segment, a->room * sizeof(*segment));
    a->segment = segment;
    a->room = room;
    return true;
}

static struct segment *new_segment(struct lane *lane, uint32_t size, bool alone)
{
    struct arena *a = &lane->arena;
    struct segment *s = a->spare;
    if (!reserve_number(lane))
        return NULL;
    if (s && s->size == size)
        a->spare = NULL;
    else if (!(s = lane_alloc(lane, size)))
        return NULL;
    *s = (struct segment){
        .size = size, .used = HEAD, .scan = HEAD, .bucket = NO_BUCKET, .alone = alone};
    if (a->free) {
        s->id = a->free;
        a->free = (uint32_t)((uintptr_t)a->segment[s->id - 1] >> 1);
    } else {
        s->id = ++a->n;
    }
    a->segment[s->id - 1] = s;
    a->size += size;
    return s;
}

static void free_spare(struct lane *lane)
{
    struct arena *a = &lane->arena;
    if (a->spare)
        lane_release(lane, a->spare, a->spare->size);
    a->spare = NULL;
}

static void leave_bucket(struct arena *a, struct segment *s)
{
    if (s->bucket == NO_BUCKET)
        return;
    if (s->next)
        segment_of(a, s->next)->prev = s->prev;
    if (s->prev)
        segment_of(a, s->prev)->next = s->next;
    else
        a->bucket[s->bucket] = s->next;
    s->bucket = NO_BUCKET;
}

/* Where a closed segment belongs. */
static void enter_bucket(struct arena *a, struct segment *s)
{
    uint32_t eighth = (uint32_t)((uint64_t)s->live * 8 / s->size);
    uint8_t bucket = eighth < ARENA_BUCKETS ? (uint8_t)eighth : NO_BUCKET;
    if (bucket == s->bucket)
        return;
    leave_bucket(a, s);
    if (bucket == NO_BUCKET)
        return;
    s->bucket = bucket;
    s->prev = 0;
    s->next = a->bucket[bucket];
    if (s->next)
        segment_of(a, s->next)->prev = s->id;
    a->bucket[bucket] = s->id;
}

static void give_back(struct lane *lane, struct segment *s)
{
    struct arena *a = &lane->arena;
    uint32_t most = wanted(a);
    leave_bucket(a, s);
    a->segment[s->id - 1] = (struct segment *)(uintptr_t)mark(a->free);
    a->free = s->id;
    LANE_ASSERT(!s->live && a->size >= s->size);
    a->size -= s->size;
    if (a->open == s->id)
        a->open = 0;
    if (a->survivors == s->id)
        a->survivors = 0;
    if (a->spare && a->spare->size > 2 * most)
        free_spare(lane);
    if (s->alone || a->spare || s->size > 2 * most)
        lane_release(lane, s, s->size);
    else
        a->spare = s;
    if (a->size == 0) { /* no segment is left */
        a->n = a->free = 0;
        if (a->room > 16) {
            lane_release(lane, a->segment, a->room * sizeof(*a->segment));
            a->segment = NULL;
            a->room = 0;
        }
    }
}

static void close_segment(struct lane *lane, uint32_t *which)
{
    struct arena *a = &lane->arena;
    if (!*which)
        return;
    struct segment *s = segment_of(a, *which);
    *which = 0;
    if (s->live == 0)
        give_back(lane, s);
    else
        enter_bucket(a, s);
}

/* The size of a segment for records of that size that are not small. */
static uint32_t fitting(const struct arena *a, uint32_t record)
{
    static const uint32_t sizes[] = {1024, 1280, 1536, 1792, 2048, 2560, 3072, 3584, 4096}; /* KB */
    uint32_t best = 0, least = UINT32_MAX;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint32_t size = sizes[i] << 10, n = (size - HEAD) / record;
        if (size > a->live / 8 || n < 2)
            continue;
        uint32_t waste = (size - HEAD - n * record) / (size >> 10); /* parts in 1024 */
        if (waste < least) {
            least = waste;
            best = size;
        }
    }
    return best;
}

/* Not too large for what the lane has become. */
static bool fits_lane(const struct segment *s, uint32_t want)
{
    return s->size <= 4 * SEGMENT_MAX && (s->size <= 4 * want || s->size <= SEGMENT_MIN);
}

/* A segment with that much room. */
static struct segment *room_for(struct lane *lane, uint32_t *which, uint32_t record)
{
    struct arena *a = &lane->arena;
    uint32_t want = wanted(a), size = want;
    struct segment *s = *which ? segment_of(a, *which) : NULL;
    if (s && record <= s->size - s->used && fits_lane(s, want))
        return s;
    if (record > want / 16)
        size = record <= want / 4 && want < SEGMENT_MAX ? want : fitting(a, record);
    if (!size || (!s && a->live == 0))
        return new_segment(lane, HEAD + record, true);
    s = new_segment(lane, size, false);
    if (!s)
        return NULL;
    close_segment(lane, which);
    *which = s->id;
    return s;
}

static bool append(struct lane *lane, uint32_t *which, uint32_t len, struct ref *ref)
{
    struct segment *s = room_for(lane, which, arena_size(len));
    if (!s)
        return false;
    *ref = (struct ref){s->id, s->used};
    s->used += arena_size(len);
    LANE_ASSERT(s->used <= s->size);
    s->live += arena_size(len);
    lane->arena.live += arena_size(len);
    return true;
}

char *arena_reserve(struct lane *lane, size_t len, struct ref *ref)
{
    if (!append(lane, &lane->arena.open, (uint32_t)len, ref))
        return NULL;
    struct record *r = record_at(&lane->arena, *ref);
    *r = (struct record){0, (uint32_t)len};
    return (char *)r + RECORD_HEAD;
}

void arena_own(char *data, uint32_t handle, bool meta)
{
    struct record *r = (struct record *)(void *)(data - RECORD_HEAD);
    r->owner = handle;
    r->len |= meta ? META_BIT : 0;
}

char *arena_room(const struct lane *lane, struct ref *ref, uint32_t *left_r)
{
    const struct arena *a = &lane->arena;
    struct segment *s = a->open ? segment_of(a, a->open) : NULL;
    if (!s || !fits_lane(s, wanted(a)))
        return NULL;
    *ref = (struct ref){s->id, s->used};
    *left_r = s->size - s->used;
    return (char *)s + s->used;
}

void arena_lay(char *at, uint32_t handle, uint32_t len)
{
    *(struct record *)(void *)at = (struct record){handle, len};
}

void arena_laid(struct lane *lane, uint32_t size)
{
    struct segment *s = segment_of(&lane->arena, lane->arena.open);
    s->used += size;
    LANE_ASSERT(s->used <= s->size);
    s->live += size;
    lane->arena.live += size;
}

/* ---- Moving survivors ---- */

/* Where a record's owner says that it is; NULL when it has no owner any more. */
static struct ref *ref_of(const struct lane *lane, const struct record *r)
{
    struct slot *slot = blocks_at(lane, r->owner);
    if (!slot)
        return NULL;
    if (!(r->len & META_BIT))
        return &slot->data;
    struct extra *x = extra_of(lane, slot);
    return x && x->has_meta ? &x->meta : NULL;
}

static bool alive(const struct lane *lane, struct ref at)
{
    const struct ref *ref = ref_of(lane, record_at(&lane->arena, at));
    return ref && ref->segment == at.segment && ref->at == at.at;
}

/* Moves the next record of a segment, or passes a dead one. False for want of memory. */
static bool move_one(struct lane *lane, struct segment *s, int64_t *budget)
{
    struct arena *a = &lane->arena;
    struct ref from = {s->id, s->scan}, to;
    if (s->scan == s->used)
        return false; /* what still lives is being dropped right now */
    const struct record *r = record_at(a, from);
    uint32_t size = arena_size(length_of(r));
    *budget -= RECORD_HEAD;
    if (alive(lane, from)) {
        if (!append(lane, &a->survivors, length_of(r), &to))
            return false;
        *budget -= size;
        memcpy(record_at(a, to), r, RECORD_HEAD + length_of(r));
        *ref_of(lane, r) = to;
        LANE_ASSERT(s->live >= size && a->live >= size);
        s->live -= size;
        a->live -= size;
    }
    s->scan += size;
    if (s->live == 0)
        give_back(lane, s);
    else
        enter_bucket(a, s);
    return true;
}

static uint64_t unused(const struct arena *a, uint32_t id)
{
    return id ? segment_of(a, id)->size - segment_of(a, id)->used : 0;
}

/* More is dead than what a lane in the order of its entries has at its front: at most a segment. */
static bool wasteful(const struct arena *a)
{
    uint64_t dead = a->size - a->live - unused(a, a->open) - unused(a, a->survivors);
    return dead > a->live / 8 + wanted(a);
}

/* The emptiest closed segment. */
static struct segment *emptiest(const struct arena *a)
{
    for (int i = 0; i < ARENA_BUCKETS; i++)
        if (a->bucket[i])
            return segment_of(a, a->bucket[i]);
    return NULL;
}

static void compact(struct lane *lane, int64_t budget)
{
    struct arena *a = &lane->arena;
    /* An open segment that is far too large for what is left of the lane counts for nothing. */
    if (a->open && segment_of(a, a->open)->size > 4 * wanted(a))
        close_segment(lane, &a->open);
    if (a->survivors && segment_of(a, a->survivors)->size > 4 * wanted(a))
        close_segment(lane, &a->survivors);
    while (budget > 0 && wasteful(a)) {
        struct segment *s = emptiest(a);
        if (!s || !move_one(lane, s, &budget))
            return;
    }
}

/* ---- Dropping ---- */

/* Its live bytes are counted already. */
static void settle(struct lane *lane, struct segment *s)
{
    struct arena *a = &lane->arena;
    bool open = s->id == a->open;
    if (s->live == 0 && !(open && s->size <= 2 * wanted(a)))
        give_back(lane, s);
    else if (s->live == 0)
        s->used = s->scan = HEAD;
    else if (!open && s->id != a->survivors)
        enter_bucket(a, s);
}

void arena_drop_some(struct lane *lane, uint32_t segment, uint32_t size)
{
    struct arena *a = &lane->arena;
    struct segment *s = segment_of(a, segment);
    LANE_ASSERT(s->live >= size && a->live >= size);
    s->live -= size;
    a->live -= size;
    settle(lane, s);
    if (a->size - a->live > SEGMENT_MIN + a->live / 8)
        compact(lane, 4 * (int64_t)size + 256);
}

void arena_drop(struct lane *lane, struct ref ref, size_t len)
{
    struct arena *a = &lane->arena;
    if (!ref.segment)
        return;
    struct segment *s = segment_of(a, ref.segment);
    uint32_t size = arena_size(len ? (uint32_t)len : length_of(record_at(a, ref)));
    if (ref.at + size == s->used && s->live > size && (s->id == a->open || s->id == a->survivors))
        s->used = ref.at; /* never stored, mostly: the slot could not be had */
    arena_drop_some(lane, ref.segment, size);
}

void arena_free(struct lane *lane)
{
    struct arena *a = &lane->arena;
    for (uint32_t i = 0; i < a->n; i++)
        if (!((uintptr_t)a->segment[i] & 1))
            lane_release(lane, a->segment[i], a->segment[i]->size);
    lane_release(lane, a->segment, a->room * sizeof(*a->segment));
    free_spare(lane);
    *a = (struct arena){0};
}

bool arena_hand_over(struct lane *from, struct ref ref, struct lane *to, struct ref *ref_r)
{
    struct arena *a = &from->arena, *b = &to->arena;
    struct segment *s = segment_of(a, ref.segment);
    uint32_t size = s->size, live = s->live;
    if (!s->alone || !reserve_number(to))
        return false;
    leave_bucket(a, s);
    a->segment[s->id - 1] = (struct segment *)(uintptr_t)mark(a->free);
    a->free = s->id;
    a->size -= size;
    a->live -= live;
    from->memory -= size;
    if (b->free) {
        s->id = b->free;
        b->free = (uint32_t)((uintptr_t)b->segment[s->id - 1] >> 1);
    } else {
        s->id = ++b->n;
    }
    b->segment[s->id - 1] = s;
    b->size += size;
    b->live += live;
    to->memory += size;
    *ref_r = (struct ref){s->id, ref.at};
    return true;
}

/* ---- Checking ---- */

static const char *check_segment(const struct lane *lane, const struct segment *s)
{
    const struct arena *a = &lane->arena;
    uint32_t live = 0, at = HEAD;
    bool appended = s->id == a->open || s->id == a->survivors;
    while (at < s->used) {
        struct ref ref = {s->id, at};
        uint32_t size = arena_size(length_of(record_at(a, ref)));
        bool lives = alive(lane, ref);
        live += lives ? size : 0;
        if (lives && at < s->scan)
            return "segment: alive before what was moved";
        at += size;
    }
    if (at != s->used || s->used > s->size || live != s->live)
        return "segment: its records";
    uint32_t eighth = (uint32_t)((uint64_t)live * 8 / s->size);
    if (s->bucket != (appended || s->alone || eighth >= ARENA_BUCKETS ? NO_BUCKET : eighth))
        return "segment: bucket";
    return live || appended ? NULL : "segment: nothing lives in it";
}

const char *arena_check(const struct lane *lane)
{
    const struct arena *a = &lane->arena;
    uint64_t size = 0, live = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        const struct segment *s = a->segment[i];
        if ((uintptr_t)s & 1)
            continue;
        const char *wrong = s->id == i + 1 ? check_segment(lane, s) : "segment: number";
        if (wrong)
            return wrong;
        size += s->size;
        live += s->live;
    }
    return size == a->size && live == a->live ? NULL : "arena: size";
}
