/* validity - another UIDVALIDITY for a mailbox that never had a mail. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_VALIDITY_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_VALIDITY_H

#include "dovecot-plugin/compat.h"

/* Of an open mailbox that never had a mail. uid_next: its UIDNEXT, 0: as it is (a Maildir's
 * always). False: it has had one since, or it failed, and all is as it was. */
bool validity_set(struct mailbox *, uint32_t uid_validity, uint32_t uid_next);

#endif
