/* questions - of relays, whether deliveries are safe (docs/two-disks.md): looked up at this site,
 * asked of the other sites, answered when enough of them have the mail on the disk.
 *
 * All of it is in memory: a relay asks again until it is answered. What a site confirmed counts
 * only if it was said to a question of this process (ASK_DISK's number), and is forgotten when that
 * site or this one is heard with another epoch: then its disk may be another one. */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_USERS_QUESTIONS_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_USERS_QUESTIONS_H

#include "dovecot-plugin/replicator/lanes/asked.h"
#include "dovecot-plugin/replicator/users/user.h"

extern const struct asked_calls questions_from_asked;

struct questions *questions_open(struct replicator *);
void questions_stop(struct questions *);  /* before the users are closed */
void questions_close(struct questions *); /* behind them */

/* A parcel of a peer's came for that user: an ON_DISK is dealt with here, and nobody is opened for
 * it; of others the sender's epoch counts. true: it was an ON_DISK. */
bool questions_heard(struct questions *, struct text user, const struct parcel_in_flight *);

#endif
