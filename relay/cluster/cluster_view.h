/* cluster_view - the nodes as this one sees them: which are dead, which serve which lanes, and
 * which are lost for good. heartbeat.h fills it in from what it hears; every room asks it.
 *
 * With takeover = manual there is no view (r->view is NULL), and the configuration says who is
 * dead. */
#ifndef DOVELANE_RELAY_CLUSTER_CLUSTER_VIEW_H
#define DOVELANE_RELAY_CLUSTER_CLUSTER_VIEW_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/cluster/liveness.h"
#include "lib/mail/lanename.h"
#include "relay/relay.h"
#include "relay/cluster/config_ownership.h"
#include "relay/cluster/takeover_rules.h"

struct cluster_view {
    struct liveness *liveness;
    size_t n, self;    /* nodes, as in the config; this one's index */
    bool *called_dead; /* per node: by the admin */
    bool up;           /* the own server could be reached when it was last looked at */
    /* heartbeat.c looks at the rules, and beats, when it fires */
    ev_timer tick;
    bool awake; /* it fires in this turn of the loop */
};

/* ownership_judge(), by whichever knows who is alive. */
enum ownership cluster_judge(const struct relay *, const struct lanename *, size_t *place_r);

/* ownership_dead(), likewise. */
bool cluster_dead(const struct relay *, const char *node);

/* Lanes of which that node is the only owner before this one are served here. */
bool cluster_away(const struct relay *, size_t node, double now);

/* Whether the node serves its lanes now, so that it holds all it promised; anyone, with takeover
 * = manual. */
bool cluster_alive(const struct relay *, const char *node);

/* That node is lost for good: nobody hears it, and has not for replace_after, or for dead_after
 * + settle when an admin calls it dead (so long that it has no connection left over which it
 * could still be comparing). node: its index; -1: it is in nobody's table. Needs a view. */
bool cluster_lost_for_good(const struct relay *, int node, double now);

/* That node may get mail for which this one is an owner, too: both are alive, hear each other,
 * and neither took the other over. Needs a view. */
bool cluster_mutual(const struct relay *, size_t node, double now);

/* Seconds: what is known of a node that counts as alive may be so old. Needs a view. */
double cluster_known_age(const struct relay *);

/* The own server answers again; restarted: it is another one than before. */
void cluster_own_server(struct relay *, bool restarted);

/* The own server, or this program, stood still for so many seconds, or does still. */
void cluster_stood_still(struct relay *, bool ourselves, double seconds);

/* Something that the rules look at has changed: they are looked at in this turn of the loop. */
void cluster_wake(struct relay *);

#endif
