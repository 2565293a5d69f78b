/* membership_contact - which nodes a joining node has no contact with yet
 * (docs/takeover/membership.md, "What makes it safe", 0), as beats say. */
#ifndef DOVELANE_RELAY_HEARTBEAT_MEMBERSHIP_CONTACT_H
#define DOVELANE_RELAY_HEARTBEAT_MEMBERSHIP_CONTACT_H

#include <stdbool.h>

#include "lib/cluster/liveness.h"
#include "relay/relay.h"

struct contact;

struct contact *contact_open(struct relay *);
void contact_free(struct contact *);

/* A beat lies in a server since `at` (clock_monotonic); own_server: in this node's. */
void contact_beat(struct contact *, const char *name, const char *text, double at, bool own_server);

struct unmet_node {
    /* NULL: it has met all; else a text for the log, with the name of the node behind it */
    const char *why;
    const char *node;
    /* NULL, or who knows that node, which is not known here. The texts live as long as the
     * config and the struct contact */
    const char *by;
};

/* Every other node that beats, and that no admin calls dead, knows this one, or reaches its server
 * and is reached from here. The same holds for nodes that they know and this one does not count:
 * one that joins as well. */
struct unmet_node contact_unmet(const struct contact *, const struct liveness *, double now);

#endif
