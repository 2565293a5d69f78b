/* random - drives a fuzz target without libFuzzer, from a seed: bytes, and pieces of what the other
 * side says (words.h).
 *
 *     TARGET-random [iterations [seed]] */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/words.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST = 4096 };

static uint64_t rng;
static unsigned nwords;

static unsigned below(unsigned n)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return (unsigned)((rng * 0x2545f4914f6cdd1dULL >> 32) % n);
}

static size_t make(uint8_t *out)
{
    size_t start = strlen(fuzz_start), n = 0, most = below(10) ? 300 : MOST - 100;
    /* Mostly small numbers in some, anything in others: choices, or bytes, or words. */
    unsigned kind = below(start ? 6 : 4);
    if (kind > 3) {
        n = kind == 5 ? start - 2 : start;
        memcpy(out, fuzz_start, n);
        kind = 3;
    }
    for (size_t want = below((unsigned)most); n < want;) {
        const char *word = fuzz_words[below(nwords)];
        if (kind == 3 && below(3)) {
            memcpy(out + n, word, strlen(word));
            n += strlen(word);
        } else {
            out[n++] = (uint8_t)(kind == 0  ? below(256)
                                 : below(4) ? 0
                                            : below(kind == 1 ? 20 : 256));
        }
    }
    return n;
}

int main(int argc, char **argv)
{
    static uint8_t bytes[MOST];
    unsigned long runs = argc > 1 ? strtoul(argv[1], NULL, 10) : 6000,
                  seed = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
    while (fuzz_words[nwords])
        nwords++;
    for (unsigned long i = 0; i < runs; i++) {
        rng = (seed * 1000003 + i + 1) * 0x9e3779b97f4a7c15ULL | 1;
        below(1);
        /* A copy of its own size, so that a byte too many is seen. */
        size_t n = make(bytes);
        uint8_t *copy = malloc(n ? n : 1);
        memcpy(copy, bytes, n);
        LLVMFuzzerTestOneInput(copy, n);
        free(copy);
    }
    printf("%lu runs from seed %lu\n", runs, seed);
    return 0;
}
