/* heap - the memory that the core and what is sent are given. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/store.h"
#include "dovecot-plugin/worker/session/session.h"

#include <stdlib.h>

static void *resize(void *ctx, void *p, size_t n)
{
    (void)ctx;
    if (n == 0) {
        free(p);
        return NULL;
    }
    return realloc(p, n);
}

const struct orset_alloc *session_alloc(void)
{
    static const struct orset_alloc heap = {NULL, resize};
    return &heap;
}
