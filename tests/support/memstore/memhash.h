/* memhash - finds a table's row by its key with two reads of memory: a bucket, then the row.
 *
 *     bucket = 64 bytes, one cache line:  tag 0..6 | passed | row 0..6
 *
 * A tag is a byte of the key's hash, 0: free. passed counts the rows that wanted this bucket or
 * one before it and stand behind it, so a search ends at the first bucket that nobody passed,
 * and a removal needs neither a mark nor a move. */
#ifndef DOVELANE_TESTS_SUPPORT_MEMSTORE_MEMHASH_H
#define DOVELANE_TESTS_SUPPORT_MEMSTORE_MEMHASH_H

#include "tests/support/memstore/memrow.h"

struct memhash {
    void *block;           /* as allocated */
    struct bucket *bucket; /* in it, at a multiple of 64 */
    size_t buckets, rows;  /* buckets: a power of 2, or 0 */
};

/* Not for keys of an enemy's choice: the memory store serves tests, benchmarks and tools. */
uint64_t memhash_of(const void *key, size_t len);

/* Where the row's address stands, NULL when there is no such row. Good until the next add. */
struct memrow **memhash_find(const struct memhash *, uint64_t hash, const void *key, size_t len);

/* Room for one more row: after it the next add cannot fail. -1 without memory. */
int memhash_reserve(struct memhash *, struct mem *);
void memhash_add(struct memhash *, uint64_t hash, struct memrow *);
/* The row must be there. */
void memhash_remove(struct memhash *, uint64_t hash, const struct memrow *);
void memhash_free(struct memhash *, struct mem *);

/* The two reads, ahead of time: first of the bucket, then, when that has come, of the row. */
void memhash_expect_bucket(const struct memhash *, uint64_t hash);
void memhash_expect_row(const struct memhash *, uint64_t hash);

#endif
