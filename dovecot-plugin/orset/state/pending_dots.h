/* pending_dots - what is remembered of dots that the vector does not cover yet (rule 3). */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_STATE_PENDING_DOTS_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_STATE_PENDING_DOTS_H

#include "dovecot-plugin/orset/base/handle.h"

int orset_pending_kill(struct orset *, struct orset_dot, uint16_t by);
int orset_pending_killed(struct orset *, struct orset_dot); /* 1, 0, error */
int orset_pending_flag(struct orset *, struct orset_dot target, struct flagdot, uint16_t by);
int orset_pending_flag_kill(struct orset *, struct orset_dot target, struct orset_dot flag);
int orset_pending_take_flags(struct orset *, struct message *);
/* flags of site's on it */
int orset_pending_marks(struct orset *, struct orset_dot target, uint64_t site);
/* Remembered flags go that is_gone() says are gone. */
int orset_pending_drop_flags(struct orset *,
                             bool (*is_gone)(const void *arg, struct orset_dot flag),
                             const void *arg);
int orset_pending_agreed(struct orset *, struct orset_dot, const struct agreed *);
int orset_pending_take_agreed(struct orset *, struct message *);
int orset_pending_forget_agreed(struct orset *, uint16_t by);
bool orset_pending_row_is_true(const struct orset *, const uint8_t *key, size_t len,
                               const uint8_t *v, size_t vlen);
int orset_pending_covered(struct orset *, uint16_t origin, uint64_t from, uint64_t to);

#endif
