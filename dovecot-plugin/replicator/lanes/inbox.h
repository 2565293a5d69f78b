/* inbox - LANE.TAKE: what the other replicas sent, from the node of each.
 *
 * Two connections to each peer's node: READY blocks on one, TAKE and ACK go over the other. The
 * live lane goes before the bulk one, and at most half of the inbox is bulk. What is in flight is
 * leased, and goes back by itself when the connection ends. What is then given again while it is
 * still in flight is known by its id.
 *
 * What is not of this group, not of that replica, or not well-formed is acked and logged (F43). It
 * confirms nothing, so a site that sent it in good faith sends it again. */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_LANES_INBOX_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_LANES_INBOX_H

#include "dovecot-plugin/replicator/replicator.h"

struct user;

/* A parcel in flight: taken from a peer's lane, not acked yet. */
struct parcel_in_flight {
    TAILQ_ENTRY(parcel_in_flight) in_user;
    LIST_ENTRY(parcel_in_flight) in_hash;
    unsigned char id[16];
    size_t peer; /* index: whose lane */
    int lane;    /* LANE_LIVE or LANE_BULK */
    unsigned kind;
    void *reply; /* owns the body: a redisReply */
    struct text body;
    double taken;   /* clock_monotonic */
    uint64_t first; /* number of the first op of a BATCH; 0: it has none, or is no BATCH */
    bool acked;     /* it may be lost */
    /* its user's: */
    unsigned crashes; /* workers that went away while they had it */
    bool waits;       /* for the user to be opened for something else (confirm.h) */
};
TAILQ_HEAD(parcels, parcel_in_flight);

/* What the inbox tells those for whom it takes. */
struct inbox_calls {
    /* It came. Returns for whom it is to be kept in flight; NULL: nobody takes it now, and it is
     * acked and dropped. */
    struct user *(*came)(struct replicator *, struct text name, const struct parcel_in_flight *);
    /* It is in flight, and the user's until inbox_done(). */
    void (*took)(struct user *, struct parcel_in_flight *);
    /* Each second while inbox_crowded(). */
    void (*crowded)(struct replicator *);
};

struct inbox *inbox_open(struct replicator *, const struct inbox_calls *);
/* Takes no more; what is in flight and not begun goes back. */
void inbox_stop(struct inbox *);
void inbox_close(struct inbox *); /* before the users: what they have in flight goes back */
void inbox_free(struct inbox *);  /* after them */

/* Asks for what there is room for. */
void inbox_run(struct inbox *);
/* Sends the acks that came together. */
void inbox_flush(struct inbox *);

/* Half of what may be in flight is. */
bool inbox_crowded(const struct inbox *);

/* There is room for one more that is acked and stays in flight: they have an eighth of it. */
bool take_may_wait(const struct inbox *);
/* Acks it; it stays in flight, and may be lost with this process. */
void take_waits(struct inbox *, struct parcel_in_flight *);
/* Done with: acks it, if that was not done, and frees it. */
void inbox_done(struct inbox *, struct parcel_in_flight *);

/* The peer's node answers; what was taken last is of another group; when something of that peer
 * was taken last (0: never). */
bool inbox_node(const struct inbox *, size_t peer);
bool inbox_foreign(const struct inbox *, size_t peer);
double inbox_heard(const struct inbox *, size_t peer);
void inbox_remove_peer(struct inbox *, size_t peer);

#endif
