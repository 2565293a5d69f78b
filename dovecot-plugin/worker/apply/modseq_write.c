/* modseq_write - appends records to a mailbox's index log under its lock.
 *
 * The records are made by hand, since a transaction of the library's cannot have an expunge of what
 * is gone, and all of them are to be seen at once. They are external: nothing is to be done for
 * them in the mailbox. Only UIDs below UIDNEXT that no mail has are written as expunged: no mail
 * will have one of them any more. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/worker/apply/modseq_write.h"

#include <array.h>
#include <buffer.h>
#include <mail-index-modseq.h>
#include <mail-storage-private.h>
#include <mail-transaction-log-private.h>

/* Where the mails of a set of UIDs are, one after the other. */
struct walk {
    struct mail_index_view *view;
    uint32_t seq, last;
};

static bool walk_begin(struct walk *w, struct mail_index_view *view, const struct seq_range *range)
{
    w->view = view;
    return mail_index_lookup_seq_range(view, range->seq1, range->seq2, &w->seq, &w->last);
}

void modseq_split(struct mail_index_view *view, const ARRAY_TYPE(seq_range) * uids, uint64_t min,
                  ARRAY_TYPE(seq_range) * below, ARRAY_TYPE(seq_range) * gone)
{
    uint32_t next_uid = mail_index_get_header(view)->next_uid, uid;
    const struct seq_range *range;
    struct walk w;
    array_foreach (uids, range) {
        if (range->seq1 >= next_uid)
            break;
        seq_range_array_add_range(gone, range->seq1, I_MIN(range->seq2, next_uid - 1));
        if (!walk_begin(&w, view, range))
            continue;
        for (; w.seq <= w.last; w.seq++) {
            mail_index_lookup_uid(view, w.seq, &uid);
            seq_range_array_remove(gone, uid);
            if (mail_index_modseq_lookup(view, w.seq) < min)
                seq_range_array_add(below, uid);
        }
    }
}

bool modseq_any_below(struct mail_index_view *view, const ARRAY_TYPE(seq_range) * uids,
                      uint64_t min)
{
    const struct seq_range *range;
    struct walk w;
    array_foreach (uids, range) {
        if (!walk_begin(&w, view, range))
            continue;
        for (; w.seq <= w.last; w.seq++)
            if (mail_index_modseq_lookup(view, w.seq) < min)
                return TRUE;
    }
    return FALSE;
}

bool modseq_is_believed(struct mailbox *box, uint64_t modseq)
{
    return modseq <= mail_index_modseq_get_highest(box->view) + MODSEQ_AHEAD_MOST;
}

static void add_expunges(const struct mail_transaction_header *hdr, const void *data,
                         ARRAY_TYPE(seq_range) * uids)
{
    const struct mail_transaction_expunge *range = data;
    const struct mail_transaction_expunge_guid *one = data;
    if ((hdr->type & MAIL_TRANSACTION_EXTERNAL) == 0)
        return; /* asked for, no more */
    switch (hdr->type & MAIL_TRANSACTION_TYPE_MASK & ~MAIL_TRANSACTION_EXPUNGE_PROT) {
    case MAIL_TRANSACTION_EXPUNGE:
        for (size_t n = hdr->size / sizeof *range; n > 0; n--, range++)
            seq_range_array_add_range(uids, range->uid1, range->uid2);
        break;
    case MAIL_TRANSACTION_EXPUNGE_GUID:
        for (size_t n = hdr->size / sizeof *one; n > 0; n--, one++)
            seq_range_array_add(uids, one->uid);
        break;
    default: break;
    }
}

bool modseq_expunged_since(struct mailbox *box, uint64_t modseq, ARRAY_TYPE(seq_range) * uids)
{
    struct mail_transaction_log_view *log = mail_transaction_log_view_open(box->index->log);
    const struct mail_transaction_header *hdr;
    const void *data;
    int r = mail_transaction_log_view_set_all(log);
    bool reaches = r >= 0 && mail_transaction_log_view_get_prev_modseq(log) < modseq;
    while (reaches && (r = mail_transaction_log_view_next(log, &hdr, &data)) > 0) {
        if (mail_transaction_log_view_get_prev_modseq(log) >= modseq)
            add_expunges(hdr, data, uids);
    }
    mail_transaction_log_view_close(&log);
    return reaches && r == 0;
}

static void put_modseq(buffer_t *b, uint32_t uid, uint64_t value)
{
    const struct mail_transaction_modseq_update u = {
        .uid = uid, .modseq_low32 = (uint32_t)value, .modseq_high32 = (uint32_t)(value >> 32)};
    buffer_append(b, &u, sizeof u);
}

/* The expunges first: each of their records counts one further. */
static void write_set(struct mail_transaction_log_append_ctx *log, struct mail_index_view *view,
                      const ARRAY_TYPE(seq_range) * uids, uint64_t value)
{
    ARRAY_TYPE(seq_range) below, gone;
    struct seq_range_iter iter;
    const struct seq_range *range;
    uint32_t uid;
    t_array_init(&below, 16);
    t_array_init(&gone, 16);
    modseq_split(view, uids, value, &below, &gone);
    buffer_t *modseqs = t_buffer_create(256), *expunges = t_buffer_create(256);
    if (!array_is_empty(&gone)) {
        if (log->new_highest_modseq < value - 1) {
            put_modseq(modseqs, 0, value - 1);
            mail_transaction_log_append_add(log, MAIL_TRANSACTION_MODSEQ_UPDATE, modseqs->data,
                                            modseqs->used);
            buffer_set_used_size(modseqs, 0);
        }
        array_foreach (&gone, range) {
            const struct mail_transaction_expunge e = {.uid1 = range->seq1, .uid2 = range->seq2};
            buffer_append(expunges, &e, sizeof e);
        }
        mail_transaction_log_append_add(log, MAIL_TRANSACTION_EXPUNGE, expunges->data,
                                        expunges->used);
    }
    seq_range_array_iter_init(&iter, &below);
    for (unsigned i = 0; seq_range_array_iter_nth(&iter, i, &uid); i++)
        put_modseq(modseqs, uid, value);
    if (modseqs->used == 0)
        return;
    mail_transaction_log_append_add(log, MAIL_TRANSACTION_MODSEQ_UPDATE, modseqs->data,
                                    modseqs->used);
    /* Raises nothing. Where the last record jumps over a modseq that a client asks for, the library
     * takes the log for spoilt and rotates it. */
    buffer_set_used_size(modseqs, 0);
    put_modseq(modseqs, 0, value);
    mail_transaction_log_append_add(log, MAIL_TRANSACTION_MODSEQ_UPDATE, modseqs->data,
                                    modseqs->used);
}

bool modseq_write(struct mailbox *box, struct mail_index_view *view, uint64_t now,
                  const ARRAY_TYPE(seq_range) * uids, uint64_t value,
                  const ARRAY_TYPE(seq_range) * others, uint64_t other)
{
    struct mail_transaction_log_append_ctx *log;
    bool some = uids != NULL && !array_is_empty(uids),
         more = others != NULL && !array_is_empty(others);
    if (!some && !more)
        return TRUE;
    /* All of them get the higher one, which is below neither's need. */
    ARRAY_TYPE(seq_range) all;
    t_array_init(&all, 16);
    if (some)
        seq_range_array_merge(&all, uids);
    if (more)
        seq_range_array_merge(&all, others);
    value = I_MAX(some ? value : 0, more ? other : 0);
    if (mail_transaction_log_append_begin(
            box->index, MAIL_TRANSACTION_EXTERNAL | MAIL_TRANSACTION_SYNC, &log) < 0)
        return FALSE;
    log->new_highest_modseq = now;
    write_set(log, view, &all, value);
    return mail_transaction_log_append_commit(&log) == 0;
}
