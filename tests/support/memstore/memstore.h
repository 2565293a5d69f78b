/* memstore - the storage interface in memory: per table a hash table that finds a row with two
 * reads of memory (memhash.h) and a B+ tree that keeps the order (memtree.h); an undo log for
 * the transaction. Rows change in place. */
#ifndef DOVELANE_TESTS_SUPPORT_MEMSTORE_MEMSTORE_H
#define DOVELANE_TESTS_SUPPORT_MEMSTORE_MEMSTORE_H

#include "dovecot-plugin/orset/store.h"

struct orset_memstore;

/* NULL when there is no memory. The allocator is copied; what its ctx points at must outlive the
 * store. */
struct orset_memstore *orset_memstore_new(const struct orset_alloc *);
void orset_memstore_free(struct orset_memstore *);

/* Fills in the interface. The store stays the caller's. */
void orset_memstore_interface(struct orset_memstore *, struct orset_store *store_r);

/* Bytes allocated for rows, nodes and hash tables, and rows in a table. */
size_t orset_memstore_bytes(const struct orset_memstore *);
size_t orset_memstore_rows(const struct orset_memstore *, enum orset_table);

/* A copy of all rows, as of now (no transaction may be open). NULL when there is no memory.
 * Tests use it as the backup an admin restores, and as the disk that a crash leaves. */
struct orset_memstore *orset_memstore_copy(const struct orset_memstore *);

#endif
