/* log_later - reads the log between the mailbox's view and the index that the process has. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/worker/logs/log_later.h"
#include "dovecot-plugin/worker/logs/log_record.h"
#include "dovecot-plugin/worker/session/flags.h"

#include <mail-index-private.h>
#include <mail-index-view-private.h>
#include <mail-storage-private.h>
#include <mail-transaction-log-private.h>

/* The view does not change during a look, and so no mail's number in it does. */
static void add_record(struct log_later *l, struct mailbox *box,
                       const struct mail_transaction_header *hdr, const void *data)
{
    const struct mail_transaction_flag_update *rec = data;
    uint32_t first, last;
    if ((hdr->type & MAIL_TRANSACTION_SYNC) != 0 ||
        (hdr->type & MAIL_TRANSACTION_TYPE_MASK) != MAIL_TRANSACTION_FLAG_UPDATE)
        return;
    for (size_t n = LOG_RECORD_ENTRIES(hdr, rec); n > 0; n--, rec++) {
        uint8_t said = flags_system(rec->add_flags) | flags_system(rec->remove_flags);
        if (said == 0 ||
            !mail_index_lookup_seq_range(box->view, rec->uid1, rec->uid2, &first, &last))
            continue;
        for (uint32_t i = first; i <= last && i <= l->mails; i++)
            l->said[i] |= said;
    }
}

/* What was added to the log since it was read last. */
static bool read_on(struct log_later *l, struct mailbox *box, const struct mail_index_header *now)
{
    const struct mail_transaction_header *hdr;
    const char *reason = "";
    const void *data;
    bool reset = FALSE;
    int r = 1;
    struct mail_transaction_log_view *log = mail_transaction_log_view_open(box->view->index->log);
    bool whole = mail_transaction_log_view_set(log, l->seq, l->offset, now->log_file_seq,
                                               now->log_file_head_offset, &reset, &reason) > 0;
    while (whole && (r = mail_transaction_log_view_next(log, &hdr, &data)) > 0)
        add_record(l, box, hdr, data);
    mail_transaction_log_view_close(&log);
    l->seq = now->log_file_seq;
    l->offset = now->log_file_head_offset;
    return whole && !reset && r >= 0;
}

uint8_t log_later_flags(struct log_later *l, pool_t pool, struct mailbox *box, uint32_t uid)
{
    const struct mail_index_view *view = box->view;
    const struct mail_index_header *now = &view->index->map->hdr;
    uint32_t number;
    if (view->log_file_head_seq == now->log_file_seq &&
        view->log_file_head_offset == now->log_file_head_offset)
        return 0;
    if (l->said == NULL) {
        l->mails = mail_index_view_get_messages_count(box->view);
        l->said = p_malloc(pool, l->mails + 1);
        l->seq = view->log_file_head_seq;
        l->offset = view->log_file_head_offset;
    }
    if (l->seq != now->log_file_seq || l->offset != now->log_file_head_offset)
        l->unknown = !read_on(l, box, now) || l->unknown;
    bool known =
        !l->unknown && mail_index_lookup_seq(box->view, uid, &number) && number <= l->mails;
    return known ? l->said[number] : UINT8_MAX;
}
