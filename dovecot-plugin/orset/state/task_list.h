/* task_list - the tasks in their order; the rest of it is in orset.h. */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_STATE_TASK_LIST_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_STATE_TASK_LIST_H

#include "dovecot-plugin/orset/base/handle.h"

/* orset_task_next() among the REMOVE rows, at_len 1 and the kind at first: with those that are
 * not for the caller yet. */
int orset_task_next_removal(struct orset *, struct orset_task *);

#endif
