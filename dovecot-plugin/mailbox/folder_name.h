/* folder_name - a mailbox's name as a folder's: the namespace's key, then each component behind a
 * NUL (docs/replication-protocol.md, "The bytes"). */
#ifndef DOVELANE_DOVECOT_PLUGIN_MAILBOX_FOLDER_NAME_H
#define DOVELANE_DOVECOT_PLUGIN_MAILBOX_FOLDER_NAME_H

#include "dovecot-plugin/compat.h"

#include <buffer.h>

/* Component by component as it is shown; an escaped one is not undone. FALSE: it is no name of a
 * folder, nor is INBOX. */
bool folder_name_of(struct mail_namespace *, const char *vname, buffer_t *name);

#endif
