/* modseq_write - modseqs of mails that are there, and of expunges, into a mailbox's index log. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_APPLY_MODSEQ_WRITE_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_APPLY_MODSEQ_WRITE_H

#include "dovecot-plugin/compat.h"

#include <seq-range-array.h>

/* Peers' modseqs further above HIGHESTMODSEQ are not believed: they could use up all that there
 * are. */
#define MODSEQ_AHEAD_MOST (1ULL << 32)

struct mail_index_view;
struct mailbox;

/* Of uids, those of mails whose modseq is below min, and those that name no mail any more. */
void modseq_split(struct mail_index_view *, const ARRAY_TYPE(seq_range) * uids, uint64_t min,
                  ARRAY_TYPE(seq_range) * below, ARRAY_TYPE(seq_range) * gone);
bool modseq_any_below(struct mail_index_view *, const ARRAY_TYPE(seq_range) * uids, uint64_t min);

bool modseq_is_believed(struct mailbox *, uint64_t modseq);

/* The mails of one set get modseq value, those of the other one other, at once; either may be
 * NULL. The expunge of what is gone is written again, so that it counts as one of that modseq.
 * now: HIGHESTMODSEQ, below both. The caller has locked the log, and view is of this moment. */
bool modseq_write(struct mailbox *, struct mail_index_view *view, uint64_t now,
                  const ARRAY_TYPE(seq_range) * uids, uint64_t value,
                  const ARRAY_TYPE(seq_range) * others, uint64_t other);

/* UIDs that the log has as expunged under this modseq or a later one. FALSE: it does not reach
 * back so far. (mailbox_get_expunged_uids() takes a log whose last record jumps over the modseq for
 * spoilt.) */
bool modseq_expunged_since(struct mailbox *, uint64_t modseq, ARRAY_TYPE(seq_range) * uids);

#endif
