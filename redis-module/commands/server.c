/* server - clocks and memory. */
#include "server.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

struct server server;

static pthread_t main_thread;

void server_start(RedisModuleCtx *ctx)
{
    main_thread = pthread_self();
    server.ctx = RedisModule_GetDetachedThreadSafeContext(ctx);
    server_must_store(false);
    server.env.free = RedisModule_Free;
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

int64_t now_ms(void)
{
    return read_clock(CLOCK_BOOTTIME);
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

void server_must_store(bool on)
{
    server.env.alloc = on ? RedisModule_Alloc : RedisModule_TryAlloc;
}
