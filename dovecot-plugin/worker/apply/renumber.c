/* renumber - mails that should have another UID (F31): a new copy inside the mailbox.
 *
 *     a row says which mails are about to get which UID, and where the mailbox's log ended
 *     the mails are copied inside the mailbox, under their new UIDs, without \Deleted
 *     the state binds them there; the row says which UIDs are about to be expunged
 *     the old UIDs are expunged: a transaction of its own, since what an external one expunges no
 *     storage deletes. It gives the new ones the flags that the old ones have by then
 *     (renumber_old.c)
 *     the row goes
 *
 * After a crash ingest finds the row and ends what it names: renumber_recover(). What clients
 * say of the old UIDs meanwhile, and later, is said of the new ones: moved_add(). */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/worker/apply/apply.h"
#include "dovecot-plugin/worker/apply/renumber.h"
#include "dovecot-plugin/worker/bodies/body.h"
#include "dovecot-plugin/worker/bodies/identity.h"
#include "dovecot-plugin/worker/logs/log.h"
#include "dovecot-plugin/worker/session/crash.h"
#include "dovecot-plugin/worker/session/file_names.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/retry.h"
#include "dovecot-plugin/worker/session/rows.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <guid.h>
#include <istream.h>
#include <mail-storage-private.h>
#include <seq-range-array.h>
#include <sort.h>

#include <time.h>

static int by_new_uid(const struct renumber *a, const struct renumber *b)
{
    return a->new_uid < b->new_uid ? -1 : a->new_uid > b->new_uid;
}

int renumber_put_row(struct session *s, uint32_t folder, const struct renumber *v, unsigned n,
                     const struct log_pos *from)
{
    struct orset_buf b = {.alloc = session_alloc()};
    struct orset_key k = rows_folder_key(folder);
    if (n == 0)
        return rows_del(s, ROW_RENUMBER, k.b, k.n);
    if (from != NULL) {
        orset_buf_num(&b, ROW_COPYING);
        orset_buf_num(&b, from->seq);
        orset_buf_num(&b, from->offset);
    }
    for (unsigned i = 0; i < n; i++) {
        i_assert(v[i].uid != ROW_COPYING);
        orset_buf_num(&b, v[i].uid);
        if (from != NULL)
            orset_buf_num(&b, v[i].new_uid);
    }
    int r = b.failed ? session_fail(s, "out of memory")
                     : rows_put(s, ROW_RENUMBER, k.b, k.n, b.data, b.len);
    orset_buf_free(&b);
    return r;
}

int renumber_say_copying(struct session *s, uint32_t folder, const struct renumber *v, unsigned n,
                         const struct log_pos *from)
{
    if (session_begin(s) < 0)
        return -1;
    if (renumber_put_row(s, folder, v, n, from) < 0) {
        session_rollback(s);
        return -1;
    }
    return session_commit(s);
}

int renumber_row_done(struct session *s, uint32_t folder)
{
    struct orset_key k = rows_folder_key(folder);
    if (session_begin(s) < 0)
        return -1;
    if (rows_del(s, ROW_RENUMBER, k.b, k.n) < 0) {
        session_rollback(s);
        return -1;
    }
    return session_commit(s);
}

static int copy_inside(struct mailbox_transaction_context *trans, struct renumber *m)
{
    struct mail *mail = mail_by_uid(trans, m->uid);
    time_t received, saved;
    const char *uidl, *guid;
    int r = -1;
    if (mail == NULL)
        return 0;
    /* else the copy after the next one would be called as the mail was */
    if (mail_get_special(mail, MAIL_FETCH_GUID, &guid) == 0 && *guid != '\0')
        file_name_is_used(guid);
    if (mail_get_received_date(mail, &received) >= 0 && mail_get_save_date(mail, &saved) >= 0) {
        struct mail_save_context *ctx = mailbox_save_alloc(trans);
        renumber_copy_flags(ctx, mail, m);
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
                    renumber_guid(mail, v[i].guid);
        mail_free(&mail);
    }
    session_read_end(&trans);
    return known;
}

/* An earlier one was cut short and is not ended yet: its mailbox could not be opened since.
 * Another would copy the same mails again. */
int renumber_unfinished(struct session *s, uint32_t folder)
{
    struct orset_key k = rows_folder_key(folder);
    const uint8_t *v;
    size_t len;
    const struct box *x = box_by_folder(s, folder);
    int r = x != NULL && (x->saver != 0 || x->writing.seq != 0)
                ? 1
                : rows_get(s, ROW_RENUMBER, k.b, k.n, &v, &len);
    if (r > 0) {
        s->cut_short = TRUE;
        (void)session_retry(s, "renumber", x != NULL && x->vname != NULL ? x->vname : "", 1000);
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
    file_names_end();
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
    if (r < 0 || copied == 0 || renumber_say_copying(s, folder, v, copied, from) < 0) {
        mailbox_transaction_rollback(&trans);
        return r < 0 ? NOT_COPIED : copied == 0 ? 0 : -1;
    }
    crash_at("renumber");
    int committed = mailbox_transaction_commit_get_changes(&trans, &changes);
    file_names_end();
    if (committed < 0) {
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

int renumber_say_moved(struct session *s, struct box *x, const struct renumber *v, unsigned n,
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
    for (unsigned i = 0; i < n && r >= 0; i++)
        if ((r = orset_done_renumber(s->os, x->folder, v[i].uid,
                                     v[i].got != 0 ? v[i].got : v[i].uid)) < 0)
            session_core_failed(s, "renumber");
    if (r < 0 || (from != NULL && (renumber_say_moved(s, x, v, n, from) < 0 ||
                                   renumber_put_row(s, x->folder, v, n, NULL) < 0))) {
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
                r = renumber_expunge_old(s, x, box, v, (unsigned)copied);
            crash_at("renumber-expunged");
            if (r == 0)
                r = renumber_row_done(s, folder);
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
