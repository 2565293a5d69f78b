/* store_work - what the files of the store share: works, copies, links. Belongs to store*.c alone.
 *
 *   store_request ── work ── entry_work ── copy ── link ── node (one of its two connections)
 *
 *   entry:   STORING ──every copy acked──▶ HELD ──answer limit, store_revoke──▶ REVOKING ──▶ an outcome
 *               └──── a copy refused, deadline ────────────────────────────────▶
 *
 * All of it is touched on the loop's thread only, but for what is atomic. */
#ifndef DOVELANE_LIB_STORE_STORE_WORK_H
#define DOVELANE_LIB_STORE_STORE_WORK_H

#include <stdatomic.h>

#include <ev.h>

#include "lib/base/metrics.h"
#include "lib/mail/lanename.h"
#include "lib/redis/node.h"
#include "lib/store/store.h"

struct owed_revoke; /* store_revoke.c's own */
struct link;        /* one connection to one node: the small one or the bulk one */

enum copy_state {
    /* not on the wire of any connection: about to be, or waiting for the next (node_turning) */
    COPY_UNSENT,
    COPY_SENT,    /* PUSH is under way, or its connection was lost before the answer */
    COPY_ACKED,   /* in the life noted */
    COPY_REFUSED, /* the server said it has not stored it */
};

enum revoke_state {
    REVOKE_NONE,
    REVOKE_SENT,
    REVOKE_AGAIN /* leased or connection lost: ask again */,
    REVOKE_CLEAR,
    REVOKE_GONE
};

struct copy {
    struct entry_work *entry;
    struct link *link;
    enum copy_state state;
    unsigned life; /* of the node that acked */
    unsigned born; /* of the node when this mail began */
    double sent;   /* clock_monotonic, COPY_SENT */
    enum revoke_state revoke;
    bool leased;       /* the last revocation found it being delivered */
    struct copy *next; /* in the link's outbox */
};

enum entry_phase { PHASE_STORING, PHASE_HELD, PHASE_REVOKING, PHASE_DONE };

struct entry_work {
    struct work *work;
    struct store_entry *entry; /* the caller's; NULL once the caller has gone on */
    unsigned char id[ENTRYID_LEN];
    char *lane;
    uint64_t generation; /* of an ordered lane; 0: it is not ordered */
    enum entry_phase phase;
    double revoke_started; /* clock_monotonic */
    size_t ncopies;
    struct copy copy[LANENAME_OWNERS_MAX];
};

struct work {
    struct store *store;
    struct store_request *request; /* NULL once the caller has gone on */
    /* the caller, and every request on a wire that names one of our copies */
    int refs;
    int64_t begun;        /* CLOCK_BOOTTIME ns */
    int64_t answer_limit; /* the same: nothing is promised after it */
    ev_timer deadline, limit, again;
    bool submitted;
    struct work *next; /* in the submission queue */
    struct work *live_prev, *live_next;
    size_t nentries;
    struct entry_work entry[];
};

struct link {
    struct store *store;
    struct node *node;
    bool bulk;
    size_t index; /* of the node in the config */
    struct metric_series *store_seconds;
    uint64_t session;
    uint64_t txn; /* of the last PUSH of this session */
    struct copy *outbox, **outbox_last;
    /* that nobody waits for any more, for when the connection is back */
    struct owed_revoke *owed, **owed_last;
    size_t nowed;
};

struct store {
    const struct config *config;
    struct ev_loop *loop;
    ev_prepare turn; /* what is queued is done before the loop waits */
    int origin;      /* index in the config, -1: none */
    size_t nlinks;   /* 2 per node: small, bulk */
    struct link *link;
    size_t unsent_most; /* bytes that wait for one connection; one with more gets no new mail */
    double *full_until; /* per node: it said MEMORY, others are tried first until then */
    bool *behind;       /* per node: much waits for its connections, others are preferred */
    struct work *queue, **queue_last;
    struct work *live;       /* all that a caller waits for */
    atomic_bool able;        /* enough nodes can be used: looked up by any thread */
    double search_at;        /* for owners, not before that: clock_monotonic */
    atomic_ulong beat, owed; /* likewise */
    ev_timer watch;
    struct store_order *order;
    struct store_watch *heard;     /* NULL with takeover = manual */
    struct config_placement least; /* what no mail may do with less than */
};

/* store.c */
void store_entry_done(struct entry_work *, enum store_outcome);
void store_reason(struct entry_work *, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void work_unref(struct work *);
void work_poll_later(struct work *); /* store_revoke_poll will be called in a moment */

/* store_place.c: chooses the owners; false when too few nodes can be used. */
bool store_place(struct store *, const struct config_placement *, bool bulk,
                 struct link *owner[LANENAME_OWNERS_MAX]);
/* Into how many domains copies could be placed. */
size_t store_domains(struct store *, int over, bool bulk);
size_t store_usable(struct store *, bool bulk);
/* The same as indexes of nodes; first: those that come before all others, in this order, if they
 * can be used. */
bool store_choose(struct store *, const struct config_placement *, bool bulk, bool ordered,
                  const size_t *first, size_t nfirst, size_t chosen[LANENAME_OWNERS_MAX]);
bool store_node_usable(struct store *, size_t node, bool bulk);
/* Which nodes' connections are behind. Ten times a second. */
void store_look_behind(struct store *);
struct link *store_link(struct store *, size_t node, bool bulk);

/* store_order.c: the one list of owners of all that is for ordered destinations, and its
 * generation. */
void store_order_open(struct store *);
/* The owners and the generation of a mail that begins now. false: too few nodes can be used. */
bool store_order_place(struct store *, const struct config_placement *, bool bulk,
                       struct link *owner[LANENAME_OWNERS_MAX]);
void store_order_look(struct store *); /* ten times a second */
const char *store_order_origin(const struct store *);
uint64_t store_order_generation(const struct store *);

/* store_watch.c: what the nodes say of each other, with takeover = automatic. */
void store_watch_open(struct store *);
void store_watch_look(struct store *); /* ten times a second */
/* another run_id: it is whole for nothing that it said before */
void store_watch_restarted(struct store *, size_t node);
/* Whether new mail may be placed on these nodes. They must live, hear each other alive, and be
 * whole for this set, and none of them may have taken another over. */
bool store_watch_fit(const struct store *, const size_t *node, size_t n, bool all);
/* How far it is, in classes (nearness.h). */
int store_watch_distance(const struct store *, size_t node);
double store_watch_rtt(const struct store *, size_t node); /* seconds; negative: not known */
/* A time that follows the way to a node, in seconds. */
double store_watch_time(const struct store *, size_t node, enum config_far);
/* It said that it retains as much as replicated_memory allows. */
bool store_watch_retains_most(const struct store *, size_t node);
/* It said that its memory is nearly used up. */
bool store_watch_filling(const struct store *, size_t node);
/* Their relays know of all nodes that this program knows of. Ordered mail needs it: a relay asks
 * those that it knows for a lower generation. */
bool store_watch_known(const struct store *, const size_t *node, size_t n);

/* store_push.c */
void store_push_queue(struct copy *);  /* into the outbox */
void store_push_flush(struct store *); /* all outboxes onto the wires */
/* after a reconnect: what is still wanted and unanswered */
void store_push_again(struct link *);

void store_count_refusal(const struct link *, const char *reason);

/* store_revoke.c */
void store_revoke_start(struct entry_work *);
void store_revoke_again(struct link *); /* after a reconnect */
void store_revoke_poll(struct work *);  /* the `again` timer */

#endif
