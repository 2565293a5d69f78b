/* renumber - mails that should have another UID (F31), or other bytes under the same GUID: a new
 * copy inside the mailbox.
 *
 *     a row says which mails are about to get which UID, and where the mailbox's log ended the
 *     mails are copied inside the mailbox, under their new UIDs the state binds them there; the row
 *     says which UIDs are about to be expunged the old UIDs are expunged: a transaction of its own,
 *     since what an external one expunges no storage deletes the row goes
 *
 * After a crash ingest finds the row and ends what it names: renumber_recover(). What clients
 * say of the old UIDs meanwhile, and later, is said of the new ones: moved_add(). */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/worker/apply/apply.h"
#include "dovecot-plugin/worker/apply/write_intent.h"
#include "dovecot-plugin/worker/bodies/body.h"
#include "dovecot-plugin/worker/bodies/body_requests.h"
#include "dovecot-plugin/worker/bodies/identity.h"
#include "dovecot-plugin/worker/logs/log.h"
#include "dovecot-plugin/worker/session/crash.h"
#include "dovecot-plugin/worker/session/flags.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/rows.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <guid.h>
#include <istream.h>
#include <mail-storage-private.h>
#include <seq-range-array.h>
#include <sort.h>

#include <time.h>
#include <unistd.h>

struct renumber {
    uint32_t uid, new_uid, got;
    bool other; /* uid may name another mail by now */
    /* that the mail had under uid when it was known to be the state's; zeros: not known */
    guid_128_t guid;
};
ARRAY_DEFINE_TYPE(renumber, struct renumber);

static int by_new_uid(const struct renumber *a, const struct renumber *b)
{
    return a->new_uid < b->new_uid ? -1 : a->new_uid > b->new_uid;
}

/* Where a row begins with this, which is no UID: the copies are about to be made. Else they are
 * bound. */
#define ROW_COPYING 0

/* from: where the log ended when the copies were read; NULL: the state has bound them. No row
 * says that nothing is to be done. Inside a transaction. */
static int put_row(struct session *s, uint32_t folder, const struct renumber *v, unsigned n,
                   const struct log_pos *from)
{
    struct orset_buf b = {.alloc = session_alloc()};
    struct orset_key k = {0};
    orset_key_num(&k, folder);
    if (n == 0)
        return rows_del(s, ROW_RENUMBER, k.b, k.n);
    if (from != NULL) {
        orset_buf_num(&b, ROW_COPYING);
        orset_buf_num(&b, from->seq);
        orset_buf_num(&b, from->offset);
    }
    for (unsigned i = 0; i < n; i++) {
        orset_buf_num(&b, v[i].uid);
        if (from != NULL)
            orset_buf_num(&b, v[i].new_uid);
    }
    int r = b.failed ? session_fail(s, "out of memory")
                     : rows_put(s, ROW_RENUMBER, k.b, k.n, b.data, b.len);
    orset_buf_free(&b);
    return r;
}

static int say_copying(struct session *s, uint32_t folder, const struct renumber *v, unsigned n,
                       const struct log_pos *from)
{
    if (session_begin(s) < 0)
        return -1;
    if (put_row(s, folder, v, n, from) < 0) {
        session_rollback(s);
        return -1;
    }
    return session_commit(s);
}

static int row_done(struct session *s, uint32_t folder)
{
    struct orset_key k = {0};
    orset_key_num(&k, folder);
    if (session_begin(s) < 0)
        return -1;
    if (rows_del(s, ROW_RENUMBER, k.b, k.n) < 0) {
        session_rollback(s);
        return -1;
    }
    return session_commit(s);
}

static int copy_inside(struct mailbox_transaction_context *trans, const struct renumber *m)
{
    struct mail *mail = mail_by_uid(trans, m->uid);
    time_t received, saved;
    const char *uidl;
    int r = -1;
    if (mail == NULL)
        return 0;
    if (mail_get_received_date(mail, &received) >= 0 && mail_get_save_date(mail, &saved) >= 0) {
        struct mail_save_context *ctx = mailbox_save_alloc(trans);
        mailbox_save_copy_flags(ctx, mail);
        mailbox_save_set_uid(ctx, m->new_uid);
        mailbox_save_set_received_date(ctx, received, 0);
        mailbox_save_set_save_date(ctx, saved);
        if (mail_get_special(mail, MAIL_FETCH_UIDL_BACKEND, &uidl) == 0 && *uidl != '\0')
            mailbox_save_set_pop3_uidl(ctx, uidl);
        r = copy_mail(&ctx, mail) < 0 ? -1 : 1;
    }
    mail_free(&mail);
    return r;
}

static bool guid_of_mail(struct mail *mail, guid_128_t guid_r)
{
    const char *guid;
    if (mail_get_special(mail, MAIL_FETCH_GUID, &guid) < 0)
        return FALSE;
    mail_generate_guid_128_hash(guid, guid_r);
    return TRUE;
}

/* Nothing is copied while a UID names another mail than the state has under it. */
static bool all_are_known(struct session *s, struct box *x, struct mailbox *box, struct renumber *v,
                          unsigned n)
{
    struct orset_message m;
    bool known = identity_head(s, x, box);
    struct mailbox_transaction_context *trans =
        mailbox_transaction_begin(box, 0, "dovelane renumber");
    for (unsigned i = 0; i < n && known; i++) {
        struct mail *mail = mail_by_uid(trans, v[i].uid);
        if (mail == NULL)
            continue;
        if (orset_message_by_uid(s->os, x->folder, v[i].uid, &m) > 0)
            known = identity_allows(s, x, mail, m.facts.guid, m.facts.sha256) &&
                    guid_of_mail(mail, v[i].guid);
        mail_free(&mail);
    }
    session_read_end(&trans);
    return known;
}

/* An earlier one was cut short and is not ended yet: its mailbox could not be opened since.
 * Another would copy the same mails again. */
int renumber_unfinished(struct session *s, uint32_t folder)
{
    struct orset_key k = {0};
    const uint8_t *v;
    size_t len;
    const struct box *x = box_by_folder(s, folder);
    orset_key_num(&k, folder);
    int r = x != NULL && (x->saver != 0 || x->writing.seq != 0)
                ? 1
                : rows_get(s, ROW_RENUMBER, k.b, k.n, &v, &len);
    if (r > 0) {
        s->cut_short = TRUE;
        session_want_tick(s, 1000);
    }
    return r;
}

#define NOT_COPIED (-2)

/* How many were copied, those first in v, their UIDs in got; NOT_COPIED: it failed, nothing
 * happened; -1: what happened is not known. */
static int copy_all(struct session *s, struct mailbox *box, uint32_t folder, struct renumber *v,
                    unsigned n, struct log_pos *from)
{
    struct mail_transaction_commit_changes changes;
    struct mailbox_status status;
    struct seq_range_iter iter;
    unsigned copied = 0;
    int r = 0;
    mailbox_get_open_status(box, STATUS_UIDNEXT, &status);
    struct mailbox_transaction_context *trans = mailbox_transaction_begin(
        box,
        MAILBOX_TRANSACTION_FLAG_EXTERNAL | MAILBOX_TRANSACTION_FLAG_ASSIGN_UIDS |
            MAILBOX_TRANSACTION_FLAG_SYNC | MAILBOX_TRANSACTION_FLAG_NO_NOTIFY,
        "dovelane renumber");
    *from = log_end(box);
    for (unsigned i = 0; i < n && r >= 0; i++) {
        struct renumber m = v[i];
        r = m.new_uid < status.uidnext ? 0 : copy_inside(trans, &m);
        if (r > 0) {
            v[i] = v[copied];
            v[copied++] = m;
        }
    }
    if (r < 0)
        session_note(s, NOTE_WARNING, "%s: UIDs cannot be changed yet: %s", mailbox_get_vname(box),
                     mailbox_get_last_internal_error(box, NULL));
    if (r < 0 || copied == 0 || say_copying(s, folder, v, copied, from) < 0) {
        mailbox_transaction_rollback(&trans);
        return r < 0 ? NOT_COPIED : copied == 0 ? 0 : -1;
    }
    crash_at("renumber");
    if (mailbox_transaction_commit_get_changes(&trans, &changes) < 0) {
        session_note(s, NOTE_WARNING, "%s: UIDs cannot be changed yet: %s", mailbox_get_vname(box),
                     mailbox_get_last_internal_error(box, NULL));
        return -1;
    }
    seq_range_array_iter_init(&iter, &changes.saved_uids);
    for (unsigned i = 0; i < copied; i++)
        if (!seq_range_array_iter_nth(&iter, i, &v[i].got))
            v[i].got = 0;
    pool_unref(&changes.pool);
    return (int)copied;
}

static int expunge_old(struct session *s, struct mailbox *box, const struct renumber *v, unsigned n)
{
    struct mailbox_transaction_context *trans = mailbox_transaction_begin(
        box, MAILBOX_TRANSACTION_FLAG_SYNC | MAILBOX_TRANSACTION_FLAG_NO_NOTIFY,
        "dovelane renumber");
    for (unsigned i = 0; i < n; i++) {
        struct mail *mail = v[i].got != 0 && v[i].got != v[i].uid && !v[i].other
                                ? mail_by_uid(trans, v[i].uid)
                                : NULL;
        guid_128_t guid;
        if (mail != NULL) {
            /* The library writes the GUID, by which an older state finds the copy (log.c), if
             * its cache has it by then: not unless it was asked for. */
            bool read = guid_of_mail(mail, guid);
            if (guid_128_is_empty(v[i].guid) || (read && guid_128_equals(guid, v[i].guid)))
                mail_expunge(mail);
            mail_free(&mail);
        }
    }
    if (mailbox_transaction_commit(&trans) < 0 || mailbox_sync(box, 0) < 0)
        return session_fail(s, "%s: %s", mailbox_get_vname(box),
                            mailbox_get_last_internal_error(box, NULL));
    return 0;
}

/* What is said of the old UIDs from now on, or was since the copies were read, is meant for the
 * new ones. Inside a transaction. */
static int say_moved(struct session *s, struct box *x, const struct renumber *v, unsigned n,
                     const struct log_pos *from)
{
    ARRAY_TYPE(moved) list;
    time_t now = time(NULL);
    t_array_init(&list, n + 1);
    for (unsigned i = 0; i < n; i++) {
        struct moved m = {v[i].uid, v[i].got, *from, now};
        if (m.new_uid != 0 && m.new_uid != UINT32_MAX)
            array_push_back(&list, &m);
    }
    return array_count(&list) == 0 ? 0 : moved_add(s, x, array_front(&list), array_count(&list));
}

static int bind_new(struct session *s, struct box *x, const struct renumber *v, unsigned n,
                    const struct log_pos *from)
{
    int r = 0;
    if (session_begin(s) < 0)
        return -1;
    s->modseq_repairs_anew++;
    for (unsigned i = 0; i < n && r >= 0; i++)
        if ((r = orset_done_renumber(s->os, x->folder, v[i].uid,
                                     v[i].got != 0 ? v[i].got : v[i].uid)) < 0)
            session_core_failed(s, "renumber");
    if (r < 0 || (from != NULL &&
                  (say_moved(s, x, v, n, from) < 0 || put_row(s, x->folder, v, n, NULL) < 0))) {
        session_rollback(s);
        return -1;
    }
    return session_commit(s);
}

static int renumber_folder(struct session *s, uint32_t folder, struct renumber *v, unsigned n)
{
    struct box *x = box_by_folder(s, folder);
    int r = renumber_unfinished(s, folder), copied = NOT_COPIED;
    if (r != 0 || x == NULL || x->gone || x->vname == NULL || x->now.waits)
        return I_MIN(r, 0);
    struct mailbox *box = session_mailbox(s, x->vname, 0);
    if (session_open_mailbox(s, x, box) == 0 && mailbox_sync(box, 0) == 0) {
        struct log_pos from;
        i_qsort(v, n, sizeof *v, by_new_uid);
        if (all_are_known(s, x, box, v, n) && (r = rows_say_saving(s, box, x)) == 0)
            copied = copy_all(s, box, folder, v, n, &from);
        if (copied > 0) {
            crash_at("renumber-copied");
            if ((r = mailbox_sync(box, 0)) < 0)
                session_fail(s, "%s: %s", x->vname, mailbox_get_last_internal_error(box, NULL));
            if (r == 0)
                r = bind_new(s, x, v, (unsigned)copied, &from);
            crash_at("renumber-bound");
            if (r == 0)
                r = expunge_old(s, box, v, (unsigned)copied);
            crash_at("renumber-expunged");
            if (r == 0)
                r = row_done(s, folder);
        }
        /* One whose UIDNEXT passed the new UID meanwhile stays where it is: the folder is dirty
         * again and another round comes. */
        if (r == 0 && copied >= 0 && (unsigned)copied < n)
            r = bind_new(s, x, v + copied, n - (unsigned)copied, NULL);
        if (r < 0 || copied == -1)
            s->cut_short = TRUE; /* looking at the mailbox ends it */
    }
    mailbox_free(&box);
    return r;
}

/* The copy of m's mail that was being made: by its GUID, or, in a Maildir, by who made it and
 * what it holds. */
static bool is_copy(struct mail *mail, const char *guid, const struct orset_message *m, pid_t saver)
{
    const char *other;
    if (mail_get_special(mail, MAIL_FETCH_GUID, &other) < 0)
        return FALSE;
    return strcmp(guid, other) == 0 || (saved_by(mail, saver) && body_is_of(mail, m->facts.sha256));
}

/* What the row says, in the order of the copies; *copying: they may be there and are not bound. */
static bool read_row(const uint8_t *row, size_t len, ARRAY_TYPE(renumber) * list,
                     struct log_pos *from, bool *copying)
{
    struct orset_reader in = orset_reader_of(row, len);
    *copying = in.at != in.end && *in.at == ROW_COPYING;
    if (*copying) {
        (void)orset_read_num(&in, UINT32_MAX);
        from->seq = (uint32_t)orset_read_num(&in, UINT32_MAX);
        from->offset = orset_read_num(&in, UINT64_MAX);
    }
    while (in.at != in.end && !in.bad) {
        struct renumber *m = array_append_space(list);
        m->uid = (uint32_t)orset_read_num(&in, UINT32_MAX);
        if (*copying)
            m->new_uid = (uint32_t)orset_read_num(&in, UINT32_MAX);
        in.bad = in.bad || m->uid == 0 || (*copying && m->new_uid == 0);
    }
    return !in.bad;
}

enum known { NOT_KNOWN, IN_LOG, NOT_IN_LOG };

struct recovery {
    struct session *s;
    struct mailbox *box;
    struct box *x;
    bool copying; /* the state has not bound the copies */
    bool broken;  /* UIDs may name other mails than when the row was written */
    enum known known;
    pid_t saver; /* Maildir: who made the copies */
    struct mail *old, *mail;
};

/* The copies by what the log has behind the place where they were begun. */
static int copies_in_log(struct recovery *c, struct renumber *v, unsigned n,
                         const struct log_pos *from)
{
    struct log_pos was = c->x->writing;
    struct log_scan scan;
    uint32_t *asked = t_new(uint32_t, n + 1), *got = t_new(uint32_t, n + 1);
    c->x->writing = *from;
    int r = log_scan(c->s, c->box, c->x, &scan);
    c->x->writing = was;
    if (r < 0)
        return -1;
    c->broken = scan.verdict == LOG_SCAN_BROKEN;
    c->known = IN_LOG;
    if (!c->copying)
        return 0;
    for (unsigned i = 0; i < n; i++)
        asked[i] = v[i].new_uid;
    if (scan.verdict == LOG_SCAN_UNBROKEN && array_count(&scan.own_saved) == 0)
        c->known = NOT_IN_LOG;
    else if (c->broken || !write_intent_assign(&scan.own_saved, asked, got, n))
        c->known = NOT_KNOWN;
    for (unsigned i = 0; i < n && c->known == IN_LOG; i++)
        v[i].got = got[i];
    return 0;
}

/* A Maildir's GUIDs stand in its dovecot-uidlist: while another one has its lock nobody can tell
 * which mail is whose copy. */
static bool is_unreadable(struct session *s, struct mailbox *box, struct mail *mail)
{
    const char *guid;
    return mail_get_special(mail, MAIL_FETCH_GUID, &guid) < 0 && session_box_is_locked(s, box);
}

static bool is_taken(const struct renumber *v, unsigned n, uint32_t uid)
{
    for (unsigned i = 0; i < n; i++)
        if (v[i].got == uid)
            return TRUE;
    return FALSE;
}

static bool is_same(struct mail *mail, const char *guid, const struct orset_message *m)
{
    guid_128_t hash;
    mail_generate_guid_128_hash(guid, hash);
    return memcmp(hash, m->facts.guid, sizeof hash) == 0 || body_is_of(mail, m->facts.sha256);
}

/* The same where the log does not tell: one that is there, is bound to nothing, and is no copy
 * of the n before. Where the log says that it is not in the index, it can only be a Maildir's
 * file: a client's own copy has the same GUID. -1: it cannot be known now. */
static int find_copy(struct recovery *c, struct renumber *v, unsigned n)
{
    uint32_t uid = v[n].uid;
    struct mailbox_status status;
    struct orset_message bound_to;
    const char *guid;
    v[n].got = 0;
    if ((c->known == NOT_IN_LOG && c->saver == 0) || !mail_set_uid(c->old, uid) ||
        orset_message_by_uid(c->s->os, c->x->folder, uid, &bound_to) <= 0)
        return 0;
    if (mail_get_special(c->old, MAIL_FETCH_GUID, &guid) < 0)
        return session_box_is_locked(c->s, c->box) ? -1 : 0;
    guid = t_strdup(guid);
    if (c->broken && !is_same(c->old, guid, &bound_to))
        return 0;
    mailbox_get_open_status(c->box, STATUS_MESSAGES, &status);
    for (uint32_t seq = status.messages; seq > 0; seq--) {
        mail_set_seq(c->mail, seq);
        if (c->mail->uid <= uid)
            break;
        if (is_taken(v, n, c->mail->uid) ||
            orset_message_by_uid(c->s->os, c->x->folder, c->mail->uid, NULL) != 0)
            continue;
        if (is_unreadable(c->s, c->box, c->mail))
            return -1;
        if ((c->known != NOT_IN_LOG || file_by(c->mail, c->saver)) &&
            is_copy(c->mail, guid, &bound_to, c->saver)) {
            v[n].got = c->mail->uid;
            break;
        }
    }
    return 0;
}

struct twin {
    guid_128_t guid;
    uint32_t uid;
};

/* With another numbering an old UID may be another mail's: it is one to expunge only where a
 * mail behind it is its copy, by its GUID. */
static int find_others(struct recovery *c, struct renumber *v, unsigned n)
{
    struct mailbox_status status;
    struct orset_message m;
    ARRAY(struct twin) twins;
    struct twin one;
    const struct twin *t;
    const char *guid;
    t_array_init(&twins, n + 1);
    mailbox_get_open_status(c->box, STATUS_MESSAGES, &status);
    for (uint32_t seq = 1; seq <= status.messages; seq++) {
        mail_set_seq(c->mail, seq);
        one.uid = c->mail->uid;
        bool taken = is_taken(v, n, one.uid);
        if (!taken && orset_message_by_uid(c->s->os, c->x->folder, one.uid, &m) <= 0)
            continue;
        if (mail_get_special(c->mail, MAIL_FETCH_GUID, &guid) < 0) {
            if (session_box_is_locked(c->s, c->box))
                return -1;
            continue;
        }
        mail_generate_guid_128_hash(guid, one.guid);
        if (taken || memcmp(one.guid, m.facts.guid, sizeof one.guid) == 0)
            array_push_back(&twins, &one);
    }
    for (unsigned i = 0; i < n; i++) {
        v[i].other = TRUE;
        if (!mail_set_uid(c->old, v[i].uid))
            continue;
        if (mail_get_special(c->old, MAIL_FETCH_GUID, &guid) < 0) {
            if (session_box_is_locked(c->s, c->box))
                return -1;
            continue;
        }
        mail_generate_guid_128_hash(guid, one.guid);
        array_foreach (&twins, t) {
            if (t->uid > v[i].uid && memcmp(t->guid, one.guid, sizeof one.guid) == 0)
                v[i].other = FALSE;
        }
    }
    return 0;
}

/* Nothing is done before all copies are known. -1: they cannot be now. */
static int find_copies(struct recovery *c, struct renumber *v, unsigned n)
{
    struct mailbox_transaction_context *trans =
        mailbox_transaction_begin(c->box, 0, "dovelane renumber");
    int r = 0;
    c->old = mail_alloc(trans, 0, NULL);
    c->mail = mail_alloc(trans, 0, NULL);
    for (unsigned i = 0; i < n && r >= 0; i++) {
        /* A Maildir's file may be there before the log says so. */
        bool bound = !c->copying && !c->broken &&
                     orset_message_by_uid(c->s->os, c->x->folder, v[i].uid, NULL) > 0;
        if (c->known != IN_LOG || bound)
            r = find_copy(c, v, i);
    }
    if (r >= 0 && c->broken)
        r = find_others(c, v, n);
    mail_free(&c->mail);
    mail_free(&c->old);
    session_read_end(&trans);
    return r;
}

/* Inside ingest's transaction, with the mailbox open. Old ones that are bound to their copies
 * already, or were removed, are left to go. What the row says from then on is which those are: a
 * scan that ends before its end, for whatever reason, finds it again. */
int renumber_recover(struct session *s, struct mailbox *box, struct box *x, const uint8_t *row,
                     size_t len, ARRAY_TYPE(seq_range) * uids)
{
    struct recovery c = {.s = s, .box = box, .x = x, .saver = x->saving ? getpid() : x->saver};
    ARRAY_TYPE(renumber) list, left;
    struct log_pos from = {0, 0};
    int r = 0;
    t_array_init(&list, 16);
    t_array_init(&left, 16);
    if (!read_row(row, len, &list, &from, &c.copying))
        return rows_corrupt(s, "the row of a change of UIDs");
    unsigned n;
    struct renumber *v = array_get_modifiable(&list, &n);
    if (copies_in_log(&c, v, n, &from) < 0)
        return -1;
    if (find_copies(&c, v, n) < 0)
        return 0;
    for (unsigned i = 0; i < n && r >= 0; i++) {
        bool bound = orset_message_by_uid(s->os, x->folder, v[i].uid, NULL) > 0;
        if (v[i].got != 0)
            r = orset_done_renumber(s->os, x->folder, v[i].uid, v[i].got);
        else if (!bound)
            v[i].got = UINT32_MAX;
        if (c.known == NOT_IN_LOG && v[i].got == 0)
            continue; /* it is where it was, or a client removed it */
        seq_range_array_add(uids, v[i].uid);
        array_push_back(&left, &v[i]);
    }
    if (r < 0)
        return session_core_failed(s, x->vname);
    if (c.copying && c.known == IN_LOG && say_moved(s, x, v, n, &from) < 0)
        return -1;
    if (put_row(s, x->folder, array_count(&left) > 0 ? array_front(&left) : NULL,
                array_count(&left), NULL) < 0)
        return -1;
    return n > 0 && expunge_old(s, box, v, n) < 0 ? -1 : 1;
}

int renumber_apply(struct session *s)
{
    struct orset_task *t = i_new(struct orset_task, 1);
    ARRAY(struct renumber) v;
    uint32_t folder = 0;
    int got, r = 0;
    i_array_init(&v, 16);
    t->at[0] = ORSET_TASK_RENUMBER;
    t->at_len = 1;
    for (;;) {
        got = orset_task_next(s->os, t);
        bool more = got > 0 && t->kind == ORSET_TASK_RENUMBER;
        if (array_count(&v) > 0 && (!more || t->folder != folder)) {
            T_BEGIN
            {
                r = renumber_folder(s, folder, array_front_modifiable(&v), array_count(&v));
            }
            T_END;
            array_clear(&v);
        }
        if (!more || r < 0)
            break;
        folder = t->folder;
        struct renumber m = {.uid = t->uid, .new_uid = t->new_uid};
        array_push_back(&v, &m);
    }
    array_free(&v);
    i_free(t);
    return got < 0 ? session_core_failed(s, "todo") : r;
}

/* --- other bytes ---------------------------------------------------------------------------------
 *
 * Two sites saved one GUID with different bytes. Of a gateway's second delivery only the trace
 * lines differ: the smallest SHA-256 wins, and the mail with the other bytes gives way to a new
 * one. Any other two are two mails. */

/* Its flags are those of the mail that gives way. */
static struct mail_save_context *bytes_init(struct mailbox_transaction_context *trans,
                                            const struct orset_task *t)
{
    const struct orset_facts *facts = &t->message.facts;
    struct mail *old = mail_by_uid(trans, t->uid);
    guid_128_t guid;
    if (old == NULL)
        return NULL;
    struct mail_save_context *ctx = mailbox_save_alloc(trans);
    mailbox_save_copy_flags(ctx, old);
    mail_free(&old);
    memcpy(guid, facts->guid, sizeof guid);
    mailbox_save_set_guid(ctx, facts->guid_text_len > 0
                                   ? t_strndup(facts->guid_text, facts->guid_text_len)
                                   : guid_128_to_string(guid));
    mailbox_save_set_received_date(ctx, (time_t)facts->received, 0);
    mailbox_save_set_save_date(ctx, (time_t)facts->saved);
    return ctx;
}

/* 1: saved; 0: nothing happened; -1: that is not known */
static int save_bytes(struct session *s, struct mailbox *box, const struct orset_task *t,
                      struct istream *in, struct renumber *m, struct log_pos *from)
{
    struct mail_transaction_commit_changes changes;
    struct seq_range_iter iter;
    struct mailbox_transaction_context *trans = mailbox_transaction_begin(
        box,
        MAILBOX_TRANSACTION_FLAG_EXTERNAL | MAILBOX_TRANSACTION_FLAG_ASSIGN_UIDS |
            MAILBOX_TRANSACTION_FLAG_SYNC | MAILBOX_TRANSACTION_FLAG_NO_NOTIFY,
        "dovelane body");
    *from = log_end(box);
    struct mail_save_context *ctx = bytes_init(trans, t);
    if (ctx == NULL || save_stream(ctx, in) < 0) {
        if (ctx != NULL)
            session_note(s, NOTE_WARNING, "%s: a mail cannot be saved and waits: %s",
                         mailbox_get_vname(box), mailbox_get_last_internal_error(box, NULL));
        mailbox_transaction_rollback(&trans);
        return 0;
    }
    if (say_copying(s, t->folder, m, 1, from) < 0) {
        mailbox_transaction_rollback(&trans);
        return -1;
    }
    if (mailbox_transaction_commit_get_changes(&trans, &changes) < 0)
        return -1;
    seq_range_array_iter_init(&iter, &changes.saved_uids);
    int r = seq_range_array_iter_nth(&iter, 0, &m->got) ? 1 : -1;
    pool_unref(&changes.pool);
    return r;
}

static int body_bind(struct session *s, struct box *x, const struct orset_task *t,
                     const struct renumber *m, const struct log_pos *from)
{
    if (session_begin(s) < 0)
        return -1;
    int r = orset_done_body(s->os, t->folder, t->uid, m->got, t->message.facts.sha256);
    if (r < 0)
        session_core_failed(s, "body");
    if (r < 0 || say_moved(s, x, m, 1, from) < 0 || put_row(s, x->folder, m, 1, NULL) < 0) {
        session_rollback(s);
        return -1;
    }
    return session_commit(s);
}

enum giving_way { GIVES_WAY, STAYS, IS_ANOTHER };

/* The mail is the one that the state means, and what is to be in its place is the same message.
 * A GUID alone would be no proof. */
static enum giving_way may_give_way(struct session *s, struct box *x, struct mailbox *box,
                                    const struct orset_task *t, struct istream *in,
                                    struct renumber *m)
{
    if (!identity_head(s, x, box))
        return STAYS;
    struct mailbox_transaction_context *trans = mailbox_transaction_begin(box, 0, "dovelane body");
    struct mail *mail = mail_by_uid(trans, t->uid);
    enum giving_way may = STAYS;
    if (mail != NULL && identity_allows(s, x, mail, t->message.facts.guid, NULL) &&
        guid_of_mail(mail, m->guid)) {
        int same = body_same_mail(mail, in);
        if (same < 0)
            session_note(s, NOTE_WARNING, "%s: UID %u cannot be read, and stays: %s", x->vname,
                         t->uid, mailbox_get_last_internal_error(box, NULL));
        may = same > 0 ? GIVES_WAY : same == 0 ? IS_ANOTHER : STAYS;
    }
    if (mail != NULL)
        mail_free(&mail);
    session_read_end(&trans);
    return may;
}

/* Two mails of one GUID: both live. 1: this one lives under another UID, too, so it may give
 * way. */
static int body_part(struct session *s, struct box *x, struct mailbox *box,
                     const struct orset_task *t)
{
    struct mailbox_transaction_context *trans = mailbox_transaction_begin(box, 0, "dovelane body");
    struct mail *mail = mail_by_uid(trans, t->uid);
    struct orset_facts facts;
    struct orset_flags flags;
    int r = 0, parted = ORSET_OK;
    if (mail != NULL && body_facts(mail, &facts, NULL) == 0 && (r = session_begin(s)) == 0) {
        guid_128_t there;
        memcpy(there, facts.guid, sizeof there);
        body_own_guid(facts.guid, t->message.facts.guid, facts.sha256);
        flags_of_mail(s, mail, &flags);
        if ((parted = orset_local_part(s->os, t->folder, t->uid, there, &facts, &flags)) < 0)
            r = session_core_failed(s, "part");
        if (r < 0)
            session_rollback(s);
        else if ((r = session_commit(s)) == 0 && parted != ORSET_KNOWN)
            session_note(
                s, NOTE_WARNING,
                "%s: UID %u has the GUID of a mail with other contents at another site: both stay",
                x->vname, t->uid);
    }
    if (mail != NULL)
        mail_free(&mail);
    session_read_end(&trans);
    return r < 0 ? r : parted == ORSET_KNOWN;
}

static int body_one(struct session *s, const struct orset_task *t, struct istream *in)
{
    struct box *x = box_by_folder(s, t->folder);
    struct renumber m = {.uid = t->uid};
    int r = renumber_unfinished(s, t->folder);
    if (r != 0 || x == NULL || x->gone || x->vname == NULL || x->now.waits)
        return I_MIN(r, 0);
    struct mailbox *box = session_mailbox(s, x->vname, 0);
    enum giving_way may = session_open_mailbox(s, x, box) < 0 || mailbox_sync(box, 0) < 0
                              ? STAYS
                              : may_give_way(s, x, box, t, in, &m);
    if (may == IS_ANOTHER && (r = body_part(s, x, box, t)) > 0)
        may = GIVES_WAY;
    if (may == GIVES_WAY && (r = rows_say_saving(s, box, x)) == 0) {
        struct log_pos from;
        int saved = save_bytes(s, box, t, in, &m, &from);
        if (saved > 0 && (r = body_bind(s, x, t, &m, &from)) == 0 &&
            (r = expunge_old(s, box, &m, 1)) == 0) {
            session_note(
                s, NOTE_INFO,
                "%s: UID %u was saved with other bytes elsewhere: it is UID %u now, with those",
                x->vname, m.uid, m.got);
            r = row_done(s, t->folder);
        }
        if (saved < 0 || r < 0)
            s->cut_short = TRUE;
    }
    mailbox_free(&box);
    return r;
}

/* The message that the mail was bound to was removed by somebody who had not seen its bytes: it
 * is one of its own, as if it had just come. */
static int body_alone(struct session *s, const struct orset_task *t)
{
    struct box *x = box_by_folder(s, t->folder);
    if (x == NULL || x->gone || x->vname == NULL || x->now.waits)
        return 0;
    struct mailbox *box = session_mailbox(s, x->vname, MAILBOX_FLAG_READONLY);
    int r = 0;
    if (session_open_mailbox(s, x, box) == 0 && mailbox_sync(box, 0) == 0 &&
        identity_head(s, x, box)) {
        struct mailbox_transaction_context *trans =
            mailbox_transaction_begin(box, 0, "dovelane body");
        struct mail *mail = mail_by_uid(trans, t->uid);
        struct orset_facts facts;
        struct orset_flags flags;
        bool readable = mail == NULL || body_facts(mail, &facts, NULL) == 0;
        if (readable && (r = session_begin(s)) == 0) {
            if (mail != NULL) {
                flags_of_mail(s, mail, &flags);
                r = orset_local_add(s->os, t->folder, t->uid, &facts, &flags, NULL);
            }
            if (r < 0 || orset_done_alone(s->os, t->folder, t->uid) < 0) {
                r = session_core_failed(s, "alone");
                session_rollback(s);
            } else if ((r = session_commit(s)) == 0 && mail != NULL) {
                session_note(s, NOTE_INFO,
                             "%s: UID %u: other sites removed a mail of its GUID with other "
                             "contents: this one stays",
                             x->vname, t->uid);
            }
        }
        if (mail != NULL)
            mail_free(&mail);
        session_read_end(&trans);
    }
    mailbox_free(&box);
    return r;
}

int bodies_apply(struct session *s, uint64_t ask)
{
    struct orset_task *t = i_new(struct orset_task, 1);
    struct body_requests *wants = body_requests_begin(s, ask);
    int got, r = 0;
    s->other_bytes = 0;
    t->at[0] = ORSET_TASK_BODY;
    t->at_len = 1;
    while (r == 0 && (got = orset_task_next(s->os, t)) > 0 && t->kind == ORSET_TASK_BODY) {
        T_BEGIN
        {
            struct orset_message m = t->message;
            struct istream *in;
            s->other_bytes += m.dot.counter != 0;
            if (m.facts.guid_text_len > 0)
                m.facts.guid_text = t_strndup(m.facts.guid_text, m.facts.guid_text_len);
            t->message = m;
            if (m.dot.counter == 0) {
                r = body_alone(s, t);
            } else if ((in = body_open(s, m.facts.sha256)) == NULL) {
                (void)body_request_add(wants, &m, 0);
            } else {
                r = body_one(s, t, in);
                i_stream_unref(&in);
            }
        }
        T_END;
    }
    body_requests_end(&wants);
    i_free(t);
    return r == 0 && got < 0 ? session_core_failed(s, "todo") : r;
}
