/* arrivals - what the lanes report, for the users. They report what came from a peer, what did not
 * come into the lane to one, and when there is room again. */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_USERS_ARRIVALS_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_USERS_ARRIVALS_H

#include "dovecot-plugin/replicator/lanes/outbox.h"
#include "dovecot-plugin/replicator/lanes/inbox.h"

extern const struct inbox_calls arrivals_from_inbox;
extern const struct outbox_calls arrivals_from_outbox;

#endif
