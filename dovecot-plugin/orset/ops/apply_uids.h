/* apply_uids - a keeper's round into the state. */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_OPS_APPLY_UIDS_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_OPS_APPLY_UIDS_H

#include "dovecot-plugin/orset/ops/apply_op.h"

int orset_uids_apply(struct op_run *, struct folder *);

#endif
