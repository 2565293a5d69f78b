/* other_bytes - mails whose bytes are not those agreed on.
 *
 * Two sites saved one GUID with different bytes. Of a gateway's second delivery only the trace
 * lines differ: the smallest SHA-256 wins, and the mail with the other bytes gives way to a new
 * one. Any other two are two mails. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/worker/apply/apply.h"
#include "dovecot-plugin/worker/apply/renumber.h"
#include "dovecot-plugin/worker/bodies/body.h"
#include "dovecot-plugin/worker/bodies/body_requests.h"
#include "dovecot-plugin/worker/bodies/identity.h"
#include "dovecot-plugin/worker/logs/log.h"
#include "dovecot-plugin/worker/session/flags.h"
#include "dovecot-plugin/worker/session/crash.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/rows.h"
#include "dovecot-plugin/worker/session/session.h"

#include <guid.h>
#include <istream.h>
#include <mail-storage-private.h>
#include <seq-range-array.h>

/* Its flags are those of the mail that gives way. */
static struct mail_save_context *bytes_init(struct mailbox_transaction_context *trans,
                                            const struct orset_task *t, struct renumber *m)
{
    const struct orset_facts *facts = &t->message.facts;
    struct mail *old = mail_by_uid(trans, t->uid);
    guid_128_t guid;
    if (old == NULL)
        return NULL;
    struct mail_save_context *ctx = mailbox_save_alloc(trans);
    renumber_copy_flags(ctx, old, m);
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
    struct mail_save_context *ctx = bytes_init(trans, t, m);
    if (ctx == NULL || save_stream(ctx, in) < 0) {
        if (ctx != NULL)
            session_note(s, NOTE_WARNING, "%s: a mail cannot be saved and waits: %s",
                         mailbox_get_vname(box), mailbox_get_last_internal_error(box, NULL));
        mailbox_transaction_rollback(&trans);
        return 0;
    }
    if (renumber_say_copying(s, t->folder, m, 1, from) < 0) {
        mailbox_transaction_rollback(&trans);
        return -1;
    }
    crash_at("body-said");
    if (mailbox_transaction_commit_get_changes(&trans, &changes) < 0)
        return -1;
    crash_at("body-saved");
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
    if (r < 0 || renumber_say_moved(s, x, m, 1, from) < 0 ||
        renumber_put_row(s, x->folder, m, 1, NULL) < 0) {
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
        renumber_guid(mail, m->guid)) {
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
        if (saved > 0 && (r = body_bind(s, x, t, &m, &from)) == 0)
            crash_at("body-bound");
        if (saved > 0 && r == 0 && (r = renumber_expunge_old(s, x, box, &m, 1)) == 0) {
            crash_at("body-expunged");
            session_note(
                s, NOTE_INFO,
                "%s: UID %u was saved with other bytes elsewhere: it is UID %u now, with those",
                x->vname, m.uid, m.got);
            r = renumber_row_done(s, t->folder);
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
