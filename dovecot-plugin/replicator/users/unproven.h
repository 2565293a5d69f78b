/* unproven - users whom a hint or a parcel named, and whom neither the ledger nor a worker has
 * known yet. Perhaps the names are made up. So many wait for their lookup, or were looked up in
 * vain within the last minute. */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_USERS_UNPROVEN_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_USERS_UNPROVEN_H

#include "dovecot-plugin/replicator/users/user.h"

struct unproven *unproven_open(struct replicator *); /* before the users */
void unproven_close(struct unproven *);              /* behind them */

/* It is named. peer: whose parcel did, from 1 on; 0: a hint, or who may be believed. */
void unproven_heard(struct user *, size_t peer);
/* A worker has opened it, or it leaves memory. */
void unproven_end(struct user *);
size_t unproven_by_hints(const struct unproven *);
/* Whether a parcel of that peer may name it: who is not known here is one of not too many. Else
 * that is logged. u: of that name; NULL: nobody is in memory. */
bool unproven_may_name(struct unproven *, size_t peer, struct text name, const struct user *u);

#endif
