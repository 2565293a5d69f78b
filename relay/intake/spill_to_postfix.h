/* spill_to_postfix - the second way out. What must not stay in memory goes through reinject_port
 * into Postfix's own disk queue, and is acked after its 250 (docs/design.md, "Mail in" 10).
 *
 *   why          which entries of our lanes                                       how fast
 *   lane_time    those older than lane_time                                       spill_rate
 *   memory       the oldest, while an owner is above spill_above                  spill_rate
 *   requeue      those that an admin marked so                                    as Postfix takes it
 *   8bitmime     those whose next hop turned out to lack 8BITMIME                 at once
 *   drain        all, while `dovelane drain` runs; nothing is delivered meanwhile as Postfix takes it
 *
 * Lanes are looked through with READ, in order. What is chosen is read into the in-flight table,
 * not taken. It may be delayed, and TAKE gives no such thing; or its next hop may be away, and
 * nothing is taken for it then. In flight it is safe from being delivered beside (inflight.h). An
 * entry without a lease can be revoked, so only those are chosen that no milter can still be
 * revoking.
 *
 * The same looking-through obeys what admins wrote into envelopes, when admin_requests.h says that
 * a lane has such entries. Deleted ones go, and held ones stop. Those whose schedule was ended
 * (flush, release) are delivered. */
#ifndef DOVELANE_RELAY_INTAKE_SPILL_TO_POSTFIX_H
#define DOVELANE_RELAY_INTAKE_SPILL_TO_POSTFIX_H

#include "relay/tables/inflight.h"
#include "relay/relay.h"

struct spill *spill_open(struct relay *);
void spill_close(struct spill *);

/* Goes on with what there is to look through, at the end of each turn of the loop. */
void spill_run(struct relay *);

/* Look through this lane now: an admin changed entries of it. */
void spill_look(struct relay *, const char *lane, size_t len);

/* A drain began or ended. */
void spill_drain(struct relay *, bool on);
bool spill_draining(const struct relay *);

/* It is just being read into the in-flight table. */
bool spill_fetches(const struct relay *, const unsigned char *id);

#endif
