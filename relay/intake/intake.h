/* intake - takes entries of our lanes (LANE.TAKE), as many as their next hops have credit for.
 *
 * A lane that has something to take (lanes.h: waiting) is asked until it gives nothing. One TAKE
 * per destination is under way at a time, over all its lanes in turn; destination_in_flight and the
 * bytes bound it.
 *
 * Where mail of several classes (relay/tables/classes.h) waits, each class has its part of that by
 * its weight. The class that has the least in flight for its weight is asked.
 *
 * A TAKE that gave fewer than it was asked for has emptied the lane, unless BYTES ended it before a
 * large entry. Only another TAKE can tell. One round trip per mail for that answer would be a fifth
 * of what a mail costs at moderate load. So that TAKE leaves together with the last ACK or NACK of
 * the lane, in one write, or LATER afterwards. When READY names the lane, it leaves at once. */
#ifndef DOVELANE_RELAY_INTAKE_INTAKE_H
#define DOVELANE_RELAY_INTAKE_INTAKE_H

#include "relay/relay.h"

struct intake *intake_open(struct relay *);
void intake_close(struct intake *);

/* Takes what may be taken. */
void intake_run(struct relay *);

#endif
