/* owed - acks and records (META) that a peer could not be told, kept until it can: a connection that was cut for a moment must not leave it with entries or
 * recipients that are delivered (they would be delivered again after a takeover). A record that comes late does no harm: revisions decide.
 *
 * Bounded: beyond OWED_MOST entries or OWED_BYTES the oldest are forgotten; comparing nodes (docs/design.md, "Mail in" 4) is for what outlasts that. */
#ifndef DOVELANE_RELAY_OWNERS_OWED_H
#define DOVELANE_RELAY_OWNERS_OWED_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/queue.h>

#include "lib/mail/entryid.h"
#include "lib/redis/node.h"

#define OWED_MOST 100000
#define OWED_BYTES (64 * 1024 * 1024)

/* One LANE.ACK: the ids of one lane. Or any other command about n entries, as it was formatted. */
struct owed {
    TAILQ_ENTRY(owed) next;
    char *lane; /* NULL: another command */
    size_t lane_len, n, bytes;
    bool before; /* the peer comes before us among the owners: given back, it serves the lane, and must know of this first */
    double until; /* of META: before that (clock_monotonic) an entry that the peer does not hold may still be on its way there */
    int argc;
    char **argv; /* its words, in one allocation with their lengths */
    size_t *argvlen;
    unsigned char id[][ENTRYID_LEN];
};

TAILQ_HEAD(owed_list, owed);

struct owed_queue {
    struct owed_list list; /* oldest first */
    size_t n, bytes;       /* entries; what is allocated for them */
    size_t before;         /* how many of the list are so */
};

void owed_init(struct owed_queue *);
void owed_free(struct owed_queue *);

/* Of a META that was answered: the same about those entries that the peer does not hold; NULL: it holds all. */
struct owed *owed_absent(const struct owed *, const redisReply *answer);

/* A new one, with room for n ids that the caller fills in. */
struct owed *owed_make(const char *lane, size_t lane_len, size_t n);
/* Another command; it is copied. */
struct owed *owed_command(size_t entries, int argc, const char **argv, const size_t *argvlen);
void owed_end(struct owed *);

/* Keeps it; returns how many entries were forgotten for it. */
size_t owed_keep(struct owed_queue *, struct owed *);

/* The oldest, no longer in the queue; NULL when nothing is owed. */
struct owed *owed_next(struct owed_queue *);

/* Sends it. fn gets arg; false when the connection is not up. */
bool owed_send(const struct owed *, struct wire *, wire_reply_fn *fn, void *arg);

#endif
