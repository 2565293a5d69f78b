/* forget - `doveadm dovelane forget`: all that is kept of a user here goes, and the other sites are
 * told. His mails stay. It waits until no worker has him open, and the userdb was asked whether it
 * has him. */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_WORKERS_FORGET_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_WORKERS_FORGET_H

#include "dovecot-plugin/replicator/users/user.h"

/* A request whose second word, if there is one, is this acts though the userdb has the user. */
#define FORGET_FORCED "--force"

/* The userdb has him: what was asked for is refused, unless it is forced. */
void forget_living(struct user *);
/* It has no such user. */
void forget_nobody(struct user *);

#endif
