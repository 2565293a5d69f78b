/* agent_settings - how the relay is to speak to next hops: as the smtp(8) or lmtp(8) of this host's
 * Postfix is set to (lib/postfix/agents.h). Asked at start, at each reload, and after each change
 * of main.cf or master.cf (looked at every two seconds). The later ones run on a thread of their
 * own. postconf(1) and the resolver take their time, and a loop that does not turn looks silent to
 * the other nodes. */
#ifndef DOVELANE_RELAY_TABLES_AGENT_SETTINGS_H
#define DOVELANE_RELAY_TABLES_AGENT_SETTINGS_H

#include "lib/postfix/agents.h"
#include "relay/relay.h"

/* Blocks until they are known. */
void agent_settings_open(struct relay *);
void agent_settings_close(void);

/* The config is a new one. Until there is an answer they stay as they were. */
void agent_settings_reload(struct relay *);

/* NULL, or why this host's Postfix, which there is, could not be asked since the start. Nothing is
 * sent to a next hop then: by another name it may refuse mail for good, and without TLS anybody
 * reads it. What was read once stays when a later answer fails. */
const char *agent_settings_unread(void);

/* For a destination ("lmtp:[10.0.0.5]:24"); NULL: for ports of our own Postfix. */
const struct agent *agent_settings_for(const char *destination);

#endif
