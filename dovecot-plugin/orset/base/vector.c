/* vector - the version vector on the wire, as batches and the exchange carry it.
 *
 *     n, n times { site, epoch, counter, running hash }, index of the sender's own entry */
#include "dovecot-plugin/orset/base/vector.h"

#include <string.h>

void orset_vector_write(const struct orset *os, struct orset_buf *b)
{
    orset_buf_num(b, os->norigins);
    for (int i = 0; i < os->norigins; i++) {
        orset_buf_u64(b, os->origin[i].id.site);
        orset_buf_u64(b, os->origin[i].id.epoch);
        orset_buf_num(b, os->origin[i].counter);
        orset_buf_u64(b, os->origin[i].chain);
    }
    orset_buf_num(b, os->self);
}

void orset_peer_free(struct orset *os, struct peer *p)
{
    if (p->map)
        os->alloc.resize(os->alloc.ctx, p->map, 0);
    if (p->seen)
        os->alloc.resize(os->alloc.ctx, p->seen, 0);
    if (p->chain)
        os->alloc.resize(os->alloc.ctx, p->chain, 0);
    memset(p, 0, sizeof *p);
}

uint64_t orset_peer_has(const struct peer *p, uint16_t origin)
{
    for (unsigned i = 0; i < p->n; i++)
        if (p->map[i] == origin)
            return p->seen[i];
    return 0;
}
