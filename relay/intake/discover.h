/* discover - which lanes of the own node have something: LANE.READY on a connection of its own, which may
 * block, and LANE.LIST where news are not enough (a new connection, another owner died by the config). */
#ifndef DOVELANE_RELAY_INTAKE_DISCOVER_H
#define DOVELANE_RELAY_INTAKE_DISCOVER_H

#include "relay/relay.h"

struct discover;

struct discover *discover_open(struct relay *);
void discover_close(struct discover *);

/* Goes through all lanes of the server once. */
void discover_list(struct relay *);

#endif
