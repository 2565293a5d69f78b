/* pace - join_rate: how fast the other sites are asked for mails while this one is filled.
 *
 * A bucket fills with join_rate bytes a second. Each request for bodies takes out what it will
 * bring, by the average of the mails placed so far. Each mail that comes corrects that. While the
 * bucket is below 0, requests are held of users whose state is new, or of whom many mails wait.
 * Others go at once, and are charged.
 *
 * Nothing held is the only one of its kind: a worker asks again for what does not come. So one is
 * held per user and peer, the newest; it goes with its user, its peer and this process. */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_USERS_PACE_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_USERS_PACE_H

#include "dovecot-plugin/replicator/users/user.h"

struct pace *pace_open(struct replicator *);
void pace_close(struct pace *); /* behind the users */

/* All that a worker sends goes through here to the lanes. */
void pace_send(struct pace *, struct user *, const struct frame_parcel *send);
/* A parcel came; bodies are charged. NULL: of a user who is not in memory. */
void pace_came(struct pace *, struct user *, size_t peer, unsigned kind, struct text body);
/* Nothing more is expected for that user from that peer. */
void pace_forget(struct pace *, struct user *, size_t peer);
/* Nor from any. */
void pace_forget_all(struct pace *, struct user *);

#endif
