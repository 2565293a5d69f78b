/* removed - GUIDs of the gateway's deliveries that users removed lately. A relay that asks whether
 * such a delivery is safe hears that (docs/two-disks.md). Only where relays ask. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_REMOVED_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_REMOVED_H

#include "dovecot-plugin/compat.h"

struct session;

/* The state was opened; and before it is closed, or when it was. */
void removed_begin(struct session *);
void removed_end(struct session *);
/* 1: messages of that GUID were removed within a week; 0; -1 */
int removed_has(struct session *, const uint8_t guid[16]);

#endif
