/* lane_timer - keeps the heap, and sets the timer for its first lane. */
#include "redis-module/keyspace/lane_timer.h"

#include "redis-module/keyspace/loss_log.h"
#include "redis-module/keyspace/lease_end.h"
#include "redis-module/keyspace/lease_holder.h"

/* A turn looks at that many lanes at most, and for about a millisecond, so that ten thousand
 * lanes, or a million entries, due at once do not stop the server. */
#define LANES_PER_TURN 500
#define LATER_MS 50
#define LEASES_PER_TURN 2000

static struct {
    struct value **item;
    size_t n, room;
    RedisModuleTimerID timer;
    int64_t timer_at; /* LANE_NEVER: no timer */
    bool running;
} heap = {.timer_at = LANE_NEVER};

static void set(size_t place, struct value *v)
{
    heap.item[place] = v;
    v->wake_place = place;
}

static void sift(size_t place, struct value *v)
{
    while (place > 0 && v->wake < heap.item[(place - 1) / 2]->wake) {
        set(place, heap.item[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    for (size_t child; (child = 2 * place + 1) < heap.n; place = child) {
        if (child + 1 < heap.n && heap.item[child + 1]->wake < heap.item[child]->wake)
            child++;
        if (heap.item[child]->wake >= v->wake)
            break;
        set(place, heap.item[child]);
    }
    set(place, v);
}

static void fire(RedisModuleCtx *ctx, void *data);

static void arm(int64_t when)
{
    if (heap.running || when >= heap.timer_at)
        return;
    if (heap.timer_at != LANE_NEVER)
        RedisModule_StopTimer(server.ctx, heap.timer, NULL);
    int64_t now = now_ms();
    heap.timer_at = when;
    heap.timer = RedisModule_CreateTimer(server.ctx, when > now ? when - now : 0, fire, NULL);
}

void lane_timer_set(struct value *v, int64_t when)
{
    if (when == v->wake)
        return;
    bool was = v->wake != LANE_NEVER;
    v->wake = when;
    if (when == LANE_NEVER) {
        struct value *last = heap.item[--heap.n];
        if (last != v)
            sift(v->wake_place, last);
        return;
    }
    if (!was) {
        if (heap.n == heap.room) {
            size_t room = heap.room ? 2 * heap.room : 64;
            heap.item = must_grow(heap.item, heap.n * sizeof *heap.item, room * sizeof *heap.item);
            heap.room = room;
        }
        v->wake_place = heap.n++;
    }
    sift(v->wake_place, v);
    arm(when);
}

void lane_timer_soon(void)
{
    arm(0);
}

/* The lane may be gone, or another one may have its key, by the time its key is open. */
static void look_at(RedisModuleCtx *ctx, struct value *v)
{
    RedisModuleString *name = RedisModule_CreateString(ctx, v->name, v->name_len);
    struct lane_key k;
    lane_timer_set(v, LANE_NEVER);
    RedisModule_SelectDb(ctx, v->db);
    if (lane_key_open(ctx, name, true, &k)) {
        if (k.value == v)
            lease_end_overdue(ctx, &k);
        lane_key_close(ctx, &k);
    }
    RedisModule_FreeString(ctx, name);
}

static void fire(RedisModuleCtx *ctx, void *data)
{
    turn_ends(); /* what follows is done for so long, so it needs the clock itself */
    int64_t now = now_ms();
    heap.timer_at = LANE_NEVER;
    /* A failover is under way: the replica must be able to catch up. */
    if (RedisModule_AvoidReplicaTraffic()) {
        arm(now + LATER_MS);
        return;
    }
    heap.running = true;
    lease_holders_settle(ctx);
    for (int i = 0;
         i < LANES_PER_TURN && heap.n && heap.item[0]->wake <= now && now_ms() <= now + 1; i++)
        look_at(ctx, heap.item[0]);
    bool more = lane_sweep(&server.env, LEASES_PER_TURN);
    loss_log_flush(ctx);
    heap.running = false;
    if (more || lease_holders_gone())
        arm(now);
    else if (heap.n)
        arm(heap.item[0]->wake);
}
