/* letgo - a ring in the order of time, with hash chains through it.
 *
 *       oldest                          newest
 *          v                               v
 *      | r17 | r18 | r19 | ...    | r4711 |        chain of a bucket: from newest to oldest, so the one
 *         ^___________________________'             that answers is met first, and the oldest is its last
 *
 * Records leave at the old end when their time is over, whichever command comes; the ring doubles when it is
 * full and halves when it is mostly empty. */
#include "letgo.h"

#include <string.h>

#define NONE UINT32_MAX
#define ROOM_MIN 1024u

struct record {
    uint64_t lane;
    uint8_t id[ID_LEN];
    int64_t at;
    uint32_t next; /* older one of the bucket */
    uint8_t what;
};

static struct {
    struct record *record;
    uint32_t *bucket; /* as many as records */
    uint32_t room, n, oldest;
} ring;

static uint32_t bucket_of(uint64_t lane, const uint8_t *id)
{
    return (uint32_t)(lane_hash(server.env.key, id, ID_LEN) ^ lane) & (ring.room - 1);
}

static void link_record(uint32_t i)
{
    struct record *r = &ring.record[i];
    uint32_t *bucket = &ring.bucket[bucket_of(r->lane, r->id)];
    r->next = *bucket;
    *bucket = i;
}

static void resize(uint32_t room)
{
    struct record *old = ring.record;
    uint32_t had = ring.room, oldest = ring.oldest;
    ring.record = must_alloc(room * sizeof *ring.record);
    if (ring.bucket)
        RedisModule_Free(ring.bucket);
    ring.bucket = must_alloc(room * sizeof *ring.bucket);
    memset(ring.bucket, 0xff, room * sizeof *ring.bucket); /* NONE */
    ring.room = room;
    ring.oldest = 0;
    for (uint32_t i = 0; i < ring.n; i++) {
        ring.record[i] = old[(oldest + i) & (had - 1)];
        link_record(i);
    }
    if (old)
        RedisModule_Free(old);
}

static void forget(int64_t now)
{
    while (ring.n && now - ring.record[ring.oldest].at >= server.settle_ms) {
        const struct record *r = &ring.record[ring.oldest];
        uint32_t *at = &ring.bucket[bucket_of(r->lane, r->id)];
        while (*at != ring.oldest)
            at = &ring.record[*at].next;
        *at = NONE;
        ring.oldest = (ring.oldest + 1) & (ring.room - 1);
        ring.n--;
    }
    if (ring.room > ROOM_MIN && ring.n < ring.room / 8)
        resize(ring.room / 2);
}

void letgo_remember(uint64_t lane, const uint8_t *id, enum letgo what, int64_t now)
{
    if (!id || server.settle_ms == 0)
        return;
    forget(now);
    if (ring.n == ring.room) {
        if (ring.room > UINT32_MAX / 4)
            return;
        resize(ring.room ? 2 * ring.room : ROOM_MIN);
    }
    uint32_t i = (ring.oldest + ring.n++) & (ring.room - 1);
    struct record *r = &ring.record[i];
    *r = (struct record){.lane = lane, .at = now, .what = (uint8_t)what};
    memcpy(r->id, id, ID_LEN);
    link_record(i);
}

enum letgo letgo_find(uint64_t lane, const uint8_t *id, int64_t now)
{
    forget(now);
    if (!ring.n)
        return LETGO_NOT;
    for (uint32_t i = ring.bucket[bucket_of(lane, id)]; i != NONE; i = ring.record[i].next)
        if (ring.record[i].lane == lane && memcmp(ring.record[i].id, id, ID_LEN) == 0)
            return ring.record[i].what;
    return LETGO_NOT;
}

uint64_t letgo_count(int64_t now)
{
    forget(now);
    return ring.n;
}
