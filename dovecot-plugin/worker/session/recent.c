/* recent - which mails of an open mailbox are \Recent.
 *
 * The library notes each of them for itself, each time that a mailbox is opened and synced. At a
 * site where no client comes all mails are recent, and each change that arrived there cost as much
 * as the mailbox is large. Nothing here asks for that flag but the library: a Maildir's file that
 * is recent is looked for in new/ first. For that the index's header is enough: recent is what has
 * come since the last client's session began.
 *
 * The library calls the functions below instead of its own, since this program exports them. If it
 * ever calls its own, opening costs more. */
#include "dovecot-plugin/compat.h"

#include <mail-index.h>
#include <mail-storage-private.h>
#include <mailbox-recent-flags.h>

void mailbox_recent_flags_set_seqs(struct mailbox *box ATTR_UNUSED,
                                   struct mail_index_view *view ATTR_UNUSED,
                                   uint32_t seq1 ATTR_UNUSED, uint32_t seq2 ATTR_UNUSED)
{
}

void mailbox_recent_flags_set_uid(struct mailbox *box ATTR_UNUSED, uint32_t uid ATTR_UNUSED)
{
}

bool mailbox_recent_flags_have_uid(struct mailbox *box, uint32_t uid)
{
    return uid >= mail_index_get_header(box->view)->first_recent_uid;
}
