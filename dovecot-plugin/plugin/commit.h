/* commit - holds the reply to a save back until another site has the mail (dovelane_commit = peers;
 * docs/two-disks.md).
 *
 * By then the mail is in the mailbox. The replicator is asked over a socket, for
 * dovelane_commit_wait at most, and whatever it says the save has succeeded. */
#ifndef DOVELANE_DOVECOT_PLUGIN_PLUGIN_COMMIT_H
#define DOVELANE_DOVECOT_PLUGIN_PLUGIN_COMMIT_H

#include "dovecot-plugin/plugin/user.h"

struct mail_save_context;

/* Mails that transactions of one open mailbox have saved. Zeroed: none. */
struct commit_saves {
    ARRAY(struct commit_save) all;
};

/* Before a mail is saved, not copied: true where its reply is to be held back. Then it has a GUID
 * that can be asked for. A Maildir must make a file of its own, as for a gateway's delivery. */
bool commit_begin(struct plugin_user *, struct mail_save_context *);
/* It was saved in that transaction; guid: what it had before the save ended. */
void commit_saved(struct commit_saves *, struct mailbox_transaction_context *, const char *guid);
/* The transaction has saved such mails. */
bool commit_has(const struct commit_saves *, const struct mailbox_transaction_context *);
/* The transaction was committed, and is gone: returns when another site has its mails, or there is
 * nothing to wait for. */
void commit_wait(struct commit_saves *, const struct mailbox_transaction_context *,
                 struct plugin_user *, struct mailbox *);
/* It was rolled back, or its commit failed; NULL: the mailbox goes away, with all of them. */
void commit_forget(struct commit_saves *, const struct mailbox_transaction_context *);
/* The plugin is unloaded. */
void commit_deinit(void);

#endif
