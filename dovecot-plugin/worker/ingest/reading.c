/* reading - which sites have read their mailboxes ("Joining full mailboxes" in
 * docs/replication-protocol.md).
 *
 * A site whose state is new answers before it has read its mailboxes: what it has not told may be
 * there all the same. The answer itself says so (PARCEL_ANSWER_READING), since it travels in
 * another lane than the rest. When it has read them the site says that (PARCEL_READING), to a peer
 * that has confirmed all ops up to there: batches in front of that word may be lost, a full lane
 * refuses them. So may the word; who waits for it asks. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/protocol/frame.h"
#include "dovecot-plugin/protocol/parcel.h"
#include "dovecot-plugin/worker/ingest/reading.h"
#include "dovecot-plugin/worker/session/rows.h"
#include "dovecot-plugin/worker/session/session.h"

#include <time.h>

/* A site that fell silent is not waited for any longer. */
#define READING_SECS 600
#define ASK_SECS 60 /* after which it is asked whether it has read, and asked again */

static bool is_reading(const struct peer *p)
{
    time_t now = time(NULL);
    return p->reading_until > now && p->reading_until - now <= READING_SECS;
}

bool peers_are_reading(struct session *s)
{
    for (unsigned i = 0; i < s->npeers; i++)
        if (is_reading(&s->peer[i]))
            return TRUE;
    return FALSE;
}

uint64_t peers_read_within(struct session *s)
{
    time_t now = time(NULL), last = now;
    for (unsigned i = 0; i < s->npeers; i++)
        if (is_reading(&s->peer[i]))
            last = I_MAX(last, s->peer[i].reading_until);
    return (uint64_t)(last - now) * 1000;
}

/* It went on without the answers of all. A clock that was set back does not make this longer. */
static bool is_alone(const struct session *s)
{
    time_t left = s->join.until - time(NULL);
    return s->join.phase == JOIN_ALONE && left > -READING_SECS && left <= JOIN_WAIT_SECS;
}

bool peers_may_know_older(struct session *s)
{
    return is_alone(s) || peers_are_reading(s);
}

static void send_word(struct session *s, const struct peer *p, uint8_t word)
{
    session_send(s, p->site, PARCEL_READING, FALSE, &word, 1);
}

static int put_peer(struct session *s, struct peer *p)
{
    if (rows_put_peer(s, p) < 0) {
        session_rollback(s);
        return -1;
    }
    return session_commit(s);
}

/* At most once in ASK_SECS, and not before they are over since it said that it reads. */
static void ask_whether_read(struct session *s, struct peer *p)
{
    time_t now = time(NULL), since = I_MAX(p->reading_until - READING_SECS, p->asked_whether_read);
    if (!is_reading(p) || (since <= now && now - since < ASK_SECS))
        return;
    p->asked_whether_read = now;
    send_word(s, p, PARCEL_HAS_IT_READ);
}

void wait_for_peers(struct session *s)
{
    for (unsigned i = 0; i < s->npeers; i++)
        ask_whether_read(s, &s->peer[i]);
    s->scan_again = TRUE;
    if (s->scan_due == 0)
        s->scan_due = clock_msecs() + ASK_SECS * 1000;
    session_want_tick(s, ASK_SECS * 1000);
}

/* Said again and again, it would hold new folders back for ever. So it is believed again when as
 * much time has passed without it. */
static bool was_reading_lately(const struct peer *p)
{
    time_t over = time(NULL) - p->reading_until;
    return p->reading_until != 0 && over < READING_SECS && over >= -READING_SECS;
}

int peer_is_reading(struct session *s, struct peer *p)
{
    if (was_reading_lately(p))
        return 0;
    if (session_begin(s) < 0)
        return -1;
    p->reading_until = time(NULL) + READING_SECS;
    return put_peer(s, p);
}

/* What was read before this session is not known. So where a peer that has confirmed all there is
 * waits for the word, all is read once more. */
int peers_say_read(struct session *s)
{
    for (unsigned i = 0; i < s->npeers && !is_joining(s); i++) {
        struct peer *p = &s->peer[i];
        uint64_t needed = s->read ? s->read_upto : orset_vector_get(s->os, orset_self(s->os));
        if (!p->told_reading || p->confirmed < needed)
            continue;
        if (!s->read) {
            s->scan_again = TRUE;
            session_want_tick(s, 1000);
            return 0;
        }
        if (session_begin(s) < 0)
            return -1;
        p->told_reading = FALSE;
        if (put_peer(s, p) < 0)
            return -1;
        send_word(s, p, PARCEL_HAS_READ);
    }
    return 0;
}

/* One answer to it, when it can be given (peers_say_read): none follows from that. */
static enum frame_result asked_whether_read(struct session *s, struct peer *p)
{
    if (p->told_reading)
        return FRAME_OK;
    if (session_begin(s) < 0)
        return FRAME_TEMPORARY;
    p->told_reading = TRUE;
    return put_peer(s, p) < 0 ? FRAME_TEMPORARY : FRAME_OK;
}

enum frame_result reading_parcel(struct session *s, struct peer *p, struct text body, bool *over_r)
{
    *over_r = FALSE;
    if (body.n != 1 || (body.p[0] != PARCEL_HAS_READ && body.p[0] != PARCEL_HAS_IT_READ))
        return FRAME_REFUSED;
    if (body.p[0] == PARCEL_HAS_IT_READ)
        return asked_whether_read(s, p);
    bool waited = peers_are_reading(s);
    if (session_begin(s) < 0)
        return FRAME_TEMPORARY;
    p->reading_until = 0;
    if (put_peer(s, p) < 0)
        return FRAME_TEMPORARY;
    *over_r = waited && !peers_are_reading(s);
    return FRAME_OK;
}
