/* driver - a fuzzer's loop for builds without libFuzzer: good inputs, damaged at random, from a
 * seed.
 *
 *     [iterations [seed]]       default 20,000
 *     --seeds DIRECTORY         writes the good inputs, as first ones of libFuzzer */
#include "tests/fuzz/lane/driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEEDS_MAX = 64, INPUT_MAX = 1 << 15 };

static struct {
    uint8_t *bytes;
    size_t len;
} seeds[SEEDS_MAX];
static unsigned nseeds;
static uint64_t rng;

static unsigned below(size_t n)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return (unsigned)((rng * 0x2545f4914f6cdd1dULL >> 32) % n);
}

static void keep(const uint8_t *data, size_t size)
{
    if (nseeds == SEEDS_MAX || size > INPUT_MAX / 2)
        abort();
    seeds[nseeds].bytes = malloc(size);
    memcpy(seeds[nseeds].bytes, data, size);
    seeds[nseeds++].len = size;
}

static size_t damage(uint8_t *p, size_t n)
{
    static const uint8_t odd[] = {0, 1, 2, 0x7f, 0x80, 0xfe, 0xff};
    size_t at = below(n), len = 1 + below(64);
    if (len > n - at)
        len = n - at;
    switch (below(7)) {
    case 0: p[at] ^= (uint8_t)(1u << below(8)); break;
    case 1: p[at] = odd[below(sizeof odd)]; break;
    case 2: p[at] = (uint8_t)below(256); break;
    case 3: memset(p + at, odd[below(sizeof odd)], len < 8 ? len : 8); break;
    case 4: memmove(p + at, p + at + len, n - at - len); return n - len ? n - len : 1;
    case 5:
        if (n + len > INPUT_MAX)
            break;
        memmove(p + at + len, p + at, n - at);
        return n + len;
    default: return 1 + below(n);
    }
    return n;
}

static int write_seeds(const char *folder)
{
    for (unsigned i = 0; i < nseeds; i++) {
        char path[500];
        snprintf(path, sizeof path, "%s/%u", folder, i);
        FILE *f = fopen(path, "w");
        if (!f || fwrite(seeds[i].bytes, 1, seeds[i].len, f) != seeds[i].len || fclose(f))
            return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    static uint8_t input[INPUT_MAX];
    fuzz_seeds(keep);
    if (argc == 3 && strcmp(argv[1], "--seeds") == 0)
        return write_seeds(argv[2]);
    unsigned long n = argc > 1 ? strtoul(argv[1], NULL, 10) : 20000;
    rng = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    rng = rng * 0x9e3779b97f4a7c15ULL | 1;
    for (unsigned i = 0; i < nseeds; i++)
        LLVMFuzzerTestOneInput(seeds[i].bytes, seeds[i].len);
    for (unsigned long i = 0; i < n; i++) {
        unsigned which = below(nseeds), times = 1 + below(4);
        size_t len = seeds[which].len;
        memcpy(input, seeds[which].bytes, len);
        while (times--)
            len = damage(input, len);
        LLVMFuzzerTestOneInput(input, len);
    }
    printf("%lu inputs\n", n);
    return 0;
}
