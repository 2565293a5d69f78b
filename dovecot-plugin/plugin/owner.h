/* owner - whose mailbox is it, and can its changes be replicated at all. */
#ifndef DOVELANE_DOVECOT_PLUGIN_PLUGIN_OWNER_H
#define DOVELANE_DOVECOT_PLUGIN_PLUGIN_OWNER_H

#include "dovecot-plugin/plugin/user.h"

struct mailbox;

/* The user whose replicated state the mailbox belongs to, or NULL when it is nobody's. A shared
 * mailbox is its owner's (not the session's), a public one the configured pseudo-user's. A virtual
 * one shows other mailboxes, and is nobody's. A storage without a log to replicate from is refused
 * by name, in one log line per session. Called once for each struct mailbox; the name lives as long
 * as the namespace. */
const char *owner_of(struct plugin_user *puser, struct mailbox *box);

#endif
