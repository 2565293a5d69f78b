/* ahead - how long a mail waits for what its giver had before it. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_BODIES_AHEAD_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_BODIES_AHEAD_H

#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/orset.h"

struct peer;
struct session;

/* A batch of the peer's is in the state. before: its origin, and its number here before that.
 * lacks: up to which numbers of others it has what this state has not. */
void ahead_heard(struct peer *, struct orset_dot before, const struct orset_dot *lacks,
                 unsigned nlacks);
/* A mail of that number waits, and a tick comes at the end of it. */
bool ahead_waits(struct session *, struct orset_dot);

#endif
