/* renumber_recover - what a crash left of a change of UIDs: which mails are the copies, by the
 * mailbox's log or by what they hold, and what is still to be done. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/worker/apply/apply.h"
#include "dovecot-plugin/worker/apply/renumber.h"
#include "dovecot-plugin/worker/apply/write_intent.h"
#include "dovecot-plugin/worker/bodies/body.h"
#include "dovecot-plugin/worker/logs/log.h"
#include "dovecot-plugin/worker/logs/verdict.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/rows.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <guid.h>
#include <mail-storage-private.h>
#include <seq-range-array.h>

#include <unistd.h>

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
        in.bad = in.bad || m->uid == 0;
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
    if (c.copying && c.known == IN_LOG && renumber_say_moved(s, x, v, n, &from) < 0)
        return -1;
    if (renumber_put_row(s, x->folder, array_count(&left) > 0 ? array_front(&left) : NULL,
                         array_count(&left), NULL) < 0)
        return -1;
    return n > 0 && renumber_expunge_old(s, x, box, v, n) < 0 ? -1 : 1;
}
