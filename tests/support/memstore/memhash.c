/* memhash - see memhash.h. */
#include "tests/support/memstore/memhash.h"

#define SLOTS 7
#define FULL_PERCENT 80 /* of all slots in use, before there are twice as many */
#define FIRST_BUCKETS 8
#define PASSED_MAX UINT8_MAX /* a count that got here is not exact any more and stays */
#define LINE 64

struct bucket {
    uint8_t tag[SLOTS], passed;
    struct memrow *row[SLOTS];
};

uint64_t memhash_of(const void *key, size_t len)
{
    const uint8_t *p = key;
    uint64_t h = 0x9e3779b97f4a7c15 ^ len, w;
    for (; len > 8; p += 8, len -= 8) {
        memcpy(&w, p, 8);
        h = (h ^ w) * 0xff51afd7ed558ccd;
        h ^= h >> 32;
    }
    w = 0;
    for (size_t i = 0; i < len; i++)
        w = w << 8 | p[i];
    h = (h ^ w) * 0xff51afd7ed558ccd;
    h ^= h >> 32;
    h *= 0xc4ceb9fe1a85ec53;
    return h ^ h >> 29;
}

static uint8_t tag_of(uint64_t hash)
{
    uint8_t tag = (uint8_t)(hash >> 56);
    return tag ? tag : 1;
}

static struct bucket *home_of(const struct memhash *t, uint64_t hash)
{
    return &t->bucket[hash & (t->buckets - 1)];
}

static struct bucket *behind(const struct memhash *t, struct bucket *b)
{
    return ++b == t->bucket + t->buckets ? t->bucket : b;
}

struct memrow **memhash_find(const struct memhash *t, uint64_t hash, const void *key, size_t len)
{
    uint8_t tag = tag_of(hash);
    if (t->rows == 0)
        return NULL;
    struct bucket *first = home_of(t, hash), *b = first;
    do {
        for (int i = 0; i < SLOTS; i++)
            if (b->tag[i] == tag && memrow_is(b->row[i], key, len))
                return &b->row[i];
        if (b->passed == 0)
            return NULL;
        b = behind(t, b);
    } while (b != first); /* in a small table that is old, every count may be one that stays */
    return NULL;
}

void memhash_add(struct memhash *t, uint64_t hash, struct memrow *row)
{
    for (struct bucket *b = home_of(t, hash);; b = behind(t, b)) {
        for (int i = 0; i < SLOTS; i++)
            if (b->tag[i] == 0) {
                b->tag[i] = tag_of(hash);
                b->row[i] = row;
                t->rows++;
                return;
            }
        b->passed = (uint8_t)(b->passed + (b->passed < PASSED_MAX));
    }
}

void memhash_remove(struct memhash *t, uint64_t hash, const struct memrow *row)
{
    for (struct bucket *b = home_of(t, hash);; b = behind(t, b)) {
        for (int i = 0; i < SLOTS; i++)
            if (b->tag[i] && b->row[i] == row) {
                b->tag[i] = 0;
                t->rows--;
                return;
            }
        b->passed = (uint8_t)(b->passed - (b->passed < PASSED_MAX));
    }
}

static size_t block_size(size_t buckets)
{
    return buckets * sizeof(struct bucket) + LINE;
}

int memhash_reserve(struct memhash *t, struct mem *m)
{
    if ((t->rows + 1) * 100 <= t->buckets * SLOTS * FULL_PERCENT)
        return 0;
    struct memhash big = {.buckets = t->buckets ? t->buckets * 2 : FIRST_BUCKETS};
    big.block = mem_get(m, block_size(big.buckets));
    if (!big.block)
        return -1;
    big.bucket = (struct bucket *)(((uintptr_t)big.block + LINE - 1) & ~(uintptr_t)(LINE - 1));
    memset(big.bucket, 0, big.buckets * sizeof *big.bucket);
    for (size_t n = 0; n < t->buckets; n++)
        for (int i = 0; i < SLOTS; i++)
            if (t->bucket[n].tag[i]) {
                struct memrow *row = t->bucket[n].row[i];
                memhash_add(&big, memhash_of(row->bytes, row->key_len), row);
            }
    memhash_free(t, m);
    *t = big;
    return 0;
}

void memhash_free(struct memhash *t, struct mem *m)
{
    mem_free(m, t->block, block_size(t->buckets));
    *t = (struct memhash){0};
}

void memhash_expect_bucket(const struct memhash *t, uint64_t hash)
{
    if (t->rows > 0)
        __builtin_prefetch(home_of(t, hash));
}

void memhash_expect_row(const struct memhash *t, uint64_t hash)
{
    if (t->rows == 0)
        return;
    const struct bucket *b = home_of(t, hash);
    uint8_t tag = tag_of(hash);
    for (int i = 0; i < SLOTS; i++)
        if (b->tag[i] == tag) {
            const char *row = (const char *)b->row[i];
            for (size_t at = 0; at < 2 * LINE; at += LINE)
                __builtin_prefetch(row + at, 1);
        }
}
