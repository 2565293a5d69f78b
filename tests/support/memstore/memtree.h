/* memtree - the rows of one table in the order of their keys: a B+ tree. It finds where a walk
 * begins and keeps the order; single rows are found by memhash.
 *
 *     inner   | key head, key, child | key head, key, child | ...      the head is the key's first 16 bytes
 *     leaf    | key head, row        | key head, row        | ...      as two big-endian numbers, so nearly
 *                                                                      all comparisons stay inside
 *                                                                      the node
 *
 * Most keys of the core are shorter than 16 bytes. An inner slot's key is the smallest key its
 * subtree ever held: a lower bound, so removal needs no repair upwards. A node is let go when it
 * is empty and never merged before: removes come in the order of age, so whole nodes empty
 * together. */
#ifndef DOVELANE_TESTS_SUPPORT_MEMSTORE_MEMTREE_H
#define DOVELANE_TESTS_SUPPORT_MEMSTORE_MEMTREE_H

#include "tests/support/memstore/memrow.h"

struct memtree {
    struct memnode *root;
};

/* -1 without memory: nothing has changed that could be seen. The key must not be there yet. */
int memtree_insert(struct memtree *, struct mem *, struct memrow *);
/* The row of the same key is at another place now. */
void memtree_move(struct memtree *, struct memrow *);
/* Takes the row of this key out, which must be there. It stays the caller's. */
void memtree_remove(struct memtree *, struct mem *, const struct memrow *);
/* As orset_store.each, over the rows that are not dead. */
int memtree_each(const struct memtree *, const void *from, size_t from_len, size_t prefix_len,
                 orset_row_fn *, void *arg);
/* Lets all nodes and rows go. */
void memtree_free(struct memtree *, struct mem *);

#endif
