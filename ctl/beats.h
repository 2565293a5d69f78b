/* beats - what the nodes say of themselves and of each other, as it lies in every node's Redis
 * at this moment. */
#ifndef DOVELANE_CTL_BEATS_H
#define DOVELANE_CTL_BEATS_H

#include "ctl/ctl.h"
#include "lib/cluster/liveness.h"

#define BEATS_NOW 1e9 /* the time of this look; beats lie before it by their age */

struct beats {
    struct liveness *liveness;
    size_t *whole; /* sets that each node's server is whole for */
    size_t sets;   /* that a node belongs to */
    bool *doubled; /* two relays beat in that node's name */
    double *rtt;   /* seconds until each server's answer; negative: it did not answer */
};

/* Asks each node that is connected. Among the beats of all servers the youngest of each node
 * counts. */
void beats_read(struct ctl *, struct beats *);
void beats_free(struct beats *);

/* The reply of LANE.BEATS, or of LANE.BEAT where that server knows or allows only that. NULL: as
 * by conn_call(). */
redisReply *beats_ask(struct conn *);

/* What a node is by its own word, and by the silence after it. */
enum node_state beats_state(const struct beats *, size_t node);

#endif
