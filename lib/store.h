/* store - the one store path: entries to all their owners, or known not to be there (docs/design.md, "Mail in" 5).
 *
 * Runs on a thread of its own with its own libev loop; store_submit and store_wait may be called from any thread. Or on the loop of a program that has
 * one (store_open_on): then all calls are made there, and answers come by store_request.done.
 * A request is one mail: one entry per destination, all with the same body. For each entry the caller learns one of the outcomes below. */
#ifndef DOVELANE_STORE_H
#define DOVELANE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config.h"
#include "entryid.h"

struct store;
struct ev_loop;

enum store_outcome {
    STORE_PENDING,
    STORE_HELD,      /* every owner acked in time: may be promised until the deadline passes (store_wait has looked) */
    STORE_DELIVERED, /* was revoked too late: a relay has delivered it already */
    STORE_REFUSED,   /* nowhere (any more): must be kept elsewhere */
    STORE_UNSURE     /* could not be revoked everywhere; keep it elsewhere, it may be delivered twice */
};

struct store_entry {
    /* by the caller */
    const char *destination; /* "lmtp:[10.0.0.5]:24" */
    const char *meta;
    size_t meta_len;
    /* by store_submit */
    unsigned char id[ENTRYID_LEN];
    /* by store_wait */
    enum store_outcome outcome;
    char reason[160]; /* for the log: "mx2: no answer in 1.5 s", "" when held */
};

struct store_request {
    const char *queue_id; /* for the log */
    const char *body;
    size_t body_len;
    size_t nentries;
    struct store_entry *entry;
    char owners[256]; /* after store_wait: "mx1>mx2" for the log */
    void *state;      /* store's own */
    /* by the caller, with store_open_on: instead of store_wait. Called when every entry has its outcome, and again after store_revoke and after store_check has
     * said false; not from within any of these calls. */
    void (*done)(struct store_request *);
    void *arg;
};

/* origin: the node of this host, first owner of what is stored while it can be used; may be NULL.
 * Starts the thread. Returns NULL with *error_r malloc'd when that fails. The config must live as long as the store. */
struct store *store_open(const struct config *, const char *origin, char **error_r);

/* The same on the caller's loop, without a thread. What is submitted in one turn of the loop leaves at its end. */
struct store *store_open_on(struct ev_loop *, const struct config *, const char *origin, char **error_r);

/* Ends the thread. No request may be open. */
void store_close(struct store *);

/* The four calls of a mail, in this order and by one thread. */

/* Fills in the ids and starts. The request, body and metas must stay until store_finish. */
void store_submit(struct store *, struct store_request *);

/* Waits until every entry has its outcome: acks must be there within store_deadline (+ 1 s per 10 MB of all entries); what lacks one is revoked, which takes at most revoke_wait and a
 * little. The answer must be given within twice the deadline, and half a second before copies are compared (settle). store_wait reads CLOCK_BOOTTIME as the
 * last thing it does: past that limit entries are revoked rather than called held. Answer at once. */
void store_wait(struct store *, struct store_request *);

/* Takes back what is held, because the whole mail is wanted elsewhere, and waits again. May be left out.
 * With store_open_on it does not wait: it returns true when something is being taken back, and done will be called. */
bool store_revoke(struct store *, struct store_request *);

/* With store_open_on, as the last thing before the answer: false when the limit has passed (see store_wait): what was held is being taken back, and done will
 * be called. */
bool store_check(struct store *, struct store_request *);

/* The request is not used any more. */
void store_finish(struct store *, struct store_request *);

/* True when enough nodes can be used for a new mail right now. */
bool store_able(struct store *);

/* Revocations that a node has not been told yet, for want of a connection (as of a tenth of a second ago). */
size_t store_owed(struct store *);

/* Grows ten times a second while the store's thread does its work. */
unsigned long store_beat(struct store *);

#endif
