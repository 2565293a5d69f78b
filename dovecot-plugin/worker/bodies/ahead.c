/* ahead - how long a mail waits for what its giver had before it.
 *
 * A site saves a mail behind those that it has of others. Those come here by other lanes, and may
 * come later. Saved here first, the mail would take the place of theirs: they get other UIDs, and
 * after the next UID round everywhere. So it waits until all is here that its giver's batch names
 * of others.
 *
 * What is named may never come: its origin is dead, or the giver says what is not true. So a mail
 * waits for WAIT at most from its own arrival, and for less if mails came little before it. What
 * arrives later makes no mail's wait longer. A giver that names something else each time cannot
 * hold up a mail of its own for longer either.
 *
 * Nothing of it is kept when the user is closed: then the mail does not wait. */
#include "dovecot-plugin/worker/bodies/ahead.h"
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/session.h"

#define WAIT 5000       /* milliseconds */
#define WAVE (WAIT / 2) /* mails that come within so long wait until the same time */

void ahead_heard(struct peer *p, struct orset_dot before, const struct orset_dot *lacks,
                 unsigned nlacks)
{
    struct ahead *a = &p->ahead;
    uint64_t now = clock_msecs();
    if (nlacks == 0 || before.origin != a->origin)
        i_zero(a);
    if (nlacks == 0)
        return;
    i_assert(nlacks <= N_ELEMENTS(a->lacks));
    memcpy(a->lacks, lacks, nlacks * sizeof *lacks);
    a->nlacks = nlacks;
    a->origin = before.origin;
    /* One that leaves began two waves ago: all its mails have waited for WAIT. */
    if (now + WAIT >= a->wave[0].until + WAVE) {
        a->wave[1] = a->wave[0];
        a->wave[0].from = before.counter + 1;
        a->wave[0].until = now + WAIT;
    }
}

static bool are_here(struct session *s, const struct ahead *a)
{
    for (unsigned i = 0; i < a->nlacks; i++)
        if (orset_vector_get(s->os, a->lacks[i].origin) < a->lacks[i].counter)
            return FALSE;
    return TRUE;
}

bool ahead_waits(struct session *s, struct orset_dot mail)
{
    uint64_t now = clock_msecs();
    const struct peer *p = session_peer(s, orset_origin_get(s->os, mail.origin).site);
    if (p == NULL || p->ahead.origin != mail.origin || are_here(s, &p->ahead))
        return FALSE;
    unsigned i = mail.counter < p->ahead.wave[0].from;
    if (mail.counter < p->ahead.wave[i].from || now >= p->ahead.wave[i].until)
        return FALSE;
    session_want_tick(s, (unsigned)(p->ahead.wave[i].until - now));
    return TRUE;
}
