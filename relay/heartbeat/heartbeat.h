/* heartbeat - sends this node's heartbeat, reads the other nodes' heartbeats, and acts on the
 * role changes that takeover_rules.h derives from them. Only with takeover = automatic; else it
 * does not exist, and the configuration says who is dead. */
#ifndef DOVELANE_RELAY_HEARTBEAT_HEARTBEAT_H
#define DOVELANE_RELAY_HEARTBEAT_HEARTBEAT_H

#include <stdbool.h>

#include "relay/heartbeat/membership_contact.h"
#include "relay/relay.h"

/* NULL with takeover = manual. */
struct heartbeat *heartbeat_open(struct relay *);
void heartbeat_close(struct relay *);
void heartbeat_reload(struct relay *);

/* Whom this node, which joins, has not met yet; why is NULL with takeover = manual. */
struct unmet_node heartbeat_unmet(const struct relay *);

/* Leaves this node's beat at the server of a node that is not in the group yet. */
void heartbeat_greet(struct relay *, struct wire *);

/* This node takes nothing from now on (why: for the log; it must stay), or may again (NULL). */
void heartbeat_exclude(struct relay *, const char *why);

/* This node returns. why: for the log; it must stay. */
void heartbeat_return(struct relay *, const char *why);

/* This relay is being stopped: the others are told at once. */
void heartbeat_leave(struct relay *);

/* It was, and somebody has not answered yet. */
bool heartbeat_unanswered(const struct relay *);

#endif
