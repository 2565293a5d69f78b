/* renumber_old - the end of a change of UIDs: what clients changed of a mail under its old UID
 * since it was copied is on the copy in the moment in which the old UID goes.
 *
 * The log is locked from the look at the old mails' flags to the commit, so no client's change
 * comes between. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/worker/apply/renumber.h"
#include "dovecot-plugin/worker/bodies/identity.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <guid.h>
#include <mail-index-private.h>
#include <mail-storage-private.h>
#include <mail-transaction-log.h>

#define LOCKED_FOR "dovelane renumber"

bool renumber_guid(struct mail *mail, guid_128_t guid_r)
{
    const char *guid;
    if (mail_get_special(mail, MAIL_FETCH_GUID, &guid) < 0)
        return FALSE;
    mail_generate_guid_128_hash(guid, guid_r);
    return TRUE;
}

void renumber_copy_flags(struct mail_save_context *ctx, struct mail *mail, struct renumber *m)
{
    const ARRAY_TYPE(keyword_indexes) *keywords = mail_get_keyword_indexes(mail);
    unsigned n = array_count(keywords);
    mailbox_save_copy_flags(ctx, mail);
    ctx->data.flags &= ~MAIL_DELETED;
    m->flags = mail_get_flags(mail) & MAIL_FLAGS_NONRECENT;
    m->keywords =
        n == 0 ? NULL
               : p_memdup(pool_datastack_create(), array_front(keywords), n * sizeof *m->keywords);
    m->keyword_count = n;
    m->flags_known = TRUE;
}

/* The UID under which the mail is by now; 0: not known */
static uint32_t new_uid_of(const struct box *x, const struct renumber *m)
{
    const struct moved *moved;
    uint32_t uid = 0;
    if (m->got != 0 && m->got != UINT32_MAX)
        return m->got;
    if (!array_is_created(&x->moved))
        return 0;
    array_foreach (&x->moved, moved) {
        if (moved->uid == m->uid)
            uid = moved->new_uid;
    }
    return uid;
}

static bool is_copy_of(struct mailbox_transaction_context *trans, uint32_t uid, const guid_128_t of)
{
    struct mail *mail = uid == 0 || guid_128_is_empty(of) ? NULL : mail_by_uid(trans, uid);
    guid_128_t guid;
    bool is = mail != NULL && renumber_guid(mail, guid) && guid_128_equals(guid, of);
    if (mail != NULL)
        mail_free(&mail);
    return is;
}

/* An old mail that is about to go, and where it is by now. */
struct going {
    const struct renumber *m;
    uint32_t new_uid;
};
ARRAY_DEFINE_TYPE(going, struct going);

static void expunge_one(struct mailbox_transaction_context *trans, const struct box *x,
                        const struct renumber *m, ARRAY_TYPE(going) * going)
{
    struct going g = {m, new_uid_of(x, m)};
    guid_128_t guid;
    struct mail *mail = mail_by_uid(trans, m->uid);
    if (mail == NULL)
        return;
    /* The library writes the GUID, by which an older state finds the copy (log.c), if its cache
     * has it by then: not unless it was asked for. */
    bool read = renumber_guid(mail, guid);
    if (guid_128_is_empty(m->guid) || (read && guid_128_equals(guid, m->guid))) {
        mail_expunge(mail);
        if (m->flags_known || (read && is_copy_of(trans, g.new_uid, guid)))
            array_push_back(going, &g);
    }
    mail_free(&mail);
}

static bool has_keyword(const unsigned *v, unsigned n, unsigned keyword)
{
    for (unsigned i = 0; i < n; i++)
        if (v[i] == keyword)
            return TRUE;
    return FALSE;
}

static void update_keywords(struct mail *mail, enum modify_type how,
                            const ARRAY_TYPE(keyword_indexes) * some)
{
    struct mail_keywords *keywords;
    if (array_is_empty(some))
        return;
    keywords = mailbox_keywords_create_from_indexes(mail->box, some);
    mail_update_keywords(mail, how, keywords);
    mailbox_keywords_unref(&keywords);
}

static void carry_keywords(struct mail *mail, const struct renumber *m,
                           const ARRAY_TYPE(keyword_indexes) * now)
{
    ARRAY_TYPE(keyword_indexes) set, cut;
    const unsigned *keyword;
    t_array_init(&set, 8);
    t_array_init(&cut, 8);
    array_foreach (now, keyword) {
        if (!has_keyword(m->keywords, m->keyword_count, *keyword))
            array_push_back(&set, keyword);
    }
    for (unsigned i = 0; i < m->keyword_count; i++)
        if (array_is_empty(now) || !has_keyword(array_front(now), array_count(now), m->keywords[i]))
            array_push_back(&cut, &m->keywords[i]);
    update_keywords(mail, MODIFY_ADD, &set);
    update_keywords(mail, MODIFY_REMOVE, &cut);
}

/* view: as the mailbox is. What a client did with the copy itself meanwhile stands. */
static void carry_flags(struct mail_index_view *view, struct mail *mail, const struct going *g)
{
    const struct renumber *m = g->m;
    ARRAY_TYPE(keyword_indexes) keywords;
    uint32_t seq;
    if (!mail_index_lookup_seq(view, m->uid, &seq) || !mail_set_uid(mail, g->new_uid))
        return; /* a client expunged it */
    enum mail_flags now = mail_index_lookup(view, seq)->flags & MAIL_FLAGS_NONRECENT;
    enum mail_flags had = m->flags_known ? m->flags & ~MAIL_DELETED : now & ~MAIL_DELETED;
    if ((now & ~had) != 0)
        mail_update_flags(mail, MODIFY_ADD, now & ~had);
    if ((had & ~now) != 0)
        mail_update_flags(mail, MODIFY_REMOVE, had & ~now);
    if (!m->flags_known)
        return;
    t_array_init(&keywords, 8);
    mail_index_lookup_keywords(view, seq, &keywords);
    carry_keywords(mail, m, &keywords);
}

static int carry_and_commit(struct mailbox *box, struct mailbox_transaction_context **trans,
                            const ARRAY_TYPE(going) * going)
{
    const struct going *g;
    if (mail_index_refresh(box->index) < 0) {
        mailbox_transaction_rollback(trans);
        return -1;
    }
    struct mail_index_view *view = mail_index_view_open(box->index);
    struct mail *mail = mail_alloc(*trans, 0, NULL);
    array_foreach (going, g) {
        T_BEGIN
        {
            carry_flags(view, mail, g);
        }
        T_END;
    }
    mail_free(&mail);
    mail_index_view_close(&view);
    return mailbox_transaction_commit(trans);
}

int renumber_expunge_old(struct session *s, struct box *x, struct mailbox *box,
                         const struct renumber *v, unsigned n)
{
    struct mail_transaction_log *log = box->index->log;
    ARRAY_TYPE(going) going;
    uint32_t seq;
    uoff_t offset;
    struct mailbox_transaction_context *trans = mailbox_transaction_begin(
        box, MAILBOX_TRANSACTION_FLAG_SYNC | MAILBOX_TRANSACTION_FLAG_NO_NOTIFY,
        "dovelane renumber");
    t_array_init(&going, n + 1);
    for (unsigned i = 0; i < n; i++)
        if (v[i].got != 0 && v[i].got != v[i].uid && !v[i].other)
            expunge_one(trans, x, &v[i], &going);
    int r = mail_transaction_log_sync_lock(log, LOCKED_FOR, &seq, &offset);
    if (r < 0) {
        mailbox_transaction_rollback(&trans);
    } else {
        r = carry_and_commit(box, &trans, &going);
        mail_transaction_log_sync_unlock(log, LOCKED_FOR);
    }
    if (r < 0 || mailbox_sync(box, 0) < 0)
        return session_fail(s, "%s: %s", mailbox_get_vname(box),
                            mailbox_get_last_internal_error(box, NULL));
    return 0;
}
