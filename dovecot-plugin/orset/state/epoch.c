/* epoch - which of this replica's numbers mean the same to everybody (F20).
 *
 * A state that was restored from an old copy gives numbers again that peers hold with other
 * contents. Such a twin destroys mail at the next exchange: "covered and absent". So the state
 * keeps, in shared, the highest own number that a peer named with the running hash this state
 * has for it. What stands above may be twins once a peer names a number that was not given, or
 * another hash: a new epoch gives all of it new numbers (new_epoch.c) and takes the old epoch's
 * entry in the vector back to shared. An op above it that a peer has after all, unconfirmed, has
 * two dots then and is one message (rule 4): nothing is doubled; what that peer's user removed
 * meanwhile comes back. */
#include "dovecot-plugin/orset/state/epoch.h"
#include "dovecot-plugin/orset/base/rows.h"

/* Registers have stamps, not numbers: all up to the clock of a moment at which everything was
 * shared are the same everywhere, and no later one is sure to be. */
static void share(struct orset *os, uint64_t number)
{
    os->shared = number;
    if (number == os->origin[os->self].counter)
        os->shared_clock = os->clock;
    os->meta_dirty = true;
}

int orset_epoch_trust(struct orset *os)
{
    int r = orset_need_transaction(os);
    if (r < 0)
        return r;
    share(os, os->origin[os->self].counter);
    return 0;
}

int orset_epoch_doubt(struct orset *os, bool in_doubt)
{
    int r = orset_need_transaction(os);
    if (r < 0 || in_doubt == (os->doubt != 0))
        return r;
    os->doubt = in_doubt ? os->origin[os->self].counter + 1 : 0;
    os->meta_dirty = true;
    return 0;
}

bool orset_own_unknown(const struct orset *os, uint64_t number)
{
    return number > os->origin[os->self].counter || (os->doubt && number >= os->doubt);
}

int orset_own_ahead(struct orset *os, const char *what, uint64_t number)
{
    /* An epoch that this very handle drew has no older copy: whoever knows more of it lies. */
    if (os->drawn == os->origin[os->self].id.epoch)
        return orset_fail(os, ORSET_E_FORGED,
                          "%s number %llu of this replica, which was never given: alarm", what,
                          (unsigned long long)number);
    return orset_fail(
        os, ORSET_E_ROLLED_BACK,
        "%s number %llu of this replica, which gave %llu, or means another op by it: this state is "
        "an old copy; new epoch",
        what, (unsigned long long)number, (unsigned long long)os->origin[os->self].counter);
}

struct boundary {
    struct orset *os;
    uint64_t number, first;
    uint64_t chain;
    bool found;
};

static int look_for(void *arg, const uint8_t *key, size_t key_len, const uint8_t *v, size_t len)
{
    struct boundary *b = arg;
    struct orset_reader k = orset_reader_of(key, key_len), r = orset_reader_of(v, len);
    b->first = orset_key_read(&k, ORSET_COUNTER_MAX);
    b->chain = orset_read_u64(&r);
    if (k.bad || k.at != k.end || r.bad)
        return orset_corrupt(b->os, "an outgoing op's row");
    b->found = b->first == b->number + 1;
    return 1;
}

int orset_chain_at(struct orset *os, uint64_t number, uint64_t *chain)
{
    const struct origin *me = &os->origin[os->self];
    struct boundary b = {.os = os, .number = number};
    struct orset_key k = {0};
    *chain = me->chain;
    if (number == me->counter)
        return *chain != 0;
    orset_key_num(&k, number + 1);
    int r = os->store.each(os->store.ctx, ORSET_T_OUT, k.b, k.n, 0, look_for, &b);
    if (r < 0)
        return orset_storage_fail(os, "outgoing ops");
    *chain = b.chain;
    if (r > 0 && b.found)
        return *chain != 0;
    /* Rows go from the oldest on: one below the number means that all from there on are kept. */
    r = os->store.each(os->store.ctx, ORSET_T_OUT, "", 0, 0, look_for, &b);
    if (r < 0)
        return orset_storage_fail(os, "outgoing ops");
    return r > 0 && b.first <= number ? -1 : 0;
}

int orset_epoch_confirmed(struct orset *os, uint64_t number, uint64_t chain)
{
    uint64_t mine;
    if (orset_own_unknown(os, number))
        return orset_own_ahead(os, "a peer has", number);
    if (number == 0 || chain == 0)
        return 0;
    int known = orset_chain_at(os, number, &mine);
    if (os->broken)
        return ORSET_E_STORAGE;
    if (known < 0 || (known > 0 && mine != chain))
        return orset_own_ahead(os, "a peer has", number);
    if (known > 0 && number > os->shared)
        share(os, number);
    return 0;
}
