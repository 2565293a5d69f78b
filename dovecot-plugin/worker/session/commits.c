/* commits - the state's transactions, and the numbers that they give: reserved before the commit,
 * noted after it. A state that may have lost numbers gives new ones under a new epoch. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/exchange/exchange.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/protocol/frame.h"
#include "dovecot-plugin/worker/session/link.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/rows.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <randgen.h>

int session_fresh(struct session *s)
{
    if (!s->stale)
        return 0;
    if (rows_load(s) < 0)
        return -1;
    s->stale = FALSE;
    return 0;
}

int session_begin(struct session *s)
{
    if (session_fresh(s) < 0)
        return -1;
    return orset_begin(s->os) < 0 ? session_core_failed(s, "begin") : 0;
}

void session_rollback(struct session *s)
{
    orset_rollback(s->os);
    if (s->removed != NULL)
        s->removed_forget(s);
    s->stale = TRUE;
}

int session_commit(struct session *s)
{
    struct orset_origin self = orset_origin_get(s->os, orset_self(s->os));
    uint64_t counter = orset_vector_get(s->os, orset_self(s->os));
    bool numbers = counter != s->noted;
    if (s->removed != NULL && s->removed_write(s) < 0) {
        session_rollback(s);
        return -1;
    }
    i_assert(counter >= s->noted || s->noted == UINT64_MAX); /* no number is given twice */
    if (numbers && link_reserve(s->link, FRAME_RESERVE_RAISE, self.epoch, counter, NULL) < 0) {
        session_rollback(s);
        return session_fail(s, "the reserve file cannot be written");
    }
    if (orset_commit(s->os) < 0) {
        s->stale = TRUE;
        return session_core_failed(s, "commit");
    }
    s->noted = counter;
    if (numbers)
        (void)link_reserve(s->link, FRAME_RESERVE_NOTE, self.epoch, counter, NULL);
    return 0;
}

/* --- exchanging first ------------------------------------------------------------------------- */

/* A state with nobody to ask ingests at once. */
static int ask_first(struct session *s)
{
    s->join.phase = s->npeers > 0 ? JOIN_ASKING : JOINED;
    s->read = FALSE;
    for (unsigned i = 0; i < s->npeers; i++) {
        s->peer[i].answered = FALSE;
        if (rows_put_peer(s, &s->peer[i]) < 0)
            return -1;
    }
    s->join.until = s->join.since = 0;
    return rows_put_join(s);
}

/* What the mailboxes went through since is read with other eyes (ingest.c). */
int session_exchange_first(struct session *s)
{
    struct box **x;
    array_foreach_modifiable (&s->boxes, x) {
        (*x)->rewound = TRUE;
        if (rows_put_box(s, *x) < 0)
            return -1;
    }
    /* A state that was just made is no old one: who did what in its mailboxes before it came is
     * not asked. */
    if (!s->created && rows_put_rewound(s, TRUE) < 0)
        return -1;
    return ask_first(s);
}

int session_join(struct session *s)
{
    struct box **x;
    int r = session_begin(s);
    if (r < 0)
        return -1;
    array_foreach_modifiable (&s->boxes, x) {
        (*x)->all = TRUE;
        box_unread(*x);
        if (r >= 0)
            r = rows_put_box(s, *x);
    }
    if (r < 0 || ask_first(s) < 0) {
        session_rollback(s);
        return -1;
    }
    return session_commit(s);
}

/* --- epochs ----------------------------------------------------------------------------------- */

uint64_t random_number(void)
{
    uint64_t n;
    do
        random_fill(&n, sizeof n);
    while (n == 0);
    return n;
}

int session_new_epoch(struct session *s, const char *why)
{
    session_note(s, NOTE_WARNING,
                 "new epoch: %s; exchanging with the other sites before the next ingest", why);
    for (unsigned i = 0; i < s->npeers; i++) {
        struct peer *p = &s->peer[i];
        if (p->exchange != NULL)
            orset_exchange_free(s->os, p->exchange);
        p->exchange = NULL;
    }
    if (session_begin(s) < 0)
        return -1;
    if (orset_new_epoch(s->os, random_number()) < 0) {
        session_rollback(s);
        return session_core_failed(s, "new epoch");
    }
    for (unsigned i = 0; i < s->npeers; i++) {
        s->peer[i].confirmed = s->peer[i].sent = 0;
        if (rows_put_peer(s, &s->peer[i]) < 0) {
            session_rollback(s);
            return -1;
        }
    }
    if (session_exchange_first(s) < 0) {
        session_rollback(s);
        return -1;
    }
    s->noted = UINT64_MAX; /* the new epoch is to be reserved and noted, whatever its counter */
    return session_commit(s);
}
