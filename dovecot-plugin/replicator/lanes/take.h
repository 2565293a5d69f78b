/* take - TAKE: what the other replicas sent comes into hand, from the node of each.
 *
 * Two connections to each peer's node: READY blocks on one, TAKE and ACK go over the other. The live lane goes before the
 * bulk one, and at most half of the hand is bulk. What is in hand is leased; it goes back by itself when the
 * connection ends, and what is then given again while it is still in hand is known by its id.
 *
 * What is not of this group, not of that replica, or not well-formed is acked and said (F43): it confirms nothing, so
 * whoever sent it in good faith sends it again. */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_LANES_TAKE_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_LANES_TAKE_H

#include "dovecot-plugin/replicator/users/user.h"

struct take *take_open(struct replicator *);
/* Takes no more; what is in hand and not begun goes back. */
void take_stop(struct take *);
void take_close(struct take *); /* before the users: what they have in hand goes back */
void take_free(struct take *);  /* after them */

/* Asks for what there is room for. */
void take_run(struct take *);
/* Sends the acks that came together. */
void take_flush(struct take *);

/* Half of what may be in hand is. */
bool take_crowded(const struct take *);

/* There is room for one more that is acked and stays in hand: they have an eighth of it. */
bool take_may_wait(const struct take *);
/* Acks it; it stays in hand, and may be lost with this process. */
void take_waits(struct take *, struct parcel_in_hand *);
/* Done with: acks it, if that was not done, and frees it. */
void take_done(struct take *, struct parcel_in_hand *);

/* The peer's node answers; what was taken last is of another group; when something of that peer was taken last (0: never). */
bool take_node(const struct take *, size_t peer);
bool take_foreign(const struct take *, size_t peer);
double take_heard(const struct take *, size_t peer);
void take_remove_peer(struct take *, size_t peer);

#endif
