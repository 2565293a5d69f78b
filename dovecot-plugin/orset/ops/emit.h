/* emit - an op of this replica. */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_OPS_EMIT_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_OPS_EMIT_H

#include "dovecot-plugin/orset/ops/apply_op.h"

/* An op is written into os->op. */
void orset_op_begin(struct orset *, enum op_kind);
void orset_op_presence(struct orset *, const struct folder *);
/* The op in os->op as this replica's next one: applied, and an outgoing row. */
int orset_emit(struct orset *, uint32_t uid);

int orset_emit_remove(struct orset *, const struct folder *, const struct orset_dot *, unsigned n);
/* The message that had this UID in its folder's own mailbox, into m[0]. The folder is shown in
 * another one's by now, where the message waits to be placed, or, where placed says so, is by now.
 * ORSET_KNOWN: there is none. */
int orset_find_moved(struct orset *, uint32_t folder, uint32_t uid, bool placed);
/* of the message in m[0] */
int orset_drop_bytes(struct orset *, const uint8_t sha256[32]);

#endif
