/* scope - which of a user's namespaces are replicated. */
#ifndef DOVELANE_DOVECOT_PLUGIN_MAILBOX_SCOPE_H
#define DOVELANE_DOVECOT_PLUGIN_MAILBOX_SCOPE_H

#include "dovecot-plugin/compat.h"

/* names: replicate_namespaces; public_user: replicate_public_user. */
bool scope_has(const struct mail_user *, const struct mail_namespace *, const char *const *names,
               size_t n, const char *public_user);
/* INBOX has no name of a folder's: it is a constant. */
bool scope_is_inbox(const struct mail_namespace *, const char *vname);

#endif
