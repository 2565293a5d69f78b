/* write_intent - what this program is about to commit to a mailbox, and whether it did.
 *
 *     the state's commit: a row with what will be written, and where the mailbox's log ended
 *     the mailbox's commit
 *     the state's commit: what was written is there, the row goes
 *
 * After a crash between, the log tells: behind that place it has the transaction, which is one
 * record of appends, or flag changes marked as this program's, or it has not. So a mail that a
 * client removed or changed before the state heard of it is not placed again, a flag that came from
 * a peer is not taken for a client's, and the reverse.
 *
 * A mail that got another UID has two while clients look at it; what one of them says of the old
 * UID, even when that is gone, is in the log and is said of the new one then (struct moved,
 * struct late). */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/worker/apply/write_intent.h"
#include "dovecot-plugin/worker/bodies/identity.h"
#include "dovecot-plugin/worker/logs/log.h"
#include "dovecot-plugin/worker/session/flags.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/retry.h"
#include "dovecot-plugin/worker/session/rows.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <mail-index-private.h>
#include <mail-storage-private.h>
#include <seq-range-array.h>

#include <time.h>

#define WRITE_INTENT_VERSION 1

/* --- rows ------------------------------------------------------------------------------------- */

struct written {
    uint32_t uid, folder;
    struct orset_dot dot;
    struct orset_flags flags;
};

static void put_flags(struct orset_buf *b, const struct orset_flags *f)
{
    orset_buf_u8(b, f->system);
    orset_buf_num(b, f->nkeywords);
    for (unsigned i = 0; i < f->nkeywords; i++)
        orset_buf_num(b, f->keyword[i]);
}

static void read_flags(const struct session *s, struct orset_reader *r, struct orset_flags *f)
{
    size_t len;
    f->system = orset_read_u8(r);
    f->nkeywords = (uint16_t)orset_read_num(r, ORSET_MESSAGE_KEYWORDS_MAX);
    r->bad = r->bad || f->system >= 1U << ORSET_SYSTEM_FLAGS;
    for (unsigned i = 0; i < f->nkeywords; i++) {
        f->keyword[i] = (uint16_t)orset_read_num(r, ORSET_KEYWORDS_MAX);
        r->bad = r->bad || orset_keyword_name(s->os, f->keyword[i], &len) == NULL;
    }
}

static void read_written(const struct session *s, struct orset_reader *r, struct written *w)
{
    w->uid = (uint32_t)orset_read_num(r, UINT32_MAX);
    w->folder = (uint32_t)orset_read_num(r, ORSET_FOLDERS_MAX);
    w->dot.origin = (uint16_t)orset_read_num(r, ORSET_ORIGINS_MAX);
    w->dot.counter = orset_read_num(r, ORSET_COUNTER_MAX);
    r->bad = r->bad || w->folder >= orset_folders(s->os) || w->dot.origin >= orset_origins(s->os);
    read_flags(s, r, &w->flags);
}

void write_intent_begin(struct write_intent *w, struct mailbox *box, enum write_intent_kind kind)
{
    i_zero(w);
    w->from = log_end(box);
    w->row.alloc = session_alloc();
    orset_buf_u8(&w->row, WRITE_INTENT_VERSION);
    orset_buf_num(&w->row, w->from.seq);
    orset_buf_num(&w->row, w->from.offset);
    orset_buf_u8(&w->row, (uint8_t)kind);
}

void write_intent_add(struct write_intent *w, uint32_t uid, uint32_t folder, struct orset_dot dot,
                      const struct orset_flags *flags)
{
    orset_buf_num(&w->row, uid);
    orset_buf_num(&w->row, folder);
    orset_buf_num(&w->row, dot.origin);
    orset_buf_num(&w->row, dot.counter);
    put_flags(&w->row, flags);
}

void write_intent_free(struct write_intent *w)
{
    orset_buf_free(&w->row);
}

int write_intent_put(struct session *s, struct box *x, struct write_intent *w)
{
    struct orset_key k = rows_folder_key(x->folder);
    i_assert(x->writing.seq == 0); /* write_intent_unfinished() was asked */
    if (w->row.failed)
        return session_fail(s, "out of memory");
    if (rows_put(s, ROW_WRITE_INTENT, k.b, k.n, w->row.data, w->row.len) < 0)
        return -1;
    x->writing = w->from;
    return 0;
}

int write_intent_end(struct session *s, struct box *x)
{
    struct orset_key k = rows_folder_key(x->folder);
    i_zero(&x->writing);
    return rows_del(s, ROW_WRITE_INTENT, k.b, k.n);
}

bool write_intent_unfinished(struct session *s, const struct box *x)
{
    if (x->writing.seq == 0)
        return FALSE;
    s->cut_short = TRUE; /* looking at the mailbox ends it */
    (void)session_retry(s, "writing", x->vname, 1000);
    return TRUE;
}

/* --- what became of it ------------------------------------------------------------------------ */

bool write_intent_assign(const ARRAY_TYPE(seq_range) * saved, const uint32_t *asked, uint32_t *got,
                         unsigned n)
{
    struct seq_range_iter iter;
    ARRAY_TYPE(seq_range) left;
    uint32_t uid;
    if (n == 0 || seq_range_count(saved) != n)
        return FALSE;
    /* The library keeps a UID that was asked for where it can, and gives the others what is
     * behind those, in order. */
    t_array_init(&left, 8);
    array_append_array(&left, saved);
    for (unsigned i = 0; i < n; i++) {
        got[i] = asked[i] != 0 && seq_range_array_remove(&left, asked[i]) ? asked[i] : 0;
    }
    seq_range_array_iter_init(&iter, &left);
    for (unsigned i = 0, at = 0; i < n; i++) {
        if (got[i] != 0)
            continue;
        if (!seq_range_array_iter_nth(&iter, at++, &uid))
            return FALSE;
        got[i] = uid;
    }
    return TRUE;
}

/* The mails are those that were to be placed: bound, with the flags they were saved with. One
 * that a client removed since is bound as well, and then removed by what the log says; one whose
 * message was removed elsewhere meanwhile is to go. */
static int placed(struct session *s, struct box *x, const struct log_scan *scan,
                  const struct written *v, unsigned n)
{
    uint32_t *asked = t_new(uint32_t, n + 1), *got = t_new(uint32_t, n + 1);
    for (unsigned i = 0; i < n; i++)
        asked[i] = v[i].uid;
    if (!write_intent_assign(&scan->own_saved, asked, got, n))
        return 0; /* nothing was saved; or, without a log, what was is found by its GUID */
    session_note(s, NOTE_INFO,
                 "%s: %u mails were being saved when this was cut short: they are there", x->vname,
                 n);
    for (unsigned i = 0; i < n; i++)
        if (orset_done_place(s->os, v[i].folder, v[i].dot, got[i], &v[i].flags) < 0)
            return session_core_failed(s, x->vname);
    return 0;
}

static int flags_written(struct session *s, struct mailbox *box, struct box *x,
                         const struct log_scan *scan, const struct written *v, unsigned n)
{
    struct mailbox_transaction_context *trans = mailbox_transaction_begin(box, 0, "dovelane flags");
    int r = 0;
    for (unsigned i = 0; i < n && r >= 0; i++) {
        bool done = seq_range_exists(&scan->own_flags, v[i].uid);
        struct mail *mail =
            !done && scan->verdict == LOG_SCAN_GAP ? mail_by_uid(trans, v[i].uid) : NULL;
        struct orset_flags now;
        /* the log does not reach back: the mail itself tells, unless somebody changed it since */
        if (mail != NULL) {
            flags_of_mail(s, mail, &now);
            done = flags_equal(&now, &v[i].flags);
            mail_free(&mail);
        }
        if (done &&
            (r = orset_done_flags(s->os, x->folder, v[i].uid, &v[i].flags)) == ORSET_E_ABSENT)
            r = 0;
    }
    session_read_end(&trans);
    return r < 0 ? session_core_failed(s, x->vname) : 0;
}

int write_intent_recover(struct session *s, struct mailbox *box, struct box *x,
                         const struct log_scan *scan)
{
    struct orset_key k = rows_folder_key(x->folder);
    const uint8_t *value;
    ARRAY(struct written) list;
    size_t len;
    int r = rows_get(s, ROW_WRITE_INTENT, k.b, k.n, &value, &len);
    if (r < 0)
        return -1;
    if (r > 0 && scan->verdict != LOG_SCAN_BROKEN) {
        struct orset_reader in = orset_reader_of(value, len);
        t_array_init(&list, 16);
        (void)orset_read_u8(&in);
        (void)orset_read_num(&in, UINT32_MAX);
        (void)orset_read_num(&in, UINT64_MAX);
        enum write_intent_kind kind = (enum write_intent_kind)orset_read_u8(&in);
        while (in.at != in.end && !in.bad) {
            struct written *w = array_append_space(&list);
            read_written(s, &in, w);
            in.bad = in.bad || (w->uid == 0 && kind != WRITE_INTENT_PLACE);
        }
        if (in.bad || (kind != WRITE_INTENT_PLACE && kind != WRITE_INTENT_FLAGS))
            return rows_corrupt(s, "the row of what is being written");
        unsigned n = array_count(&list);
        r = n == 0                       ? 0
            : kind == WRITE_INTENT_PLACE ? placed(s, x, scan, array_front(&list), n)
                                         : flags_written(s, box, x, scan, array_front(&list), n);
        if (r < 0)
            return -1;
    }
    return write_intent_end(s, x);
}
