/* sweep - all users are looked at every sweep_all, at sweep_rate, without a hint. So it finds what
 * was changed behind Dovecot's back, and what a crash or a lost hint hid. Active users have a timer
 * of their own (user.h). */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_USERS_SWEEP_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_USERS_SWEEP_H

#include "dovecot-plugin/replicator/replicator.h"

struct sweep *sweep_open(struct replicator *);
void sweep_stop(struct sweep *);
void sweep_close(struct sweep *);

/* As soon as may be; once more if one is under way. */
void sweep_everyone(struct sweep *);
bool sweep_running(const struct sweep *);
bool sweep_is_listing(const struct sweep *); /* who the users are is not known yet */
bool sweep_wants_list(const struct sweep *); /* of users, as soon as the worker for that is free */
/* A source that may ask for a sweep again and again has to wait now. One is under way, or ended
 * less than four times as long ago as it took. */
bool sweep_rests(const struct sweep *);

/* A worker was asked for it: the userdb's users come from there. */
void sweep_list_asked(struct sweep *);
void sweep_name(struct sweep *, struct text name);
void sweep_listed(struct sweep *, bool whole);

#endif
