/* local_changes - what changed in a mailbox becomes an op; the rest of it is in orset.h. */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_OPS_LOCAL_CHANGES_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_OPS_LOCAL_CHANGES_H

#include "dovecot-plugin/orset/base/handle.h"

int orset_unplaced_guid(struct orset *, uint32_t home, const uint8_t guid[16]); /* 1, 0, error */

#endif
