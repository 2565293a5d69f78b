/* notices - what an admin said by `dovelane divert` and `dovelane hold --add`
 * (lib/cluster/admin_notice.h), kept in all nodes' servers.
 *
 * A Redis that was restarted has forgotten it. Each relay looks into every node that it reaches,
 * and tells those that know less. The milters and proxies obey what they read there
 * (lib/ingress/divert_switch.h), and may write nothing: who breaks into one of them can turn
 * nothing off for the others. */
#ifndef DOVELANE_RELAY_HEARTBEAT_NOTICES_H
#define DOVELANE_RELAY_HEARTBEAT_NOTICES_H

#include "relay/relay.h"

struct notices *notices_open(struct relay *);

/* No node is looked at any more; notices_free() when the connections are closed. */
void notices_close(struct notices *);
void notices_free(struct notices *);

#endif
