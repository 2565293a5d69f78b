/* exhaust_mailbox - one replica's code at work: what its user does, and what he sees. */
#ifndef DOVELANE_TESTS_UNIT_ORSET_EXHAUST_MAILBOX_H
#define DOVELANE_TESTS_UNIT_ORSET_EXHAUST_MAILBOX_H

#include <stddef.h>

#include "tests/unit/orset/exhaust_model.h"
#include "dovecot-plugin/orset/orset.h"
#include "tests/unit/orset/tiny.h"

struct operation {
    enum kind kind;
    char name, other;
    unsigned guid;
    const char *in; /* alphabets that have it */
};

/* Folders are named as a user would name them: what "F" is depends on the replica. a: all that
 * clients do; d: what \Deleted has to do with; r: a folder's registers, and what removes it and
 * brings it back; -: only in the common start. */
#define OPERATIONS 32
extern const struct operation OPERATION[OPERATIONS];

extern uint8_t flag_bit; /* which flag FLAG and UNFLAG change */

/* The rows of the replica at work, its handle, and the memory it takes: all given back by the
 * next wake(). */
extern struct tiny work;
extern struct orset *os;
extern const struct orset_alloc BUMP;
extern size_t arena_used;

/* Prints what, and the core's last error, and ends the program. */
void fail(const char *what);
/* fail() when r is an error. */
void must(int r);

/* Opens the state in work, or makes a new one there, and begins a transaction. */
void wake(unsigned site);
/* The mailbox does at once what the state wants. */
void follow(void);
/* 1 when the operation is possible here and was done; what the model wants to know of it is in
 * *e. */
int act(const struct operation *, struct event *e);
/* What the user sees, mixed as in exhaust_model.h. */
uint64_t shown_here(void);

#endif
