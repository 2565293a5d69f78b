/* outbox - LANE.PUSH: what workers send goes into the lanes to the other replicas, on the own node.
 *
 * Nothing is kept here. What cannot be stored (the node is away, the lane is full) is dropped, and
 * the user's peer is marked. What the peer does not confirm is made and sent again (user.h,
 * resend). So a lane that lost its contents and a lost reply are one case, and memory is bounded by
 * what is under way. Of what a lane had no room for, the first number is known (user.h, missing).
 * When there is room, it goes on from there, and nothing is sent twice. */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_LANES_OUTBOX_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_LANES_OUTBOX_H

#include "dovecot-plugin/replicator/replicator.h"

#define OUTBOX_PROBE 10. /* seconds between two tries whether somebody takes again */

/* What the outbox tells those whose parcels it pushes. */
struct outbox_calls {
    /* A push for that user did not come into the lane. first: as of outbox_send. false: the user is
     * in memory no longer. */
    bool (*unsent)(struct replicator *, const char *user, size_t peer, uint64_t first);
    /* There is room again, or it is time to see: those of whom something is missing go on. */
    void (*room)(struct replicator *);
    /* All users with something unconfirmed for that peer are to send it again. */
    void (*resend)(struct replicator *, size_t peer);
};

struct node;

struct outbox *outbox_open(struct replicator *, const struct outbox_calls *);
void outbox_close(struct outbox *);

/* The own node was asked who runs under this name (claims.h), and what was not confirmed is sent. */
void outbox_go(struct outbox *);

/* Pushes it for that user. send->first: number of the first own op in it; 0: it has no own op.
 * false: it cannot be pushed now, and unsent is not called. */
bool outbox_send(struct outbox *, const char *user, size_t peer, const struct frame_parcel *send);

/* The own node may be used, and the lane to that peer took something lately or was not tried. */
bool outbox_ready(const struct outbox *, size_t peer);
/* Nor has it been so with both lanes: a question may be answered. Exchanges go through the bulk
 * lane. */
bool outbox_answered(const struct outbox *, size_t peer);
/* Whether something may be sent that is no change: the lane is not stalled, or it is time to see
 * whether it still is. What is left in a lane may be of one user who cannot take it now. Then
 * nothing else says that the peer takes other users' parcels. */
bool outbox_may_try(struct outbox *, size_t peer);
/* So much is under way that workers have to wait. */
bool outbox_full(const struct outbox *);
size_t outbox_pending(const struct outbox *);   /* parcels without an answer yet */
bool outbox_node(const struct outbox *);        /* the own node is there */
struct node *outbox_own(const struct outbox *); /* it */

/* A user who had something missing in that lane is in memory no longer: when the lane is empty,
 * resend is called. */
void outbox_forgotten(struct outbox *, size_t peer);

/* Entries in the lane to that peer, both lanes together, as last seen, a second ago at most; -1:
 * unknown. */
int64_t outbox_waiting(const struct outbox *, size_t peer);

#endif
