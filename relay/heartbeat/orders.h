/* orders - what an admin asks of this relay, and what it tells him, by small keys in its own Redis (signals.h). */
#ifndef DOVELANE_RELAY_HEARTBEAT_ORDERS_H
#define DOVELANE_RELAY_HEARTBEAT_ORDERS_H

#include "relay/relay.h"

struct orders *orders_open(struct relay *);
void orders_close(struct orders *);

#endif
