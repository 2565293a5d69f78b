/* exhaust_replica - the real code behind numbers: states, and what ops ship, are numbered by content; each
 * (state, event) is computed once. */
#ifndef TEST_EXHAUST_REPLICA_H
#define TEST_EXHAUST_REPLICA_H

#include "exhaust_model.h"

#define SITES 3
#define NONE UINT32_MAX

struct operation {
    enum kind kind;
    char name, other;
    unsigned guid;
    const char *in; /* alphabets that have it */
};

/* Folders are named as a user would name them: what "F" is depends on the replica. m: messages and flags in
 * one folder, f: folders, x: moves and flags between two folders, r: registers and subscriptions; a: all. */
#define OPERATIONS 28
extern const struct operation OPERATION[OPERATIONS];

struct state {
    uint8_t *block; /* compact rows, then data */
    uint16_t n, used;
    uint8_t digest[16];
    uint64_t shown;
    uint32_t remembered;
};

struct ship {
    uint8_t *bytes;
    uint32_t len;
    unsigned site;
    struct event event; /* as the replica that made it saw it; folders by the ids below */
    unsigned nfolders;
    struct {
        uint64_t site, counter, clock;
    } folder[FOLDERS_MAX];
};

extern struct state *states; /* from 1 on */
extern uint32_t nstates;
extern struct ship *ships; /* from 1 on */
extern uint8_t flag_bit;   /* which flag FLAG and UNFLAG change */

/* Prints what, and the core's last error, and ends the program. */
void fail(const char *what);

/* A new replica's state. */
uint32_t first_state(unsigned site);
/* The state after the batch came, twice, and the mailbox followed. */
uint32_t deliver(unsigned site, uint32_t state, uint32_t ship);
/* The state after site took over, by an exchange, what the giver's state has. */
uint32_t pull(unsigned site, uint32_t state, unsigned giver, uint32_t giver_state);
/* The operation at this replica: the new state and what it ships, or NONE when it is not possible there. */
uint32_t issue(unsigned site, uint32_t state, unsigned operation, uint32_t *ship_r);
void forget_all(void);

#endif
