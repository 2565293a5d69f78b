/* random - drives fuzz.c without libFuzzer: sequences of real messages, damaged at random, from a
 * seed.
 *
 *     orset-fuzz-random [iterations [seed]]     default 20,000
 *     orset-fuzz-random --seeds DIRECTORY       writes the real messages, as first inputs of libFuzzer */
#include "tests/fuzz/orset/fuzz.h"

enum { SEEDS_MAX = 64, INPUT_MAX = 1 << 15 };

static struct {
    unsigned kind;
    size_t len;
    uint8_t *bytes;
} seed[SEEDS_MAX];
static unsigned nseeds;
static uint64_t rng;

static unsigned below(unsigned n)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return (unsigned)((rng * 0x2545f4914f6cdd1dULL >> 32) % n);
}

static void keep(void *arg, const char *name, unsigned kind, const struct orset_buf *b)
{
    (void)arg;
    (void)name;
    require(nseeds < SEEDS_MAX && b->len < 60000, "a seed that does not fit");
    seed[nseeds].kind = kind;
    seed[nseeds].len = b->len;
    seed[nseeds].bytes = malloc(b->len);
    memcpy(seed[nseeds++].bytes, b->data, b->len);
}

static void write_file(void *arg, const char *name, unsigned kind, const struct orset_buf *b)
{
    char path[500];
    snprintf(path, sizeof path, "%s/%s", (const char *)arg, name);
    FILE *f = fopen(path, "w");
    require(f != NULL, "seed file");
    fputc((int)kind, f);
    fputc((int)(b->len & 255), f);
    fputc((int)(b->len >> 8), f);
    fwrite(b->data, 1, b->len, f);
    fclose(f);
}

/* One change of the n bytes at p, which has room for one more. */
static size_t damage(uint8_t *p, size_t n)
{
    static const uint8_t odd[] = {0, 1, 2, 5, 0x7f, 0x80, 0xff};
    if (n == 0)
        return 0;
    size_t at = below((unsigned)n);
    switch (below(6)) {
    case 0: p[at] ^= (uint8_t)(1U << below(8)); break;
    case 1: p[at] = odd[below(sizeof odd)]; break;
    case 2: p[at] = (uint8_t)below(256); break;
    case 3: memmove(p + at, p + at + 1, n - at - 1); return n - 1;
    case 4:
        memmove(p + at + 1, p + at, n - at);
        p[at] = odd[below(sizeof odd)];
        return n + 1;
    default: return below(4) ? n : at; /* cut */
    }
    return n;
}

static size_t make(uint8_t *out)
{
    size_t n = 0;
    for (unsigned messages = 1 + below(12); messages > 0; messages--) {
        unsigned s = below(nseeds);
        if (n + seed[s].len + 16 > INPUT_MAX)
            break;
        uint8_t *body = out + n + 3;
        memcpy(body, seed[s].bytes, seed[s].len);
        size_t len = seed[s].len;
        for (unsigned changes = below(5); changes > 0 && len + 1 < seed[s].len + 12; changes--)
            len = damage(body, len);
        unsigned kind = below(10) ? seed[s].kind : below(256);
        if (below(8) == 0) /* through an allocator that fails */
            kind = 0x40 + seed[s].kind + 6 * below(5);
        out[n] = (uint8_t)kind;
        out[n + 1] = (uint8_t)len;
        out[n + 2] = (uint8_t)(len >> 8);
        n += 3 + len;
    }
    return n;
}

int main(int argc, char **argv)
{
    static uint8_t input[INPUT_MAX];
    if (argc == 3 && strcmp(argv[1], "--seeds") == 0) {
        fuzz_seeds(write_file, argv[2]);
        return 0;
    }
    unsigned iterations = argc > 1 ? (unsigned)atoi(argv[1]) : 20000;
    rng = argc > 2 ? strtoull(argv[2], NULL, 10) * 2 + 1 : 1;
    fuzz_seeds(keep, NULL);
    for (unsigned i = 0; i < iterations; i++)
        LLVMFuzzerTestOneInput(input, make(input));
    for (unsigned i = 0; i < nseeds; i++)
        free(seed[i].bytes);
    printf("%u sequences of damaged messages from %u real ones: nothing broke\n", iterations,
           nseeds);
    return 0;
}
