/* gauges - what metrics_listen shows of this relay beside what it counts: the lanes, the next hops
 * and the nodes as they are when somebody asks. The lanes' sizes are the own server's answers to
 * LANE.LIST and LANE.INFO. */
#ifndef DOVELANE_RELAY_GAUGES_GAUGES_H
#define DOVELANE_RELAY_GAUGES_GAUGES_H

#include "relay/relay.h"

/* metrics_listen is served until gauges_close(). */
void gauges_open(struct relay *);
void gauges_reload(struct relay *); /* the config was read again */
void gauges_close(void);

#endif
