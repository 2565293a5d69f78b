/* store - the one store path: entries to all their owners, or known not to be there
 * (docs/design.md, "Mail in" 5).
 *
 * Runs on the program's loop: all calls but store_able, store_pending_revokes and store_tick are
 * made on its thread, and answers come by store_request.done. A request is one mail: one entry
 * per destination, all with the same body. For each entry the caller learns one of the outcomes
 * below. */
#ifndef DOVELANE_LIB_STORE_STORE_H
#define DOVELANE_LIB_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/config/config.h"
#include "lib/mail/entryid.h"

struct store;
struct ev_loop;

enum store_outcome {
    STORE_PENDING,
    STORE_STORED,    /* every owner acked in time: may be promised while store_check says so */
    STORE_DELIVERED, /* was revoked too late: a relay has delivered it already */
    STORE_REFUSED,   /* nowhere (any more): must be kept elsewhere */
    /* could not be revoked everywhere; keep it elsewhere, it may be delivered twice */
    STORE_UNSURE
};

struct store_entry {
    /* by the caller */
    const char *destination; /* "lmtp:[10.0.0.5]:24" */
    const char *class;       /* of its lane; NULL: none. An ordered destination's has none */
    const char *meta;
    size_t meta_len;
    /* by store_submit */
    unsigned char id[ENTRYID_LEN];
    /* before done is called */
    enum store_outcome outcome;
    char reason[160]; /* for the log: "mx2: no answer in 1.5 s", "" when stored */
};

struct store_request {
    const char *queue_id; /* for the log */
    const char *body;
    size_t body_len;
    size_t nentries;
    struct store_entry *entry;
    char owners[256]; /* when done is called: "mx1>mx2" for the log */
    void *state;      /* store's own */
    /* by the caller. Called when every entry has its outcome. Called again after store_revoke has
     * said true and after store_check has said false, but not from within any of these calls. */
    void (*done)(struct store_request *);
    void *arg;
};

/* origin: the node of this host, first owner of what is stored while it can be used; may be
 * NULL. Returns NULL with *error_r malloc'd when there is no such node. The config must live as
 * long as the store, which lives as long as the program. What is submitted in one turn of the
 * loop leaves at its end. */
struct store *store_open_on(struct ev_loop *, const struct config *, const char *origin,
                            char **error_r);

/* The four calls of a mail, in this order. */

/* Fills in the ids and starts. The request, body and metas must stay until store_finish. Acks must
 * be there within store_deadline (+ 1 s per 10 MB of all entries). What lacks one is revoked, which
 * takes at most revoke_wait and a little. */
void store_submit(struct store *, struct store_request *);

/* Takes back what is stored, because the whole mail is wanted elsewhere. May be left out. True when
 * something is being taken back, and done will be called. */
bool store_revoke(struct store *, struct store_request *);

/* Called as the last thing before the answer. The answer must be given within twice the deadline,
 * and half a second before copies are compared (settle), by CLOCK_BOOTTIME. False when that has
 * passed: what was held is being taken back, and done will be called. */
bool store_check(struct store *, struct store_request *);

/* The request is not used any more. */
void store_finish(struct store *, struct store_request *);

/* From any thread. True when enough nodes can be used for a new mail right now. */
bool store_able(struct store *);

/* Sets the gauges of each node. */
void store_gauges(struct store *);

/* Revocations that a node has not been told yet, for want of a connection (as of a tenth of a
 * second ago). */
size_t store_pending_revokes(struct store *);

/* Grows ten times a second while the loop turns. */
unsigned long store_tick(struct store *);

#endif
