/* arbiter - on which node's Redis the group counts what leaves for a next hop.
 *
 * All relays choose alike. For each next hop the nodes have an order of their own (the highest
 * random weight first: Thaler and Ravishankar, 1998). The first one that answers is the arbiter.
 * When it is lost, its server refuses or closes connections, and all relays go on to the next one.
 * A node that stopped to answer without that may be cut off from us alone, and others may still
 * count there. Until it is dead by the rules of takeover, this relay uses only one relay's part at
 * the node that follows. So does a minority: it may have been cut off. docs/shape.md has what that
 * means. */
#ifndef DOVELANE_RELAY_SHAPE_ARBITER_H
#define DOVELANE_RELAY_SHAPE_ARBITER_H

#include <stddef.h>

#include "relay/relay.h"

struct arbiters *arbiters_open(struct relay *);
void arbiters_close(struct arbiters *);

/* One next hop's way of choosing: zero, and the name, to begin with. */
struct arbiter {
    int node;     /* index in the config of the one chosen last; -1: none */
    double since; /* clock_monotonic: counts there from then on; -1: from the start */
};

/* Chooses. Chooses the arbiter of the next hop. The wire is there until the loop's next turn; NULL:
 * no node can be asked. part_r: the part of the group's numbers that may be used there, 0 to 1. */
struct wire *arbiter_choose(struct arbiters *, struct arbiter *, const char *destination,
                            double *part_r);

/* Seconds for which what is counted there has been counted there and nowhere else. */
double arbiter_known(const struct arbiters *, const struct arbiter *);

#endif
