/* naming - what the relay calls itself to next hops (lib/postfix/ourname.h). Asked at start, and
 * again at each reload, then on a thread of its own: postconf(1) and the resolver take their
 * time, and a loop that stands still is found silent by the other nodes. */
#ifndef DOVELANE_RELAY_DELIVERY_NAMING_H
#define DOVELANE_RELAY_DELIVERY_NAMING_H

#include "relay/relay.h"

/* Blocks until the name is known. */
void naming_open(struct relay *);
void naming_close(void);

/* The config is a new one. Until there is an answer the names stay as they were. */
void naming_reload(struct relay *);

/* For a destination ("lmtp:[10.0.0.5]:24"); NULL: for ports of our own Postfix. */
const char *naming_for(const char *destination);

#endif
