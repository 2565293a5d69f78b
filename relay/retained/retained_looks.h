/* retained_looks - asks the sites whether what they took is safe, and does what follows from their
 * answers, or from there being none (docs/two-disks.md).
 *
 * Each retained entry is looked at again and again, without its body: whether it is still there,
 * and as this relay has it in mind. Then it is removed (safe), delivered anew (its site has lost it,
 * or is away), or asked for again. */
#ifndef DOVELANE_RELAY_RETAINED_RETAINED_LOOKS_H
#define DOVELANE_RELAY_RETAINED_RETAINED_LOOKS_H

#include "relay/relay.h"

void retained_looks_open(struct relay *); /* and the links to the sites */
void retained_looks_close(struct relay *);
void retained_looks_reload(struct relay *);

/* At the end of each turn of the loop. */
void retained_looks_run(struct relay *);

#endif
