/* worker - the connections to dovelane-worker, each one process with at most one user open.
 *
 *     (connect, HELLO) ─▶ idle ─OPEN─▶ opening ─READY─▶ warm ⇄ busy (one question at a time)
 *                          ▲              │              │
 *                          └──────────────│─DONE── closing ◀ CLOSE
 *                                         └─ELSEWHERE─▶ ending (the user is looked up again)
 *
 *     the one more:       idle ⇄ looking (LOOKUP, CREDENTIALS), listing (ADMIN "users")
 *
 * FAIL leads to idle from anywhere. Where users have ids of their own, or a worker is old, DONE and
 * FAIL lead to ending instead. Then main waits for the end of its process (ending.h). A lost
 * connection, an answer out of place and one that does not come within worker_timeout are one case.
 * The worker is gone, and what it had is to be done again, after a wait.
 *
 * At most replicator_workers are in use, and with those that end there are twice as many at most.
 * With the one that opens nobody, and its successor, that is the process_limit of the service:
 * 2 * replicator_workers + 2. */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_WORKERS_WORKER_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_WORKERS_WORKER_H

#include "dovecot-plugin/replicator/users/user.h"

struct workers *workers_open(struct replicator *, const char *socket_path);
void workers_close(struct workers *);

/* Gives each worker something to do: its user's next question, or another user (sched.h).
 *
 * One more worker opens nobody. It says what credentials a user has, before another one reads
 * anything of the user's. Of what that one says from then on, nothing counts for others. */
void workers_run(struct workers *);
/* Asks the one that opens nobody for the list of all users (sweep_name, sweep_listed). false: it is
 * not free yet, ask again. */
bool workers_list_users(struct workers *);

/* Sends what was written, and reads again from those that were held up. */
void workers_flush(struct workers *);
/* Closes all connections as soon as their users are closed; new ones begin with a new HELLO. */
void workers_renew(struct workers *);

/* Why there is none and none could be connected a moment ago; NULL: else. Belongs to the
 * workers, until the next turn. */
const char *workers_unreachable(const struct workers *);
size_t workers_count(const struct workers *);
size_t workers_busy(const struct workers *); /* with a user */

#endif
