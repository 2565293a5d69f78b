/* apply - flags, removals, and what has a name: what the mailboxes still lack of them.
 *
 * Each step is: mailbox commit, then the state's done row; after a crash between, ingest finds
 * the mailbox's side by GUID or UID and binds it (F13). What cannot be done stays a row, is
 * counted and retried (F14). */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/worker/apply/apply.h"
#include "dovecot-plugin/worker/apply/modseq_repair.h"
#include "dovecot-plugin/worker/apply/write_intent.h"
#include "dovecot-plugin/worker/bodies/identity.h"
#include "dovecot-plugin/worker/kept/kept.h"
#include "dovecot-plugin/worker/metadata/metadata.h"
#include "dovecot-plugin/worker/session/crash.h"
#include "dovecot-plugin/worker/session/flags.h"
#include "dovecot-plugin/worker/session/lasting.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/mdbox.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/retry.h"
#include "dovecot-plugin/worker/session/rows.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <guid.h>
#include <mail-storage-private.h>
#include <seq-range-array.h>

#define AT_ONCE 1000 /* messages in one mailbox transaction */

/* A row's key begins with its kind as one byte. */
static void task_from(struct orset_task *t, enum orset_task_kind kind)
{
    t->at[0] = (uint8_t)kind;
    t->at_len = 1;
}

/* --- runs of rows in one mailbox -------------------------------------------------------------- */

struct item {
    uint32_t uid;
    struct orset_flags seen;
    bool done;
    bool expunged; /* from an mdbox, that GUID */
    guid_128_t guid;
};

struct run {
    struct session *s;
    uint32_t folder;
    struct box *x;
    struct mailbox *box;
    struct mailbox_transaction_context *trans;
    ARRAY(struct item) items;
    struct write_intent writing;
    struct keeping keeping;
    uint64_t before; /* HIGHESTMODSEQ */
    scan_fn *scan;
    bool behind; /* a mail has other flags than it was seen with */
};

static int run_open(struct run *r)
{
    r->x = box_of_folder(r->s, r->folder);
    if (r->x == NULL || r->x->gone || r->x->vname == NULL || r->x->now.waits)
        return 0;
    r->box = session_mailbox(r->s, r->x->vname, 0);
    if (session_open_mailbox(r->s, r->x, r->box) < 0) {
        if (!session_box_is_locked(r->s, r->box))
            lasting_note(r->s, LASTING_CLOSED, r->x->vname, "%s cannot be read and waits: %s",
                         r->x->vname, mailbox_get_last_internal_error(r->box, NULL));
        mailbox_free(&r->box);
        return 0;
    }
    if (!identity_head(r->s, r->x, r->box)) {
        mailbox_free(&r->box);
        return 0;
    }
    return 1;
}

static void run_begin(struct run *r, const char *why)
{
    r->before = modseq_repair_begin(r->box);
    r->trans = mailbox_transaction_begin(
        r->box, MAILBOX_TRANSACTION_FLAG_SYNC | MAILBOX_TRANSACTION_FLAG_NO_NOTIFY, why);
}

/* -1: nothing of it was done, the rows stay. */
static int run_commit(struct run *r)
{
    if (mailbox_transaction_commit(&r->trans) < 0 || mailbox_sync(r->box, 0) < 0) {
        (void)session_box_is_locked(r->s, r->box);
        session_note(r->s, NOTE_WARNING, "%s: %s", r->x->vname,
                     mailbox_get_last_internal_error(r->box, NULL));
        return -1;
    }
    return 0;
}

/* What was done is to be seen behind the modseqs of all sites. In a transaction. */
static int run_written(struct run *r)
{
    const struct item *item;
    int e;
    T_BEGIN
    {
        ARRAY_TYPE(seq_range) uids;
        t_array_init(&uids, 16);
        array_foreach (&r->items, item) {
            if (item->done)
                seq_range_array_add(&uids, item->uid);
        }
        e = modseq_repair_written(r->s, r->x, r->box, &uids, r->before);
    }
    T_END;
    return e;
}

static int core_or_rollback(struct session *s, int r)
{
    if (r >= 0)
        return 0;
    session_core_failed(s, "apply");
    session_rollback(s);
    return -1;
}

/* --- flags ------------------------------------------------------------------------------------ */

static void store_some(struct run *r, struct mail *mail, enum modify_type how,
                       const struct orset_flags *some)
{
    enum mail_flags flags;
    struct mail_keywords *keywords;
    flags_to_dovecot(r->s, r->box, some, &flags, &keywords);
    if (flags != 0)
        mail_update_flags(mail, how, flags);
    if (keywords != NULL) {
        mail_update_keywords(mail, how, keywords);
        mailbox_keywords_unref(&keywords);
    }
}

/* Only what differs is touched, so that a client's change of another flag or keyword at this
 * moment stands. */
static void store_flags(struct run *r, struct mail *mail, const struct orset_flags *now,
                        const struct orset_flags *wanted)
{
    struct orset_flags set = *wanted, cut = *now;
    flags_without(&set, now);
    flags_without(&cut, wanted);
    store_some(r, mail, MODIFY_ADD, &set);
    store_some(r, mail, MODIFY_REMOVE, &cut);
}

/* A client's change that no scan has told is none to write over: a scan comes first. 1; 0; -1 */
static int is_as_seen(struct run *r, uint32_t uid, const struct orset_flags *now)
{
    struct orset_flags seen;
    int got = orset_flags_seen(r->s->os, r->folder, uid, &seen);
    bool differs = got > 0 && !flags_equal(&seen, now);
    r->behind = r->behind || differs;
    return differs ? 0 : got;
}

static int flags_item(struct run *r, struct item *item)
{
    struct orset_flags now, named, wanted;
    struct orset_message m;
    struct session *s = r->s;
    int got = orset_message_by_uid(s->os, r->folder, item->uid, &m);
    struct mail *mail = got <= 0 ? NULL : mail_by_uid(r->trans, item->uid);
    if (mail == NULL)
        return I_MIN(got, 0);
    if (!identity_allows(s, r->x, mail, m.facts.guid, m.facts.sha256)) {
        mail_free(&mail);
        return 0;
    }
    flags_of_mail(s, mail, &now);
    named = now;
    got = flags_drop_nameless(s, r->box, &named) ? 1 : is_as_seen(r, item->uid, &now);
    if (got > 0 && (got = orset_message_by_uid(s->os, r->folder, item->uid, &m)) > 0 &&
        (got = orset_message_flags(s->os, m.folder, m.dot, &wanted)) >= 0) {
        store_flags(r, mail, &now, &wanted);
        session_explain(s, "%s: UID %u: has %s, by what other sites did it is to have %s",
                        r->x->vname, item->uid, flags_text(s, &now), flags_text(s, &wanted));
        flags_holdable(s, r->box, &wanted, &item->seen);
        write_intent_add(&r->writing, item->uid, 0, (struct orset_dot){0, 0}, &item->seen);
        item->done = TRUE;
    }
    mail_free(&mail);
    return got;
}

/* What was written is what the mailbox was seen with, not what it has by now: a client's change
 * since then is an op of the next scan. */
static int flags_done(struct run *r)
{
    struct session *s = r->s;
    const struct item *item;
    int e = 0;
    if (session_begin(s) < 0)
        return -1;
    array_foreach (&r->items, item) {
        if (!item->done || e < 0)
            continue;
        e = orset_done_flags(s->os, r->folder, item->uid, &item->seen);
        if (e == ORSET_E_ABSENT)
            e = 0;
    }
    if (core_or_rollback(s, e) < 0)
        return -1;
    if (write_intent_end(s, r->x) < 0 || run_written(r) < 0) {
        session_rollback(s);
        return -1;
    }
    return session_commit(s);
}

/* What is about to be written. */
static int flags_say(struct run *r)
{
    struct item *item;
    int e = 0;
    array_foreach_modifiable (&r->items, item) {
        if (e >= 0)
            e = flags_item(r, item);
    }
    if (core_or_rollback(r->s, e) < 0)
        return -1;
    if (write_intent_put(r->s, r->x, &r->writing) < 0) {
        session_rollback(r->s);
        return -1;
    }
    return session_commit(r->s);
}

static int flags_write(struct run *r)
{
    int opened = run_open(r);
    if (opened <= 0)
        return opened;
    if (write_intent_unfinished(r->s, r->x))
        return 0;
    if (session_begin(r->s) < 0)
        return -1;
    run_begin(r, "dovelane flags");
    write_intent_begin(&r->writing, r->box, WRITE_INTENT_FLAGS);
    int e = flags_say(r);
    write_intent_free(&r->writing);
    if (e < 0) {
        mailbox_transaction_rollback(&r->trans);
        return -1;
    }
    crash_at("flags-said");
    if (run_commit(r) < 0)
        return 0;
    crash_at("flags");
    return flags_done(r);
}

/* What clients did last is told by a scan, and by nothing else: else it would be told again when
 * one reads the log, as if no site had heard of it. */
static int flags_run(struct run *r)
{
    struct item *item;
    r->behind = FALSE;
    int e = flags_write(r);
    if (e < 0 || !r->behind)
        return e;
    mailbox_free(&r->box);
    if (r->scan(r->s, r->x) < 0)
        return -1;
    array_foreach_modifiable (&r->items, item)
        item->done = FALSE;
    r->behind = FALSE;
    e = flags_write(r);
    if (r->behind) { /* clients were faster once more */
        r->s->scan_again = TRUE;
        (void)session_retry(r->s, "flags", r->x->vname, 100);
    }
    return e;
}

/* --- removals --------------------------------------------------------------------------------- */

/* What a rebuild of an mdbox is not to bring back. mail NULL: it was expunged before the state
 * heard of it. */
static void say_guid(struct run *r, struct item *item, struct mail *mail)
{
    const char *guid;
    if (!mdbox_is(r->box))
        return;
    if (mail == NULL) {
        item->expunged =
            orset_task_doomed_guid(r->s->os, r->x->folder, item->uid, item->guid) > 0 &&
            !guid_128_is_empty(item->guid);
    } else if (mail_get_special(mail, MAIL_FETCH_GUID, &guid) == 0) {
        mail_generate_guid_128_hash(guid, item->guid);
        item->expunged = TRUE;
    }
}

/* What is to go from a folder whose mailbox is another one's by now tells the scan of that one
 * what was removed before. */
static bool is_being_adopted(struct session *s, uint32_t folder)
{
    struct box *const *x;
    array_foreach (&s->boxes, x) {
        if ((*x)->adopted == folder + 1)
            return TRUE;
    }
    return FALSE;
}

/* It was quarantined here and is removed by another site: nobody is to decide on it any more. */
static bool is_let_go(struct run *r, uint32_t uid)
{
    return r->x != NULL && seq_range_exists(&r->x->quarantine, uid) &&
           orset_message_by_uid(r->s->os, r->x->folder, uid, NULL) == 0 &&
           seq_range_array_remove(&r->x->quarantine, uid);
}

/* The row has the GUID of the mail that is to go. FALSE: the row stays. */
static bool remove_mail(struct run *r, struct item *item, struct mail *mail)
{
    struct session *s = r->s;
    guid_128_t guid;
    int got = orset_task_doomed_guid(s->os, r->folder, item->uid, guid);
    if (got > 0 && guid_128_is_empty(guid) && r->x->at.indexid == 0)
        return FALSE; /* it names no mail, and nobody has looked at this mailbox */
    enum identity is = got <= 0 ? IDENTITY_UNKNOWN : identity_of(s, mail, guid, NULL);
    if (is == IDENTITY_OTHER && r->x->folder != r->folder)
        return TRUE; /* the UID is one of a mailbox that became this one, where that mail is not */
    if (is != IDENTITY_SAME && is != IDENTITY_GONE) {
        identity_refuses(s, r->x, mail, is);
        return FALSE;
    }
    if (!keep_mail(&r->keeping, r->x, mail))
        return FALSE;
    say_guid(r, item, mail);
    session_explain(s, "%s: UID %u: expunged, since no site has it any more", r->x->vname,
                    item->uid);
    mail_expunge(mail);
    return TRUE;
}

static bool remove_item(struct run *r, struct item *item)
{
    bool done = TRUE;
    /* Two ids that became one mailbox: the mail lives there under the other id. */
    if (orset_message_by_uid(r->s->os, r->x->folder, item->uid, NULL) > 0)
        return TRUE;
    struct mail *mail = mail_by_uid(r->trans, item->uid);
    if (mail == NULL) {
        say_guid(r, item, NULL);
    } else {
        done = remove_mail(r, item, mail);
        mail_free(&mail);
    }
    return done;
}

static bool is_leaving_for_another(struct session *s, const struct box *x)
{
    struct orset_folder f;
    return x->now.elsewhere && orset_folder_get(s->os, x->folder, &f) == 0 && f.live &&
           f.home != x->folder;
}

/* A client may have changed mails of a mailbox that they leave for another one's, until they went.
 * That is told before their rows go, by which it is known whose mails they were. 1; 0: not now, the
 * rows stay; -1 */
static int look_behind(struct run *r)
{
    struct session *s = r->s;
    if (!is_leaving_for_another(s, r->x))
        return 1;
    if (r->scan(s, r->x) < 0)
        return -1;
    r->x = box_of_folder(s, r->folder); /* it may have been read again */
    if (r->x != NULL && r->x->now.elsewhere && !r->x->all && !r->x->now.waits)
        return 1;
    session_want_tick(s, 1000);
    return 0;
}

static int remove_run(struct run *r)
{
    struct session *s = r->s;
    struct item *item;
    int e = 0, looked;
    if (is_being_adopted(s, r->folder))
        return 0;
    int opened = run_open(r);
    if (opened < 0)
        return -1;
    if (opened > 0) {
        run_begin(r, "dovelane remove");
        keep_begin(&r->keeping, s);
        array_foreach_modifiable (&r->items, item) {
            item->done = remove_item(r, item);
        }
        if (keep_end(&r->keeping) < 0) {
            mailbox_transaction_rollback(&r->trans);
            return 0;
        }
        if (run_commit(r) < 0)
            return 0;
        crash_at("removed");
        if ((looked = look_behind(r)) <= 0)
            return looked;
    } else if (r->x != NULL && (!r->x->gone || r->x->now.waits)) {
        return 0; /* cannot be opened now */
    } else {
        array_foreach_modifiable (&r->items, item)
            item->done = TRUE; /* its mailbox is gone */
    }
    crash_at("remove");
    if (session_begin(s) < 0)
        return -1;
    array_foreach_modifiable (&r->items, item) {
        if (!item->done)
            continue;
        if (e >= 0)
            e = orset_done_remove(s->os, r->folder, item->uid);
        if (e >= 0 && kept_removed(s, r->folder, item->uid) < 0)
            e = ORSET_E_STORAGE;
        if (e >= 0 && is_let_go(r, item->uid) && rows_put_box(s, r->x) < 0)
            e = ORSET_E_STORAGE;
        if (e >= 0 && item->expunged && mdbox_expunged(s, r->x->folder, item->guid) < 0)
            e = ORSET_E_STORAGE;
    }
    if (e >= 0 && opened > 0 && run_written(r) < 0)
        e = ORSET_E_STORAGE;
    return core_or_rollback(s, e) < 0 ? -1 : session_commit(s);
}

/* --- rows to runs ----------------------------------------------------------------------------- */

static int run(struct run *r, int (*fn)(struct run *))
{
    int e = 0;
    if (array_count(&r->items) > 0) {
        T_BEGIN
        {
            e = fn(r);
        }
        T_END;
        if (r->box != NULL)
            mailbox_free(&r->box);
    }
    array_clear(&r->items);
    return e;
}

/* Collects rows of one kind and mailbox, at most AT_ONCE, and has them done. */
static int rows_apply(struct session *s, enum orset_task_kind kind, int (*fn)(struct run *),
                      scan_fn *scan)
{
    struct orset_task *t = i_new(struct orset_task, 1);
    struct run r = {.s = s, .scan = scan};
    int got, e = 0;
    i_array_init(&r.items, 16);
    task_from(t, kind);
    while (e == 0 && (got = orset_task_next(s->os, t)) > 0 && t->kind == kind) {
        if (t->folder != r.folder || array_count(&r.items) == AT_ONCE)
            e = run(&r, fn);
        r.folder = t->folder;
        struct item item = {.uid = t->uid};
        array_push_back(&r.items, &item);
    }
    if (e == 0)
        e = got < 0 ? session_core_failed(s, "todo") : run(&r, fn);
    array_free(&r.items);
    i_free(t);
    return e;
}

int flags_apply(struct session *s, scan_fn *scan)
{
    return rows_apply(s, ORSET_TASK_FLAGS, flags_run, scan);
}

int removals_apply(struct session *s, scan_fn *scan)
{
    s->kept.failed = 0;
    return rows_apply(s, ORSET_TASK_REMOVE, remove_run, scan);
}

/* Subscriptions and attributes: rows with names. 1: some wait. */
static int named_pass(struct session *s)
{
    struct orset_task *t = i_new(struct orset_task, 1);
    int got, e = 0, wait = 0;
    if (subscriptions_apply(s) < 0) {
        i_free(t);
        return -1;
    }
    task_from(t, ORSET_TASK_ATTRIBUTE);
    while (e == 0 && (got = orset_task_next(s->os, t)) > 0) {
        T_BEGIN
        {
            const char *name = p_memdup(pool_datastack_create(), t->name, t->name_len);
            if (t->kind == ORSET_TASK_ATTRIBUTE)
                e = attribute_apply(s, t->folder, name, t->name_len);
            wait |= e > 0;
            e = I_MIN(e, 0);
        }
        T_END;
    }
    i_free(t);
    return e < 0 ? -1 : got < 0 ? session_core_failed(s, "todo") : wait;
}

/* Which script is the active one can be said when it is there. */
int named_apply(struct session *s)
{
    int r = named_pass(s);
    if (r > 0 && (r = named_pass(s)) > 0)
        session_want_tick(s, 60000);
    return r;
}

void count_waiting(struct session *s)
{
    struct box *const *x;
    s->quarantined = 0;
    array_foreach (&s->boxes, x)
        s->quarantined += seq_range_count(&(*x)->quarantine);
    /* While it joins, each answer brings more, and it is known already that there are many. */
    bool many = is_joining(s) && s->unplaced >= UNPLACED_COUNTED;
    int n = s->uncounted && !many ? orset_unplaced(s->os, UNPLACED_COUNTED) : -1;
    if (n >= 0)
        s->unplaced = (uint64_t)n;
    s->uncounted = FALSE;
}
