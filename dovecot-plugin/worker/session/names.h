/* names - the folder names of mailboxes. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_NAMES_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_NAMES_H

#include "dovecot-plugin/compat.h"

#include <buffer.h>

struct session;

/* The folder name of a mailbox: namespace key, components, NUL between. Of one that is shown
 * escaped, and of what is below it, the name that it has at the other sites. False: INBOX, or no
 * name (error). */
bool name_of_vname(struct session *, const char *vname, buffer_t *name);
bool vname_is_inbox(struct session *, const char *vname);
/* Where the local layout shows this name: as it is, or escaped (orset/state/shown.h). NULL: its
 * namespace is not here, or the layout can hold no form of it. */
const char *vname_of_name(struct session *, const char *name, size_t len);
/* The name as it is, where the layout can hold it. NULL: its namespace is not here. */
const char *vname_as_is(struct session *, const char *name, size_t len);
/* For the log, and for an admin. */
const char *folder_text(struct session *, uint32_t folder);
const char *name_text(const char *name, size_t len);

#endif
