/* joining - nodes that say they join, and are none of the group yet (docs/takeover.md, "Membership"). This relay connects to their servers and leaves its beat
 * there: so they see who reaches them, which each of them waits for. They count nowhere else. */
#ifndef DOVELANE_RELAY_HEARTBEAT_JOINING_H
#define DOVELANE_RELAY_HEARTBEAT_JOINING_H

#include "lib/cluster/members.h"
#include "relay/relay.h"

struct joining;

struct joining *joining_open(struct relay *);

/* Greets those that join by this table, and leaves those that do not any more. Once a second. */
void joining_look(struct joining *, const struct members *);

/* Whether that one's server is connected. */
bool joining_reaches(const struct joining *, const char *node);

void joining_close(struct joining *);

#endif
