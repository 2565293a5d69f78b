/* ordered_lanes - ordered lanes (docs/takeover/order.md, "Order"): all lanes of one origin's mail
 * to one destination are a series, of generations that come one after the other.
 *
 * Its turn: nothing is taken from a lane before what has a lower generation in the series is
 * delivered, or has stepped aside. This relay may be no owner of that, so all nodes are asked for
 * it, for all lanes that wait in one round. A generation that has a successor gets no more mail
 * (lib/store/store_order.c). So a lane whose turn has come need not ask again while we have it.
 *
 * Its first mail: one that was deferred keeps its place, and the lane is paused until its time
 * (relay/tables/lane_pause.h). After head_hold it steps aside: it is marked so in its envelope, on
 * every owner, and gets a delay as others do. TAKE passes it over. */
#ifndef DOVELANE_RELAY_INTAKE_ORDERED_LANES_H
#define DOVELANE_RELAY_INTAKE_ORDERED_LANES_H

#include <stdbool.h>

#include "relay/tables/lanes.h"
#include "relay/relay.h"

struct ordered_lanes *ordered_open(struct relay *);
void ordered_close(struct ordered_lanes *); /* after the connections and lanes */

/* Whether an entry of the lane, which is ours and has something, may be taken. One whose turn
 * has not come is wanted (intake.h) when it has. */
bool ordered_may_take(struct lane *);

/* The lane became ours, is ours no more, or ends. */
void ordered_forget(struct lane *);

/* TAKE found nothing in this ordered lane: others may have waited for that. */
void ordered_emptied(struct lane *);

#endif
