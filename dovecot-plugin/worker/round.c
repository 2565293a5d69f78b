/* round - one question's work on a user's mailboxes, in order: what changed in them becomes ops
 * (ingest/), the ops go out (exchange/), what the mailboxes lack is done (apply/).
 *
 * The rooms below call each other only downwards. Where one of them needs a step of another one in
 * the middle of its own, it is given that step by the round: place.c that of scanning a mailbox
 * which it does not know, ingest.c that of sending what is committed, uid_rounds.c that of doing
 * what was settled. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/protocol/frame.h"
#include "dovecot-plugin/worker/apply/apply.h"
#include "dovecot-plugin/worker/apply/modseq_repair.h"
#include "dovecot-plugin/worker/apply/uidnext.h"
#include "dovecot-plugin/worker/bodies/body.h"
#include "dovecot-plugin/worker/bodies/body_requests.h"
#include "dovecot-plugin/worker/bodies/fetch.h"
#include "dovecot-plugin/worker/bodies/give.h"
#include "dovecot-plugin/worker/bodies/patience.h"
#include "dovecot-plugin/worker/exchange/exchange.h"
#include "dovecot-plugin/worker/ingest/ingest.h"
#include "dovecot-plugin/worker/ingest/reading.h"
#include "dovecot-plugin/worker/kept/kept.h"
#include "dovecot-plugin/worker/session/retry.h"
#include "dovecot-plugin/worker/session/session.h"
#include "dovecot-plugin/worker/worker.h"

#include <array.h>

#include <time.h>

/* What is committed goes to the peers, and is worked on there while the rest is read here. */
static int send_part(struct session *s)
{
    s->send_room = OUTBOX_MOST; /* these bodies are here now */
    return send_new_ops(s);
}

/* --- ingest ----------------------------------------------------------------------------------- */

/* A state that is new, or lost numbers, hears what the others know before it says anything (F12,
 * F36). Who has not answered may have been removed from the group since. 1: not yet. */
static int must_exchange(struct session *s)
{
    if (is_joining(s) && s->join.since == 0 && peer_join(s, NULL) < 0)
        return -1;
    bool all_answered = TRUE, in_time = time(NULL) < s->join.until;
    for (unsigned i = 0; is_joining(s) && i < s->npeers; i++)
        all_answered = all_answered && s->peer[i].answered;
    if (!is_joining(s))
        return 0;
    if (in_time && !all_answered)
        return 1;
    if (all_answered)
        session_note(s, NOTE_INFO,
                     "the state has what the other sites have; reading the mailboxes");
    else
        session_note(s, NOTE_WARNING,
                     "not all other sites could be asked for this user's state; going on with the "
                     "mailboxes as they are. Mail that was removed elsewhere may come back");
    s->join.phase = all_answered ? JOINED : JOIN_ALONE;
    return 0;
}

int round_ingest(struct session *s, const struct frame_ingest *f)
{
    bool joins = is_joining(s);
    uint64_t begun = clock_msecs();
    int waits = must_exchange(s);
    if (waits != 0)
        return waits < 0 ? -1 : 0;
    if (ingest(s, f, joins, send_part) < 0 || round_apply(s, 0) < 0)
        return -1;
    session_retries_end(s, begun);
    return 0;
}

int round_look(struct session *s)
{
    const struct frame_ingest changed = {.n = 0, .sweep = TRUE};
    return is_joining(s) ? 0 : ingest(s, &changed, FALSE, send_part);
}

/* --- apply ------------------------------------------------------------------------------------ */

/* What was bound, raised or made is compared before anything is placed in it. */
static int apply_folders(struct session *s)
{
    if (tree_apply(s) < 0 || ingest_marked(s, send_part) < 0)
        return -1;
    return tree_is_behind(s) && (tree_apply(s) < 0 || ingest_marked(s, send_part) < 0) ? -1 : 0;
}

int round_apply(struct session *s, uint64_t ask)
{
    const struct frame_ingest all = {.n = 0};
    if (is_joining(s))
        return 0; /* what the mailboxes have is not known yet */
    if (s->cut_short) {
        /* What was begun is done or not: doing it again, unseen, would double a renumbered mail,
         * or make a rename of this program's a user's. */
        s->cut_short = FALSE;
        return round_ingest(s, &all);
    }
    /* Where a mail turns out to be another than the one it is bound to, that one is to be
     * placed. */
    if (apply_folders(s) < 0 || bodies_apply(s, ask) < 0 || place_apply(s, ask, ingest_one) < 0 ||
        flags_apply(s, ingest_one) < 0 || uid_rounds_follow(s) < 0 || renumber_apply(s) < 0 ||
        removals_apply(s, ingest_left) < 0 || tree_apply_deletions(s) < 0 || named_apply(s) < 0 ||
        modseq_repair_apply(s) < 0)
        return -1;
    if (s->unplaced == 0 && s->other_bytes == 0) {
        if (uidnext_apply(s, ingest_one) < 0 || uidnext_ask_run(s) < 0)
            return -1;
        body_requests_forget(s);
        spool_clear(s);
        return patience_forget(s);
    }
    return 0;
}

int round_settled(struct session *s)
{
    return round_apply(s, 0);
}

/* --- a question's begin and end --------------------------------------------------------------- */

/* A retry's own trouble is in the log and in "unplaced", it is no failure of the question. What
 * was to be looked at again when the user was last closed is not known: all mailboxes are, once. */
int round_tick(struct session *s)
{
    const struct frame_ingest all = {.n = 0};
    bool scans = is_joining(s) || s->scan_again || !s->scanned;
    int r = scans ? round_ingest(s, &all) : round_apply(s, 0);
    give_rest(s);
    return peer_exchanges_run(s) < 0 || uid_rounds_run(s, round_settled) < 0 || r < 0 ? -1 : 0;
}

/* Other questions that come between do not put off when the mailboxes are looked at again. */
static void keep_look(struct session *s)
{
    if (!s->scan_again) {
        s->scan_due = 0;
        return;
    }
    uint64_t ms = clock_msecs();
    if (s->scan_due == 0)
        s->scan_due = ms + (s->tick != 0 ? s->tick : 1000);
    session_want_tick(s, s->scan_due > ms ? (unsigned)(s->scan_due - ms) : 1);
}

enum frame_result round_end(struct session *s, enum frame_result result)
{
    if (peers_say_read(s) < 0)
        result = FRAME_TEMPORARY;
    /* Whatever was found by the way: a flag set while others were applied, a mailbox compared
     * again. */
    if (send_new_ops(s) < 0 && result == FRAME_OK)
        result = FRAME_TEMPORARY;
    if (on_disk_say(s) < 0 && result == FRAME_OK)
        result = FRAME_TEMPORARY;
    uid_rounds_wanted(s);
    modseq_repair_wanted(s);
    peer_join_waits(s);
    kept_purge(s);
    fetch_end(s);
    keep_look(s);
    if (array_count(&s->pending_wants) > 0)
        session_want_tick(s, 1); /* whatever was asked in between */
    return result;
}
