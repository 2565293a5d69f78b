/* memrow - what the files of the memory store share: its rows, and memory that is counted. */
#ifndef DOVELANE_TESTS_SUPPORT_MEMSTORE_MEMROW_H
#define DOVELANE_TESTS_SUPPORT_MEMSTORE_MEMROW_H

#include <stdbool.h>
#include <string.h>

#include "dovecot-plugin/orset/store.h"

struct memrow {
    uint32_t key_len, len, room; /* room: bytes that the value may have before the row must move */
    bool dead;                   /* removed in the open transaction; it goes at commit */
    uint8_t bytes[];             /* key, then value */
};

struct mem {
    struct orset_alloc alloc;
    size_t bytes;
};

static inline void *mem_get(struct mem *m, size_t n)
{
    void *p = m->alloc.resize(m->alloc.ctx, NULL, n);
    if (p)
        m->bytes += n;
    return p;
}

static inline void mem_free(struct mem *m, void *p, size_t n)
{
    if (!p)
        return;
    m->alloc.resize(m->alloc.ctx, p, 0);
    m->bytes -= n;
}

static inline size_t memrow_size(const struct memrow *r)
{
    return sizeof *r + r->key_len + r->room;
}

static inline bool memrow_is(const struct memrow *r, const void *key, size_t len)
{
    return r->key_len == len && memcmp(r->bytes, key, len) == 0;
}

#endif
