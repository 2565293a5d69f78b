/* whole_sets - for which sets of owners the own server is whole, as it said last, and since when
 * (docs/takeover/return.md, "Whole"). relay/repair/resync.h asks it and makes it so; everybody may
 * look here. Nothing is known with takeover = manual. */
#ifndef DOVELANE_RELAY_CLUSTER_WHOLE_SETS_H
#define DOVELANE_RELAY_CLUSTER_WHOLE_SETS_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/mem.h"
#include "lib/mail/lanename.h"
#include "lib/redis/wire.h"
#include "relay/relay.h"

struct whole_sets *whole_sets_open(void);
void whole_sets_close(struct whole_sets *);

/* A set's name, "mx1+mx2": its owners in the order of their names. At most LANENAME_OWNERS_MAX. */
void whole_set_name(struct buf *, const char *const *owner, size_t n);

/* The own server's answers to LANE.WHOLE (sets and tokens, one behind the other; n texts) and to
 * LANE.WHOLE SINCE. */
void whole_sets_said(struct relay *, char *const *said, size_t n);
void whole_sets_since(struct relay *, const redisReply *);

/* Whether it is whole for the set of this lane's owners. The first goes by the server's last answer
 * to a beat, the second by its answer to LANE.WHOLE. */
bool whole_sets_believed(const struct relay *, const struct lanename *);
bool whole_sets_says(const struct lanename *, const redisReply *said);

/* Whether what has been in this lane since then (clock_boottime()) was there when the own server
 * became whole. It came from a file, from another owner, or was there before. */
bool whole_sets_brought(const struct relay *, const struct lanename *, double stored_at);

#endif
