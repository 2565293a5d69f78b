/* owners - what the nodes are told about entries: META, ACK and NACK on the own node, then META and ACK on
 * the other owners.
 *
 * Order (docs/design.md, "Mail in" 8): the own node first. A crash between the two leaves an orphan on a
 * peer; the other way round it would be a sure second delivery by ourselves. Commands of one turn of the loop
 * go out as one per (node, lane). */
#ifndef DOVELANE_RELAY_OWNERS_H
#define DOVELANE_RELAY_OWNERS_H

#include <stdbool.h>
#include <stdint.h>

#include "hand.h"
#include "relay.h"

#define OWNERS_LEASE 60000 /* milliseconds; renewed while in hand */

struct owners *owners_open(struct relay *);
void owners_close(struct relay *);

/* The config was read again: connections to peers that came, went or moved. */
void owners_reload(struct relay *);

/* When the own Redis was started: microseconds since 1970, 0 before it was ever reached. */
int64_t owners_born(const struct relay *);

/* The command connection to the own node. Its generation counts connections: a lease belongs to one. */
bool owners_ready(const struct relay *);
struct wire *owners_wire(const struct relay *);
unsigned owners_generation(const struct relay *);

/* The own node refuses META or ACK (MISCONF, NOREPLICAS, READONLY ...). Nothing is taken then: what is
 * delivered could not be removed, its lease would end, and it would be delivered again, without end. They are
 * repeated until one passes. */
bool owners_refused(const struct relay *);

/* The envelope to every owner; mail_recorded() is called when the own node has answered. */
void owners_record(struct entry *);

/* Delivered: removed on the own node, then on the others, then released from the hand. */
void owners_ack(struct entry *);

/* Back into its lane after delay milliseconds, on the own node only, and released. retry: counts as an
 * attempt there. */
void owners_return(struct entry *, bool retry, int64_t delay);

/* The same for what came out of TAKE and never was in hand. */
void owners_return_taken(struct relay *, const struct lane *, long long lease, long long sequence,
                         int64_t delay);

/* The lease of the entry, and of those taken after it under the same lease, begins anew. Returns the first
 * one taken later under another. */
struct entry *owners_extend(struct entry *);

/* Sends what this turn of the loop has gathered. */
void owners_flush(struct relay *);

/* Commands to peers that are not answered yet. */
size_t owners_peer_requests(const struct relay *);

#endif
