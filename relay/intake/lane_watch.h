/* lane_watch - which lanes of the own node have something. It asks LANE.READY on a connection of
 * its own, which may block. It asks LANE.LIST where news are not enough (a new connection, another
 * owner died by the config). */
#ifndef DOVELANE_RELAY_INTAKE_LANE_WATCH_H
#define DOVELANE_RELAY_INTAKE_LANE_WATCH_H

#include "relay/relay.h"

struct lane_watch;

struct lane_watch *lane_watch_open(struct relay *);
void lane_watch_close(struct lane_watch *);

/* Goes through all lanes of the server once. */
void lane_watch_list(struct relay *);

/* What decides which lanes are ours has changed. Each is judged anew, what waits of those that are
 * not ours any more goes back, and the server's lanes are listed. */
void lane_watch_judge(struct relay *);

#endif
