/* questions - of relays, whether deliveries are safe (docs/two-disks.md). They are looked up at
 * this site, asked of the other sites, and answered when enough of them have the mail on the disk.
 * And of mail processes here that hold their replies back until one of them has (commits.h).
 *
 * All of it is in memory: a relay asks again until it is answered. What a site confirmed counts
 * only as the answer to a question of this process (ASK_DISK's number). It is forgotten when that
 * site or this one is heard with another epoch: then its disk may be another one. */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_USERS_QUESTIONS_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_USERS_QUESTIONS_H

#include "dovecot-plugin/replicator/lanes/asked.h"
#include "dovecot-plugin/replicator/users/user.h"

extern const struct asked_calls questions_from_asked;

/* What becomes of a question of a mail process. */
enum disk_told {
    DISK_SAFE,     /* another site has it on its disk; or it was removed */
    DISK_UNKNOWN,  /* it is in no mailbox that is replicated */
    DISK_STRANGER, /* who asks has not this user's id */
    DISK_FORGOTTEN /* the user cannot be opened, or too much is asked */
};

/* One that asks so, and its open questions. */
struct disk_waiter {
    LIST_HEAD(, question) open;
    uint32_t uid;
    /* Of one of them, which is not open any more. It must not end others. */
    void (*told)(struct disk_waiter *, enum disk_told);
};

struct questions *questions_open(struct replicator *);
void questions_stop(struct questions *);  /* before the users are closed */
void questions_close(struct questions *); /* behind them */

/* Each turn of the loop: other sites are asked for what was found here. */
void questions_run(struct questions *);

/* Whether another site has that mail of the user's on its disk. */
void questions_await(struct questions *, const struct user *, const char *guid,
                     struct disk_waiter *);
/* What is open of it is asked again, where it is time for that; so are those that are new. */
void questions_again(struct questions *, struct disk_waiter *);
/* Nothing of it is open any more. */
void questions_end(struct questions *, struct disk_waiter *);

/* A parcel of a peer's came for that user. An ON_DISK is dealt with here, and nobody is opened for
 * it; of others the sender's epoch counts. true: it was an ON_DISK. */
bool questions_heard(struct questions *, struct text user, const struct parcel_in_flight *);

#endif
