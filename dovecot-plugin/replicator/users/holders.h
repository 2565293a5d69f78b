/* holders - the users who have a worker's process: it opens them, has them open, closes them, or
 * has closed them and has not ended (ending.h).
 *
 * Of those whose questions take long few have one at a time. An attacker with a few accounts who
 * can put a FIFO, or a file system that hangs, among his files would have all workers. */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_USERS_HOLDERS_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_USERS_HOLDERS_H

#include "dovecot-plugin/replicator/users/user.h"

TAILQ_HEAD(holders, user); /* in the order in which they were opened */

struct holders *holders_open(void);
void holders_close(struct holders *); /* behind the workers */

/* A worker is asked to open it. */
void holders_add(struct user *);
/* Its worker can have another user, or its process has ended. Nothing for who holds none. */
void holders_remove(struct user *);

/* One user more of that kind may have a worker; they have more already than they may, since some
 * became so meanwhile. */
bool holders_have_room(const struct replicator *, enum user_kind);
bool holders_are_beyond(const struct replicator *, enum user_kind);

#endif
