/* progress - how far this site is filled: what `doveadm dovelane join --status` shows.
 *
 * A filling begins with a user whose state is new, or when many mails wait for their bytes. It ends
 * when all users have joined and no mail waits. What is placed meanwhile is counted, over restarts
 * too; the numbers stay until the next filling begins. Ordinary changes begin none. Nothing here
 * has a timer: rates are made from moments when somebody asks. */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_USERS_PROGRESS_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_USERS_PROGRESS_H

#include "dovecot-plugin/replicator/users/user.h"

#define PROGRESS_MANY 100 /* mails that wait; fewer are ordinary */

enum { PROGRESS_USERS, PROGRESS_MAILS, PROGRESS_BYTES, PROGRESS_KINDS };

struct progress_row {
    uint64_t done, left;
    bool known;  /* left is: of users not before they were listed once and one is known, as a
                    userdb may list none. Of bytes it is an estimate, made from what was placed */
    bool more;   /* users are left, and may have mails that are in no number yet */
    double rate; /* a second, within the last half minute */
};

struct progress *progress_open(struct replicator *); /* behind the ledger, before the users */
void progress_close(struct progress *);

/* What is known of a user who comes into memory. */
void progress_load(struct user *);
/* It leaves memory: what is counted of users in memory only is not counted of it any more. */
void progress_leave(struct user *);
/* It is nobody's, and the ledger has let it go: nothing waits for it. */
void progress_forget(struct user *);
/* What its worker says. */
void progress_joins(struct user *, enum frame_joins);
void progress_done(struct user *, const struct frame_done *);

/* Its state is new, or many of its mails wait. */
bool progress_fills(const struct user *);
/* Bytes of one mail: the average of those that were placed. */
double progress_mail_size(const struct progress *);

/* listed: all users are known. */
void progress_rows(const struct progress *, bool listed, struct progress_row row[PROGRESS_KINDS]);
/* A user's state in words, and how many of its mails wait. NULL: no such user is known. u: in
 * memory; NULL: it is not. */
const char *progress_of(struct replicator *, const char *name, const struct user *u,
                        uint64_t *left_r);

#endif
