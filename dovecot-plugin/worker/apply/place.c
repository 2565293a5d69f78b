/* place - mails that the state has and a mailbox has not: saved from a local copy of the same
 * GUID, from the body that came with the op, or from the spool; else the body is asked for. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/protocol/parcel.h"
#include "dovecot-plugin/worker/apply/apply.h"
#include "dovecot-plugin/worker/apply/write_intent.h"
#include "dovecot-plugin/worker/bodies/body.h"
#include "dovecot-plugin/worker/bodies/body_requests.h"
#include "dovecot-plugin/worker/bodies/identity.h"
#include "dovecot-plugin/worker/bodies/patience.h"
#include "dovecot-plugin/worker/bodies/plan.h"
#include "dovecot-plugin/worker/session/crash.h"
#include "dovecot-plugin/worker/session/flags.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/mdbox.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/rows.h"
#include "dovecot-plugin/worker/session/session.h"
#include "dovecot-plugin/worker/session/sync.h"

#include <array.h>
#include <guid.h>
#include <istream.h>
#include <mail-storage-private.h>
#include <maildir-keywords.h>
#include <maildir-uidlist.h>
#include <seq-range-array.h>
#include <sort.h>

#include <time.h>

#define FAR (2 * PARCEL_WANTS_MAX) /* what is asked for lies within so many of the plan */
#define AT_ONCE PARCEL_MAILS_MAX   /* mails in one transaction: all that a batch brings */

struct item {
    struct orset_task task;
    struct orset_flags seen;
    uint32_t asked, uid; /* 0: the next one; it got */
    unsigned at;         /* in the plan */
    bool saved, spooled; /* from the spool */
};

struct placing {
    struct session *s;
    scan_fn *scan;
    uint32_t folder;
    struct box *x;
    struct mailbox *box;
    struct mailbox_transaction_context *trans;
    struct box *from; /* what was copied from last, NULL: nothing was; and it, */
    struct mailbox *source;
    struct mailbox_transaction_context *source_trans; /* NULL: it could not be opened */
    struct orset_folder f;
    uint32_t uid_next, asked;
    bool has_uidlist, has_keywords; /* files of a Maildir, when it was opened */
    struct item *item;
    unsigned n, nsaved, room;
    struct body_requests *wants;
    pool_t pool;     /* of the run's texts */
    unsigned at;     /* in the plan, of the row in flight */
    unsigned handed; /* bodies of the parcel in work that were saved or kept */
    struct plan_mailbox *mailbox;
    bool blocked;  /* a mail that comes before those that follow may still come */
    bool stopped;  /* and it may be one that is not in the plan */
    bool again;    /* rows went meanwhile: begin anew */
    bool relooked; /* once more at a mailbox that was rebuilt */
    bool failed;   /* a body was here and could not be saved */
};

/* The mailbox is left alone for the rest of this pass; others are not. */
static void failed(struct placing *p)
{
    p->failed = p->x->pass.failed = TRUE;
}

/* --- saving ----------------------------------------------------------------------------------- */

/* copy: the source's GUID comes with it, and only then a storage links instead of copying bytes. */
static struct mail_save_context *save_init(struct placing *p, const struct orset_task *t,
                                           struct mail_keywords **keywords, bool copy)
{
    const struct orset_facts *facts = &t->message.facts;
    struct mail_save_context *ctx = mailbox_save_alloc(p->trans);
    enum mail_flags flags;
    guid_128_t guid;
    flags_to_dovecot(p->s, p->box, &t->flags, &flags, keywords);
    mailbox_save_set_flags(ctx, flags, *keywords);
    /* Never below UIDNEXT, where Dovecot gives another one without a word; never far above it
     * (F32). */
    p->asked = 0;
    if (t->uid >= p->uid_next && t->uid - p->uid_next <= ORSET_UID_JUMP &&
        t->uid <= ORSET_UID_MAX) {
        mailbox_save_set_uid(ctx, t->uid);
        p->uid_next = t->uid + 1;
        p->asked = t->uid;
    }
    memcpy(guid, facts->guid, sizeof guid);
    if (!copy)
        mailbox_save_set_guid(ctx, facts->guid_text_len > 0
                                       ? t_strndup(facts->guid_text, facts->guid_text_len)
                                       : guid_128_to_string(guid));
    mailbox_save_set_received_date(ctx, (time_t)facts->received, 0);
    mailbox_save_set_save_date(ctx, (time_t)facts->saved);
    if (p->f.peer_modseq != 0)
        mailbox_save_set_min_modseq(ctx, p->f.peer_modseq + 1);
    return ctx;
}

static void close_source(struct placing *p)
{
    if (p->source_trans != NULL)
        session_read_end(&p->source_trans);
    if (p->source != NULL && p->source != p->box)
        mailbox_free(&p->source);
    p->source = NULL;
    p->from = NULL;
}

/* It stays open for the mails that come next: a Maildir would be read, and its list of UIDs
 * written, for each. */
static void open_source(struct placing *p, struct box *from)
{
    if (p->from == from)
        return;
    close_source(p);
    p->from = from;
    p->source = from == p->x ? p->box : session_mailbox(p->s, from->vname, MAILBOX_FLAG_READONLY);
    /* The one we save into is open, and must not be synced now. */
    if (p->source == p->box || session_open_mailbox(p->s, from, p->source) == 0)
        p->source_trans = mailbox_transaction_begin(p->source, 0, "dovelane copy");
}

/* 1: copied; 0: there is nothing to copy; -1: it failed */
static int copy_from(struct placing *p, const struct orset_task *t)
{
    struct session *s = p->s;
    struct box *from = t->source_uid == 0 ? NULL : box_of_folder(s, t->source_folder);
    struct mail_keywords *keywords;
    const char *guid;
    guid_128_t hash;
    int r = 0;
    if (from == NULL || from->gone || from->vname == NULL)
        return 0;
    open_source(p, from);
    struct mail *mail =
        p->source_trans == NULL ? NULL : mail_by_uid(p->source_trans, t->source_uid);
    if (mail == NULL)
        return 0;
    if (mail_get_special(mail, MAIL_FETCH_GUID, &guid) == 0) {
        mail_generate_guid_128_hash(guid, hash);
        /* The source's GUID says which mail it is, not which bytes: those of another delivery,
         * or of a file that was edited or rotted, or that cannot be read, are asked for. */
        if (memcmp(hash, t->message.facts.guid, 16) == 0 &&
            body_is_of(mail, t->message.facts.sha256)) {
            struct mail_save_context *ctx = save_init(p, t, &keywords, TRUE);
            r = copy_mail(&ctx, mail) < 0 ? -1 : 1;
            if (keywords != NULL)
                mailbox_keywords_unref(&keywords);
        }
    }
    mail_free(&mail);
    return r;
}

#define AGAIN_FIRST 1000 /* milliseconds, doubling */
#define AGAIN_LAST 30000
#define FAILING_MAX 1000

static struct failing *failing_of(struct session *s, const struct orset_task *t)
{
    struct failing *f;
    array_foreach_modifiable (&s->failing, f) {
        if (f->folder == t->folder && f->dot.origin == t->message.dot.origin &&
            f->dot.counter == t->message.dot.counter)
            return f;
    }
    return NULL;
}

static bool is_to_wait(struct session *s, const struct orset_task *t)
{
    const struct failing *f = failing_of(s, t);
    uint64_t now = clock_msecs();
    if (f == NULL || f->again <= now)
        return FALSE;
    session_want_tick(s, (unsigned)(f->again - now));
    return TRUE;
}

static void try_later(struct session *s, const struct orset_task *t)
{
    struct failing *f = failing_of(s, t), fresh = {t->folder, t->message.dot, AGAIN_FIRST / 2, 0};
    if (f == NULL) {
        if (array_count(&s->failing) == FAILING_MAX)
            array_pop_front(&s->failing);
        array_push_back(&s->failing, &fresh);
        f = array_back_modifiable(&s->failing);
    }
    f->wait = I_MIN(f->wait * 2, AGAIN_LAST);
    f->again = clock_msecs() + f->wait;
    session_want_tick(s, f->wait);
}

static void saved_after_all(struct session *s, const struct orset_task *t)
{
    struct failing *f = array_count(&s->failing) == 0 ? NULL : failing_of(s, t);
    if (f != NULL)
        array_delete(&s->failing, array_ptr_to_idx(&s->failing, f), 1);
}

static void ask_for(struct placing *p, const struct orset_task *t, unsigned at)
{
    struct plan_item *item = plan_item(p->s, at);
    const struct body_request *body = body_request_add(p->wants, &t->message, at + 1);
    item->until = body == NULL ? 0 : (uint32_t)body_request_until(body);
    item->given_up = p->mailbox->impatient || (body != NULL && body_request_is_vain(p->s, body));
    if (item->given_up)
        body_request_given_up(p->wants);
    p->blocked = p->blocked || !item->given_up;
}

/* One before it is not here yet. What came with a parcel is kept until that one has come, or is
 * given up. */
static void later(struct placing *p, const struct orset_task *t, unsigned at)
{
    struct session *s = p->s;
    struct plan_item *item = plan_item(s, at);
    const uint8_t *sha256 = t->message.facts.sha256;
    if (s->bodies != NULL && bodies_has(s->bodies, sha256)) {
        p->handed++;
        item->bodies = spool_keep(s, sha256);
    } else if (t->source_uid != 0 || spool_has(s, sha256)) {
        item->bodies = TRUE;
    } else {
        ask_for(p, t, at);
    }
}

static int save_item(struct placing *p, struct item *item)
{
    struct orset_task *t = &item->task;
    struct mail_keywords *keywords;
    if (array_count(&p->s->failing) > 0 && is_to_wait(p->s, t)) {
        plan_item(p->s, item->at)->given_up = TRUE;
        return 0;
    }
    if (p->blocked) {
        later(p, t, item->at);
        return 0;
    }
    int r = copy_from(p, t);
    if (r == 0) {
        struct istream *in = body_open(p->s, t->message.facts.sha256);
        if (in == NULL) {
            ask_for(p, t, item->at);
            return 0;
        }
        bool handed = p->s->bodies != NULL && bodies_has(p->s->bodies, t->message.facts.sha256);
        p->handed += handed;
        item->spooled = !handed;
        struct mail_save_context *ctx = save_init(p, t, &keywords, FALSE);
        sync_gather();
        r = save_stream(ctx, in) < 0 ? -1 : 1;
        sync_let();
        if (keywords != NULL)
            mailbox_keywords_unref(&keywords);
        i_stream_unref(&in);
    }
    if (r < 0) {
        session_note(p->s, NOTE_WARNING, "%s: a mail cannot be saved and waits: %s", p->x->vname,
                     mailbox_get_last_internal_error(p->box, NULL));
        failed(p);
        try_later(p->s, t);
        return 0;
    }
    flags_holdable(p->s, p->box, &t->flags, &item->seen);
    item->asked = p->asked;
    item->saved = TRUE;
    p->nsaved++;
    return 0;
}

/* Claims first, rising: a mail without one takes what is left behind them. */
static int by_claim(const struct item *a, const struct item *b)
{
    uint32_t x = a->task.uid != 0 ? a->task.uid : UINT32_MAX,
             y = b->task.uid != 0 ? b->task.uid : UINT32_MAX;
    if (x != y)
        return x < y ? -1 : 1;
    return a->task.message.claim < b->task.message.claim
               ? -1
               : a->task.message.claim > b->task.message.claim;
}

static int say_writing(struct placing *p, struct write_intent *w)
{
    for (unsigned i = 0; i < p->n; i++) {
        const struct item *item = &p->item[i];
        if (item->saved)
            write_intent_add(w, item->asked, item->task.message.folder, item->task.message.dot,
                             &item->seen);
    }
    if (session_begin(p->s) < 0)
        return -1;
    if (write_intent_put(p->s, p->x, w) < 0) {
        session_rollback(p->s);
        return -1;
    }
    return session_commit(p->s);
}

/* A Maildir that is being removed, file by file: mails saved now would stand there with letters
 * for keywords that the next keyword gets, or twice. Rather they wait for a scan of what is
 * left. */
static bool is_going(struct placing *p)
{
    if ((!p->has_uidlist || maildir_has(p->box, MAILDIR_UIDLIST_NAME)) &&
        (!p->has_keywords || maildir_has(p->box, MAILDIR_KEYWORDS_NAME)))
        return FALSE;
    session_note(p->s, NOTE_WARNING,
                 "%s: the Maildir is going while mails are saved there: they wait", p->x->vname);
    p->s->index_lost = p->s->scan_again = TRUE;
    session_want_tick(p->s, 100);
    return TRUE;
}

/* All that were about to be saved are tried again later, each for itself. */
static void wait_all(struct placing *p)
{
    failed(p);
    for (unsigned i = 0; i < p->n; i++) {
        if (p->item[i].saved)
            try_later(p->s, &p->item[i].task);
    }
    p->nsaved = 0;
}

/* -1: which UIDs they got is not known; the next ingest finds out. */
static int save_items(struct placing *p)
{
    struct mail_transaction_commit_changes changes;
    struct seq_range_iter iter;
    struct write_intent w;
    unsigned n = 0;
    p->trans = mailbox_transaction_begin(
        p->box,
        MAILBOX_TRANSACTION_FLAG_EXTERNAL | MAILBOX_TRANSACTION_FLAG_ASSIGN_UIDS |
            MAILBOX_TRANSACTION_FLAG_SYNC | MAILBOX_TRANSACTION_FLAG_NO_NOTIFY,
        "dovelane place");
    write_intent_begin(&w, p->box, WRITE_INTENT_PLACE);
    for (unsigned i = 0; i < p->n; i++) {
        T_BEGIN
        {
            (void)save_item(p, &p->item[i]);
        }
        T_END;
    }
    close_source(p);
    int said = 0;
    if (sync_gathered() < 0) {
        session_note(p->s, NOTE_WARNING, "%s: mails cannot be saved and wait: fsync(): %m",
                     p->x->vname);
        wait_all(p);
    } else if (p->nsaved > 0) {
        said = say_writing(p, &w);
    }
    write_intent_free(&w);
    if (p->nsaved == 0 || said < 0) {
        mailbox_transaction_rollback(&p->trans);
        if (said < 0)
            failed(p);
        p->nsaved = 0;
        return said;
    }
    crash_at("place-said");
    if (is_going(p)) {
        mailbox_transaction_rollback(&p->trans);
        p->x->all = TRUE;
        wait_all(p);
        return -1;
    }
    if (mailbox_transaction_commit_get_changes(&p->trans, &changes) < 0) {
        session_note(p->s, NOTE_WARNING, "%s: mails cannot be saved and wait: %s", p->x->vname,
                     mailbox_get_last_internal_error(p->box, NULL));
        p->x->all = TRUE;
        wait_all(p);
        return -1;
    }
    seq_range_array_iter_init(&iter, &changes.saved_uids);
    for (unsigned i = 0; i < p->n; i++)
        if (p->item[i].saved && !seq_range_array_iter_nth(&iter, n++, &p->item[i].uid))
            p->item[i].uid = 0;
    pool_unref(&changes.pool);
    return mailbox_sync(p->box, 0) < 0 ? -1 : 0;
}

/* The state has it of an exchange that has not ended: the answers come by a hash, not by UID. */
static bool is_told_in_part(const struct session *s, const struct orset_task *t)
{
    return t->message.dot.counter > orset_vector_get(s->os, t->message.dot.origin);
}

/* --- one mailbox's run ------------------------------------------------------------------------ */

static int place_done(struct placing *p)
{
    struct session *s = p->s;
    bool first = FALSE;
    int e = 0;
    if (session_begin(s) < 0)
        return -1;
    for (unsigned i = 0; i < p->n && e >= 0; i++) {
        const struct item *item = &p->item[i];
        if (!item->saved || item->uid == 0)
            continue;
        saved_after_all(s, &item->task);
        first = first || (item->at == p->mailbox->at && !is_told_in_part(s, &item->task));
        session_explain(s, "%s: UID %u: a mail of another site, saved with %s", p->x->vname,
                        item->uid, flags_text(s, &item->seen));
        e = orset_done_place(s->os, item->task.message.folder, item->task.message.dot, item->uid,
                             &item->seen);
    }
    if (e < 0)
        session_core_failed(s, p->x->vname);
    if (e < 0 || (first && patience_renew(s, p->folder) < 0) || write_intent_end(s, p->x) < 0) {
        session_rollback(s);
        return -1;
    }
    if (session_commit(s) < 0)
        return -1;
    for (unsigned i = 0; i < p->n; i++) {
        if (!p->item[i].saved)
            continue;
        if (p->item[i].spooled) /* or another one of the same bytes waits for its turn */
            spool_drop(s, p->item[i].task.message.facts.sha256);
        if (p->item[i].uid == 0)
            continue;
        s->placed++;
        s->placed_bytes += p->item[i].task.message.facts.size;
        plan_done(s, p->item[i].at);
    }
    return 0;
}

static int open_and_save(struct placing *p)
{
    struct mailbox_status status;
    int r = 0;
    p->box = session_mailbox(p->s, p->x->vname, 0);
    if (session_open_mailbox(p->s, p->x, p->box) < 0 || mailbox_sync(p->box, 0) < 0 ||
        mailbox_get_status(p->box, STATUS_UIDNEXT, &status) < 0 ||
        (p->f.peer_modseq != 0 && session_enable_modseq(p->box) < 0)) {
        if (!session_box_is_locked(p->s, p->box))
            session_note(p->s, NOTE_WARNING, "%s: cannot be opened: %s", p->x->vname,
                         mailbox_get_last_internal_error(p->box, NULL));
        failed(p);
    } else if (mdbox_is(p->box) && mdbox_is_other(p->s, p->x, p->box)) {
        /* What a rebuild put back would be there twice. */
        p->x->now.scanned = FALSE;
        if (p->relooked)
            failed(p);
        p->again = !p->relooked;
        p->relooked = TRUE;
    } else if (p->x->saver != 0 || write_intent_unfinished(p->s, p->x) ||
               rows_say_saving(p->s, p->box, p->x) < 0) {
        failed(p); /* it could not be looked at; what is there of these mails is not known */
        p->s->cut_short = p->s->cut_short || p->x->saver != 0;
    } else {
        p->uid_next = status.uidnext;
        p->has_uidlist = maildir_has(p->box, MAILDIR_UIDLIST_NAME);
        p->has_keywords = maildir_has(p->box, MAILDIR_KEYWORDS_NAME);
        crash_at("saving");
        i_qsort(p->item, p->n, sizeof *p->item, by_claim);
        p->x->now.scanned = FALSE;
        if (save_items(p) == 0 && p->nsaved > 0) {
            crash_at("place");
            r = place_done(p);
        }
        p->x->now.scanned = r == 0 && !p->x->pass.failed;
    }
    mailbox_free(&p->box);
    return r;
}

static int place_run(struct placing *p)
{
    int r = 0;
    p->x = box_of_folder(p->s, p->folder);
    if (p->x != NULL && !p->x->now.scanned && p->x->pass.failed) {
        ; /* what it has is not known, and will not be by looking at once again */
    } else if (p->n > 0 && p->x != NULL && !p->x->gone && !p->x->now.scanned) {
        /* Perhaps saved by a run that was killed before the state knew: those are found by their
         * GUID first (F13). */
        p->again = TRUE;
        r = p->scan(p->s, p->x);
        if (!p->x->now.scanned)
            failed(p);
    } else if (p->n > 0 && p->x != NULL && !p->x->gone && p->x->vname != NULL &&
               orset_folder_get(p->s->os, p->folder, &p->f) == 0) {
        T_BEGIN
        {
            r = open_and_save(p);
        }
        T_END;
    }
    p->n = p->nsaved = 0;
    p_clear(p->pool);
    return r;
}

static void keep_item(struct placing *p, const struct orset_task *t)
{
    if (p->n == p->room) {
        unsigned room = p->room == 0 ? 16 : p->room * 2;
        p->item = i_realloc(p->item, p->room * sizeof *p->item, room * sizeof *p->item);
        p->room = room;
    }
    struct item *item = &p->item[p->n++];
    struct orset_facts *facts = &item->task.message.facts;
    i_zero(item);
    memcpy(&item->task, t, offsetof(struct orset_task, at) + t->at_len);
    item->at = p->at;
    p->folder = t->folder;
    /* Points into the core until its next call. */
    if (facts->guid_text_len > 0)
        facts->guid_text = p_strndup(p->pool, facts->guid_text, facts->guid_text_len);
}

static void add_row(struct placing *p, const struct orset_task *t, int *r)
{
    const struct orset_facts *facts = &t->message.facts;
    if ((p->n > 0 && t->folder != p->folder) || p->n == AT_ONCE) {
        /* It points into the core, which the run calls. */
        char *guid =
            facts->guid_text_len > 0 ? i_strndup(facts->guid_text, facts->guid_text_len) : NULL;
        struct orset_task copy;
        memcpy(&copy, t, offsetof(struct orset_task, at) + t->at_len);
        copy.message.facts.guid_text = guid;
        *r = place_run(p);
        keep_item(p, &copy);
        i_free(guid);
        return;
    }
    keep_item(p, t);
}

static void placing_begin(struct placing *p, struct session *s, uint64_t ask, scan_fn *scan)
{
    struct box *const *x;
    i_zero(p);
    p->s = s;
    p->scan = scan;
    array_foreach (&s->boxes, x)
        (*x)->pass.failed = FALSE;
    p->wants = body_requests_begin(s, ask);
    p->pool = pool_alloconly_create("placing", 1024);
}

static void placing_end(struct placing *p)
{
    body_requests_end(&p->wants);
    p->s->unplaced = plan_left(p->s);
    if (p->failed)
        session_want_tick(p->s, 5000);
    pool_unref(&p->pool);
    i_free(p->item);
}

/* The answer with its body may still come, or its body is here and it is not its turn: what its
 * message says need not be read. */
static bool nothing_to_do(struct placing *p, struct plan_item *item, time_t now)
{
    if (p->blocked && item->bodies)
        return TRUE;
    if (item->until <= (uint32_t)now)
        return FALSE;
    item->given_up = item->given_up || p->mailbox->impatient;
    if (!item->given_up)
        body_request_awaited(p->wants);
    p->blocked = p->blocked || !item->given_up;
    return TRUE;
}

static bool is_here(struct placing *p, const struct orset_task *t)
{
    const uint8_t *sha256 = t->message.facts.sha256;
    return t->source_uid != 0 || (p->s->bodies != NULL && bodies_has(p->s->bodies, sha256)) ||
           spool_has(p->s, sha256);
}

/* Mails of lower UID may be unknown: it waits for the exchange's end, as for a body. */
static bool waits_for_exchange(const struct placing *p, const struct orset_task *t)
{
    return is_told_in_part(p->s, t) && !p->mailbox->impatient && !plan_item(p->s, p->at)->given_up;
}

/* One mail's turn, but for those who are here only because something arrived: what has not
 * arrived is not asked for again. */
static int place_next(struct placing *p, struct orset_task *t, unsigned at, bool arrived)
{
    struct plan_item *item = plan_item(p->s, at);
    int r = 0;
    t->at_len = item->row_len;
    memcpy(t->at, item->row, item->row_len);
    int got = orset_task_get(p->s->os, t);
    p->at = at;
    if (got < 0)
        r = session_core_failed(p->s, "todo");
    else if (got == 0)
        plan_done(p->s, at);
    else if (waits_for_exchange(p, t)) {
        r = place_run(p); /* those before it need not wait */
        p->blocked = p->stopped = TRUE;
    } else if (arrived && !is_here(p, t))
        p->blocked = p->blocked || !item->given_up;
    else if (p->blocked)
        later(p, t, at);
    else
        add_row(p, t, &r);
    return r;
}

/* All that came with the parcel in work is saved or kept. */
static bool all_arrived(struct placing *p, int *r)
{
    unsigned n = bodies_count(p->s->bodies);
    if (p->handed + p->n >= n && p->n > 0)
        *r = place_run(p);
    return p->handed >= n;
}

/* arrived: no further than what came with the parcel in work. */
static int place_mailbox(struct placing *p, struct orset_task *t, struct plan_mailbox *m,
                         bool arrived)
{
    struct session *s = p->s;
    const struct box *x = box_of_folder(s, m->folder);
    time_t now = time(NULL);
    int r = 0;
    p->blocked = p->stopped = FALSE;
    p->mailbox = m;
    m->impatient = patience_is_over(s, m->folder);
    while (m->at < m->end && plan_item(s, m->at)->row_len == 0)
        m->at++;
    if (x == NULL || x->gone || x->vname == NULL)
        return 0;
    for (unsigned i = m->at; i < m->end && !(p->blocked && body_requests_full(p->wants)); i++) {
        struct plan_item *item = plan_item(s, i);
        if (arrived && (i - m->at >= FAR || all_arrived(p, &r)))
            break;
        if (r == 0 && item->row_len > 0 && !nothing_to_do(p, item, now))
            r = place_next(p, t, i, arrived);
        if (r < 0 || p->stopped)
            break;
    }
    r = r == 0 ? place_run(p) : r;
    if (p->stopped)
        session_want_tick(s, 10000); /* the exchange's end does not wait for it */
    return r == 0 && p->blocked ? patience_begin(s, m->folder) : r;
}

static int place(struct session *s, uint64_t ask, scan_fn *scan, bool arrived, bool silent)
{
    struct orset_task *t = i_new(struct orset_task, 1);
    struct placing p;
    unsigned n;
    int r = 0;
    placing_begin(&p, s, ask, scan);
    if (silent)
        body_requests_silent(p.wants);
    do {
        p.again = FALSE;
        p.handed = 0;
        if ((r = plan_refresh(s)) < 0)
            break;
        struct plan_mailbox *m = plan_mailboxes(s, &n);
        for (unsigned i = 0; i < n && r == 0; i++)
            r = place_mailbox(&p, t, &m[i], arrived);
    } while (r == 0 && p.again);
    placing_end(&p);
    i_free(t);
    return r;
}

int place_arrived(struct session *s, uint64_t ask, scan_fn *scan)
{
    return place(s, ask, scan, TRUE, FALSE);
}

int place_expect(struct session *s, scan_fn *scan)
{
    return place(s, 0, scan, FALSE, TRUE);
}

int place_apply(struct session *s, uint64_t ask, scan_fn *scan)
{
    s->arrived = 0;
    int r = place(s, ask, scan, FALSE, FALSE);
    s->uncounted = s->uncounted && r < 0;
    return r;
}
