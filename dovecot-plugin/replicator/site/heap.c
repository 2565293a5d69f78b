/* heap - the C library's memory, for what takes an allocator (replicator.h). */
#include "dovecot-plugin/replicator/replicator.h"

#include <stdlib.h>

static void *resize(void *ctx, void *p, size_t n)
{
    (void)ctx;
    if (n)
        return mem_grow(p, n);
    free(p);
    return NULL;
}

const struct orset_alloc replicator_heap = {NULL, resize};
