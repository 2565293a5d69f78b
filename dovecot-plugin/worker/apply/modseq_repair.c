/* modseq_repair - changes of this site that a peer had not heard of when it counted its
 * HIGHESTMODSEQ: a client that comes from there has to see them behind that number (F33).
 *
 * Which mails these are is known only until all peers have confirmed the changes. So a row says
 * it, in the commit that takes the peer's ops, until it is done: a mailbox that cannot be opened
 * now has its turn later. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/orset/ops/op_batch.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/worker/apply/modseq_repair.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/rows.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <mail-storage-private.h>
#include <seq-range-array.h>

#define REDATE_VERSION 1
#define TOUCHED_AT_ONCE 10000 /* changes in memory */

struct touched {
    uint32_t folder, uid;
};
ARRAY_DEFINE_TYPE(touched, struct touched);

struct changes {
    ARRAY_TYPE(touched) list;
    uint64_t last; /* number of the last one */
    unsigned n;    /* all that were found */
};

static int read_row(struct session *s, const uint8_t *value, size_t len,
                    ARRAY_TYPE(seq_range) * uids)
{
    struct orset_reader in = orset_reader_of(value, len);
    if (orset_read_u8(&in) != REDATE_VERSION)
        return 0;
    while (in.at != in.end && !in.bad) {
        uint32_t from = (uint32_t)orset_read_num(&in, UINT32_MAX),
                 to = (uint32_t)orset_read_num(&in, UINT32_MAX);
        in.bad = in.bad || from > to;
        if (!in.bad)
            seq_range_array_add_range(uids, from, to);
        in.bad = in.bad || seq_range_count(uids) > ROW_UIDS_MAX;
    }
    return in.bad ? rows_corrupt(s, "the row of mails to be redated") : 0;
}

static int put_row(struct session *s, uint32_t folder, const ARRAY_TYPE(seq_range) * uids)
{
    struct orset_buf b = {.alloc = session_alloc()};
    struct orset_key k = rows_folder_key(folder);
    const struct seq_range *range;
    orset_buf_u8(&b, REDATE_VERSION);
    array_foreach (uids, range) {
        orset_buf_num(&b, range->seq1);
        orset_buf_num(&b, range->seq2);
    }
    int r = b.failed ? session_fail(s, "out of memory")
                     : rows_put(s, ROW_MODSEQ_REPAIR, k.b, k.n, b.data, b.len);
    orset_buf_free(&b);
    return r;
}

/* --- what is to be done ----------------------------------------------------------------------- */

static int collect_touched(void *arg, uint64_t number, uint32_t folder,
                           const struct orset_message *m)
{
    struct changes *c = arg;
    struct touched t = {folder, m->uid};
    c->last = number;
    c->n++;
    array_push_back(&c->list, &t);
    return array_count(&c->list) >= TOUCHED_AT_ONCE;
}

static int by_mail(const struct touched *a, const struct touched *b)
{
    if (a->folder != b->folder)
        return a->folder < b->folder ? -1 : 1;
    return a->uid < b->uid ? -1 : a->uid > b->uid;
}

static int say_folder(struct session *s, uint32_t folder, ARRAY_TYPE(seq_range) * uids)
{
    struct orset_key k = rows_folder_key(folder);
    struct orset_folder f;
    const uint8_t *value;
    size_t len;
    if (orset_folder_get(s->os, folder, &f) < 0 || f.peer_modseq == 0)
        return 0;
    int r = rows_get(s, ROW_MODSEQ_REPAIR, k.b, k.n, &value, &len);
    if (r < 0)
        return -1;
    if (r > 0 && read_row(s, value, len, uids) < 0)
        return -1;
    s->modseq_repairs = TRUE;
    return put_row(s, folder, uids);
}

static int say_mails(struct session *s, ARRAY_TYPE(touched) * list)
{
    ARRAY_TYPE(seq_range) uids;
    unsigned n;
    int r = 0;
    i_array_init(&uids, 16);
    array_sort(list, by_mail);
    const struct touched *t = array_get(list, &n);
    for (unsigned i = 0; i < n && r == 0; i++) {
        seq_range_array_add(&uids, t[i].uid);
        if (i + 1 < n && t[i + 1].folder == t[i].folder)
            continue;
        r = say_folder(s, t[i].folder, &uids);
        array_clear(&uids);
    }
    array_free(&uids);
    return r;
}

static uint64_t modseq_repair_when(const struct session *s)
{
    return orset_modseqs_risen(s->os) + s->modseq_repairs_anew;
}

/* Else each batch of a long series would look at all that waits to go the other way. */
static bool is_redated(const struct session *s, const struct peer *p, uint64_t confirmed)
{
    const struct modseqs_repaired *r = &p->modseqs_repaired;
    return r->self == orset_self(s->os) && r->when == modseq_repair_when(s) &&
           r->from <= confirmed && confirmed <= r->upto;
}

void modseq_repair_noted(struct session *s, struct peer *p, uint64_t confirmed)
{
    uint64_t from = is_redated(s, p, confirmed) ? p->modseqs_repaired.from : confirmed;
    uint64_t upto = orset_vector_get(s->os, orset_self(s->os));
    p->modseqs_repaired =
        (struct modseqs_repaired){orset_self(s->os), from, upto, modseq_repair_when(s)};
}

int modseq_repair_note(struct session *s, const struct peer *p, uint64_t confirmed)
{
    struct changes c = {.last = is_redated(s, p, confirmed) ? p->modseqs_repaired.upto : confirmed};
    int r, more;
    i_array_init(&c.list, 16);
    do {
        array_clear(&c.list);
        more = orset_touched_since(s->os, c.last, collect_touched, &c);
        r = more < 0 ? session_core_failed(s, "own changes") : say_mails(s, &c.list);
    } while (r == 0 && more > 0);
    array_free(&c.list);
    if (c.n > 0)
        session_explain(s,
                        "%u changes that site %llu had not heard of are to be seen behind its own",
                        c.n, (unsigned long long)p->site);
    return r;
}

/* --- and is done ------------------------------------------------------------------------------ */

static void modseq_repair_mails(struct mailbox_transaction_context *trans,
                                const ARRAY_TYPE(seq_range) * uids, uint64_t peers)
{
    struct mail *mail = mail_alloc(trans, 0, NULL);
    struct seq_range_iter iter;
    uint32_t uid;
    seq_range_array_iter_init(&iter, uids);
    for (unsigned i = 0; seq_range_array_iter_nth(&iter, i, &uid); i++) {
        /* One that changed later than the peer counted is seen as it is. */
        if (mail_set_uid(mail, uid) && mail_get_modseq(mail) <= peers)
            mail_update_modseq(mail, peers + 1);
    }
    mail_free(&mail);
}

/* False: not yet. */
static bool modseq_repair_box(struct session *s, uint32_t folder,
                              const ARRAY_TYPE(seq_range) * uids)
{
    struct box *x = box_of_folder(s, folder);
    struct orset_folder f;
    if (x == NULL || x->gone || x->vname == NULL || orset_folder_get(s->os, folder, &f) < 0)
        return TRUE; /* what is made there again is new to all clients */
    if (x->now.waits)
        return FALSE;
    struct mailbox *box = session_mailbox(s, x->vname, 0);
    bool done = session_open_mailbox(s, x, box) == 0 && session_enable_modseq(box) == 0;
    if (done) {
        struct mailbox_transaction_context *trans = mailbox_transaction_begin(
            box, MAILBOX_TRANSACTION_FLAG_SYNC | MAILBOX_TRANSACTION_FLAG_NO_NOTIFY,
            "dovelane modseq");
        modseq_repair_mails(trans, uids, f.peer_modseq);
        done = mailbox_transaction_commit(&trans) == 0;
    }
    if (!done)
        session_explain(s, "%s: its changes are not redated yet: %s", x->vname,
                        mailbox_get_last_internal_error(box, NULL));
    mailbox_free(&box);
    return done;
}

static int collect_row(void *arg, const uint8_t *key, size_t key_len, const uint8_t *value,
                       size_t len)
{
    ARRAY_TYPE(touched) *list = arg;
    struct orset_reader k = {key + 1, key + key_len, false};
    struct touched t = {(uint32_t)orset_key_read(&k, UINT32_MAX), 0};
    (void)value;
    (void)len;
    array_push_back(list, &t);
    return 0;
}

/* 1: its row may go; 0: not yet; -1 */
static int modseq_repair_row(struct session *s, uint32_t folder)
{
    ARRAY_TYPE(seq_range) uids;
    struct orset_key k = rows_folder_key(folder);
    const uint8_t *value;
    size_t len;
    int r = rows_get(s, ROW_MODSEQ_REPAIR, k.b, k.n, &value, &len);
    if (r <= 0)
        return r;
    t_array_init(&uids, 16);
    if (read_row(s, value, len, &uids) < 0)
        return -1;
    return modseq_repair_box(s, folder, &uids);
}

int modseq_repair_apply(struct session *s)
{
    ARRAY_TYPE(touched) list;
    const struct touched *t;
    int r = 0;
    if (!s->modseq_repairs)
        return 0;
    t_array_init(&list, 8);
    if (rows_each(s, ROW_MODSEQ_REPAIR, collect_row, &list) < 0 || session_begin(s) < 0)
        return -1;
    s->modseq_repairs = FALSE;
    array_foreach (&list, t) {
        struct orset_key k = rows_folder_key(t->folder);
        if (r >= 0)
            r = modseq_repair_row(s, t->folder);
        if (r > 0)
            r = rows_del(s, ROW_MODSEQ_REPAIR, k.b, k.n);
        else if (r == 0)
            s->modseq_repairs = TRUE;
    }
    if (r < 0) {
        session_rollback(s);
        s->modseq_repairs = TRUE;
        return -1;
    }
    return session_commit(s);
}
