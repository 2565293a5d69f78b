/* lane_pause - times at which nothing is taken from an ordered lane. Its first mail was deferred,
 * and a later one must not overtake it; or the lane is being copied.
 *
 * A mail that was deferred goes back to its place without a delay, and the lane is left alone until
 * its time. A delay in the server would let the next one out. */
#ifndef DOVELANE_RELAY_TABLES_LANE_PAUSE_H
#define DOVELANE_RELAY_TABLES_LANE_PAUSE_H

#include <stdbool.h>
#include <stdint.h>

#include "relay/relay.h"
#include "relay/tables/inflight.h"
#include "relay/tables/lanes.h"

struct lane_pauses *lane_pauses_open(struct relay *);
void lane_pauses_close(struct lane_pauses *); /* after the lanes */

/* Nothing is taken from the lane for so many seconds. */
void lane_pause(struct lane *, double seconds);

/* Its pause ends soon: an admin changed entries of it, and its first mail may be due now. */
void lane_pause_end(struct lane *);

/* It is no more paused, and what is known of its first mail is forgotten. */
void lane_pause_forget(struct relay *, struct lane *);

/* Nothing is taken from the lane until it is thawed. */
void lane_freeze(struct lane *, bool freeze);

/* A mail that came from the head of an ordered lane goes back, and is due again in `left`
 * microseconds. `left` is 0 if the deferral was not caused by this mail. Returns true if it stays
 * the head, and the lane waits for it; false if it was the head for head_hold already. */
bool lane_wait_for(struct entry *, int64_t left);

#endif
