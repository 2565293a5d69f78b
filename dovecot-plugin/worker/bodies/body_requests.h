/* body_requests - bodies that are not here are asked for. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_BODIES_BODY_REQUESTS_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_BODIES_BODY_REQUESTS_H

#include "dovecot-plugin/compat.h"

struct orset_message;
struct peer;
struct session;

/* A body that was asked for. */
struct body_request {
    uint8_t sha256[32];
    uint64_t size, offset, until; /* until: where the parts asked for end */
    time_t asked;                 /* or when a part came */
    unsigned wait;                /* seconds after which it is asked for again */
    unsigned misses;              /* answers without it: not held there, or other bytes */
    uint64_t not_at;              /* peers that gave these, a bit each */
    bool missed;                  /* the last answer was one, and came when asked says */
    unsigned missed_at;           /* number of the peer that gave it */
    unsigned item;                /* 1 and the number in the plan; 0: not known, or more than one */
};

struct body_requests *body_requests_begin(struct session *, uint64_t ask);
/* item: 1 and the number in the plan of what it is for, 0: for something else. NULL: it was not
 * asked for, as many others were. */
struct body_request *body_request_add(struct body_requests *, const struct orset_message *,
                                      unsigned item);
time_t body_request_until(const struct body_request *); /* then it may be asked for again */
/* each site said that it has not got it */
bool body_request_is_vain(const struct session *, const struct body_request *);
bool body_requests_full(const struct body_requests *); /* as many as can be asked for at once */
/* what is wanted from now on was asked for before: only its answer is taken */
void body_requests_silent(struct body_requests *);
void body_requests_end(struct body_requests **); /* asks */
/* NULL: not asked for */
struct body_request *body_request_find(struct session *, const uint8_t sha256[32]);
/* Counts one whose answer may still come. */
void body_request_awaited(struct body_requests *);
void body_request_given_up(struct body_requests *); /* that one, just wanted, is in nobody's way */
void body_requests_forget(struct session *);        /* no answer is awaited any more */
/* A site is back, perhaps: what was asked for again and again in vain is, at the next TICK. */
void body_requests_soon(struct session *);
/* Who was asked has not got it: somebody else is asked at a later TICK. */
void body_request_missed(struct session *, struct body_request *, const struct peer *);

#endif
