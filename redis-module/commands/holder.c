/* holder - a hash table from client to holder, chained; and the list of those whose connection is gone. */
#include "holder.h"

#include "giveback.h"
#include "wake.h"

struct holder {
    struct lane_holder held; /* its number is the client's id */
    struct holder *next;     /* of the bucket, or of the gone */
};

static struct {
    struct holder **bucket;
    size_t n, room; /* room: 0 or a power of two */
} table;

static struct holder *gone;

/* Client ids count up, so their low bits spread by themselves. */
static struct holder **find(uint64_t client)
{
    struct holder **at = &table.bucket[client & (table.room - 1)];
    while (*at && (*at)->held.number != client)
        at = &(*at)->next;
    return at;
}

static void grow(void)
{
    struct holder **old = table.bucket;
    size_t n = table.room;
    table.room = n ? 2 * n : 64;
    table.bucket = must_alloc(table.room * sizeof *table.bucket);
    for (size_t i = 0; i < table.room; i++)
        table.bucket[i] = NULL;
    for (size_t i = 0; i < n; i++)
        for (struct holder *h = old[i], *next; h; h = next) {
            struct holder **at = &table.bucket[h->held.number & (table.room - 1)];
            next = h->next;
            h->next = *at;
            *at = h;
        }
    if (old)
        RedisModule_Free(old);
}

struct lane_holder *holder_of(uint64_t client)
{
    if (table.n >= table.room)
        grow();
    struct holder **at = find(client);
    if (!*at) {
        *at = must_alloc(sizeof **at);
        **at = (struct holder){.held = {.number = client}};
        table.n++;
    }
    return &(*at)->held;
}

void holder_gone(uint64_t client)
{
    if (!table.n)
        return;
    struct holder **at = find(client), *h = *at;
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
    wake_soon();
}

void holders_settle(RedisModuleCtx *ctx)
{
    while (gone) {
        struct holder *h = gone;
        gone = h->next;
        while (h->held.first) {
            struct lane_lease *lease = h->held.first;
            giveback_lost(ctx, lease);
            /* The key holds another lane by now: this one can only be told silently. */
            if (h->held.first == lease)
                lane_end_leases(lane_lease_lane(lease));
        }
        RedisModule_Free(h);
    }
}
