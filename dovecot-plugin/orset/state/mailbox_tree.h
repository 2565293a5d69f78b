/* mailbox_tree - the mailboxes a user should see, computed from the folders' registers (rule 6).
 *
 * It is a function of the live folders alone, so equal states show equal trees:
 *  - Folders with equal names are one mailbox. It is the one of the smallest id, by (site, epoch,
 *    counter).
 *  - A parent that no folder has is shown as \NoSelect (deleted here while a child was made there).
 *  - Names are whole paths, not edges to a parent, so no set of renames can make a cycle. G to P/G
 *    here and P to G/P there give P/G and G/P under two \NoSelect parents. Every mail stays where
 *    its folder is: F25's "drop the younger edge" has nothing to drop.
 *  - INBOX is always there. A live folder whose create has not come yet has no name and is not
 *    shown. If the only sites that knew the name are lost for ever, orset_local_rename gives it
 *    one. */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_STATE_MAILBOX_TREE_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_STATE_MAILBOX_TREE_H

#include "dovecot-plugin/orset/orset.h"

struct orset_mailbox {
    const char *name; /* as in struct orset_folder; NULL for INBOX */
    size_t name_len;
    uint32_t folder; /* whose UIDs the mailbox has; ORSET_NO_FOLDER for a \NoSelect parent */
    uint32_t ids;    /* how many folder ids it shows */
};

/* Calls fn for each mailbox, INBOX first, then by name as bytes (a parent before its children),
 * until it returns non-zero. Names are good until the call returns. Valid after a commit; not
 * inside a transaction that changed folders. */
typedef int orset_mailbox_fn(void *arg, const struct orset_mailbox *);
int orset_tree(struct orset *, orset_mailbox_fn *, void *arg);

/* How often a folder came, went or got another name since the state was opened. */
uint64_t orset_tree_changes(const struct orset *);

#endif
