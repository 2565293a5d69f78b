/* turn - users take turns to exchange (docs/replicator/joining.md, Turns).
 *
 * An exchange lives in its worker's memory, so the worker is kept from the question to the answer.
 * If all users did so at once, their questions and answers would lie behind each other for longer
 * than a worker waits. Then each would be asked again. So fewer are at it than there are workers,
 * by one. A user who waits for a turn is in a queue of its own (sched.h). A turn has an end where
 * others wait for theirs; each that ends before its exchange has the user's next one take twice as
 * long. */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_USERS_TURN_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_USERS_TURN_H

#include "dovecot-plugin/replicator/users/user.h"

/* One user more may begin an exchange. used: its last turn ended before its exchange did; such
 * users have fewer than half of the turns. Who is not ordinary asks without a turn, and leaves
 * others at least one. */
bool turn_is_free(const struct replicator *, bool used);
/* The user has its turn, or need not wait for one, or nobody is before it. is_next: no user waits
 * who would have one before it (sched_is_next). */
bool turn_may_ask(const struct user *, bool is_next);
/* The user has it from now on. */
void turn_take(struct user *);
/* Its worker has answered. parcel: what it was asked to take; NULL: it was asked something else.
 * true: the user goes on with its turn, and waits for a site's answer, for turn_hold_for() at
 * least. */
bool turn_answered(struct user *, const struct parcel_in_flight *parcel, const struct frame_done *,
                   bool is_next);
/* It has nothing to ask for now: its turn is over, but where a site's answer is waited for. */
void turn_pause(struct user *);
/* Seconds for which it waits for an answer, and is not closed. */
double turn_hold_for(const struct replicator *);
/* The user is not closed now for another one's sake: its exchange waits for an answer. */
bool turn_holds(const struct user *, double now);
/* Its worker is asked to close it. */
void turn_leave(struct user *);
/* It is closed, or its worker is lost, and with it what was asked. */
void turn_forget(struct user *);

#endif
