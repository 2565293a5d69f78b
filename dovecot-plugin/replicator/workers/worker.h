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
 * FAIL lead to ending instead: the end of its process is waited for (ending.h). A lost connection,
 * an answer out of place and one that does not come within worker_timeout are one case: the worker
 * is gone, what it had is to be done again, after a wait.
 *
 * At most replicator_workers are in use, and with those that end there are twice as many at most.
 * With the one that opens nobody, and its successor, that is the process_limit of the service:
 * 2 * replicator_workers + 2. */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_WORKERS_WORKER_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_WORKERS_WORKER_H

#include "dovecot-plugin/replicator/users/user.h"

struct workers *workers_open(struct replicator *, const char *socket_path);
void workers_close(struct workers *);

/* Gives each warm worker its user's next question, or lets it close its user: when that has had
 * its slice and others wait (waiting users), or was idle for worker_idle. Returns how many
 * workers are about to be free. */
size_t workers_go_on(struct workers *, size_t waiting);
/* One without a user that can open this one, whose credentials are known. Connected now if there
 * may be another, or in place of one that can open others only. NULL: none. */
struct worker *workers_free(struct workers *, const struct user *);
/* One more worker opens nobody. It says what credentials a user has, before another one reads
 * anything of the user's: of what that one says from then on, nothing counts for others. */
bool workers_may_look_up(struct workers *);
void workers_look_up(struct workers *, struct user *);
void worker_open_user(struct worker *, struct user *, bool in_turn);
/* Something changed for the user that it has open: it is asked whether it goes on. */
void worker_stir(struct worker *);
/* Closes the user that was idle for longest. false: all are at work. */
bool workers_release_warm(struct workers *);
/* Asks a free worker for the list of all users (sweep_name, sweep_listed). false: none is free
 * yet, ask again. */
bool workers_list_users(struct workers *);

/* Sends what was written, and reads again from those that were held up. */
void workers_flush(struct workers *);
/* Closes all connections as soon as their users are closed; new ones begin with a new HELLO. */
void workers_renew(struct workers *);

/* For admin.c: a client whose request a worker may have in flight goes away. */
void workers_forget_client(struct workers *, const void *client);

/* Why there is none and none could be connected a moment ago; NULL: else. Belongs to the
 * workers, until the next turn. */
const char *workers_unreachable(const struct workers *);
size_t workers_count(const struct workers *);
/* For one user more of that kind; and whether they have more workers than they may already,
 * since some became so meanwhile. */
bool workers_have_room(const struct workers *, enum user_kind);
bool workers_beyond(const struct workers *, enum user_kind);
size_t workers_busy(const struct workers *); /* with a user */

#endif
