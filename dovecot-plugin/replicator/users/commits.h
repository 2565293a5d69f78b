/* commits - mail processes of this site that hold a reply back until another site has what they
 * saved (dovelane_commit = peers; protocol/commit.h, docs/two-disks.md).
 *
 * The socket is open to all who read mail here. So the kernel says which id the asking process has,
 * and it is answered for users of that id alone. The worker knows whose files a user's are. All of
 * them have so many connections, and where they are too many, who has the most loses one. */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_USERS_COMMITS_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_USERS_COMMITS_H

#include "dovecot-plugin/replicator/replicator.h"

struct commits *commits_open(struct replicator *); /* behind the questions */
void commits_close(struct commits *);              /* before the questions and the users */

/* A connected process; fd is owned from here on. Where it asks for a mail's bytes, that is left to
 * fetches.h. */
void commits_client(struct commits *, int fd);
/* Each turn of the loop: what was answered is said. */
void commits_run(struct commits *);

#endif
