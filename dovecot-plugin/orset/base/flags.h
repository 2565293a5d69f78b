/* flags - sets of flags, and the dots behind them (rule 5). */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_BASE_FLAGS_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_BASE_FLAGS_H

#include "dovecot-plugin/orset/base/handle.h"

void orset_flags_of(const struct message *, struct orset_flags *yes, struct orset_flags *no);
bool orset_flags_equal(const struct orset_flags *, const struct orset_flags *);
void orset_flags_diff(const struct orset_flags *, const struct orset_flags *minus,
                      struct orset_flags *r);
void orset_flags_or(struct orset_flags *, const struct orset_flags *);
int orset_flagdot_put(struct orset *, struct message *, struct flagdot);
void orset_flagdot_cut(struct message *, unsigned index);
/* flag = 0 to 4 (bit of the system flags) | 5, text (keyword) */
void orset_flag_write(const struct orset *, struct orset_buf *, uint16_t flag);
/* A set in a row: keywords by number. */
void orset_flags_write(struct orset_buf *, const struct orset_flags *);
void orset_flags_read(const struct orset *, struct orset_reader *, struct orset_flags *);

#endif
