/* log_later - reads the log between the mailbox's view and the index that the process has. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/worker/logs/log_later.h"
#include "dovecot-plugin/worker/logs/log_record.h"
#include "dovecot-plugin/worker/session/flags.h"

#include <mail-index-private.h>
#include <mail-index-view-private.h>
#include <mail-storage-private.h>
#include <mail-transaction-log-private.h>

static uint8_t said_of(const struct mail_transaction_header *hdr, const void *data, uint32_t uid)
{
    const struct mail_transaction_flag_update *rec = data;
    uint8_t said = 0;
    if ((hdr->type & MAIL_TRANSACTION_SYNC) != 0 ||
        (hdr->type & MAIL_TRANSACTION_TYPE_MASK) != MAIL_TRANSACTION_FLAG_UPDATE)
        return 0;
    for (size_t n = LOG_RECORD_ENTRIES(hdr, rec); n > 0; n--, rec++)
        if (rec->uid1 <= uid && uid <= rec->uid2)
            said |= flags_system(rec->add_flags) | flags_system(rec->remove_flags);
    return said;
}

uint8_t log_later_flags(struct mailbox *box, uint32_t uid)
{
    const struct mail_index_view *view = box->view;
    const struct mail_index_header *now = &view->index->map->hdr;
    const struct mail_transaction_header *hdr;
    const char *reason = "";
    const void *data;
    bool reset = FALSE;
    uint8_t said = 0;
    if (view->log_file_head_seq == now->log_file_seq &&
        view->log_file_head_offset == now->log_file_head_offset)
        return 0;
    struct mail_transaction_log_view *log = mail_transaction_log_view_open(view->index->log);
    bool whole = mail_transaction_log_view_set(log, view->log_file_head_seq,
                                               view->log_file_head_offset, now->log_file_seq,
                                               now->log_file_head_offset, &reset, &reason) > 0;
    int r = 1;
    while (whole && (r = mail_transaction_log_view_next(log, &hdr, &data)) > 0)
        said |= said_of(hdr, data, uid);
    mail_transaction_log_view_close(&log);
    return !whole || reset || r < 0 ? UINT8_MAX : said;
}
