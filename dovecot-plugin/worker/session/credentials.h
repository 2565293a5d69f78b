/* credentials - one process, one user id. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_CREDENTIALS_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_CREDENTIALS_H

#include "dovecot-plugin/compat.h"

/* The credentials of a user who was looked up and not opened yet, as a number that is equal for
 * equal ones; not 0. fields: the userdb's. */
uint64_t credentials_of(struct mail_storage_service_user *, const char *const *fields);
/* Whether this process may open that user, who has these: it has none yet, or the same. Who has
 * a root directory (mail_chroot) needs a process that has opened nobody: 2.3 finds his home
 * elsewhere the second time. */
bool credentials_fit(struct mail_storage_service_user *, uint64_t);
/* After the user was opened, or could not be: whatever this process became by it, it is for
 * good. */
void credentials_keep(uint64_t);
uint64_t credentials_kept(void); /* 0: none yet */

#endif
