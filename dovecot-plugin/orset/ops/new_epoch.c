/* new_epoch - begins a site's numbers anew: what no other site has gets new ones. */
#include "dovecot-plugin/orset/base/origins.h"
#include "dovecot-plugin/orset/base/rows.h"
#include "dovecot-plugin/orset/ops/op_batch.h"
#include "dovecot-plugin/orset/ops/renumber.h"
#include "dovecot-plugin/orset/state/epoch.h"

/* No op gave these numbers: a hash of their own, so that two contents still show (F20). */
static void own_chain(struct orset *os)
{
    struct origin *me = &os->origin[os->self];
    uint64_t w[2] = {me->id.epoch, me->counter};
    me->chain = me->counter ? orset_hash_words(w, 2).lo | 1 : 0;
    me->dirty = true;
}

int orset_new_epoch(struct orset *os, uint64_t epoch)
{
    struct orset_origin me = {os->origin[os->self].id.site, epoch};
    uint16_t old = os->self;
    struct renumber n = {.os = os, .old = old, .keep = os->shared, .clock = os->shared_clock};
    int r = orset_need_transaction(os);
    if (r < 0)
        return r;
    if (epoch == 0 || orset_find_origin(os, me) >= 0)
        return orset_fail(os, ORSET_E_LIMIT, "epoch %llu was used before; draw another one",
                          (unsigned long long)epoch);
    uint64_t chain = 0;
    if (n.keep < os->origin[old].counter && orset_chain_at(os, n.keep, &chain) <= 0)
        chain = 0;
    /* Numbers begin anew, so rows of the old ones would be taken for the new ones. */
    if (os->broken || (r = orset_drop_out(os, UINT64_MAX)) < 0 ||
        (r = orset_intern_origin(os, me)) < 0)
        return os->broken ? ORSET_E_STORAGE : r;
    os->self = (uint16_t)r;
    os->drawn = epoch;
    os->shared = os->doubt = 0;
    os->meta_dirty = true;
    if (n.keep < os->origin[old].counter) {
        if ((r = orset_renumber(&n)) < 0 || (r = orset_named_renumber(&n)) < 0) {
            os->broken = true; /* half done */
            return r;
        }
        own_chain(os);
        os->origin[old].counter = n.keep;
        os->origin[old].chain = chain;
        os->origin[old].dirty = true;
    }
    os->shared_clock = os->clock;
    return 0;
}
