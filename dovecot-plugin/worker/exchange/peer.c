/* peer - exchanges of states: who is asked, when again, and how long a new state waits for it. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/orset/exchange/exchange.h"
#include "dovecot-plugin/orset/ops/op_batch.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/protocol/parcel.h"
#include "dovecot-plugin/worker/exchange/exchange.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/rows.h"
#include "dovecot-plugin/worker/session/session.h"

#include <time.h>

#define EXCHANGE_WAIT_SECS 15 /* for an answer; then it begins anew */

/* Rows that every peer has are dropped; a forgotten one will exchange (F38). Inside a
 * transaction. */
int peer_drop_confirmed(struct session *s)
{
    uint64_t least = orset_vector_get(s->os, orset_self(s->os));
    for (unsigned i = 0; i < s->npeers; i++)
        if (!s->peer[i].forgotten)
            least = I_MIN(least, s->peer[i].confirmed);
    if (least == 0)
        return 0;
    return orset_drop_out(s->os, least) < 0 ? session_core_failed(s, "confirmed ops") : 0;
}

void peer_drop_exchange(struct session *s, struct peer *p)
{
    i_assert(p->exchange != NULL);
    orset_exchange_free(s->os, p->exchange);
    p->exchange = NULL;
}

void peer_asked(struct session *s, struct peer *p)
{
    p->exchange_since = time(NULL);
    session_want_tick(s, EXCHANGE_WAIT_SECS * 1000);
}

/* Of a new state: main does not know it, and wants all asked whenever the user was opened. */
bool peer_has_answered(const struct session *s, const struct peer *p)
{
    return is_joining(s) && p->answered && !p->behind;
}

int peer_exchange(struct session *s, const struct peer *p)
{
    if (peer_has_answered(s, p))
        return 0;
    return peer_join(s, p) < 0 ? -1 : peer_ask(s, p->site);
}

int peer_ask(struct session *s, uint64_t site)
{
    struct peer *p = session_peer(s, site);
    struct orset_buf q = {.alloc = session_alloc()};
    if (p == NULL)
        return 0;
    session_want_tick(s, EXCHANGE_WAIT_SECS * 1000);
    if (p->exchange != NULL) {
        if (time(NULL) - p->exchange_since < EXCHANGE_WAIT_SECS)
            return 0;
        peer_drop_exchange(s, p);
    }
    int r = orset_ask_hello(s->os, site, &p->exchange, &q);
    if (r >= 0) {
        p->exchange_since = time(NULL);
        session_send(s, site, PARCEL_QUESTION, TRUE, q.data, q.len);
    }
    orset_buf_free(&q);
    return r < 0 ? session_core_failed(s, "exchange") : 0;
}

/* Of a state that is new: it waits from when it asked, not from when it was made, since many may
 * have had to wait for their turn, and as long again after each turn that ended without an
 * answer. */
int peer_join(struct session *s, const struct peer *p)
{
    time_t now = time(NULL);
    bool first = s->join.since == 0;
    if (!is_joining(s) || (p != NULL && p->answered) ||
        (!first &&
         (now - s->join.since >= JOIN_MOST_SECS || s->join.until - now > JOIN_WAIT_SECS / 2)))
        return 0;
    if (session_begin(s) < 0)
        return -1;
    if (first)
        s->join.since = now;
    s->join.until = now + JOIN_WAIT_SECS;
    if (rows_put_join(s) < 0) {
        session_rollback(s);
        return -1;
    }
    return session_commit(s);
}

/* Main asks, in turn (SHIP EXCHANGE), and with the last answer the mailboxes are read at once.
 * So it has nothing to do until its wait is over. */
void peer_join_waits(struct session *s)
{
    time_t left = s->join.until - time(NULL);
    if (is_joining(s))
        session_want_tick(s, 1000U * (left < 1 ? 1 : (unsigned)I_MIN(left, JOIN_WAIT_SECS)));
}

int peer_exchanges_run(struct session *s)
{
    for (unsigned i = 0; i < s->npeers; i++)
        if (s->peer[i].exchange != NULL && peer_ask(s, s->peer[i].site) < 0)
            return -1;
    return 0;
}
