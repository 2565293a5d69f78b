/* unproven - keeps names until a worker knows them, and lets few be tried at a time. */
#include "dovecot-plugin/replicator/users/unproven.h"

#include <stdlib.h>

#include "lib/base/assert.h"
#include "dovecot-plugin/replicator/site/ledger.h"
#include "lib/base/log.h"

#define NAMED_MOST 1000 /* names of one peer that nobody has known yet, or that nobody knows */

struct unproven {
    struct replicator *r;
    size_t by_hints, by_peer[FRAME_SITES_MAX];
    double said[FRAME_SITES_MAX]; /* that it names too many */
};

static size_t *count_of(struct unproven *n, size_t peer)
{
    return peer > 0 ? &n->by_peer[peer - 1] : &n->by_hints;
}

void unproven_heard(struct user *u, size_t peer)
{
    struct replicator *r = u->r;
    if (!u->known && !ledger_user_seen(r->ledger, u->name) && !u->unproven) {
        u->unproven = true;
        u->named_by = peer;
        ++*count_of(r->unproven, peer);
    }
    u->known = true;
}

void unproven_end(struct user *u)
{
    if (!u->unproven)
        return;
    size_t *n = count_of(u->r->unproven, u->named_by);
    ASSERT(*n > 0);
    --*n;
    u->unproven = false;
}

size_t unproven_by_hints(const struct unproven *n)
{
    return n->by_hints;
}

bool unproven_may_name(struct unproven *n, size_t peer, struct text name, const struct user *u)
{
    if (n->by_peer[peer] < NAMED_MOST || (u && (u->known || u->unproven)))
        return true;
    char *text = mem_strndup((const char *)name.p, name.n);
    bool known = ledger_knows(n->r->ledger, text);
    if (!known && replicator_may_say(&n->said[peer], 60.))
        log_warning("replica %s: it names too many users that are not known here, as %s: their "
                    "parcels are dropped, and come again",
                    n->r->group.peer[peer].name, text);
    free(text);
    return known;
}

struct unproven *unproven_open(struct replicator *r)
{
    struct unproven *n = mem_zero(sizeof *n);
    n->r = r;
    return n;
}

void unproven_close(struct unproven *n)
{
    ASSERT(!n || n->by_hints == 0);
    free(n);
}
