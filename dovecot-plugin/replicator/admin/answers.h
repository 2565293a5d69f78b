/* answers - the rows of `doveadm dovelane` that main makes itself, without a worker.
 *
 * Each function adds lines of a reply to rows (admin.h), and returns their titles. */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_ADMIN_ANSWERS_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_ADMIN_ANSWERS_H

#include "dovecot-plugin/replicator/users/user.h"

const char *answer_status(struct replicator *, struct buf *rows);
const char *answer_lag(struct replicator *, struct buf *rows);
const char *answer_peers(struct replicator *, struct buf *rows);
/* Whom other sites have not yet forgotten. */
const char *answer_forget(struct replicator *, struct buf *rows);
/* How far this site is filled. */
const char *answer_join(struct replicator *, struct buf *rows);

/* Of one user. before: what is in front of each row, escaped, with its tab. NULL: no such user is
 * known here. */
const char *answer_lag_user(struct replicator *, const char *name, const char *before,
                            struct buf *rows);
const char *answer_join_user(struct replicator *, const char *name, const char *before,
                             struct buf *rows);

#endif
