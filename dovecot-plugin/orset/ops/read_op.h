/* read_op - what ops name, as their bytes say it. */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_OPS_READ_OP_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_OPS_READ_OP_H

#include "dovecot-plugin/orset/ops/exec.h"

int orset_op_malformed(struct exec *, const char *what); /* the error */
int orset_read_count(struct exec *, uint64_t most, uint64_t *n_r);
int orset_read_dot(struct exec *, struct orset_dot *);
int orset_read_flag(struct exec *, uint16_t *flag_r); /* interns keywords unless dry */
/* NULL when not known here; _made makes it unless dry */
int orset_read_folder(struct exec *, struct folder **f);
int orset_read_folder_made(struct exec *, struct folder **f);
int orset_read_name(struct exec *, const uint8_t **name_r, size_t *len_r);
int orset_read_clock(struct exec *, struct stamp *); /* a stamp of the op's origin */
struct orset_dot orset_take_number(struct exec *);   /* the next one that the op gives */

#endif
