/* server - clocks and memory. */
#include "redis-module/server/server.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

struct server server;

static pthread_t main_thread;

/* MODULE LOAD may meet a server that has replicas, had some who may come back to its backlog, or
 * is one. */
static bool has_streams(RedisModuleCtx *ctx)
{
    int missing = 0;
    if (RedisModule_GetContextFlags(ctx) & REDISMODULE_CTX_FLAGS_AOF)
        return true;
    RedisModuleServerInfoData *info = RedisModule_GetServerInfo(ctx, "replication");
    const char *role = RedisModule_ServerInfoGetFieldC(info, "role");
    unsigned long long backlog =
        RedisModule_ServerInfoGetFieldUnsigned(info, "repl_backlog_active", &missing);
    bool streams = missing || backlog || !role || strcmp(role, "master") != 0;
    RedisModule_FreeServerInfo(ctx, info);
    return streams;
}

void server_start(RedisModuleCtx *ctx)
{
    main_thread = pthread_self();
    server.ctx = RedisModule_GetDetachedThreadSafeContext(ctx);
    server_must_store(false);
    server.env.free = RedisModule_Free;
    server.streams = has_streams(ctx);
    RedisModule_GetRandomBytes(server.env.key, sizeof server.env.key);
    /* A lease's number of another life must not name one of this. */
    RedisModule_GetRandomBytes((unsigned char *)&server.leases, sizeof server.leases);
    server.leases >>= 16;
}

bool on_main_thread(void)
{
    return pthread_equal(pthread_self(), main_thread);
}

static int64_t read_clock(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* A turn of the server's loop: the clock is read once in it, at the first command that asks. */
static struct {
    bool on;
    int64_t now; /* 0: not read yet */
    bool unlimited;
} turn;

void turn_begins(void)
{
    turn.on = true;
    turn.now = 0;
    turn.unlimited = false;
}

void turn_ends(void)
{
    turn.on = false;
    turn.unlimited = false;
}

int64_t now_ms(void)
{
    if (turn.on && turn.now)
        return turn.now;
    turn.now = read_clock(CLOCK_BOOTTIME);
    return turn.now;
}

int memory_flags(RedisModuleCtx *ctx)
{
    if (turn.unlimited)
        return 0;
    int flags = RedisModule_GetContextFlags(ctx);
    turn.unlimited = turn.on && !(flags & REDISMODULE_CTX_FLAGS_MAXMEMORY);
    return flags;
}

int64_t wall_ms(void)
{
    return read_clock(CLOCK_REALTIME);
}

void *must_alloc(size_t n)
{
    return RedisModule_Alloc(n ? n : 1);
}

void *must_grow(void *old, size_t have, size_t size)
{
    void *p = must_alloc(size);
    if (old) {
        memcpy(p, old, have < size ? have : size);
        RedisModule_Free(old);
    }
    return p;
}

/* Below that a thread costs more than what it would spare. */
#define FREE_HERE 1000

static void *free_there(void *lane)
{
    lane_free(lane);
    return NULL;
}

void free_aside(struct lane *lane)
{
    pthread_t thread;
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    if (lane_pieces(lane) < FREE_HERE || pthread_create(&thread, &detached, free_there, lane) != 0)
        lane_free(lane);
    pthread_attr_destroy(&detached);
}

void server_must_store(bool on)
{
    server.env.alloc = on ? RedisModule_Alloc : RedisModule_TryAlloc;
}
