/* scan - one mailbox: opened, what was begun there ended, its log read, and then its mails one by
 * one (scan_present.c, scan_missing.c). */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/orset/ops/match_mails.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/worker/apply/apply.h"
#include "dovecot-plugin/worker/apply/modseq_repair.h"
#include "dovecot-plugin/worker/apply/write_intent.h"
#include "dovecot-plugin/worker/ingest/guids.h"
#include "dovecot-plugin/worker/ingest/pass.h"
#include "dovecot-plugin/worker/ingest/reading.h"
#include "dovecot-plugin/worker/ingest/scan.h"
#include "dovecot-plugin/worker/logs/index_log_replay.h"
#include "dovecot-plugin/worker/logs/log.h"
#include "dovecot-plugin/worker/logs/verdict.h"
#include "dovecot-plugin/worker/metadata/metadata.h"
#include "dovecot-plugin/worker/session/crash.h"
#include "dovecot-plugin/worker/session/lasting.h"
#include "dovecot-plugin/worker/session/lived.h"
#include "dovecot-plugin/worker/session/mdbox.h"
#include "dovecot-plugin/worker/session/modseq_floor.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/retry.h"
#include "dovecot-plugin/worker/session/rows.h"
#include "dovecot-plugin/worker/session/sdbox.h"
#include "dovecot-plugin/worker/session/session.h"
#include "dovecot-plugin/worker/session/validity.h"

#include <array.h>
#include <mail-index-modseq.h>
#include <mail-index-private.h>
#include <mail-storage-private.h>
#include <seq-range-array.h>

#include <time.h>

/* A rewound state does not know that a mail got another UID since: a client asked for that one's
 * expunge then. */
static bool is_renumbered(struct mailbox_scan *l, const uint8_t guid[16])
{
    const struct unbound *u;
    array_foreach (&l->unbound, u) {
        if (memcmp(u->guid, guid, sizeof u->guid) == 0)
            return TRUE;
    }
    return FALSE;
}

static int adopted_removed(struct mailbox_scan *l, uint32_t uid, const uint8_t *named)
{
    uint8_t guid[16];
    uint32_t seq;
    int r = mail_index_lookup_seq(l->box->view, uid, &seq)
                ? 0
                : orset_task_doomed_guid(l->s->os, l->x->adopted - 1, uid, guid);
    if (r <= 0 || is_renumbered(l, guid) ||
        (named != NULL && memcmp(named, guid, sizeof guid) != 0))
        return r < 0 ? scan_changed(l, r) : 0;
    r = orset_local_expunge_moved(l->s->os, l->x->adopted - 1, uid);
    if (r == ORSET_OK)
        session_explain(
            l->s,
            "%s: UID %u: removed, as a client asked before this folder was another site's, too",
            l->x->vname, uid);
    return scan_changed(l, r);
}

/* Of a mailbox that was another folder's: what clients expunged behind the cursor is bound to
 * nothing any more, and would be placed again. */
static int scan_adopted(struct mailbox_scan *l)
{
    const ARRAY_TYPE(seq_range) *requested =
        l->log.verdict == LOG_SCAN_BROKEN ? &l->said.requested : &l->log.by_clients;
    const struct expunged_mail *asked;
    struct seq_range_iter iter;
    uint32_t uid;
    seq_range_array_iter_init(&iter, requested);
    for (unsigned i = 0; seq_range_array_iter_nth(&iter, i, &uid); i++)
        if (adopted_removed(l, uid, NULL) < 0)
            return -1;
    array_foreach (&l->log.asked, asked) {
        if (adopted_removed(l, asked->uid, asked->guid) < 0)
            return -1;
    }
    return 0;
}

/* Messages whose mail is not there under its UID come first: so a mail that got another UID
 * finds its message unplaced. */
static int scan_uids(struct mailbox_scan *l)
{
    if (l->x->rewound && l->log.verdict != LOG_SCAN_BROKEN && scan_collect_unbound(l) < 0)
        return -1;
    if (l->locked)
        return 0;
    if (l->x->adopted != 0 && scan_adopted(l) < 0)
        return -1;
    if (l->x->now.elsewhere && scan_elsewhere(l) < 0)
        return -1;
    for (int present = 0; present < 2; present++) {
        struct seq_range_iter iter;
        if (present != 0 && !l->x->now.elsewhere &&
            (l->log.verdict == LOG_SCAN_BROKEN || l->x->saver != 0) &&
            scan_changed(l, orset_join_begin(l->s->os, l->x->folder, &l->join) < 0
                                ? ORSET_E_STORAGE
                                : ORSET_KNOWN) < 0)
            return -1;
        uint32_t uid;
        seq_range_array_iter_init(&iter, &l->uids);
        for (unsigned i = 0; seq_range_array_iter_nth(&iter, i, &uid); i++) {
            int r = 0;
            T_BEGIN
            {
                bool is = mail_set_uid(l->mail, uid);
                if (is && present != 0)
                    r = scan_present(l, uid);
                else if (present == 0)
                    r = is ? scan_other(l, uid) : scan_missing(l, uid);
            }
            T_END;
            if (r < 0 || l->locked)
                return r;
        }
    }
    return 0;
}

static int end_join(struct mailbox_scan *l)
{
    unsigned united, left;
    if (l->join == NULL || l->log.verdict != LOG_SCAN_BROKEN)
        return 0;
    int r = orset_join_end(l->s->os, l->join, &united, &left);
    if (r >= 0 && united + left > 0)
        session_note(l->s, NOTE_INFO,
                     "%s: %u mails are the same as another site's; %u more when that site says so",
                     l->x->vname, united, left);
    return scan_changed(l, r);
}

static void wait_until(struct mailbox_scan *l, const char *what)
{
    l->in->locked = l->x->now.waits = l->s->scan_again = TRUE;
    session_explain(l->s, "%s: %s; it waits", l->x->vname, what);
}

/* Which mails these are cannot be known now. What is known by now stays known; all else is found
 * again by the next scan. */
static void scan_later(struct mailbox_scan *l)
{
    l->x->all = TRUE;
    l->x->now.scanned = FALSE;
    l->x->at.stamp = 0;
    wait_until(l, "its dovecot-uidlist is locked");
}

/* What was begun in the mailbox and is not known to have ended: the log says what became of it,
 * and then what clients did since. The row goes at the end of the scan: which mails were about
 * to move is asked by all of it. 0: it cannot be known now; -1 */
static int end_begun(struct mailbox_scan *l)
{
    struct session *s = l->s;
    struct orset_key k = rows_folder_key(l->x->folder);
    const uint8_t *row;
    size_t len;
    int r = rows_get(s, ROW_RENUMBER, k.b, k.n, &row, &len);
    if (r < 0)
        return -1;
    /* A row of no bytes, as earlier versions left it where nothing was to be expunged, goes with
     * the scan's end. */
    const uint8_t *copy = r > 0 && len > 0 ? p_memdup(pool_datastack_create(), row, len) : NULL;
    if ((r > 0 || l->x->saver != 0 || l->x->writing.seq != 0) && !session_sync_whole(s, l->box))
        return 0;
    if (r > 0) {
        l->all = l->begun = TRUE; /* where they went is perhaps not known */
        if (copy != NULL && (r = renumber_recover(s, l->box, l->x, copy, len, &l->moving)) <= 0)
            return r;
    }
    if (log_scan(s, l->box, l->x, &l->log) < 0)
        return -1;
    l->x->restored = l->x->restored || l->log.restored;
    if (l->log.verdict == LOG_SCAN_BROKEN) {
        index_log_replay_read(s, l->box, l->log.rebuilt ? &l->x->at : NULL, &l->log, &l->said,
                              &l->backups);
        if (l->log.anew && l->said.goes_on)
            seq_range_array_merge(&l->said.requested, &l->log.by_clients);
        if (l->log.anew)
            array_append_array(&l->said.flag_changes, &l->log.flag_changes);
    }
    return l->x->writing.seq != 0 && write_intent_recover(s, l->box, l->x, &l->log) < 0 ? -1 : 1;
}

static int begun_ended(struct mailbox_scan *l)
{
    struct orset_key k = rows_folder_key(l->x->folder);
    if (!l->begun)
        return 0;
    session_note(l->s, NOTE_INFO, "%s: ended a change of UIDs that was cut short", l->x->vname);
    return rows_del(l->s, ROW_RENUMBER, k.b, k.n);
}

/* Clients know it, under the same UIDVALIDITY, as one that it is not, whose modseqs went further.
 * Until it goes on above them, its own say nothing to others. */
static int tell_modseqs(struct mailbox_scan *l)
{
    struct session *s = l->s;
    const struct cursor *at = &l->x->at;
    uint64_t lo = l->all || l->x->adopted != 0 ? 0 : l->log.lowest_modseq,
             hi = l->log.highest_modseq, floor;
    bool another = l->log.verdict == LOG_SCAN_BROKEN && l->x->adopted == 0;
    if (another && at->uid_validity == l->log.end.uid_validity && modseq_floor_keep(s, l->x) < 0)
        return -1;
    if (modseq_floor_get(s, l->x->folder, &floor) < 0)
        return -1;
    if (lo < floor) {
        lo = 0;
        hi = I_MAX(hi, floor);
    }
    scan_modseqs_begin(s, l->x->folder, lo, hi);
    return another && mail_index_modseq_get_highest(l->box->view) < floor
               ? modseq_repair_anew(s, l->x, floor)
               : 0;
}

static int choose_uids(struct mailbox_scan *l)
{
    struct mailbox_status status;
    mailbox_get_open_status(l->box, STATUS_MESSAGES | STATUS_UIDNEXT, &status);
    l->messages = status.messages;
    if (l->log.verdict != LOG_SCAN_UNBROKEN || l->x->all || l->x->saver != 0)
        l->all = TRUE;
    if (tell_modseqs(l) < 0)
        return -1;
    if (!l->all) {
        array_append_array(&l->uids, &l->log.touched);
        return 0;
    }
    if (l->x->at.hash != 0 && l->log.why != NULL)
        session_note(l->s, l->log.verdict == LOG_SCAN_BROKEN ? NOTE_WARNING : NOTE_INFO,
                     "%s: comparing the whole mailbox: %s", l->x->vname, l->log.why);
    for (uint32_t seq = 1; seq <= l->messages; seq++) {
        mail_set_seq(l->mail, seq);
        seq_range_array_add(&l->uids, l->mail->uid);
    }
    seq_range_array_merge(&l->uids, &l->x->quarantine);
    return scan_bound_uids(l->s, l->x->folder, &l->uids);
}

/* A mailbox that never had a mail takes the UIDVALIDITY of the other sites', also a lower one:
 * here it was made by whoever logged in first, and there it may have been in use for long. As
 * long as a site has not read its mailboxes, or has not answered this state yet, it is not known
 * whether it has that one. Where the state knows of an earlier UIDNEXT, it is the index that was
 * lost, and a client may know mails by the lower numbers; as it may those of another one that
 * had the name and the UIDVALIDITY. */
static bool gives_way(struct mailbox_scan *l)
{
    struct session *s = l->s;
    struct orset_folder f;
    uint32_t own = l->log.end.uid_validity;
    if (l->log.end.uid_next > 1 || l->messages > 0 || seq_range_count(&l->uids) > 0 ||
        orset_folder_get(s->os, l->x->folder, &f) < 0 || f.uid_next > 1 || f.uid_validity >= own)
        return FALSE;
    if (f.uid_validity == 0) {
        bool waits = peers_may_know_older(s);
        if (waits)
            wait_for_peers(s);
        return waits;
    }
    uint32_t lived;
    if (orset_namesakes_uid_next(s->os, l->x->folder) > 1 ||
        lived_uid_next(s, f.name, f.name_len, f.uid_validity, &lived) < 0 || lived > 1 ||
        !validity_set(l->box, f.uid_validity, 0))
        return FALSE;
    session_note(s, NOTE_INFO,
                 "%s: never had a mail: UIDVALIDITY %u becomes %u, as on the other sites",
                 l->x->vname, own, f.uid_validity);
    l->x->at.stamp = 0;
    l->x->all = s->scan_again = TRUE;
    session_want_tick(s, 100);
    return TRUE;
}

/* Before its mails: a site that has no such mailbox makes it with this one, not with a younger
 * one that all would take. */
static int say_validity(struct mailbox_scan *l)
{
    struct session *s = l->s;
    struct orset_folder f;
    if (orset_folder_get(s->os, l->x->folder, &f) == 0 &&
        lived_before(s, &f, l->log.end.uid_validity) < 0)
        return -1;
    int r = orset_local_uid_validity(s->os, l->x->folder, l->log.end.uid_validity, time(NULL));
    if (r == ORSET_E_LIMIT) {
        session_note(s, NOTE_WARNING, "%s: %s", l->x->vname, orset_error_text(s->os));
        r = ORSET_KNOWN;
    }
    return scan_changed(l, r);
}

/* Who set or unset one is told by the log of this index. Of another index, what is missing went
 * with the one before; so it did where this one's log is there from its first record on, and
 * tells of nobody; and what is there may be a backup's, but for what its log says of the time
 * since. Where a part of the log is gone, who unset it may have stood there. */
static int scan_attributes(struct mailbox_scan *l, bool all)
{
    struct session *s = l->s;
    bool unbroken = l->log.verdict == LOG_SCAN_UNBROKEN && l->x->adopted == 0,
         broken = l->log.verdict == LOG_SCAN_BROKEN || l->x->adopted != 0;
    if (l->x->adopted == 0 &&
        attributes_ingest_changed(s, l->box, l->x->folder, &l->log.attributes,
                                  broken && !l->log.complete, l->x->rewound) < 0)
        return -1;
    if ((all || !unbroken) &&
        attributes_ingest(s, l->box, l->x->folder,
                          broken || l->x->restored ? ATTRIBUTES_OTHER : ATTRIBUTES_UNSAID) < 0)
        return -1;
    return unbroken ? 0 : attributes_restore(s, l->box, l->x->folder, broken || l->log.begins);
}

static int scan_mailbox(struct mailbox_scan *l)
{
    struct session *s = l->s;
    t_array_init(&l->uids, 16);
    p_array_init(&l->vanished, l->pool, 4);
    p_array_init(&l->guids, l->pool, 4);
    p_array_init(&l->unbound, l->pool, 4);
    p_array_init(&l->renumbered, l->pool, 4);
    p_array_init(&l->seconds, l->pool, 4);
    if (l->x->now.rebuilt && !l->x->restored) {
        p_array_init(&l->expunged, l->pool, 16);
        if (mdbox_expunged_load(s, l->x->folder, &l->expunged) < 0)
            return -1;
    }
    l->x->all = l->x->all || l->x->at.indexid == 0;
    if (choose_uids(l) < 0)
        return -1;
    crash_at("scan");
    l->x->now.waits = FALSE;
    bool again = l->x->all, elsewhere = l->x->now.elsewhere;
    l->x->all = FALSE;
    if (!elsewhere && gives_way(l))
        return 0;
    if ((!elsewhere && say_validity(l) < 0) || scan_uids(l) < 0)
        return -1;
    if (l->locked) {
        scan_later(l);
        return 0;
    }
    if (end_join(l) < 0 || scan_brake(l) < 0)
        return -1;
    if (l->missing > 0)
        session_note(s, NOTE_WARNING,
                     "%s: %u mails are missing though no client removed them (%s): they are "
                     "fetched back from the other sites",
                     l->x->vname, l->missing,
                     l->log.why != NULL ? l->log.why : "their files are gone");
    if (!elsewhere && scan_attributes(l, again) < 0)
        return -1;
    if (array_count(&l->guids) > 0 && guids_restore(s, l->box, &l->guids) < 0)
        l->other = TRUE;
    if (l->other) {
        l->log.end.indexid = 0;
        s->scan_again = TRUE;
        (void)session_retry(s, "compare", l->x->vname, 1000);
    }
    if (rows_saved(s, l->x) < 0 || begun_ended(l) < 0)
        return -1;
    l->x->now.scanned = TRUE;
    l->x->restored = l->x->rewound = l->x->now.rebuilt = l->x->now.lost = l->x->now.doubted = FALSE;
    l->x->adopted = 0;
    struct scanned_mailbox scanned = {
        .x = l->x, .cursor = l->log.end, .was = l->was, .end = log_end(l->box)};
    array_push_back(&l->in->scanned, &scanned);
    struct orset_folder f;
    l->x->now.behind = orset_folder_get(s->os, l->x->folder, &f) == 0 &&
                       f.uid_next > l->log.end.uid_next && l->log.end.indexid != 0;
    return scan_changed(l, orset_local_uid_next(s->os, l->x->folder, l->log.end.uid_next) < 0
                               ? ORSET_E_STORAGE
                               : ORSET_KNOWN);
}

static bool is_another(const struct box *x, struct mailbox *box)
{
    return x->at.indexid == 0 ? x->now.lost : !log_is_known(box, &x->at);
}

/* False: it cannot be opened now. */
static bool mend(struct mailbox_scan *l)
{
    int r = 0;
    if (mdbox_is(l->box))
        r = mdbox_mend(l->s, l->box, is_another(l->x, l->box));
    else if (sdbox_is(l->box) && is_another(l->x, l->box))
        r = sdbox_mend(l->s, l->box);
    return r == 0 || (r > 0 && session_open_mailbox(l->s, l->x, l->box) == 0);
}

int scan_box(struct mailbox_scan *l)
{
    struct session *s = l->s;
    i_assert(orset_in_transaction(s->os) && !l->box->opened);
    /* dbox is complete in its log; a Maildir shows deliveries and other programs' doings only
     * after a sync. */
    bool sync = l->maildir = is_maildir(l->box);
    if (session_open_mailbox(s, l->x, l->box) < 0 || (sync && mailbox_sync(l->box, 0) < 0)) {
        enum mail_error error;
        const char *text = mailbox_get_last_internal_error(l->box, &error);
        bool lost = session_index_is_lost(s, l->x, l->box);
        /* Which mailboxes there are is the tree's to find out; one that cannot be read says
         * nothing. */
        l->x->at.stamp = 0;
        if (session_box_is_going(s, l->box))
            wait_until(l, "it is being deleted, which may be refused yet");
        else if (error == MAIL_ERROR_NOTFOUND)
            s->tree_changed = l->x->now.waits = TRUE;
        else if (session_box_is_locked(s, l->box))
            wait_until(l, "its dovecot-uidlist is locked");
        else if (lost)
            l->in->locked = TRUE;
        else {
            lasting_note(s, LASTING_CLOSED, l->x->vname, "%s cannot be read and waits: %s",
                         l->x->vname, text);
            l->closed = TRUE;
            s->no_outside = FALSE; /* a removal looks for what cannot be opened, too */
        }
        return 0;
    }
    lasting_over(s, LASTING_CLOSED, l->x->vname);
    if (mail_index_get_header(l->box->view)->uid_validity == 0) {
        s->scan_again = TRUE; /* still being made */
        (void)session_retry(s, "made", l->x->vname, 1000);
        return 0;
    }
    /* A Maildir whose dovecot-uidlist was lost has another one, and new UIDs in the same index:
     * its log says that all mails went and others came. */
    if (sync && !session_is_box(s, l->x, l->box)) {
        l->x->at.stamp = 0;
        l->x->now.waits = TRUE;
        return 0;
    }
    if (!mend(l)) {
        l->in->locked = l->x->now.waits = TRUE;
        l->x->at.stamp = 0;
        return 0;
    }
    l->x->now.log_seq = log_end(l->box).seq;
    t_array_init(&l->moving, 4);
    t_array_init(&l->said.requested, 4);
    t_array_init(&l->said.flag_changes, 4);
    i_array_init(&l->backups, 1);
    int begun = end_begun(l);
    if (begun == 0)
        scan_later(l);
    if (begun <= 0) {
        index_log_replay_forget(&l->backups);
        return begun;
    }
    l->trans =
        mailbox_transaction_begin(l->box, MAILBOX_TRANSACTION_FLAG_NO_CACHE_DEC, "dovelane ingest");
    l->mail = mail_alloc(l->trans, 0, NULL);
    l->pool = pool_alloconly_create("look", 1024);
    int r = scan_mailbox(l);
    if (l->join != NULL)
        orset_join_free(s->os, l->join);
    mail_free(&l->mail);
    session_read_end(&l->trans);
    /* Not done: what said so is to be found again. */
    if (r >= 0 && !l->locked && array_count(&l->seconds) > 0 && scan_expunge_seconds(l) < 0) {
        struct scanned_mailbox *last =
            array_idx_modifiable(&l->in->scanned, array_count(&l->in->scanned) - 1);
        last->cursor = l->x->at;
    } else if (r >= 0 && !l->locked) {
        index_log_replay_pass(&l->backups, &l->in->backups);
    }
    index_log_replay_forget(&l->backups);
    pool_unref(&l->pool);
    return r;
}
