/* admin_requests - what an admin asks of this relay, and what it tells him, by small keys in its
 * own Redis (control_keys.h). */
#ifndef DOVELANE_RELAY_HEARTBEAT_ADMIN_REQUESTS_H
#define DOVELANE_RELAY_HEARTBEAT_ADMIN_REQUESTS_H

#include "relay/relay.h"

struct admin_requests *admin_requests_open(struct relay *);
void admin_requests_close(struct admin_requests *);

#endif
