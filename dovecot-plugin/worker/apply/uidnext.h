/* uidnext - no UID that another site gave out is given again here (F31). */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_APPLY_UIDNEXT_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_APPLY_UIDNEXT_H

#include "dovecot-plugin/worker/apply/apply.h"

#include <stdbool.h>
#include <stdint.h>

struct session;

/* The UIDNEXT that the folder's mailbox should have by what ops told, and the site that gave the
 * UID before it; 1: none did. */
uint32_t uidnext_given(struct session *, uint32_t home, uint64_t *site_r);
/* UIDs are settled, or states compared: UIDNEXT may be behind for a while. */
bool uidnext_waits(struct session *, uint32_t home);
/* All mails are placed: raises the mailboxes whose UIDNEXT is behind. */
int uidnext_apply(struct session *, scan_fn *);

#endif
