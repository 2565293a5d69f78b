/* exec_uids - a keeper's round into the state. */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_OPS_EXEC_UIDS_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_OPS_EXEC_UIDS_H

#include "dovecot-plugin/orset/ops/exec.h"

int orset_uids_exec(struct exec *, struct folder *);

#endif
