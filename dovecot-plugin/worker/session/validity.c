/* validity - another UIDVALIDITY for a mailbox that never had a mail: no UID of it is anybody's,
 * so a lower one harms nobody. The lock that who saves a mail takes is held meanwhile. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/validity.h"

#include <mail-index-private.h>
#include <mail-storage-private.h>
#include <maildir-storage.h>
#include <maildir-uidlist.h>

static bool index_set(struct mailbox *box, uint32_t uid_validity, uint32_t uid_next)
{
    struct mail_index_sync_ctx *sync;
    struct mail_index_view *view;
    struct mail_index_transaction *trans;
    if (mail_index_sync_begin(box->index, &sync, &view, &trans, 0) <= 0)
        return FALSE;
    const struct mail_index_header *hdr = mail_index_get_header(view);
    if (hdr->uid_validity == uid_validity || hdr->next_uid > 1) {
        mail_index_sync_rollback(&sync);
        return FALSE;
    }
    mail_index_update_header(trans, offsetof(struct mail_index_header, uid_validity), &uid_validity,
                             sizeof uid_validity, TRUE);
    if (uid_next > 1)
        mail_index_update_header(trans, offsetof(struct mail_index_header, next_uid), &uid_next,
                                 sizeof uid_next, TRUE);
    return mail_index_sync_commit(&sync) >= 0;
}

/* A Maildir's stands in its list of UIDs, and in the index again: there a sync puts it only when
 * something else has changed, too. */
static bool maildir_set(struct mailbox *box, uint32_t uid_validity)
{
    struct maildir_uidlist *list = ((struct maildir_mailbox *)box)->uidlist;
    if (maildir_uidlist_lock(list) <= 0)
        return FALSE;
    bool set = maildir_uidlist_refresh(list) >= 0 && maildir_uidlist_get_next_uid(list) <= 1;
    if (set) {
        maildir_uidlist_set_uid_validity(list, uid_validity);
        set = maildir_uidlist_update(list) >= 0 && index_set(box, uid_validity, 0);
    }
    maildir_uidlist_unlock(list);
    return set;
}

bool validity_set(struct mailbox *box, uint32_t uid_validity, uint32_t uid_next)
{
    return is_maildir(box) ? maildir_set(box, uid_validity)
                           : index_set(box, uid_validity, uid_next);
}
