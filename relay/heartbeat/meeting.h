/* meeting - whom a node that joins has not met yet (docs/takeover.md, "Membership", 0): what is read from beats for that, while it joins. */
#ifndef DOVELANE_RELAY_HEARTBEAT_MEETING_H
#define DOVELANE_RELAY_HEARTBEAT_MEETING_H

#include <stdbool.h>

#include "lib/cluster/liveness.h"
#include "relay/relay.h"

struct meeting;

struct meeting *meeting_open(struct relay *);
void meeting_free(struct meeting *);

/* A beat lies in a server since `at` (clock_monotonic); own_server: in this node's. */
void meeting_beat(struct meeting *, const char *name, const char *text, double at, bool own_server);

struct unmet {
    const char *why;  /* NULL: it has met all; else a text for the log, with the name of the node behind it */
    const char *node;
    const char *by;   /* NULL, or who knows that node, which is not known here. The texts live as long as the config and the meeting */
};

/* Every other node that beats, and that no admin calls dead, knows this one, or reaches its server and is reached from here; and so does whom they know and this one does not
 * count: one that joins as well. */
struct unmet meeting_unmet(const struct meeting *, const struct liveness *, double now);

#endif
