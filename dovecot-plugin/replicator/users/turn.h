/* turn - users take turns to exchange (docs/replicator.md, Turns).
 *
 * An exchange lives in its worker's memory, so the worker is kept from the question to the
 * answer. All users at once, their questions and answers would lie behind each other for longer
 * than a worker waits, and each would be asked again: so no more are at it than there are
 * workers, but for one. Who waits for a turn stands in a queue of its own (sched.h). A turn has
 * an end where others wait for theirs; each that ends before its exchange has the user's next
 * one take twice as long. */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_USERS_TURN_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_USERS_TURN_H

#include "dovecot-plugin/replicator/workers/worker_state.h"

/* One user more may begin an exchange. used: its last turn ended before its exchange did; such
 * users have fewer than half of the turns. Who is not ordinary asks without a turn, and leaves
 * others at least one. */
bool turn_is_free(const struct workers *, bool used);
/* The worker's user has its turn, or need not wait for one, or nobody is before it. */
bool turn_may_ask(const struct worker *);
/* It has it from now on. */
void turn_take(struct worker *);
/* Its worker has answered: it goes on with its turn while a site's answer is waited for. */
void turn_answered(struct worker *, const struct frame_done *);
/* Seconds for which it waits for an answer, and is not closed. */
double turn_hold_for(const struct worker *);
/* The worker is not closed now for another user's sake: its own one's exchange waits for an
 * answer. */
bool turn_holds(const struct worker *, double now);
/* It is closed, or lost. */
void turn_leave(struct worker *);

#endif
