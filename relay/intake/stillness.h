/* stillness - times at which nothing may be taken, because the own Redis or we ourselves stood still. The
 * reason stands in stillness.c. */
#ifndef DOVELANE_RELAY_INTAKE_STILLNESS_H
#define DOVELANE_RELAY_INTAKE_STILLNESS_H

#include <stdbool.h>

#include "relay/relay.h"

struct stillness *stillness_open(struct relay *);
void stillness_close(struct stillness *);

/* true: what comes out of TAKE is given back, and nothing is taken. */
bool stillness_now(const struct relay *);

#endif
