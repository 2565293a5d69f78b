/* list_mark - sets the flag in any case: that takes the lock of the index's log, which whoever
 * clears it holds from before he reads the names. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/indexlog/list_mark.h"

#include <mail-index.h>
#include <mail-storage-private.h>
#include <mailbox-list-index.h>

void list_mark(struct mailbox_list *list)
{
    struct mailbox_list_index *index = INDEX_LIST_CONTEXT(list);
    const struct mailbox_list_index_header set = {.refresh_flag = 1};
    if (index == NULL || !index->has_backing_store || mailbox_list_index_index_open(list) < 0)
        return; /* it logged why */
    struct mail_index_view *view = mail_index_view_open(index->index);
    struct mail_index_transaction *trans =
        mail_index_transaction_begin(view, MAIL_INDEX_TRANSACTION_FLAG_EXTERNAL);
    mail_index_update_header_ext(trans, index->ext_id,
                                 offsetof(struct mailbox_list_index_header, refresh_flag),
                                 &set.refresh_flag, sizeof set.refresh_flag);
    (void)mail_index_transaction_commit(&trans);
    mail_index_view_close(&view);
}
