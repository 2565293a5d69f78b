/* owed - acks that a peer could not be told, kept until it can: a connection that was cut for a moment must not leave it with entries that are
 * delivered (they would be delivered again after a takeover).
 *
 * Bounded: beyond OWED_MOST entries the oldest are forgotten; comparing nodes (docs/design.md, "Mail in" 4) is for what outlasts that. */
#ifndef DOVELANE_RELAY_OWED_H
#define DOVELANE_RELAY_OWED_H

#include <stddef.h>
#include <sys/queue.h>

#include "entryid.h"
#include "node.h"

#define OWED_MOST 100000

/* One LANE.ACK: the ids of one lane. */
struct owed {
    TAILQ_ENTRY(owed) next;
    char *lane;
    size_t lane_len, n;
    unsigned char id[][ENTRYID_LEN];
};

TAILQ_HEAD(owed_list, owed);

struct owed_queue {
    struct owed_list list; /* oldest first */
    size_t n;              /* entries */
};

void owed_init(struct owed_queue *);
void owed_free(struct owed_queue *);

/* A new one, with room for n ids that the caller fills in. */
struct owed *owed_make(const char *lane, size_t lane_len, size_t n);
void owed_end(struct owed *);

/* Keeps it; returns how many entries were forgotten for it. */
size_t owed_keep(struct owed_queue *, struct owed *);

/* The oldest, no longer in the queue; NULL when nothing is owed. */
struct owed *owed_next(struct owed_queue *);

/* Sends it. fn gets arg; false when the connection is not up. */
bool owed_send(const struct owed *, struct wire *, wire_reply_fn *fn, void *arg);

#endif
