/* mailbox - watches a mailbox: one hint per commit that changed it, intents around its deletion. */
#ifndef DOVELANE_DOVECOT_PLUGIN_PLUGIN_MAILBOX_H
#define DOVELANE_DOVECOT_PLUGIN_PLUGIN_MAILBOX_H

struct mailbox;
struct plugin_user;

/* Hook. */
void plugin_mailbox_allocated(struct mailbox *box);

/* The user's last hint goes out, if one waits. */
void plugin_mailbox_user_ends(struct plugin_user *puser);

#endif
