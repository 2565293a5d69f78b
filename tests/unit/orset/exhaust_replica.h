/* exhaust_replica - the real code behind numbers: states, what ops ship, and what they say, are
 * numbered by content; each (state, event) is computed once. */
#ifndef DOVELANE_TESTS_UNIT_ORSET_EXHAUST_REPLICA_H
#define DOVELANE_TESTS_UNIT_ORSET_EXHAUST_REPLICA_H

#include "tests/unit/orset/exhaust_mailbox.h"

#define SITES 3
#define NONE UINT32_MAX

/* What counts of a state in which all is over. */
struct seen {
    uint8_t digest[16];
    uint64_t shown;
    uint32_t remembered;
};

struct ship {
    uint8_t *bytes;
    uint32_t len;
    uint32_t op; /* what it says, by number */
    unsigned site;
    struct event event; /* as the replica that made it saw it; folders by the ids below */
    unsigned nfolders;
    struct {
        uint64_t site, counter, clock;
    } folder[FOLDERS_MAX];
};

extern struct ship *ships; /* from 1 on */
/* Off: each batch is applied for itself, however often another one said the same. */
extern bool same_ops_once;

struct work_done {
    uint64_t issued, applied, pulled, rechecked; /* calls of the real code */
};
extern struct work_done work_done;

/* A new replica's state. */
uint32_t first_state(unsigned site);
/* The state after the batch came and the mailbox followed. last: it was the last one, so only
 * what is seen then is wanted, and nothing can come after it. */
uint32_t deliver(unsigned site, uint32_t state, uint32_t ship, bool last);
/* The state after site took over, by an exchange, what the giver's state has. */
uint32_t pull(unsigned site, uint32_t state, unsigned giver, uint32_t giver_state);
/* The operation at this replica: the new state and what it ships, or NONE when it is not
 * possible there. */
uint32_t issue(unsigned site, uint32_t state, unsigned operation, bool last, uint32_t *ship_r);
const struct seen *seen_in(uint32_t state);

/* Between histories: gives room back if much is in use. True: all numbers are void. */
bool forget_if_full(void);
void forget_all(void);

#endif
