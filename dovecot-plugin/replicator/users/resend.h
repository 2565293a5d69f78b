/* resend - all users with something unconfirmed for a peer send it again, page by page. A lane to
 * it was lost, or a user who lacked something in it left memory. */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_USERS_RESEND_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_USERS_RESEND_H

#include "dovecot-plugin/replicator/replicator.h"

struct resend *resend_open(struct replicator *); /* before the outbox */
void resend_close(struct resend *);              /* behind it */

void resend_all(struct resend *, size_t peer);

#endif
