/* confirm - what confirms changes, with few openings of users: each costs more than what it is for.
 *
 * A site that took a user's ops owes the others its vector. A worker that is about to close him
 * says it first; else it would open him again for that. A vector may come for a user whom no worker
 * has open. If it confirms all of his numbers, it waits until he is opened for something else, for
 * sweep_active at most. It is acked at once, and only the newest one of each site is kept. One that
 * is lost with this process comes again. The state says at its next opening that it lacks it, what
 * it confirmed is sent again, and the site that gets that says hello. */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_USERS_CONFIRM_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_USERS_CONFIRM_H

#include "dovecot-plugin/replicator/users/user.h"

/* Before its worker closes it: wants a HELLO for those peers to whom one is owed. false: to
 * none, or none can be sent now. */
bool confirm_first(struct user *);
/* A BATCH without ops that is in the user's list now: waits, if it can. */
void confirm_heard(struct user *, struct parcel_in_flight *);
/* No worker has it open any more: what came meanwhile waits, if it can. */
void confirm_closed(struct user *);
/* The first parcel in its list waits, and can be taken now that it is open. */
bool confirm_is_next(const struct user *, double now);
/* Its worker sends that. */
void confirm_sends(struct user *, const struct frame_parcel *);

#endif
