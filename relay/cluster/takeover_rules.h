/* takeover_rules - the role of this node (returning, ready, alive, leaving), whom it took over, and
 * what follows. The rules are in docs/takeover/beats.md, "Who is dead" and "Who serves a lane", and
 * docs/takeover/return.md, "Return". Pure: its caller calls role_next() often enough with what it
 * sees, and obeys what comes out. tests/model walks through the same rules. */
#ifndef DOVELANE_RELAY_CLUSTER_TAKEOVER_RULES_H
#define DOVELANE_RELAY_CLUSTER_TAKEOVER_RULES_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/cluster/liveness.h"

/* Another owner's server, as it looks from here. */
enum reach { REACH_NOT, REACH_NOT_WHOLE, REACH_WHOLE };

/* One set of owners that this node belongs to. */
struct role_set {
    const char *name;        /* "mx1+mx2" */
    size_t n;                /* other owners */
    const int *other;        /* their indexes; -1: in nobody's table */
    const enum reach *reach; /* of each */
    bool whole;              /* this node is */
    bool checked;            /* it was compared, or united, since this node began to return */
};

struct role_times {
    double beat, dead_after, settle, handover_wait, alone_wait, restless_most; /* seconds */
};

struct role_view {
    double now;
    bool own_up; /* the own server answers */
    size_t in_flight;
    /* per node: something of its lanes is in flight, or an ack is owed to it */
    const bool *busy;
    const bool *called_dead; /* per node: by the admin */
    size_t nsets;
    const struct role_set *set;
    bool comparing; /* a comparison is under way, or not begun yet */
};

enum role_kind { ROLE_SAME, ROLE_RETURNS, ROLE_READY, ROLE_ALIVE, ROLE_TOOK, ROLE_GAVE };

struct role_event {
    enum role_kind kind;
    size_t node;     /* ROLE_TOOK, ROLE_GAVE */
    const char *why; /* ROLE_RETURNS, ROLE_ALIVE: a word for the log */
};

struct role;

/* Returning. The liveness belongs to the caller; it must know n nodes, and self is the listener. */
struct role *role_open(struct liveness *, size_t n, size_t self, struct role_times, double now);
void role_free(struct role *);

/* The liveness has one node more, behind the others. */
void role_add(struct role *);

/* One thing that follows from what is seen now. Called until it says ROLE_SAME. */
struct role_event role_next(struct role *, const struct role_view *);

/* The own server or this relay was away for long enough that the others may have acted: return.
 * why is kept as it is. */
void role_return(struct role *, const char *why, double now);

/* A planned stop; from here on nothing changes any more. */
void role_leave(struct role *, double now);

/* The own server can be reached again: `settle` counts from here. */
void role_up(struct role *, double now);

enum node_state role_state(const struct role *);
const bool *role_taken(const struct role *);
double role_since(const struct role *, double now); /* seconds in this role */
unsigned role_turn(const struct role *);            /* counts returns */
bool role_settled(const struct role *, double now); /* the wait at the head of a return is over */

/* Seconds for which it must have been heard before it may be ready again, because it came and
 * went often. 0 mostly. */
double role_damped(const struct role *);

/* Whether lanes with these owners before this node are served here; -1: in nobody's table. */
bool role_serves(const struct role *, const int *before, size_t n, const bool *called_dead,
                 double now);

#endif
