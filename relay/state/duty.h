/* duty - what this node is (returning, ready, alive, leaving), whom it took over, and what follows from that: the rules of docs/takeover.md, "Who is dead",
 * "Who serves a lane" and "Return". Pure: whoever calls duty_look() often enough tells what it sees, and obeys what comes out. tests/model walks through the same rules. */
#ifndef DOVELANE_RELAY_STATE_DUTY_H
#define DOVELANE_RELAY_STATE_DUTY_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/cluster/liveness.h"

/* Another owner's server, as it looks from here. */
enum reach { REACH_NOT, REACH_NOT_WHOLE, REACH_WHOLE };

/* One set of owners that this node belongs to. */
struct duty_set {
    const char *name;          /* "mx1+mx2" */
    size_t n;                  /* other owners */
    const int *other;          /* their indexes; -1: in nobody's table */
    const enum reach *reach;   /* of each */
    bool whole;                /* this node is */
    bool checked;              /* it was compared, or united, since this node began to return */
};

struct duty_times {
    double beat, dead_after, settle, handover_wait, alone_wait, restless_most; /* seconds */
};

struct duty_view {
    double now;
    bool own_up;             /* the own server answers */
    size_t in_flight;
    const bool *busy;        /* per node: something of its lanes is in flight, or an ack is owed to it */
    const bool *called_dead; /* per node: by the admin */
    size_t nsets;
    const struct duty_set *set;
    bool comparing;          /* a comparison is under way, or not begun yet */
};

enum duty_kind { DUTY_NOTHING, DUTY_RETURNS, DUTY_READY, DUTY_ALIVE, DUTY_TOOK, DUTY_GAVE };

struct duty_event {
    enum duty_kind kind;
    size_t node;          /* DUTY_TOOK, DUTY_GAVE */
    const char *why;      /* DUTY_RETURNS, DUTY_ALIVE: a word for the log */
};

struct duty;

/* Returning. The liveness belongs to the caller; it must know n nodes, and self is the listener. */
struct duty *duty_open(struct liveness *, size_t n, size_t self, struct duty_times, double now);
void duty_free(struct duty *);

/* The liveness has one node more, behind the others. */
void duty_add(struct duty *);

/* One thing that follows from what is seen now. Called until it says DUTY_NOTHING. */
struct duty_event duty_look(struct duty *, const struct duty_view *);

/* The own server or this relay was away for long enough that the others may have acted: return. why is kept as it is. */
void duty_return(struct duty *, const char *why, double now);

/* A planned stop; from here on nothing changes any more. */
void duty_leave(struct duty *, double now);

/* The own server can be reached again: `settle` counts from here. */
void duty_up(struct duty *, double now);

enum heard duty_role(const struct duty *);
const bool *duty_taken(const struct duty *);
double duty_since(const struct duty *, double now);   /* seconds in this role */
unsigned duty_turn(const struct duty *);              /* counts returns */
bool duty_settled(const struct duty *, double now);   /* the wait at the head of a return is over */

/* Seconds for which it must have been heard before it may be ready again, because it came and went often. 0 mostly. */
double duty_damped(const struct duty *);

/* Whether lanes with these owners before this node are served here; -1: in nobody's table. */
bool duty_drains(const struct duty *, const int *before, size_t n, const bool *called_dead, double now);

#endif
