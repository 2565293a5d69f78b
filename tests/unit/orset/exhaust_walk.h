/* exhaust_walk - all histories of one program, which says what is done at each replica, one after
 * the other.
 *
 * A history up to commuting is, per replica, one sequence of own operations and deliveries (FIFO
 * per origin, any order across origins). */
#ifndef DOVELANE_TESTS_UNIT_ORSET_EXHAUST_WALK_H
#define DOVELANE_TESTS_UNIT_ORSET_EXHAUST_WALK_H

#include "tests/unit/orset/exhaust_replica.h"

#define PROGRAM_MAX 4

struct program {
    unsigned n, len[SITES];          /* operations in all, and at each site */
    unsigned op[SITES][PROGRAM_MAX]; /* indices into OPERATION */
};

struct walked {
    uint64_t histories[PROGRAM_MAX + 1]; /* by operations in them */
    uint64_t leaves;                     /* of the walk: each stands for one history or more */
    /* of each history's final digest: equal sets have equal sums */
    uint64_t sum;
};
extern struct walked walked;

/* How to walk: see exhaust_walk.c for what the reductions are and why they lose nothing. */
struct manner {
    unsigned replicas;
    bool disable_wins; /* the flag is \Deleted */
    bool exchange;     /* with one state exchange anywhere */
    bool reduced;
};

/* Replicas 1 to n in the common start. Again after forget_all(). */
void walk_start(const struct manner *);
void walk_program(const struct program *);

#endif
