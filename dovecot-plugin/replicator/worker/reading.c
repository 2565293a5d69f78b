/* reading - which sites have read their mailboxes ("Joining full mailboxes" in
 * docs/replication-protocol.md).
 *
 * A site whose state is new answers before it has read its mailboxes: what it has not told may be
 * there all the same. The answer itself says so (PARCEL_ANSWER_READING), since it travels in another
 * lane than the rest. When it has read them the site says that (PARCEL_READING). */
#include "worker.h"

#include <time.h>

/* A site that fell silent is not waited for any longer. */
#define READING_SECS 600

bool peers_are_reading(struct session *s)
{
    time_t now = time(NULL);
    for (unsigned i = 0; i < s->npeers; i++)
        if (s->peer[i].reading_until > now && s->peer[i].reading_until - now <= READING_SECS)
            return TRUE;
    return FALSE;
}

/* It went on without the answers of all. A clock that was set back does not make this longer. */
static bool is_alone(const struct session *s)
{
    time_t left = s->join_until + READING_SECS - time(NULL);
    return s->unasked && left > 0 && left <= READING_SECS + JOIN_WAIT_SECS;
}

bool peers_may_know_older(struct session *s)
{
    return is_alone(s) || peers_are_reading(s);
}

void wait_for_peers(struct session *s)
{
    s->look_again = TRUE;
    session_want_tick(s, 60000);
}

static int put_peer(struct session *s, struct peer *p)
{
    if (session_begin(s) < 0)
        return -1;
    if (rows_put_peer(s, p) < 0) {
        session_rollback(s);
        return -1;
    }
    return session_commit(s);
}

/* Once for each state that it reads: said again and again, it would hold new folders back for ever. */
int peer_is_reading(struct session *s, struct peer *p)
{
    if (p->reading_until != 0)
        return 0;
    p->reading_until = time(NULL) + READING_SECS;
    return put_peer(s, p);
}

int peers_say_read(struct session *s)
{
    const uint8_t read = 0;
    for (unsigned i = 0; i < s->npeers && s->read && !s->exchange_first; i++) {
        struct peer *p = &s->peer[i];
        if (!p->told_reading || p->more)
            continue;
        p->told_reading = FALSE;
        if (put_peer(s, p) < 0)
            return -1;
        session_send(s, p->site, PARCEL_READING, FALSE, &read, 1); /* behind the batches */
    }
    return 0;
}

enum frame_result reading_parcel(struct session *s, struct peer *p, struct text body)
{
    const struct frame_ingest all = {.n = 0};
    if (body.n != 1 || body.p[0] != 0)
        return FRAME_REFUSED;
    bool waited = peers_are_reading(s);
    p->reading_until = 0;
    if (put_peer(s, p) < 0)
        return FRAME_TEMPORARY;
    return !waited || peers_are_reading(s) || ingest(s, &all) == 0 ? FRAME_OK : FRAME_TEMPORARY;
}
