/* pending - acks and records (META) that could not be sent to a peer, kept until they can. A
 * connection that was cut for a moment must not leave it with entries or recipients that are
 * delivered. They would be delivered again after a takeover. A record that comes late does no harm:
 * revisions decide.
 *
 * Bounded: beyond PENDING_MOST entries or PENDING_BYTES the oldest are forgotten; comparing
 * nodes (docs/design.md, "Mail in" 4) is for what outlasts that. */
#ifndef DOVELANE_RELAY_ACKS_PENDING_H
#define DOVELANE_RELAY_ACKS_PENDING_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/queue.h"
#include "lib/mail/entryid.h"
#include "lib/redis/node.h"

#define PENDING_MOST 100000
#define PENDING_BYTES (64 * 1024 * 1024)

/* One LANE.ACK: the ids of one lane. Or any other command about n entries, as it was formatted. */
struct pending_command {
    TAILQ_ENTRY(pending_command) next;
    char *lane; /* NULL: another command */
    size_t lane_len, n, bytes;
    /* the peer comes before us among the owners: given back, it serves the lane, and must know
     * of this first */
    bool before;
    /* of META: before that (clock_monotonic) an entry that the peer does not hold may still be
     * on its way there */
    double until;
    int argc;
    char **argv; /* its words, in one allocation with their lengths */
    size_t *argvlen;
    unsigned char id[][ENTRYID_LEN];
};

TAILQ_HEAD(pending_list, pending_command);

struct pending_queue {
    struct pending_list list; /* oldest first */
    size_t n, bytes;          /* entries; what is allocated for them */
    size_t before;            /* how many of the list are so */
};

void pending_init(struct pending_queue *);
void pending_free(struct pending_queue *);

/* Of a META that was answered: the same about those entries that the peer does not hold; NULL:
 * it holds all. */
struct pending_command *pending_absent(const struct pending_command *, const redisReply *answer);

/* A new one, with room for n ids that the caller fills in. */
struct pending_command *pending_make(const char *lane, size_t lane_len, size_t n);
/* Another command; it is copied. */
struct pending_command *pending_command(size_t entries, int argc, const char **argv,
                                        const size_t *argvlen);
void pending_end(struct pending_command *);

/* Keeps it; returns how many entries were forgotten for it. */
size_t pending_keep(struct pending_queue *, struct pending_command *);

/* The oldest, taken out of the queue; NULL when nothing is pending. */
struct pending_command *pending_next(struct pending_queue *);

/* Sends it. fn gets arg; false when the connection is not up. */
bool pending_send(const struct pending_command *, struct wire *, wire_reply_fn *fn, void *arg);

#endif
