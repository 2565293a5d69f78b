/* lived - UIDs that clients may remember of a folder's name and UIDVALIDITY though the state does
 * not. Some folders were made, filled and deleted between two looks. Others have another
 * UIDVALIDITY since. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_LIVED_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_LIVED_H

#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/orset.h"

struct box;
struct session;

/* A folder of that name (as the core has it) had this UIDVALIDITY, and this UIDNEXT when it was
 * deleted. In a transaction. The last 200 are kept. */
int lived_add(struct session *, const void *name, size_t len, uint32_t uid_validity,
              uint32_t uid_next);
/* Before the folder's UIDVALIDITY becomes this one. In a transaction. */
int lived_before(struct session *, const struct orset_folder *, uint32_t uid_validity);
/* Before the mailbox gets the folder's UIDVALIDITY. */
int lived_raised(struct session *, const struct box *, const struct orset_folder *);
/* The UIDNEXT that such folders had here; 1: there was none. */
int lived_uid_next(struct session *, const void *name, size_t len, uint32_t uid_validity,
                   uint32_t *uid_next_r);

#endif
