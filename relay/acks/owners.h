/* owners - what the nodes are told about entries: META, ACK and NACK on the own node, then META and
 * ACK on the other owners.
 *
 * Order (docs/design.md, "Mail in" 8): the own node first. A crash between the two leaves an
 * orphan on a peer; the other way round it would be a sure second delivery by ourselves.
 * Commands of one turn of the loop go out as one per (node, lane). */
#ifndef DOVELANE_RELAY_ACKS_OWNERS_H
#define DOVELANE_RELAY_ACKS_OWNERS_H

#include <stdbool.h>
#include <stdint.h>

#include "relay/tables/inflight.h"
#include "relay/relay.h"

#define OWNERS_LEASE 60000 /* milliseconds; renewed while in flight */

struct owners *owners_open(struct relay *);
void owners_close(struct relay *);

/* The config was read again: connections to peers that came, went or moved. */
void owners_reload(struct relay *);

/* When the own Redis last loaded a file: clock_boottime(), 0 when it never did. */
double owners_loaded(const struct relay *);

/* The run_id of the own Redis, "" before it was ever reached. */
const char *owners_run_id(const struct relay *);

/* fn for every other node's connection. */
void owners_each_peer(struct relay *, void (*fn)(struct node *, void *), void *arg);

/* Whether that node is still to be told something. */
bool owners_owes(const struct relay *, const char *node);

/* The command connection to the own node. Its generation counts connections: a lease belongs to
 * one. */
bool owners_ready(const struct relay *);
struct wire *owners_wire(const struct relay *);
unsigned owners_generation(const struct relay *);

/* The own node refuses META or ACK (MISCONF, NOREPLICAS, READONLY ...). Nothing is taken then:
 * what is delivered could not be removed, its lease would end, and it would be delivered again,
 * without end. They are repeated until one passes. */
bool owners_refused(const struct relay *);

/* The envelope to every owner; its `recorded` is called when the own node has answered. */
void owners_record(struct entry *);

/* The envelope as it is, to the other owners only: one that could not be told when an admin's
 * mark was set gets it now. */
void owners_remind(struct entry *);

/* Whether every other owner of the entry that is not called dead can be told something now. */
bool owners_all_reachable(const struct entry *);

/* fn for every node, the own one first, connected or not. */
void owners_each(struct relay *, void (*fn)(struct node *, void *), void *arg);

/* fn for every node that is connected, the own one first, with its wire. */
void owners_each_node(struct relay *, void (*fn)(const char *node, struct wire *, void *),
                      void *arg);

/* Delivered: removed on the own node, then on the others, then `removed` is called, and it is
 * released from the in-flight table. */
void owners_ack(struct entry *);

/* Back into its lane after delay milliseconds, on the own node only, and released. It does not
 * count as a failed lease there: attempts stand in the envelope, and what the server counts is
 * for poison.h. One that was read and not taken is where it was. */
void owners_return(struct entry *, int64_t delay);

/* The same for what came out of TAKE and never was in flight. */
void owners_return_taken(struct relay *, const struct lane *, long long lease, long long sequence,
                         int64_t delay);

/* These ids (n of them, one behind the other) were in the lane of that name, and have other owners
 * now. Its other owners get an ack of them, as if they were delivered. */
void owners_moved(struct relay *, const char *lane, size_t len, const char *ids, size_t n);

/* Sends what this turn of the loop has gathered. */
void owners_flush(struct relay *);

/* The own server has not answered for too long: the other owners are told of what is acked and
 * not answered. */
void owners_silent(struct relay *);

/* Commands to peers that are not answered yet. */
size_t owners_peer_requests(const struct relay *);

#endif
