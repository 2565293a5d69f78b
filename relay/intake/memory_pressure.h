/* memory_pressure - how full the memory of the nodes is. These are our own and those that hold
 * copies of our lanes, since only we can empty those. */
#ifndef DOVELANE_RELAY_INTAKE_MEMORY_PRESSURE_H
#define DOVELANE_RELAY_INTAKE_MEMORY_PRESSURE_H

#include "relay/tables/lanes.h"
#include "relay/relay.h"

struct pressure *pressure_open(struct relay *);
void pressure_close(struct pressure *);

/* Whether any owner of the lane uses more than spill_above of its maxmemory; once it did, until
 * it uses five percent less. */
bool pressure_on(const struct relay *, const struct lane *);

/* Of its maxmemory that the node uses; 0: not known, or it has no limit. */
int pressure_percent(const struct relay *, const char *node);

/* Whether any node does. */
bool pressure_any(const struct relay *);

/* maxmemory of the own node; 0: it has none, or nobody knows it yet. */
long long pressure_own_most(const struct relay *);

#endif
