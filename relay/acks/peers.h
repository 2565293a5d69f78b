/* peers - the Redis servers of the other nodes: they get a copy of what the own node was told about
 * their copies.
 *
 * What a peer cannot be given now is kept until it can (pending.h), up to a bound. Entries whose
 * acks are forgotten beyond that stay with the peer although they were delivered. docs/design.md,
 * "Mail in" 4 says what becomes of them: nodes that are whole compare, and drop what the other
 * lacks (resync.h). With takeover = manual they do not, and such entries are delivered again when
 * this node is declared dead. */
#ifndef DOVELANE_RELAY_ACKS_PEERS_H
#define DOVELANE_RELAY_ACKS_PEERS_H

#include <stdbool.h>
#include <stddef.h>

#include "relay/tables/inflight.h"
#include "relay/tables/lanes.h"
#include "relay/relay.h"

struct peers *peers_open(struct relay *);
void peers_reload(struct peers *);
void peers_close(struct peers *);

/* A command that the own node got, to every other owner of the lane. entries: how many it is about.
 * A META of an entry that an owner does not hold yet is sent to it again for `settle`. */
void peers_send(struct peers *, const struct lane *, size_t entries, int argc, const char **argv,
                const size_t *argvlen);

/* LANE.ACK of these entries to every other owner. */
void peers_ack(struct peers *, const struct lane *, struct entry *const *, size_t n);

/* The same of n ids, one behind the other, that have other owners now. It goes to one owner of the
 * lane in which they were. */
void peers_moved(struct peers *, const char *lane, size_t len, const char *owner, bool before,
                 const char *ids, size_t n);

/* Whether every other owner of the lane that is not called dead can be told something now. */
bool peers_reachable(const struct peers *, const struct lane *);

/* Whether commands are still to be sent to that node for lanes in which it comes before us. It
 * would deliver again what it does not know of. (Of lanes that are ours acks are under way all the
 * time.) */
bool peers_owes(const struct peers *, const char *node);

/* The connections to the other nodes, one after the other; fn may send on them. */
void peers_each(struct peers *, void (*fn)(struct node *, void *), void *arg);

/* Requests without an answer, and records that a node which is there has to be told again. */
size_t peers_open_requests(const struct peers *);

#endif
