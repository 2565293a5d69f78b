/* membership_join - nodes that say they join, and are not in the group yet
 * (docs/takeover/membership.md, "Membership"). This relay connects to their servers and leaves its
 * beat there: so each of them sees who reaches it, and waits for that. They count nowhere else. */
#ifndef DOVELANE_RELAY_HEARTBEAT_MEMBERSHIP_JOIN_H
#define DOVELANE_RELAY_HEARTBEAT_MEMBERSHIP_JOIN_H

#include "lib/cluster/members.h"
#include "relay/relay.h"

struct membership_join;

struct membership_join *membership_join_open(struct relay *);

/* Greets those that join by this table, and leaves those that do not any more. Once a second. */
void membership_join_look(struct membership_join *, const struct members *);

/* Whether that one's server is connected. */
bool membership_join_reaches(const struct membership_join *, const char *node);

void membership_join_close(struct membership_join *);

#endif
