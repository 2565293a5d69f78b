/* heartbeat - sends this node's heartbeat, reads the other nodes' heartbeats, and acts on the
 * role changes that role.h derives from them. Only with takeover = automatic; else it does not
 * exist, and the configuration says who is dead. */
#ifndef DOVELANE_RELAY_HEARTBEAT_HEARTBEAT_H
#define DOVELANE_RELAY_HEARTBEAT_HEARTBEAT_H

#include <stdbool.h>

#include "lib/mail/lanename.h"
#include "relay/heartbeat/membership_contact.h"
#include "relay/state/ownership.h"
#include "relay/relay.h"

/* NULL with takeover = manual. */
struct heartbeat *heartbeat_open(struct relay *);
void heartbeat_close(struct relay *);
void heartbeat_reload(struct relay *);

/* ownership_judge(), by whichever knows who is alive. */
enum ownership heartbeat_judge(const struct relay *, const struct lanename *, size_t *place_r);

/* ownership_dead(), likewise. */
bool heartbeat_dead(const struct relay *, const char *node);

/* Whether the node serves its lanes now, so that it holds all it promised; anyone, with takeover
 * = manual. */
bool heartbeat_alive(const struct relay *, const char *node);

/* That node is lost for good: nobody hears it, and has not for replace_after, or for dead_after
 * + settle when an admin calls it dead (so long that it has no connection left over which it
 * could still be comparing). node: its index; -1: it is in nobody's table. */
bool heartbeat_lost_for_good(const struct relay *, int node, double now);

/* That node may get mail for which this one is an owner, too: both are alive, hear each other,
 * and neither took the other over. */
bool heartbeat_mutual(const struct relay *, size_t node, double now);

/* The own server answers again; restarted: it is another one than before. */
void heartbeat_own_server(struct relay *, bool restarted);

/* The own server, or this program, stood still for so many seconds, or does still. */
void heartbeat_stood_still(struct relay *, bool ourselves, double seconds);

/* Whom this node, which joins, has not met yet; why is NULL with takeover = manual. */
struct unmet_node heartbeat_unmet(const struct relay *);

/* Leaves this node's beat at the server of one that is none of the group yet. */
void heartbeat_greet(struct relay *, struct wire *);

/* This node takes nothing from now on (why: for the log; it must stay), or may again (NULL). */
void heartbeat_exclude(struct relay *, const char *why);

/* This node returns. why: for the log; it must stay. */
void heartbeat_return(struct relay *, const char *why);

/* Something that the rules look at has changed. */
void heartbeat_wake(struct relay *);

/* This relay is being stopped: the others are told at once. */
void heartbeat_leave(struct relay *);

/* It was, and somebody has not answered yet. */
bool heartbeat_unanswered(const struct relay *);

#endif
