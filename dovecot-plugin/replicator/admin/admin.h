/* admin - the socket of "doveadm dovelane ..." (docs/replicator/main.md, protocol/admin_reply.h):
 *
 *     verb TAB user TAB argument... LF           user: empty: the replicator itself; "*": all users known here
 *     # TAB title TAB title...                    at most one
 *     + column TAB column...                      rows; for "*" the first column is the user
 *     - text                                      an error
 *     = TAB exit code                             ends the reply
 *
 * Answered here (answers.h) are status, lag and peers without a user, lag with one, and "join
 * --status". All else goes to the worker that has the user. A row of a worker's REPLY is such a
 * line, with its "+", "#" or "-" (none: "+"), without LF. */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_ADMIN_ADMIN_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_ADMIN_ADMIN_H

#include "dovecot-plugin/replicator/replicator.h"

struct admin *admin_open(struct replicator *);
void admin_close(struct admin *);
/* A connected client; fd is owned from here on. */
void admin_client(struct admin *, int fd);
/* Each turn: requests that wait for a worker get an error when no worker can be reached. */
void admin_run(struct admin *);

#endif
