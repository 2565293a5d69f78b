/* stall - times at which nothing may be taken, because the own Redis or this relay stood still.
 * stall.c gives the reason. */
#ifndef DOVELANE_RELAY_INTAKE_STALL_H
#define DOVELANE_RELAY_INTAKE_STALL_H

#include <stdbool.h>

#include "relay/relay.h"

struct stall *stall_open(struct relay *);
void stall_close(struct stall *);

/* true: what comes out of TAKE is given back, and nothing is taken. */
bool stall_now(const struct relay *);

#endif
