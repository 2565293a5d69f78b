/* ledger - replicator.db: what must be known over a restart and after a lane was lost (SQLite).
 *
 *     users        (name)                        who was ever seen here, for sweeps
 *     unconfirmed  (site, name, ops, since)      whose changes a peer has not confirmed
 *     waiting      (name, unplaced, held)        whose mails wait here: for their bytes or a mailbox, for an admin
 *     names        (name, folders)               whose folders are not shown here, or not by their name, and how many
 *     look         (name)                        who was to be looked at when the last run was stopped
 *     peers        (site)                        removed for ever
 *     joined       (name)                        whose state has what the other sites have
 *     origins      (name, site, epoch)           what his state has in its vector, as a worker said last
 *     retired      (name, site, epoch)           the same of users of that name who were forgotten
 *     untold       (site, name)                  who is to be told of that, and has not said that he knows
 *     met          (site)                        who was told of all users forgotten before he came into the group
 *     meta         (key, value)                  clean: the last run stopped by itself; parent: replicator.h; site: whose it is;
 *                                                filling, placed, placed_bytes: progress.h; instance: replicator.c
 *
 * It is a memory of where to look, never the truth: that is in the users' states. So writes are
 * gathered in a transaction for a second; what a crash takes back is found again by the sweep that
 * follows it. But the sweep goes by the userdb's list, which need not be whole or there at all, and
 * by this memory. So a user who is seen for the first time is written at once. An error is logged
 * and otherwise ignored for the same reason. */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_SITE_LEDGER_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_SITE_LEDGER_H

#include "dovecot-plugin/replicator/replicator.h"

/* Reads the removed peers into r->group and sets r->first, r->unclean and r->adopted. NULL when
 * it cannot be opened or is another site's (logged). */
struct ledger *ledger_open(struct replicator *);
/* Why the one in dir is another site's than self, called name. NULL: it is not, or that cannot be
 * known (no file yet, not readable). The caller's. */
char *ledger_of_another_site(const char *dir, const char *name, uint64_t self);
/* Marks the run as clean, unless something could not be written, or the sweep of its start did
 * not end. */
void ledger_close(struct ledger *);

/* by the userdb, which lists him again */
void ledger_user_listed(struct ledger *, const char *name);
/* By a hint, a mark or a parcel. False: he is new. From ledger_commit_seen on he is known after a
 * kill; it is called before anything is done for him. From ledger_flush on, which comes by itself
 * within a second, he is known after a power loss. */
bool ledger_user_seen(struct ledger *, const char *name);
bool ledger_knows(struct ledger *, const char *name);
void ledger_commit_seen(struct ledger *);
/* All new users are on disk. False: that failed (logged), and is tried again each second. */
bool ledger_flush(struct ledger *);
/* Writes may have been lost: within a second write_users is called, which writes all known users
 * again. */
void ledger_on_loss(struct ledger *, void (*write_users)(void *arg), void *arg);
void ledger_write_user(struct ledger *, const char *name, bool joined);
void ledger_forget_user(struct ledger *, const char *name);

/* ---- ledger_retired.c: origins of users' states, n times FRAME_ORIGIN bytes ---- */

/* In the place of those that were told before. */
void ledger_set_origins(struct ledger *, const char *name, struct text origins);
/* Appended to b, the newest last. */
void ledger_get_origins(struct ledger *, const char *name, struct orset_buf *b);
void ledger_get_retired(struct ledger *, const char *name, struct orset_buf *b);
/* Whether one of his state's is of a user who was forgotten. */
bool ledger_is_retired(struct ledger *, const char *name);
/* Returns how many of them were not retired before. */
size_t ledger_retire(struct ledger *, const char *name, struct text origins);
/* His state is gone. */
void ledger_drop_origins(struct ledger *, const char *name);
/* That site is to be told of his retired origins; false: it knows them. */
void ledger_untold(struct ledger *, uint64_t site, const char *name, bool untold);
bool ledger_is_untold(struct ledger *, uint64_t site, const char *name);
uint64_t ledger_count_untold(struct ledger *);
uint64_t ledger_count_retired(struct ledger *, const char *name); /* NULL: of all names */

/* His state has what the other sites have; false: not yet. Only of users who are known. */
void ledger_joined(struct ledger *, const char *name, bool joined);
bool ledger_has_joined(struct ledger *, const char *name);
/* Users who are known, and how many of them have joined. */
void ledger_count(struct ledger *, uint64_t *users_r, uint64_t *joined_r);

/* A number that outlives this run. 0: it is not noted. */
#define LEDGER_ASKED_FOR "asked-for" /* relays ask whether deliveries are safe */
void ledger_note(struct ledger *, const char *key, uint64_t value);
uint64_t ledger_noted(struct ledger *, const char *key);

/* ops 0: all is confirmed. since: microseconds since 1970. */
void ledger_unconfirmed(struct ledger *, uint64_t site, const char *name, uint64_t ops,
                        int64_t since);
/* 0, 0: all is confirmed. This and those below: false, and 0, when it cannot be read. */
bool ledger_get_unconfirmed(struct ledger *, uint64_t site, const char *name, uint64_t *ops_r,
                            int64_t *since_r);
/* Both 0: nothing waits. */
void ledger_waiting(struct ledger *, const char *name, uint64_t unplaced, uint64_t held);
/* Of a user, or (name NULL) of all. */
bool ledger_get_waiting(struct ledger *, const char *name, uint64_t *unplaced_r, uint64_t *held_r);
/* folders that are not shown here by their name, of a user, or (name NULL) of all */
void ledger_names(struct ledger *, const char *name, uint64_t folders);
uint64_t ledger_get_names(struct ledger *, const char *name);
void ledger_look(struct ledger *, const char *name);
/* Whether that is on disk; else it is written again each second (r->group.peer[].removed). */
bool ledger_remove_peer(struct ledger *, uint64_t site);

/* Pages of names in order, behind after ("" at first): calls fn for at most most of them.
 * Returns how many. */
typedef void ledger_fn(void *arg, const char *name, uint64_t ops, int64_t since);
size_t ledger_users(struct ledger *, const char *after, size_t most, ledger_fn *, void *arg);
size_t ledger_each_unconfirmed(struct ledger *, uint64_t site, const char *after, size_t most,
                               ledger_fn *, void *arg);

/* ops: 0; since: when he was forgotten. */
size_t ledger_each_untold(struct ledger *, uint64_t site, const char *after, size_t most,
                          ledger_fn *, void *arg);

/* Calls fn for those who were to be looked at, and forgets them. */
void ledger_looks(struct ledger *, ledger_fn *, void *arg);

/* Totals of a site: users, ops, the oldest since (0: none). */
bool ledger_totals(struct ledger *, uint64_t site, uint64_t *users_r, uint64_t *ops_r,
                   int64_t *since_r);

#endif
