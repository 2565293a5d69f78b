/* modseq_repair - own changes get modseqs above those that peers told (F33). */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_APPLY_MODSEQ_REPAIR_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_APPLY_MODSEQ_REPAIR_H

#include "dovecot-plugin/compat.h"

struct peer;
struct session;

/* modseq_repair.c: own changes that a batch's sender had not heard of. Inside the batch's
 * transaction; and when that is committed. */
int modseq_repair_note(struct session *, const struct peer *, uint64_t confirmed);
void modseq_repair_noted(struct session *, struct peer *, uint64_t confirmed);
int modseq_repair_apply(struct session *);

#endif
