/* lease_holder - a hash table from client to holder, chained; and the list of those whose
 * connection is gone. */
#include "redis-module/keyspace/lease_holder.h"

#include "redis-module/keyspace/lease_end.h"
#include "redis-module/keyspace/lane_timer.h"

struct lease_holder {
    struct lane_holder held;   /* its number is the client's id */
    struct lease_holder *next; /* of the bucket, or of the gone */
};

static struct {
    struct lease_holder **bucket;
    size_t n, room; /* room: 0 or a power of two */
} table;

static struct lease_holder *gone;

/* So many leased entries come back in one go; a million of them would stop the server. */
#define ENDED_AT_ONCE 1000

/* Client ids count up, so their low bits spread by themselves. */
static struct lease_holder **find(uint64_t client)
{
    struct lease_holder **at = &table.bucket[client & (table.room - 1)];
    while (*at && (*at)->held.number != client)
        at = &(*at)->next;
    return at;
}

static void grow(void)
{
    struct lease_holder **old = table.bucket;
    size_t n = table.room;
    table.room = n ? 2 * n : 64;
    table.bucket = must_alloc(table.room * sizeof *table.bucket);
    for (size_t i = 0; i < table.room; i++)
        table.bucket[i] = NULL;
    for (size_t i = 0; i < n; i++)
        for (struct lease_holder *h = old[i], *next; h; h = next) {
            struct lease_holder **at = &table.bucket[h->held.number & (table.room - 1)];
            next = h->next;
            h->next = *at;
            *at = h;
        }
    if (old)
        RedisModule_Free(old);
}

struct lane_holder *lease_holder_of(uint64_t client)
{
    if (table.n >= table.room)
        grow();
    struct lease_holder **at = find(client);
    if (!*at) {
        *at = must_alloc(sizeof **at);
        **at = (struct lease_holder){.held = {.number = client}};
        table.n++;
    }
    return &(*at)->held;
}

void lease_holder_gone(uint64_t client)
{
    if (!table.n)
        return;
    struct lease_holder **at = find(client), *h = *at;
    if (!h)
        return;
    *at = h->next;
    table.n--;
    if (!h->held.first) {
        RedisModule_Free(h);
        return;
    }
    h->next = gone;
    gone = h;
    lane_timer_soon();
}

/* One lease of a connection that is gone; returns about how many entries that was work for. */
static uint64_t end_lease(RedisModuleCtx *ctx, struct lane_holder *held, uint64_t most)
{
    struct lane_lease *lease = held->first;
    RedisModule_Assert(lease && most);
    struct lane *lane = lane_lease_lane(lease);
    if (!lane) {
        lane_lease_forget(lease);
        return 1;
    }
    uint64_t n = lease_end_lost(ctx, lease, most);
    /* The key holds another lane by now: this one can only be told silently. */
    if (n == 0 && held->first == lease) {
        lane = lane_lease_lane(lease); /* it may have been freed: its key had expired */
        if (lane)
            lane_end_leases(lane);
        else
            lane_lease_forget(lease);
    }
    return n + 1;
}

void lease_holders_settle(RedisModuleCtx *ctx)
{
    uint64_t left = ENDED_AT_ONCE;
    while (gone) {
        struct lease_holder *h = gone;
        while (h->held.first && left) {
            uint64_t n = end_lease(ctx, &h->held, left);
            left -= n < left ? n : left;
        }
        if (h->held.first) {
            lane_timer_soon();
            return;
        }
        gone = h->next;
        RedisModule_Free(h);
    }
}

bool lease_holders_gone(void)
{
    return gone != NULL;
}
