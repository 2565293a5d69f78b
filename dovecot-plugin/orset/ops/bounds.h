/* bounds - what an op may not exceed in the state as it is: dry runs. They set x->beyond. */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_OPS_BOUNDS_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_OPS_BOUNDS_H

#include "dovecot-plugin/orset/ops/apply_op.h"

int orset_check_same(struct op_run *, const struct message *); /* one more dot of this message */
/* x->marks more flags on it */
int orset_check_marks(struct op_run *, const struct folder *, struct orset_dot target);
/* One more dot of a name, beside those that stay. */
int orset_check_subscribed(struct op_run *, const void *name, size_t len,
                           const struct orset_dot *kill, uint64_t nkill, struct orset_dot add);

#endif
