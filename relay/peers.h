/* peers - the Redis servers of the other nodes: they get a copy of what the own node was told about their
 * copies.
 *
 * What a peer cannot be given now is dropped. It then holds entries that were delivered; docs/design.md,
 * "Mail in" 4 says what becomes of them: nodes that are whole compare, and drop what the other lacks. A list
 * of owed acks would be a second way to the same end, and one that a crash of ours loses. Nodes do not
 * compare yet; until they do, such entries are delivered again when this node is declared dead. */
#ifndef DOVELANE_RELAY_PEERS_H
#define DOVELANE_RELAY_PEERS_H

#include <stddef.h>

#include "hand.h"
#include "lanes.h"
#include "relay.h"

struct peers *peers_open(struct relay *);
void peers_reload(struct peers *);
void peers_close(struct peers *);

/* A command that the own node got, to every other owner of the lane. entries: how many it is about. */
void peers_send(struct peers *, const struct lane *, size_t entries, int argc, const char **argv,
                const size_t *argvlen);

/* LANE.ACK of these entries to every other owner. */
void peers_ack(struct peers *, const struct lane *, struct entry *const *, size_t n);

size_t peers_open_requests(const struct peers *);

#endif
