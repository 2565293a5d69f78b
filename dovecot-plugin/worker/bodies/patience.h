/* patience - how long mails wait for the bodies of those before them. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_BODIES_PATIENCE_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_BODIES_PATIENCE_H

#include "dovecot-plugin/compat.h"

struct session;

/* The mails of this mailbox wait no longer for those before them whose bodies did not come. */
bool patience_is_over(struct session *, uint32_t folder);
int patience_begin(struct session *, uint32_t folder); /* from now on some wait */
/* another site did: at the end of each parcel */
int patience_spoken(struct session *);
/* inside a transaction: the first mail in the order was placed */
int patience_renew(struct session *, uint32_t folder);
/* of all mailboxes: nothing waits any more */
int patience_forget(struct session *);
/* a whole part came of the body for item - 1 of the plan; 0: of another */
int patience_grown(struct session *, unsigned item);

#endif
