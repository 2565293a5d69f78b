/* vector - the version vector on the wire, as batches and the exchange carry it.
 *
 *     n, n times { site, epoch, counter, running hash }, index of the sender's own entry */
#include "internal.h"

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

static int read_entry(struct orset *os, struct orset_reader *r, struct peer *p, unsigned i)
{
    struct orset_origin o;
    o.site = orset_read_u64(r);
    o.epoch = orset_read_u64(r);
    p->seen[i] = orset_read_num(r, ORSET_COUNTER_MAX);
    p->chain[i] = orset_read_u64(r);
    if (r->bad || o.site == 0 || o.epoch == 0)
        return orset_fail(os, ORSET_E_MALFORMED, "a vector that cannot be read");
    int at = orset_intern_origin(os, o);
    if (at < 0)
        return at;
    for (unsigned j = 0; j < i; j++)
        if (p->map[j] == at)
            return orset_fail(os, ORSET_E_MALFORMED, "a vector that names site %llu twice",
                              (unsigned long long)o.site);
    p->map[i] = (uint16_t)at;
    if (at == os->self && p->seen[i] > os->origin[at].counter)
        return orset_fail(
            os, ORSET_E_ROLLED_BACK,
            "a peer has %llu numbers of this replica, which gave %llu: its state is an old copy; new epoch",
            (unsigned long long)p->seen[i], (unsigned long long)os->origin[at].counter);
    if (p->seen[i] == os->origin[at].counter && p->chain[i] && os->origin[at].chain &&
        p->chain[i] != os->origin[at].chain)
        return orset_fail(os, ORSET_E_FORKED,
                          "site %llu gave number %llu to two different ops: new epoch there, then exchange",
                          (unsigned long long)o.site, (unsigned long long)p->seen[i]);
    return 0;
}

static int read_vector(struct orset *os, struct orset_reader *r, uint64_t site, struct peer *p)
{
    uint64_t n = orset_read_num(r, ORSET_ORIGINS_MAX);
    /* 25 bytes at least each: no allocation for what is not there. */
    if (r->bad || n == 0 || (uint64_t)(r->end - r->at) < n * 25)
        return orset_fail(os, ORSET_E_MALFORMED, "a vector that cannot be read");
    p->map = orset_mem(os, NULL, n * sizeof *p->map);
    p->seen = p->map ? orset_mem(os, NULL, n * sizeof *p->seen) : NULL;
    p->chain = p->seen ? orset_mem(os, NULL, n * sizeof *p->chain) : NULL;
    if (!p->chain)
        return ORSET_E_MEMORY;
    for (unsigned i = 0; i < n; i++) {
        int e = read_entry(os, r, p, i);
        if (e < 0)
            return e;
    }
    uint64_t own = orset_read_num(r, n - 1);
    if (r->bad)
        return orset_fail(os, ORSET_E_MALFORMED, "a vector that cannot be read");
    p->sender = p->map[own];
    p->sender_at = (uint16_t)own;
    if (os->origin[p->sender].id.site != site || p->sender == os->self)
        return orset_fail(os, ORSET_E_FORGED, "bytes of site %llu came as those of site %llu",
                          (unsigned long long)os->origin[p->sender].id.site, (unsigned long long)site);
    p->n = (uint16_t)n;
    return 0;
}

/* On an error *p is empty. */
int orset_vector_read(struct orset *os, struct orset_reader *r, uint64_t site, struct peer *p)
{
    memset(p, 0, sizeof *p);
    int e = read_vector(os, r, site, p);
    if (e < 0)
        orset_peer_free(os, p);
    return e;
}

uint64_t orset_peer_has(const struct peer *p, uint16_t origin)
{
    for (unsigned i = 0; i < p->n; i++)
        if (p->map[i] == origin)
            return p->seen[i];
    return 0;
}
