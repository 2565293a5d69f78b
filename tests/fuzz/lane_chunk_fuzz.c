/* lane_chunk_fuzz - libFuzzer on what RESTORE lets in: a chunk is refused, or gives a lane that is whole and
 * can be written again. Built from this file, chunk.c and server.c of redis-module/commands,
 * redis-module/redisapi.c and the C files of redis-module/lane:
 *
 *    clang -g -O1 -D_GNU_SOURCE -fsanitize=fuzzer,address,undefined -I. ... -o lane_chunk_fuzz
 */
#include <stdlib.h>

#include "redis-module/commands/chunk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    RedisModule_Alloc = RedisModule_TryAlloc = malloc;
    RedisModule_Free = free;
    struct lane_env env = {.alloc = malloc, .free = free};
    struct lane *lane = lane_create(&env), *again = lane_create(&env);
    struct chunk chunk = {0};
    struct lane_entry e;
    uint64_t n, m;
    const char *wrong = chunk_load(lane, (const char *)data, size, &n);
    if (lane_check(lane))
        abort();
    if (!wrong) {
        for (uint64_t seq = 0; lane_next(lane, seq, &e); seq = e.seq + 1)
            chunk_add(&chunk, &e);
        if (chunk_load(again, chunk.data, chunk.len, &m) || m != n ||
            lane_counts(again).bytes != lane_counts(lane).bytes)
            abort();
    }
    chunk_free(&chunk);
    lane_free(lane);
    lane_free(again);
    return 0;
}
