/* ship - PUSH: what workers send goes into the lanes to the other replicas, on the own node.
 *
 * Nothing is kept here. What cannot be stored (the node is away, the lane is full) is dropped, and the user's peer is
 * marked: what the peer does not confirm is made and sent again (user.h, resend). So a lane that lost its contents and a lost
 * reply are one case, and memory is bounded by what is under way. Of what a lane had no room for, the first number is known
 * (user.h, missing): when there is room, it goes on from there, and nothing is sent twice. */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_LANES_SHIP_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_LANES_SHIP_H

#include "dovecot-plugin/replicator/users/user.h"

#define SHIP_PROBE 10. /* seconds between two tries whether somebody takes again */

struct ship *ship_open(struct replicator *);
void ship_close(struct ship *);

/* send->site 0: to all peers. */
void ship_send(struct ship *, struct user *, const struct frame_parcel *send);

/* The own node is there, and the lane to that peer took something lately or was not tried. */
bool ship_ready(const struct ship *, size_t peer);
/* Nor has it been so with both lanes: a question may be answered. Exchanges go through the bulk lane. */
bool ship_answered(const struct ship *, size_t peer);
/* Whether something may be sent that is no change: the lane is not stalled, or it is time to see whether it still is. What is left in a
 * lane may be of one user who cannot take it now, and then nothing else says that the peer takes other users' parcels. */
bool ship_try(struct ship *, size_t peer);
/* So much is under way that workers have to wait. */
bool ship_full(const struct ship *);
size_t ship_pending(const struct ship *); /* parcels without an answer yet */
bool ship_node(const struct ship *);      /* the own node is there */

/* A user who had something missing in that lane is in memory no longer: when the lane is empty, all in the ledger send again. */
void ship_forgotten(struct ship *, size_t peer);

/* All users with something unconfirmed for that peer send again, page by page. */
void ship_resend_all(struct ship *, size_t peer);

/* Entries in the lane to that peer, both lanes together, as last seen, a second ago at most; -1: unknown. */
int64_t ship_waiting(const struct ship *, size_t peer);

#endif
