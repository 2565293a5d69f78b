/* job - one question for a worker about its user, made from what is to be done (user.h) and put
 * back when it fails. */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_WORKERS_JOB_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_WORKERS_JOB_H

#include "dovecot-plugin/replicator/users/user.h"

struct job {
    enum { JOB_NONE, JOB_ADMIN, JOB_INGEST, JOB_PARCEL, JOB_SHIP, JOB_TICK } kind;
    struct admin_request *admin;     /* ADMIN: in flight, no longer in the user's list */
    struct parcel_in_flight *parcel; /* PARCEL: still first in the user's list */
    size_t peer;                     /* SHIP */
    enum frame_ship how;
    uint64_t from; /* of NEW; what was known to be missing in the lane */
    bool look;     /* INGEST: not only a sweep */
    bool asks;     /* it begins an exchange */
};

/* The user's next question. The order is: what waited for it to be opened, admin, hints, parcels,
 * ship, tick, sweep. Of a state that is new an exchange comes before hints. may_ask: it may begin
 * an exchange. f's texts are the user's and the request's. false: there is nothing to do now. */
bool job_next(struct job *, struct user *, bool may_ask, struct frame *f);
/* Its last question before it is closed, though it could go on. It sends a peer what came in, for
 * which it would be opened again. false: no peer waits to be told. */
bool job_last(struct job *, struct user *, struct frame *f);
/* f was written: what the user keeps no longer is let go. */
void job_asked(struct job *, struct user *);

void job_reply(struct job *, struct text row);
void job_done(struct job *, struct user *, const struct frame_done *);
/* Its worker says why not, which an admin gets as the answer. */
void job_failed(struct job *, const char *why);
/* It was not done: the user has it to do again. Nothing for JOB_NONE. */
void job_again(struct job *, struct user *);
/* The user cannot be opened for good. */
void job_unknown(struct user *);

#endif
