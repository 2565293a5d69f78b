/* divert_switch - `dovelane divert on|off`: whether this program (the milter, the proxy) diverts at
 * all; and the rules of `dovelane hold` and `dovelane shape`, which travel the same way.
 *
 * What was said last is kept in every node's Redis (CONTROL_DIVERT, CONTROL_HOLDS, CONTROL_SHAPE)
 * and in files of every milter's host (in state_directory). It has a serial number
 * (admin_notice.h). A milter looks into every node that it reaches four times a second, and only
 * looks: it may change nothing there. What a Redis that was restarted has forgotten the relays tell
 * it (relay/heartbeat/notices.h). Its connections are its own: a node that is no use for storing
 * can still be heard.
 *
 * Each connection's name tells the admin what this milter obeys:
 * dovelane-switch:<host>:<on|off>:<serial>:<config_digest>:<serial of hold's rules>:<of shape's>. */
#ifndef DOVELANE_LIB_INGRESS_DIVERT_SWITCH_H
#define DOVELANE_LIB_INGRESS_DIVERT_SWITCH_H

#include <stdbool.h>

#include "lib/config/config.h"

/* Reads the file, starts the thread, and waits until every node was heard, a second at most. A file
 * that cannot be understood means off. part: NULL for the milter. "proxy" for the proxy of the same
 * host, which has a user and files of its own (state_directory/proxy, "<host>/proxy"). The limits
 * of receipt hold from then on (receipt.h). */
void divert_switch_open(const struct config *, const char *part);

/* From any thread. */
bool divert_switch_on(void);

#endif
