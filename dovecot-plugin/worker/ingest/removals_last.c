/* removals_last - what a scan found removed becomes ops behind all that it found added (F17): a mail
 * that was moved is never removed before it is there.
 *
 * So a peer that loses this site between two parcels still has the mail, and copies it instead
 * of asking for its body. What cannot leave yet, since a mailbox or a mail that may be the moved
 * one could not be read, is found again by a later scan: the cursor stays where it was, the
 * journal of deletions is kept, and the INBOX keeps the GUID of the mailbox that was renamed. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/worker/ingest/pass.h"
#include "dovecot-plugin/worker/ingest/scan.h"
#include "dovecot-plugin/worker/session/lasting.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/mdbox.h"
#include "dovecot-plugin/worker/session/modseq_floor.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/retry.h"
#include "dovecot-plugin/worker/session/rows.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <mail-storage-private.h>
#include <seq-range-array.h>

/* --- what has to wait ------------------------------------------------------------------------- */

static int by_guid(const struct mail_guid *a, const struct mail_guid *b)
{
    return memcmp(a->guid, b->guid, sizeof a->guid);
}

/* They are sorted. */
static bool is_among(ARRAY_TYPE(mail_guid) * guids, const uint8_t guid[16])
{
    struct mail_guid wanted;
    memcpy(wanted.guid, guid, sizeof wanted.guid);
    return array_bsearch(guids, &wanted, by_guid) != NULL;
}

static bool is_unread(struct ingest *in, const uint8_t guid[16])
{
    i_assert(in->unread_sorted == array_count(&in->unread));
    return is_among(&in->unread, guid);
}

static void sort_unread(struct ingest *in)
{
    if (in->unread_sorted != array_count(&in->unread))
        array_sort(&in->unread, by_guid);
    in->unread_sorted = array_count(&in->unread);
}

struct search {
    struct ingest *in;
    bool found;
};

static int find_among(void *arg, const struct orset_message *m, const struct orset_flags *own)
{
    struct search *search = arg;
    (void)own;
    search->found = m->uid != 0 && is_unread(search->in, m->facts.guid);
    return search->found;
}

/* 1: a mail of the mailbox was found elsewhere, and could not be read there; 0; -1 */
static int any_unread(struct session *s, struct ingest *in, const struct box *x)
{
    struct search search = {.in = in};
    for (uint32_t i = 0; array_count(&in->unread) > 0 && !search.found && i < orset_folders(s->os);
         i++) {
        struct orset_folder f;
        if (orset_folder_get(s->os, i, &f) == 0 && f.home == x->folder &&
            orset_each_message(s->os, i, find_among, &search) < 0)
            return session_core_failed(s, x->vname);
    }
    return search.found;
}

/* As if the mailbox had not been looked at: but what came into it is an op. */
static void scan_undone(struct scanned_mailbox *l)
{
    struct box *x = l->x;
    x->all = x->all || l->was.all;
    x->rewound = l->was.rewound;
    x->restored = x->restored || l->was.restored;
    x->now.rebuilt = x->now.rebuilt || l->was.now.rebuilt;
    x->now.lost = x->now.lost || l->was.now.lost;
    x->adopted = l->was.adopted;
    x->brake_since = l->was.brake_since;
    x->brake_used = l->was.brake_used;
    x->vanished = l->was.vanished;
    x->vanished_since = l->was.vanished_since;
    x->now.reasserted = l->end;
    x->at.stamp = 0;
}

static void postpone_removals(struct ingest *in, uint32_t folder)
{
    struct scanned_mailbox *l;
    bool undone = FALSE;
    array_foreach_modifiable (&in->scanned, l) {
        if (l->x->folder != folder)
            continue;
        if (!undone && !l->undone)
            scan_undone(l);
        undone = l->undone = TRUE; /* of several looks the first one's begin counts */
    }
    in->postponed = TRUE;
}

/* --- where they may have gone ----------------------------------------------------------------- */

/* Of all mails but those with the UIDs of but (NULL: of all). -1: they cannot be read now. */
static int read_guids(struct mailbox *box, const ARRAY_TYPE(seq_range) * but,
                      ARRAY_TYPE(mail_guid) * guids)
{
    struct mailbox_status status;
    int r = 0;
    if (mailbox_sync(box, 0) < 0)
        return -1;
    mailbox_get_open_status(box, STATUS_MESSAGES, &status);
    struct mailbox_transaction_context *trans =
        mailbox_transaction_begin(box, MAILBOX_TRANSACTION_FLAG_NO_CACHE_DEC, "dovelane inbox");
    struct mail *mail = mail_alloc(trans, MAIL_FETCH_GUID, NULL);
    for (uint32_t seq = 1; r == 0 && seq <= status.messages; seq++) {
        const char *text;
        struct mail_guid g;
        mail_set_seq(mail, seq);
        if (but != NULL && seq_range_exists(but, mail->uid))
            continue;
        if ((r = mail_get_special(mail, MAIL_FETCH_GUID, &text)) == 0) {
            mail_generate_guid_128_hash(text, g.guid);
            array_push_back(guids, &g);
        }
    }
    mail_free(&mail);
    session_read_end(&trans);
    return r;
}

/* x: whose mailbox it must be, or NULL. False: not now. */
static bool read_mailbox(struct session *s, const char *vname, const struct box *x,
                         const ARRAY_TYPE(seq_range) * but, ARRAY_TYPE(mail_guid) * guids)
{
    struct mailbox *box = session_mailbox(s, vname, MAILBOX_FLAG_READONLY);
    bool is = session_open_refreshed(box) == 0 && (x == NULL || session_is_box(s, x, box));
    int r = is ? read_guids(box, but, guids) : -1;
    if (r < 0 && !session_box_is_locked(s, box)) {
        lasting_note(s, "removals", vname, "%s cannot be read, and removals wait: %s", vname,
                     mailbox_get_last_internal_error(box, NULL));
        s->scan_again = TRUE;
        (void)session_retry(s, "removals", vname, 1000);
    }
    if (r == 0)
        lasting_over(s, "removals", vname);
    mailbox_free(&box);
    return r == 0;
}

/* Mails that are beyond a bound are those that no message is bound to. */
static int read_beyond(struct session *s, struct ingest *in, struct box *x)
{
    ARRAY_TYPE(seq_range) bound;
    unsigned before = array_count(&in->unread);
    t_array_init(&bound, 16);
    if (scan_bound_uids(s, x->folder, &bound) < 0)
        return -1;
    if (!read_mailbox(s, x->vname, x, &bound, &in->unread))
        in->locked = TRUE;
    else if (array_count(&in->unread) == before)
        x->beyond = FALSE;
    return 0;
}

static int read_those_outside(struct session *s, struct ingest *in)
{
    char **name;
    struct box *const *x;
    array_foreach_modifiable (&in->outside, name) {
        if (!read_mailbox(s, *name, NULL, NULL, &in->unread))
            in->locked = TRUE;
        i_free(*name);
    }
    array_clear(&in->outside);
    if (in->beyond)
        return 0;
    in->beyond = TRUE;
    array_foreach (&s->boxes, x) {
        bool there = !(*x)->gone && !(*x)->now.leaving && !(*x)->pass.absent && (*x)->vname != NULL;
        if (there && (*x)->beyond && read_beyond(s, in, *x) < 0)
            return -1;
    }
    return 0;
}

/* A mail that was moved to where it is not replicated, into a mailbox that is not or beyond a
 * bound of one that is, is removed nowhere else: the peers would have it no more. Read when
 * something is to be removed, and else not. */
static int read_outside(struct session *s, struct ingest *in)
{
    int r = read_those_outside(s, in);
    sort_unread(in);
    return r;
}

/* --- removals --------------------------------------------------------------------------------- */

struct other_copy {
    uint32_t uid;
    bool found;
};

static int find_other_copy(void *arg, const struct orset_message *m, const struct orset_flags *own)
{
    struct other_copy *other = arg;
    (void)own;
    other->found = m->uid != 0 && m->uid != other->uid;
    return other->found;
}

/* Of a mailbox that has more copies of a mail than are replicated all but the last one may go: then
 * there is room for the others. 1, 0, -1 */
static int makes_room(struct session *s, const struct removal *r, const uint8_t guid[16])
{
    struct box *x = box_by_folder(s, r->folder);
    struct other_copy other = {.uid = r->uid};
    if (x == NULL || !x->beyond)
        return 0;
    if (orset_each_copy(s->os, r->folder, guid, find_other_copy, &other) < 0)
        return -1;
    if (other.found) {
        x->all = s->scan_again = TRUE;
        (void)session_retry(s, "room", x->vname, 1000);
    }
    return other.found;
}

/* 1: it has to wait for a copy that cannot be read; 0; -1 */
static int mail_leaves(struct session *s, struct ingest *in, const struct removal *r)
{
    struct orset_message m;
    int got = in->locked ? 0 : orset_message_by_uid(s->os, r->folder, r->uid, &m), goes = 1;
    if (got > 0 && is_unread(in, m.facts.guid))
        goes = makes_room(s, r, m.facts.guid);
    if (goes < 0)
        return session_core_failed(s, "expunge");
    if (in->locked || goes == 0 || unseen_holds(in)) {
        postpone_removals(in, r->folder);
        return goes == 0;
    }
    if (got > 0 && memcmp(m.facts.guid, r->guid, sizeof r->guid) != 0)
        return 0; /* the mailbox is another one since */
    if (got > 0 && r->mdbox && mdbox_expunged(s, r->folder, m.facts.guid) < 0)
        return -1;
    return got < 0 || orset_local_expunge(s->os, r->folder, r->uid) < 0
               ? session_core_failed(s, "expunge")
               : 0;
}

/* They may wait for good: nobody mends a spoilt file. */
static void say_held(struct session *s, const struct removal *first, unsigned n)
{
    struct box *x = box_by_folder(s, first->folder);
    session_note(s, NOTE_INFO,
                 "%s: UID %u was removed (%u so): the other sites keep it while a possible copy of "
                 "it cannot be read, or is not replicated",
                 x == NULL || x->vname == NULL ? "a deleted folder" : x->vname, first->uid, n);
}

int mails_leave(struct session *s, struct ingest *in)
{
    const struct removal *r, *first = NULL;
    unsigned held = 0;
    if (array_count(&in->removals) > 0 && unseen_holds(in))
        unseen_wait(s, in);
    if (array_count(&in->removals) > 0 && read_outside(s, in) < 0)
        return -1;
    array_foreach (&in->removals, r) {
        int waits = mail_leaves(s, in, r);
        if (waits < 0)
            return -1;
        held += (unsigned)waits;
        first = first == NULL && waits > 0 ? r : first;
    }
    if (held > 0)
        say_held(s, first, held);
    return 0;
}

/* --- the INBOX that was renamed --------------------------------------------------------------- */

/* stay: what was moved back stays, and is bound by its GUID; so does what cannot be read where
 * it is. */
static int inbox_mails_leave(struct session *s, struct box *x, ARRAY_TYPE(mail_guid) * stay)
{
    ARRAY_TYPE(seq_range) uids;
    struct seq_range_iter iter;
    struct orset_message m;
    uint32_t uid;
    t_array_init(&uids, 16);
    if (scan_bound_uids(s, x->folder, &uids) < 0)
        return -1;
    seq_range_array_iter_init(&iter, &uids);
    for (unsigned i = 0; seq_range_array_iter_nth(&iter, i, &uid); i++) {
        int r = orset_message_by_uid(s->os, x->folder, uid, &m);
        if (r > 0)
            r = is_among(stay, m.facts.guid) ? orset_local_missing(s->os, x->folder, uid)
                                             : orset_local_expunge(s->os, x->folder, uid);
        if (r < 0)
            return session_core_failed(s, x->vname);
    }
    return 0;
}

/* What was still to be removed from it is in the other folder by now; in the new one the same
 * UIDs are other mails. */
static int forget_removes(struct session *s, const struct box *x)
{
    struct orset_task *t = i_new(struct orset_task, 1);
    int got = 1, r = 0;
    t->at[0] = ORSET_TASK_REMOVE;
    t->at_len = 1;
    while (r >= 0 && (got = orset_task_next(s->os, t)) > 0 && t->kind == ORSET_TASK_REMOVE)
        if (t->folder == x->folder)
            r = orset_done_remove(s->os, x->folder, t->uid);
    i_free(t);
    return r < 0 || got < 0 ? session_core_failed(s, x->vname) : 0;
}

int inbox_leave(struct session *s, struct ingest *in)
{
    struct box *x = box_by_folder(s, ORSET_INBOX);
    ARRAY_TYPE(mail_guid) stay;
    if (x == NULL || !x->now.leaving || in->locked)
        return 0;
    if (unseen_holds(in)) {
        unseen_wait(s, in);
        return 0;
    }
    if (read_outside(s, in) < 0)
        return -1;
    t_array_init(&stay, 16);
    array_append_array(&stay, &in->unread);
    const struct box *to = x->next_guid; /* one that was deleted since has nothing to read */
    if ((to != NULL && !to->now.leaving && !to->now.scanned && to->at.indexid == 0) ||
        (in->inbox && !read_mailbox(s, "INBOX", NULL, NULL, &stay))) {
        in->locked = TRUE; /* where its mails are could not be read */
        return 0;
    }
    array_sort(&stay, by_guid);
    if (inbox_mails_leave(s, x, &stay) < 0 || forget_removes(s, x) < 0)
        return -1;
    if (modseq_floor_keep(s, x) < 0)
        return -1;
    box_set_guid(s, x, NULL);
    box_unread(x);
    x->now.leaving = x->now.waits = FALSE;
    return rows_put_box(s, x) < 0 ? -1 : 1;
}

/* --- mailboxes that were deleted -------------------------------------------------------------- */

int mailboxes_leave(struct session *s, struct ingest *in)
{
    ARRAY(struct box *) boxes; /* some are forgotten by the way */
    struct box *const *x;
    t_array_init(&boxes, 16);
    array_append_array(&boxes, &s->boxes);
    array_foreach (&boxes, x) {
        if ((*x)->now.leaving && read_outside(s, in) < 0)
            return -1;
        bool waits = in->locked || unseen_holds(in) || (*x)->folder == ORSET_INBOX;
        if ((*x)->now.leaving && unseen_holds(in))
            unseen_wait(s, in);
        int r = !(*x)->now.leaving ? 0 : waits ? 1 : any_unread(s, in, *x);
        if (r > 0)
            ingest_stays(in, *x);
        if (r < 0 || (r == 0 && (*x)->now.leaving && box_say_deleted(s, *x) < 0))
            return -1;
    }
    return 0;
}
