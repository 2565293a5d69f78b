/* node - a verified connection to a node's Redis.
 *
 * After each connect it is asked who it is (LANE.INFO) before it is used. It is unusable if it has
 * another node's name than expected, a shorter settle time, or a maxmemory-policy that lets it drop
 * lanes by itself. So it is if its module does not speak our grammar. That is logged once per
 * connection. Its run_id tells whether it is still the server that acked what it acked: `life`
 * grows whenever that changes.
 *
 * Its connection's name (CLIENT SETNAME) is dovelane-<purpose>, with ":standby" behind it over
 * the standby address. A ping every ping_every keeps silence measurable (node_silence). Not
 * thread safe. */
#ifndef DOVELANE_LIB_REDIS_NODE_H
#define DOVELANE_LIB_REDIS_NODE_H

#include <stdint.h>

#include "lib/redis/wire.h"

#define NODE_PING 0.25 /* seconds */

struct node;

/* ready = true: verified, may be used from now on. new_life tells that its run_id is another one
 * than before (also the first time). ready = false: lost; open requests were answered with NULL
 * before. */
typedef void node_state_fn(struct node *, bool ready, bool new_life, void *arg);

struct node_options {
    const char *name;        /* of the node, as in the config */
    struct config_link link; /* to its Redis; copied */
    const char *purpose;     /* for CLIENT SETNAME and the log: "milter", "relay-take" */
    double ping_every;       /* seconds; 0: never */
    bool blocks;             /* READY BLOCK goes over it */
    size_t reply_most;       /* bytes of memory of one answer (wire_bound); 0: as wire has it */
    int64_t settle;          /* ms that the server must remember what it let go, at least */
    node_state_fn *state;
    void *arg;
};

struct node *node_open(struct ev_loop *, const struct node_options *);
void node_close(struct node *);

const char *node_name(const struct node *);
bool node_ready(const struct node *);
/* 0 before the first, then counts changes of run_id */
unsigned node_life(const struct node *);
const char *node_run_id(const struct node *); /* "" before the first */
/* when it last loaded a file: clock_boottime(), 0 when it never did */
double node_loaded(const struct node *);
struct wire *node_wire(const struct node *); /* to send on; only while ready */

/* It was lost a moment ago, and there is another address at which it may answer in the next one. */
bool node_turning(const struct node *);
bool node_has_standby(const struct node *);

/* Seconds since this node last answered anything; grows while it is connecting, too. */
double node_silence(const struct node *);

/* Drops the connection; it comes back by itself. */
void node_drop(struct node *, const char *why);

#endif
