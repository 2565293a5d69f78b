/* shape - the rules of what next hops get (lib/shape/shape.h), for `dovelane shape` and other
 * commands. */
#ifndef DOVELANE_CTL_SHAPE_H
#define DOVELANE_CTL_SHAPE_H

#include "ctl/ctl.h"
#include "lib/shape/shape_rules.h"

/* All rules that are known: of dovelane.conf, and of what `dovelane shape` said last. */
struct shape_known {
    struct shape_rules file, said;
    unsigned long long serial; /* of what was said; 0: nothing was */
};

void shape_known_read(struct ctl *, struct shape_known *);
void shape_known_free(struct shape_known *);

/* The same as what holds; the caller's. What cannot be read is named on stderr. */
struct shapes *shape_known_shapes(struct ctl *, const struct shape_known *);

/* Says the rules `said` to every node. 0: somebody else said something meanwhile; else the
 * serial. */
unsigned long long shape_known_say(struct ctl *, const struct shape_known *);

/* Waits until all relays and milters obey what has that serial, and prints who does not
 * (status 1). */
void shape_wait_obeyed(struct ctl *, unsigned long long serial);

/* Prints rules: one row each. */
void shape_print(const struct shape_rules *, bool said);
/* What holds for one next hop, and which rule says it. class: NULL for none. */
void shape_print_explained(struct ctl *, const struct shape_known *, const char *next_hop,
                           const char *class);

#endif
