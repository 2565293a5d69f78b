/* bounds - what an op may not exceed in the state as it is, found in its dry run (apply_op.c). The
 * tables that all share: quota.c.
 *
 * A site's share that looks exceeded may hold what other sites removed, whose ops have not come:
 * an exchange with that site shows it. So the answer is ORSET_E_EXCHANGE where only a share is
 * exceeded, and ORSET_E_LIMIT where all sites together have too much. */
#include "dovecot-plugin/orset/ops/bounds.h"
#include "dovecot-plugin/orset/base/origins.h"
#include "dovecot-plugin/orset/base/rows.h"
#include "dovecot-plugin/orset/ops/apply_op.h"
#include "dovecot-plugin/orset/state/group.h"
#include "dovecot-plugin/orset/state/message.h"
#include "dovecot-plugin/orset/state/metadata.h"
#include "dovecot-plugin/orset/state/pending_dots.h"

/* A bound that the op would exceed, found dry. It counts once the op is known to be a new one. */
static void beyond(struct op_run *x, int error, const char *what, unsigned most)
{
    struct orset *os = x->os;
    if (x->beyond == 0)
        x->beyond = orset_fail(os, error, "op %llu of site %llu: more than %u %s",
                               (unsigned long long)x->first,
                               (unsigned long long)os->origin[x->by].id.site, most, what);
}

/* Of one message a site has one live dot, and a few that others removed while their ops have not
 * come here: an exchange with it shows which those are. */
int orset_check_same(struct op_run *x, const struct message *m)
{
    struct orset *os = x->os;
    const struct copy *c;
    uint64_t site = os->origin[x->by].id.site;
    unsigned theirs = 0;
    int n = orset_copies_of(os, m->p.facts.guid, m->p.folder, m->p.k, &c);
    for (int i = 0; i < n; i++)
        theirs += os->origin[c[i].dot.origin].id.site == site;
    if (theirs >= ORSET_PEER_SAME_MAX && x->by != os->self)
        beyond(x, ORSET_E_EXCHANGE, "of its dots on one message: exchange first",
               ORSET_PEER_SAME_MAX);
    if (n >= ORSET_SAME_MESSAGE_MAX)
        beyond(x, ORSET_E_LIMIT, "dots of one message", ORSET_SAME_MESSAGE_MAX);
    return n < 0 ? n : 0;
}

/* Flags without end on one message would leave others no room for one on it. */
int orset_check_marks(struct op_run *x, const struct folder *f, struct orset_dot target)
{
    struct orset *os = x->os;
    struct message *m = &os->m[1];
    uint64_t site = os->origin[x->by].id.site, n = x->marks;
    int r = f ? orset_message_load(os, f->index, target, m) : 0;
    if (r < 0)
        return r;
    for (unsigned i = 0; r && i < m->nflags; i++)
        n += os->origin[m->flag[i].dot.origin].id.site == site;
    if (r && m->nflags + x->marks > ORSET_MESSAGE_FLAGDOTS_MAX)
        beyond(x, ORSET_E_LIMIT, "flag dots on one message", ORSET_MESSAGE_FLAGDOTS_MAX);
    if (r == 0) {
        if ((r = orset_pending_marks(os, target, site)) < 0)
            return r;
        n += (unsigned)r;
    }
    if (n > ORSET_PEER_MARKS_MAX)
        beyond(x, ORSET_E_EXCHANGE, "flags of its on one message: exchange first",
               ORSET_PEER_MARKS_MAX);
    return 0;
}

static bool is_among(const struct orset_dot *dots, uint64_t n, struct orset_dot d)
{
    for (uint64_t i = 0; i < n; i++)
        if (orset_same_dot(dots[i], d))
            return true;
    return false;
}

/* add would join those of the name that stay. */
int orset_check_subscribed(struct op_run *x, const void *name, size_t len,
                           const struct orset_dot *kill, uint64_t nkill, struct orset_dot add)
{
    struct orset *os = x->os;
    struct orset_dot dots[ORSET_SUBSCRIPTION_DOTS];
    uint64_t site = os->origin[x->by].id.site;
    int n = orset_subscription_dots(os, name, len, dots, ORSET_SUBSCRIPTION_DOTS), bytes = 0;
    unsigned stay = 0, theirs = 0;
    if (n == 0)
        bytes = orset_subscriptions_with(os, len);
    for (int i = 0; i < n; i++) {
        if (dots[i].origin == add.origin || is_among(kill, nkill, dots[i]))
            continue;
        stay++;
        theirs += os->origin[dots[i].origin].id.site == site;
    }
    if (theirs >= ORSET_PEER_SUBSCRIBED_MAX && x->by != os->self)
        beyond(x, ORSET_E_EXCHANGE, "epochs of it subscribed one name: exchange first",
               ORSET_PEER_SUBSCRIBED_MAX);
    if (stay >= ORSET_SUBSCRIPTION_DOTS)
        beyond(x, ORSET_E_LIMIT, "sites and epochs subscribed one name", ORSET_SUBSCRIPTION_DOTS);
    if (bytes > ORSET_SUBSCRIPTION_BYTES)
        beyond(x, ORSET_E_LIMIT, "bytes of subscriptions", ORSET_SUBSCRIPTION_BYTES);
    return n < 0 ? n : bytes < 0 ? bytes : 0;
}
