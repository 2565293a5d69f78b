/* intake - takes entries of our lanes (LANE.TAKE), as many as their next hops have credit for.
 *
 * A lane that has something to take (lanes.h: waiting) is asked until it gives nothing. One TAKE
 * per destination is under way at a time, over all its lanes in turn; destination_in_flight and the
 * bytes bound it.
 *
 * A TAKE that gave fewer than it was asked for has emptied the lane, unless BYTES ended it
 * before a large entry. Only another TAKE can tell, and one round trip per mail for that answer
 * would be a fifth of what a mail costs at moderate load. So that TAKE leaves together with the
 * last ACK or NACK of the lane, in one write, or LATER afterwards; when READY names the lane, at
 * once. */
#ifndef DOVELANE_RELAY_INTAKE_INTAKE_H
#define DOVELANE_RELAY_INTAKE_INTAKE_H

#include "relay/delivery/destination.h"
#include "relay/state/inflight.h"
#include "relay/relay.h"

struct intake *intake_open(struct relay *);
void intake_close(struct intake *);

/* Something changed that may allow a TAKE: looked at at the end of this turn of the loop. */
void intake_want(struct destination *);
void intake_want_all(struct relay *);

/* The entry is acked or given back, and what tells the node so leaves at the end of this turn. */
void intake_leaving(struct entry *);

/* An entry leaves the in-flight table. */
void intake_released(const struct entry *);

/* Takes what may be taken. */
void intake_run(struct relay *);

/* Whether a lane of it may hold something. Asks the server for the lengths on the way, so that
 * the next answer knows better. */
bool intake_waits(struct destination *);

#endif
