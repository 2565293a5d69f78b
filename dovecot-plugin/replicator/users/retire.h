/* retire - users who were forgotten: origins of their states, and which sites know of it.
 *
 * A user who is made again under the same name is another one. What a site that was away, an old
 * home, or a lane still has of the former one must not come to him. So the origins of the former
 * one's states are retired, at this site, and at each other one that hears of it. What has one of
 * them in its vector is of a user who is gone, and is not taken (worker/session/retired.c). Until a
 * site has said that it knows, nothing of that name goes there but this, and nothing of it is
 * taken. So no state there can get a part of both users. Rules: docs/replication-protocol.md,
 * "Users who are forgotten". */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_USERS_RETIRE_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_USERS_RETIRE_H

#include "dovecot-plugin/replicator/users/user.h"

struct retire *retire_open(struct replicator *); /* before the users */
void retire_close(struct retire *);

/* Each turn of the loop: what sites told is written, and then they hear that it is known. */
void retire_run(struct retire *);
/* A new user in memory: which sites do not know yet. */
void retire_load(struct user *);

/* All that is known here of his state's origins is retired, and told to all. 0: nothing is known.
 * -1: that cannot be written now. */
int retire_user(struct user *);
/* The userdb has him no more. Where he was forgotten at another site, what was given here meanwhile
 * is retired, too. True: his state's origins are not needed any more. */
bool retire_gone(struct user *);

/* RETIRE or RETIRED; nothing of it is kept. */
void retire_came(struct retire *, struct text name, const struct parcel_in_flight *);
/* That site sends as if it did not know. */
void retire_tell_again(struct user *, size_t peer);
/* What lay in that lane may be lost. */
void retire_resend(struct retire *, size_t peer);
void retire_remove_peer(struct retire *);

#endif
