/* read_op - what ops name, as their bytes say it. */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_OPS_READ_OP_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_OPS_READ_OP_H

#include "dovecot-plugin/orset/ops/apply_op.h"

int orset_op_malformed(struct op_run *, const char *what); /* the error */
int orset_read_count(struct op_run *, uint64_t most, uint64_t *n_r);
int orset_read_dot(struct op_run *, struct orset_dot *);
int orset_read_flag(struct op_run *, uint16_t *flag_r); /* interns keywords unless dry */
/* NULL when not known here; _made makes it unless dry */
int orset_read_folder(struct op_run *, struct folder **f);
int orset_read_folder_made(struct op_run *, struct folder **f);
int orset_read_name(struct op_run *, const uint8_t **name_r, size_t *len_r);
int orset_read_clock(struct op_run *, struct stamp *); /* a stamp of the op's origin */
struct orset_dot orset_take_number(struct op_run *);   /* the next one that the op gives */

#endif
