/* notices - what an admin said by `dovelane divert`, `dovelane hold --add` and `dovelane shape`
 * (lib/cluster/admin_notice.h), kept in all nodes' servers.
 *
 * A Redis that was restarted has forgotten it. Each relay looks into every node that it reaches,
 * and tells those that know less. The milters and proxies obey what they read there
 * (lib/ingress/divert_switch.h), and may write nothing. So an attacker in one of them can turn
 * nothing off for the others. */
#ifndef DOVELANE_RELAY_HEARTBEAT_NOTICES_H
#define DOVELANE_RELAY_HEARTBEAT_NOTICES_H

#include "relay/relay.h"

/* What `dovelane shape` said last: the rules' lines, which are gone when it returns; and the serial
 * number. Called at the start when a file has some, and within a second of a change. */
typedef void notices_shape_fn(struct relay *, const char *text, unsigned long long serial);

/* NULL: fn is not called. */
struct notices *notices_open(struct relay *, notices_shape_fn *);

/* The same, as it is known now. "" and 0: nothing was said. The text is the room's until the loop's
 * next turn. */
const char *notices_shape(const struct relay *, unsigned long long *serial_r);

/* No node is looked at any more; notices_free() when the connections are closed. */
void notices_close(struct notices *);
void notices_free(struct notices *);

#endif
