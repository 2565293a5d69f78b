/* sched - who is next. Users wait in three queues: those with hints (and admins' requests) first,
 * those with parcels next, sweeps last. A small share goes the other way round, so that nobody
 * waits for ever.
 *
 * Slow users (user.h) wait apart, and have one worker at a time, all of them together; lengthy ones
 * half of the workers (holders.h). Who has not been opened yet is looked up before.
 *
 * A user is held by one worker, and kept open there while nobody else needs it (warm). While
 * others wait, a worker gives its user back after SCHED_SLICE of work. */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_USERS_SCHED_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_USERS_SCHED_H

#include "dovecot-plugin/replicator/users/user.h"

#define SCHED_SLICE 0.1 /* seconds */

struct sched *sched_open(struct replicator *);
void sched_close(struct sched *);

/* Puts the user into that queue; USER_NOTHING: into none. Keeps its place when it is there
 * already. */
void sched_queue(struct sched *, struct user *, enum user_class);
void sched_dequeue(struct sched *, struct user *);
size_t sched_waiting(const struct sched *);
/* Nobody waits for a turn to exchange who would have it before that user. */
bool sched_is_next(const struct sched *, const struct user *);
/* Who wait for their turn to exchange. One of them counts as waiting when it has come. */
size_t sched_in_turn(const struct sched *);
/* lengthy or slow ones who wait, whether there is room for one or not */
size_t sched_apart(const struct sched *, enum user_kind);
size_t sched_unknown(const struct sched *); /* who are to be looked up first; not among those */

/* Whose turn it is to have a worker; NULL: nobody's. */
struct user *sched_first(const struct sched *);
/* It gets one. true: it has its turn to exchange. */
bool sched_take(struct sched *, struct user *);
/* Who is to be looked up next; NULL: nobody. */
struct user *sched_take_unknown(struct sched *);

#endif
