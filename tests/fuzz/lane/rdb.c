/* rdb - what RESTORE lets in: the module's own loader on any bytes. A payload is refused, or gives
 * a lane that is whole, that takes no more than twice the payload's memory, and that can be saved
 * and loaded again.
 *
 *    input:  how many allocations succeed (2 bytes, 0: all) | payload payload, in place of the
 *    server's:  a number is 8 bytes, a string its length (4 bytes) and its bytes */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/lane/driver.h"
#include "redis-module/propagate/chunk.h"
#include "redis-module/persist/type.h"

struct RedisModuleIO {
    const uint8_t *at;
    size_t left;
    uint8_t *to; /* saving */
    size_t len, room;
    bool error;
};

static size_t in_use;
static unsigned allocations; /* that still succeed; 0: all */

static void *count_alloc(size_t n)
{
    size_t *p = malloc(16 + n);
    if (!p)
        abort();
    *p = n;
    in_use += n;
    return (char *)p + 16;
}

static void *try_alloc(size_t n)
{
    return n > (1u << 26) || (allocations && --allocations == 0 && ++allocations) ? NULL
                                                                                  : count_alloc(n);
}

static void count_free(void *p)
{
    size_t *head = (size_t *)(void *)((char *)p - 16);
    in_use -= *head;
    free(head);
}

/* ---- The server's part ---- */

static bool get(RedisModuleIO *io, void *to, size_t n)
{
    if (io->left < n) {
        io->error = true;
        io->left = 0;
        return false;
    }
    memcpy(to, io->at, n);
    io->at += n;
    io->left -= n;
    return true;
}

static uint64_t load_unsigned(RedisModuleIO *io)
{
    char bytes[8];
    return get(io, bytes, sizeof bytes) ? get64(bytes) : 0;
}

static char *load_string(RedisModuleIO *io, size_t *len)
{
    char bytes[4];
    if (!get(io, bytes, sizeof bytes))
        return NULL;
    *len = get32(bytes);
    if (*len > io->left) {
        io->error = true;
        return NULL;
    }
    char *s = count_alloc(*len);
    get(io, s, *len);
    return s;
}

static int is_error(RedisModuleIO *io)
{
    return io->error;
}

static void put_bytes(RedisModuleIO *io, const void *p, size_t n)
{
    if (io->len + n > io->room) {
        io->room = 2 * (io->len + n);
        io->to = realloc(io->to, io->room);
        if (!io->to)
            abort();
    }
    if (n)
        memcpy(io->to + io->len, p, n);
    io->len += n;
}

static void save_unsigned(RedisModuleIO *io, uint64_t x)
{
    char bytes[8];
    put64(bytes, x);
    put_bytes(io, bytes, sizeof bytes);
}

static void save_string(RedisModuleIO *io, const char *s, size_t len)
{
    char bytes[4];
    put32(bytes, (uint32_t)len);
    put_bytes(io, bytes, sizeof bytes);
    put_bytes(io, s, len);
}

static void log_error(RedisModuleIO *io, const char *level, const char *format, ...)
{
    (void)io, (void)level, (void)format;
}

static const RedisModuleString *no_name(RedisModuleIO *io)
{
    (void)io;
    return NULL;
}

static int no_flags(RedisModuleCtx *ctx)
{
    (void)ctx;
    return 0;
}

static void assertion(const char *holds, const char *file, int line)
{
    fprintf(stderr, "%s:%d: %s\n", file, line, holds);
    abort();
}

static void start(void)
{
    RedisModule_Alloc = count_alloc;
    RedisModule_TryAlloc = try_alloc;
    RedisModule_Free = count_free;
    RedisModule_LoadUnsigned = load_unsigned;
    RedisModule_LoadStringBuffer = load_string;
    RedisModule_SaveUnsigned = save_unsigned;
    RedisModule_SaveStringBuffer = save_string;
    RedisModule_IsIOError = is_error;
    RedisModule_LogIOError = log_error;
    RedisModule_GetKeyNameFromIO = no_name;
    RedisModule_GetContextFlags = no_flags;
    RedisModule__Assert = assertion;
    server.env =
        (struct lane_env){.alloc = try_alloc, .free = count_free, .key = "a key of a fuzz"};
}

/* ---- The test ---- */

static void must(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "%s\n", what);
    abort();
}

static void save_and_load_again(struct value *v, int version)
{
    RedisModuleIO out = {.to = NULL};
    rdb_save(&out, v);
    RedisModuleIO in = {.at = out.to, .left = out.len};
    allocations = 0;
    struct value *again = rdb_load(&in, version);
    /* It may be larger than a payload may make it: the one at hand was not, but counts its
     * pieces otherwise. */
    must(again || lane_counts(v->lane).memory > out.len, "what was saved is refused");
    if (again) {
        must(!lane_check(again->lane) &&
                 lane_counts(again->lane).bytes == lane_counts(v->lane).bytes &&
                 lane_counts(again->lane).length == lane_counts(v->lane).length,
             "loaded again it differs");
        value_free(again);
    }
    free(out.to);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!server.env.alloc)
        start();
    if (size < 2)
        return 0;
    int version = data[0] & 0x80 ? 1 : RDB_VERSION;
    allocations = (data[0] & 0x7f) | (unsigned)data[1] << 7;
    RedisModuleIO in = {.at = data + 2, .left = size - 2};
    struct value *v = rdb_load(&in, version);
    if (v) {
        const char *wrong = lane_check(v->lane);
        must(!wrong, wrong);
        must(lane_counts(v->lane).memory <= 2 * size + 65536,
             "more than twice the payload's memory");
        save_and_load_again(v, RDB_VERSION);
        value_free(v);
    }
    must(in_use == 0, "memory was not given back");
    return 0;
}

/* ---- First inputs ---- */

static void seed(struct value *v, void (*keep)(const uint8_t *, size_t))
{
    RedisModuleIO out = {.to = NULL};
    put_bytes(&out, "\0\0", 2);
    rdb_save(&out, v);
    keep(out.to, out.len);
    free(out.to);
    value_free(v);
}

void fuzz_seeds(void (*keep)(const uint8_t *, size_t))
{
    start();
    for (unsigned kind = 0; kind < 4; kind++) {
        struct value *v = value_create();
        lane_settings(v->lane)->maxlen = 100;
        lane_settings(v->lane)->created = true;
        if (kind & 1)
            value_set_dead(v, "dead", 4);
        for (unsigned i = 0; i < 3 + 60 * (kind / 2); i++) {
            uint8_t id[ID_LEN] = {(uint8_t)i, 7};
            struct lane_new e = {.seq = kind == 3 ? 1 + 300 * i : 0,
                                 .id = i % 3 ? id : NULL,
                                 .meta = "meta",
                                 .meta_len = i % 5,
                                 .body = "the body of an entry",
                                 .body_len = i % 20,
                                 .revision = i % 2,
                                 .attempts = i % 4 == 1,
                                 .born = now_ms(),
                                 .due = i % 7 == 2 ? now_ms() + 100000 : 0,
                                 .expires = i % 5 == 2 ? now_ms() + 100000 : 0};
            must(lane_push(v->lane, &e, NULL) == LANE_OK, "seed");
        }
        seed(v, keep);
    }
    must(in_use == 0, "memory of the seeds");
}
