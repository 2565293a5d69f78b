/* membership - who belongs to the group, with membership = learned (docs/takeover/membership.md,
 * "Membership"). This relay's own record goes to every node's server. The records of others are
 * learned from there, kept in a file, and then used, without a restart. */
#ifndef DOVELANE_RELAY_HEARTBEAT_MEMBERSHIP_H
#define DOVELANE_RELAY_HEARTBEAT_MEMBERSHIP_H

#include "relay/relay.h"

struct membership *membership_open(struct relay *);

/* Whether this relay has asked, since it was started, the own server and those of the others
 * that it reached. Before, it may not know whose mail it holds. */
bool membership_known(const struct relay *);

/* True while this node is still joining. It has heard of no other node, or not every node that
 * beats reaches it and is reached from here. A joining node takes no mail. It takes nothing
 * meanwhile. */
bool membership_joining(const struct relay *);

/* It was taken out once, and may join again: others may name it in their beats because they had
 * it before. */
bool membership_again(const struct relay *);

/* Another one says that it joins, and is not in the group yet; and this relay reaches its
 * server. */
bool membership_joins(const struct relay *, const char *node);
bool membership_reaches(const struct relay *, const char *node);

/* No question is looked at any more; membership_free() when the connections are closed. */
void membership_close(struct membership *);
void membership_free(struct membership *);

#endif
