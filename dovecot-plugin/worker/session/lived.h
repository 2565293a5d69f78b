/* lived - UIDs of folders of which the state never heard: clients made, filled and deleted them
 * between two looks, and may remember their mails. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_LIVED_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_LIVED_H

#include "dovecot-plugin/compat.h"

struct session;

/* A folder of that name (as the core has it) had this UIDVALIDITY, and this UIDNEXT when it was
 * deleted. In a transaction. The last 200 are kept. */
int lived_add(struct session *, const void *name, size_t len, uint32_t uid_validity,
              uint32_t uid_next);
/* The UIDNEXT that such folders had here; 1: there was none. */
int lived_uid_next(struct session *, const void *name, size_t len, uint32_t uid_validity,
                   uint32_t *uid_next_r);

#endif
