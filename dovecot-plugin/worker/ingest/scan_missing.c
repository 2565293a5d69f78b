/* scan_missing - a message whose mail is not there any more: a removal, a move, or damage; and
 * the brake. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/worker/ingest/classify.h"
#include "dovecot-plugin/worker/ingest/pass.h"
#include "dovecot-plugin/worker/ingest/scan.h"
#include "dovecot-plugin/worker/logs/log.h"
#include "dovecot-plugin/worker/session/flags.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/mdbox.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <guid.h>
#include <mail-index-private.h>
#include <mail-storage-private.h>
#include <seq-range-array.h>

#include <time.h>

#define BRAKE_SECS 3600

int scan_collect_unbound(struct mailbox_scan *l)
{
    struct seq_range_iter iter;
    uint32_t uid;
    seq_range_array_iter_init(&iter, &l->uids);
    for (unsigned i = 0; !l->locked && seq_range_array_iter_nth(&iter, i, &uid); i++) {
        struct unbound *u;
        guid_128_t guid;
        int r = orset_message_by_uid(l->s->os, l->x->folder, uid, NULL);
        if (r < 0)
            return scan_changed(l, r);
        if (r > 0 || !mail_set_uid(l->mail, uid) || !scan_guid(l, guid))
            continue;
        u = array_append_space(&l->unbound);
        memcpy(u->guid, guid, sizeof u->guid);
        u->uid = uid;
    }
    return 0;
}

/* A rewound state does not know that this program gave mails other UIDs since: in the log that
 * is a copy and a client's expunge. 1: the message is bound to the copy, whose flags are
 * compared with what was seen of the old one. */
static int find_renumbered(struct mailbox_scan *l, const struct orset_message *m)
{
    struct unbound *u;
    array_foreach_modifiable (&l->unbound, u) {
        if (u->uid <= m->uid || memcmp(u->guid, m->facts.guid, sizeof u->guid) != 0)
            continue;
        uint32_t uid = u->uid;
        array_delete(&l->unbound, array_ptr_to_idx(&l->unbound, u), 1);
        session_note(l->s, NOTE_INFO, "%s: UID %u is UID %u since the state was written",
                     l->x->vname, m->uid, uid);
        struct renumbered moved = {m->uid, uid};
        array_push_back(&l->renumbered, &moved);
        int r = orset_done_renumber(l->s->os, l->x->folder, m->uid, uid);
        return r < 0 ? r : 1;
    }
    return 0;
}

static int by_sha256(const struct quarantined_mail *a, const struct quarantined_mail *b)
{
    return memcmp(a->sha256, b->sha256, sizeof a->sha256);
}

static int collect_quarantined(struct mailbox_scan *l)
{
    struct seq_range_iter iter;
    struct quarantined_mail h;
    int r = 0;
    p_array_init(&l->quarantine, l->pool, 64);
    seq_range_array_iter_init(&iter, &l->x->quarantine);
    for (unsigned i = 0; r >= 0 && seq_range_array_iter_nth(&iter, i, &h.uid); i++) {
        struct orset_message m;
        if ((r = orset_message_by_uid(l->s->os, l->x->folder, h.uid, &m)) > 0) {
            memcpy(h.sha256, m.facts.sha256, sizeof h.sha256);
            array_push_back(&l->quarantine, &h);
        }
    }
    array_sort(&l->quarantine, by_sha256);
    return I_MIN(r, 0);
}

int scan_quarantined_back(struct mailbox_scan *l, const struct orset_facts *facts)
{
    struct quarantined_mail wanted;
    if (!l->maildir)
        return 0; /* a dbox file comes back under its UID */
    int r = array_count(&l->x->quarantine) > 0 && !array_is_created(&l->quarantine)
                ? collect_quarantined(l)
                : 0;
    if (r < 0 || !array_is_created(&l->quarantine))
        return r;
    memcpy(wanted.sha256, facts->sha256, sizeof wanted.sha256);
    const struct quarantined_mail *h = array_bsearch(&l->quarantine, &wanted, by_sha256);
    if (h == NULL)
        return 0;
    uint32_t uid = h->uid;
    array_delete(&l->quarantine, array_ptr_to_idx(&l->quarantine, h), 1);
    seq_range_array_remove(&l->x->quarantine, uid);
    session_explain(l->s, "%s: UID %u: it was held and is back as UID %u", l->x->vname, uid,
                    l->mail->uid);
    r = orset_done_renumber(l->s->os, l->x->folder, uid, l->mail->uid);
    return r < 0 ? r : 1;
}

static int missing(struct mailbox_scan *l, uint32_t uid)
{
    l->missing++;
    session_explain(l->s, "%s: UID %u: missing, and no client asked for that", l->x->vname, uid);
    return scan_changed(l, orset_local_missing(l->s->os, l->x->folder, uid));
}

/* A session had not looked since the mail got another UID, and cleared \Deleted under the old one.
 * The new one was shown \Deleted until this scan, and a client expunged what was. A MOVE just then
 * looks alike in the log: the mail stays where it was, too. */
static int rescued(struct mailbox_scan *l, uint32_t uid)
{
    struct orset_flags meant;
    const struct late_change *late = scan_late(l, uid);
    int r = orset_flags_seen(l->s->os, l->x->folder, uid, &meant);
    if (r <= 0)
        return scan_changed(l, r < 0 ? r : ORSET_KNOWN);
    flags_unite(&meant, &late->set);
    flags_without(&meant, &late->cut);
    session_note(
        l->s, NOTE_INFO,
        "%s: UID %u: expunged just after a client had cleared \\Deleted under the UID that "
        "it had before: it is placed again",
        l->x->vname, uid);
    r = orset_local_flags(l->s->os, l->x->folder, uid, &meant, NULL);
    return scan_changed(l, r < 0 ? r : orset_local_missing(l->s->os, l->x->folder, uid));
}

/* In the log that a rebuild of the index began, which alone does not tell whose UIDs these are:
 * the mailbox may have been restored before. */
static bool asked_since(struct mailbox_scan *l, const struct orset_message *m)
{
    const struct expunged_mail *asked;
    array_foreach (&l->log.asked, asked) {
        if (asked->uid == m->uid && memcmp(asked->guid, m->facts.guid, sizeof asked->guid) == 0)
            return TRUE;
    }
    return FALSE;
}

static bool is_requested(struct mailbox_scan *l, uint32_t uid, const struct orset_message *m)
{
    const ARRAY_TYPE(seq_range) *requested =
        l->log.verdict == LOG_SCAN_BROKEN ? &l->said.requested : &l->log.requested;
    return seq_range_exists(requested, uid) || asked_since(l, m);
}

int scan_missing(struct mailbox_scan *l, uint32_t uid)
{
    struct orset_message m;
    int r = orset_message_by_uid(l->s->os, l->x->folder, uid, &m);
    struct removal removal = {.folder = l->x->folder, .uid = uid, .mdbox = mdbox_is(l->box)};
    /* and stays so, if there is nothing new to know of it */
    bool held = seq_range_array_remove(&l->x->quarantine, uid);
    const struct late_change *late = scan_late(l, uid);
    if (r <= 0)
        return scan_changed(l, r < 0 ? r : ORSET_KNOWN);
    memcpy(removal.guid, m.facts.guid, sizeof removal.guid);
    if (array_count(&l->unbound) > 0 && (r = find_renumbered(l, &m)) != 0)
        return scan_changed(l, r);
    switch (classify_missing(&(struct missing_facts){
        .verdict = l->log.verdict,
        .moving = seq_range_exists(&l->moving, uid),
        .taken = late != NULL && late->taken && !late->expunged,
        .requested = is_requested(l, uid, &m),
        .quarantined = held,
        .maildir = l->maildir,
        .touched = seq_range_exists(&l->log.touched, uid),
    })) {
    case MISSING_MOVED: return scan_changed(l, orset_local_missing(l->s->os, l->x->folder, uid));
    case MISSING_RESCUED: return rescued(l, uid);
    case MISSING_REMOVED:
        session_explain(l->s, "%s: UID %u: removed, as a client asked", l->x->vname, uid);
        array_push_back(&l->in->removals, &removal);
        return 0;
    case MISSING_QUARANTINED: seq_range_array_add(&l->x->quarantine, uid); return 0;
    case MISSING_VANISHED: seq_range_array_add(&l->vanished, uid); return 0;
    case MISSING_DAMAGED: return missing(l, uid);
    }
    i_unreached();
}

/* No mail of the mailbox that the state knows is left but those that a client removed: an empty
 * or unmounted directory. lost: all that are gone, those that are quarantined already too. */
static int all_vanished(struct mailbox_scan *l, ARRAY_TYPE(seq_range) * lost, bool *all_r)
{
    ARRAY_TYPE(seq_range) bound;
    struct seq_range_iter iter;
    const struct removal *r;
    uint32_t uid, seq;
    t_array_init(&bound, 16);
    if (scan_bound_uids(l->s, l->x->folder, &bound) < 0)
        return -1;
    array_foreach (&l->in->removals, r) {
        if (r->folder == l->x->folder)
            seq_range_array_remove(&bound, r->uid);
    }
    *all_r = TRUE;
    seq_range_array_iter_init(&iter, &bound);
    for (unsigned i = 0; *all_r && seq_range_array_iter_nth(&iter, i, &uid); i++) {
        if (!mail_index_lookup_seq(l->box->view, uid, &seq))
            seq_range_array_add(lost, uid);
        else if (uid < l->x->at.uid_next) /* what came since the last scan came after them */
            *all_r = FALSE;
    }
    return 0;
}

static int vanished_to_damage(struct mailbox_scan *l, const ARRAY_TYPE(seq_range) * lost)
{
    struct seq_range_iter iter;
    uint32_t uid;
    session_note(l->s, NOTE_WARNING,
                 "%s: all %u mails are gone though no client removed them: they are placed again",
                 l->x->vname, seq_range_count(lost));
    array_clear(&l->x->quarantine);
    l->x->vanished = 0;
    seq_range_array_iter_init(&iter, lost);
    for (unsigned i = 0; seq_range_array_iter_nth(&iter, i, &uid); i++)
        if (scan_changed(l, orset_local_missing(l->s->os, l->x->folder, uid)) < 0)
            return -1;
    return 0;
}

/* Files of a directory that is being removed go one after the other: what is gone is judged when
 * it stayed so for a while. Until then the cursor stays, so that the next scan finds the same. */
static bool wait_for_more(struct mailbox_scan *l, unsigned n)
{
    struct box *x = l->x;
    time_t now = time(NULL);
    if (x->vanished != n || now < x->vanished_since) { /* or the clock was set back */
        x->vanished = n;
        x->vanished_since = now;
    }
    if (now - x->vanished_since > (time_t)(l->s->group->brake_wait / 1000))
        return FALSE;
    l->log.end = x->at;
    l->again = TRUE;
    l->s->scan_again = TRUE;
    session_want_tick(l->s, 1000);
    return TRUE;
}

/* An admin decides on what he was told of, and on no more: each time that more is quarantined,
 * the log says how much it is now. */
static void hold(struct mailbox_scan *l, unsigned n)
{
    struct box *x = l->x;
    seq_range_array_merge(&x->quarantine, &l->vanished);
    session_note(l->s, NOTE_WARNING,
                 "%s: %u mails are gone though no client removed them (%s): %u are held; "
                 "decide with doveadm dovelane accept or restore",
                 x->vname, n, l->log.verdict == LOG_SCAN_GAP ? l->log.why : "found by a sync",
                 seq_range_count(&x->quarantine));
}

int scan_brake(struct mailbox_scan *l)
{
    struct session *s = l->s;
    struct box *x = l->x;
    unsigned n = seq_range_count(&l->vanished);
    uint32_t share = (uint32_t)((uint64_t)(l->messages + n) * s->group->brake_percent / 100);
    uint32_t most = I_MAX(s->group->brake_count, share);
    struct seq_range_iter iter;
    struct removal removal = {.folder = x->folder};
    ARRAY_TYPE(seq_range) lost;
    time_t now = time(NULL);
    bool all;
    if (n == 0) {
        x->vanished = 0;
        return 0;
    }
    t_array_init(&lost, 16);
    /* After a gap in the log they may as well have been a client's: who empties a mailbox does
     * it all at once. */
    if (all_vanished(l, &lost, &all) < 0)
        return -1;
    if (all && l->log.verdict != LOG_SCAN_GAP)
        return vanished_to_damage(l, &lost);
    if (l->log.verdict == LOG_SCAN_UNBROKEN && wait_for_more(l, n))
        return 0;
    x->vanished = 0;
    if (now < x->brake_since || now - x->brake_since >= BRAKE_SECS) {
        x->brake_since = now;
        x->brake_used = 0;
    }
    if (array_count(&x->quarantine) > 0 || x->brake_used + n > most || n > l->messages) {
        hold(l, n);
        return 0;
    }
    x->brake_used += n;
    seq_range_array_iter_init(&iter, &l->vanished);
    for (unsigned i = 0; seq_range_array_iter_nth(&iter, i, &removal.uid); i++) {
        struct orset_message m;
        int r = orset_message_by_uid(s->os, x->folder, removal.uid, &m);
        if (r < 0)
            return session_core_failed(s, x->vname);
        if (r == 0)
            continue;
        memcpy(removal.guid, m.facts.guid, sizeof removal.guid);
        array_push_back(&l->in->removals, &removal);
    }
    return 0;
}
