/* vector_read - a peer's vector, compared with what this state knows; vector.c has the grammar. */
#include "dovecot-plugin/orset/state/vector_read.h"
#include "dovecot-plugin/orset/base/origins.h"
#include "dovecot-plugin/orset/base/rows.h"
#include "dovecot-plugin/orset/base/vector.h"
#include "dovecot-plugin/orset/state/epoch.h"
#include "dovecot-plugin/orset/state/quota.h"

#include <string.h>

/* Entry i: index here, its number and running hash against what is known. */
static int take_entry(struct orset *os, struct peer *p, unsigned i, struct orset_origin id)
{
    int at = orset_bring_origin(os, id, p->sender);
    if (at < 0)
        return at;
    for (unsigned j = 0; j < i; j++)
        if (p->map[j] == at)
            return orset_fail(os, ORSET_E_MALFORMED, "a vector that names site %llu twice",
                              (unsigned long long)id.site);
    p->map[i] = (uint16_t)at;
    if (at == os->self)
        return orset_epoch_confirmed(os, p->seen[i], p->chain[i]);
    const struct origin *o = &os->origin[at];
    /* Of an epoch that its site has left another hash is a spoilt row, here or there, or of
     * twins that three sites have. No epoch that is drawn now would mend it; and in a batch
     * nothing follows from it. In an exchange it would be concluded what was removed. */
    if (!p->covers && at != p->sender &&
        (id.site == os->origin[p->sender].id.site || id.site == os->origin[os->self].id.site))
        return 0;
    if (p->seen[i] == o->counter && p->chain[i] && o->chain && p->chain[i] != o->chain)
        return orset_fail(
            os, ORSET_E_FORKED,
            "site %llu gave number %llu to two different ops: new epoch there, then exchange",
            (unsigned long long)id.site, (unsigned long long)p->seen[i]);
    return 0;
}

/* The sender first: the others come into the table on its account. */
static int take_sender(struct orset *os, uint64_t site, struct orset_origin id, struct peer *p)
{
    if (id.site != site || site == os->origin[os->self].id.site)
        return orset_fail(os, ORSET_E_FORGED, "bytes of site %llu came as those of site %llu",
                          (unsigned long long)id.site, (unsigned long long)site);
    int at = orset_find_origin(os, id);
    if (at >= 0) {
        p->sender = (uint16_t)at;
        return 0;
    }
    /* A new epoch: it counts for its site, by any origin of it that is here already. */
    for (at = os->norigins - 1; at > 0 && os->origin[at].id.site != site; at--)
        ;
    bool known = os->origin[at].id.site == site;
    int r = known ? orset_bring_origin(os, id, (uint16_t)at) : orset_intern_origin(os, id);
    p->sender = (uint16_t)(r < 0 ? 0 : r);
    return r < 0 ? r : 0;
}

static int read_vector(struct orset *os, struct orset_reader *r, uint64_t site, struct peer *p)
{
    uint64_t n = orset_read_num(r, ORSET_ORIGINS_MAX);
    /* 25 bytes at least each: no allocation for what is not there. */
    if (r->bad || n == 0 || (uint64_t)(r->end - r->at) < n * 25)
        return orset_fail(os, ORSET_E_MALFORMED, "a vector that cannot be read");
    struct orset_reader again = *r;
    p->map = orset_mem(os, NULL, n * sizeof *p->map);
    p->seen = p->map ? orset_mem(os, NULL, n * sizeof *p->seen) : NULL;
    p->chain = p->seen ? orset_mem(os, NULL, n * sizeof *p->chain) : NULL;
    if (!p->chain)
        return ORSET_E_MEMORY;
    for (unsigned i = 0; i < n; i++) {
        uint64_t from = orset_read_u64(r), epoch = orset_read_u64(r);
        p->seen[i] = orset_read_num(r, ORSET_COUNTER_MAX);
        p->chain[i] = orset_read_u64(r);
        if (r->bad || from == 0 || epoch == 0)
            return orset_fail(os, ORSET_E_MALFORMED, "a vector that cannot be read");
    }
    uint64_t own = orset_read_num(r, n - 1);
    if (r->bad)
        return orset_fail(os, ORSET_E_MALFORMED, "a vector that cannot be read");
    p->sender_at = (uint16_t)own;
    int e = 0;
    for (unsigned pass = 0; pass < 2; pass++) {
        struct orset_reader at = again;
        for (unsigned i = 0; e == 0 && i < n; i++) {
            struct orset_origin id = {orset_read_u64(&at), 0};
            id.epoch = orset_read_u64(&at);
            orset_read_num(&at, ORSET_COUNTER_MAX);
            orset_read_u64(&at);
            if (pass == 1)
                e = take_entry(os, p, i, id);
            else if (i == own)
                e = take_sender(os, site, id, p);
        }
    }
    p->n = (uint16_t)n;
    return e;
}

/* On an error *p is empty. */
int orset_vector_read(struct orset *os, struct orset_reader *r, uint64_t site, bool covers,
                      struct peer *p)
{
    memset(p, 0, sizeof *p);
    p->covers = covers;
    int e = read_vector(os, r, site, p);
    if (e < 0)
        orset_peer_free(os, p);
    return e;
}
