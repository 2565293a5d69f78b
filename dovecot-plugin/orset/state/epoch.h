/* epoch - which of this replica's numbers mean the same to everybody (F20). */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_STATE_EPOCH_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_STATE_EPOCH_H

#include "dovecot-plugin/orset/base/handle.h"

/* No peer can know this own number, unless it was given by a life of this state that is not
 * remembered. */
bool orset_own_unknown(const struct orset *, uint64_t number);
/* The error for a number of this replica that it did not give: ORSET_E_ROLLED_BACK or _FORGED. */
int orset_own_ahead(struct orset *, const char *what, uint64_t number);
/* The running hash up to an own number: 1 and it, 0 when it is not kept any more, -1 when no op
 * ends there. */
int orset_chain_at(struct orset *, uint64_t number, uint64_t *chain_r);
/* A peer's vector names an own number with this running hash: 0, or the error above. */
int orset_epoch_confirmed(struct orset *, uint64_t number, uint64_t chain);

#endif
