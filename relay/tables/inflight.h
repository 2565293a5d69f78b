/* inflight - the entries that this relay has in flight: from TAKE until the own node has answered
 * the ACK or NACK.
 *
 * A lease ends when its connection does, and then the server gives the same entries out again, to
 * us. The table keeps them from being delivered a second time. An id that is taken while it is in
 * flight only gets its new lease number. */
#ifndef DOVELANE_RELAY_TABLES_INFLIGHT_H
#define DOVELANE_RELAY_TABLES_INFLIGHT_H

#include "lib/base/queue.h"
#include "relay/tables/lanes.h"
#include "lib/mail/entryid.h"
#include "lib/mail/envelope.h"
#include "relay/relay.h"
#include "relay/smtp/smtp.h"

/* Why an entry goes to Postfix's own queue instead of its next hop. */
enum spill_reason {
    SPILL_NONE,
    SPILL_REQUEUE,
    SPILL_DRAIN,
    SPILL_LANE_TIME,
    SPILL_MEMORY,
    SPILL_POISON,
    SPILL_8BITMIME,
    SPILL_REASONS,
    SPILL_EXPIRED /* not even that: it bounces (entry->expired) */
};

enum entry_state {
    ENTRY_DELIVERING, /* its mail is with a destination: waiting there, or being sent */
    ENTRY_BOUNCING,   /* the same with the bounce port */
    ENTRY_RECORDING,  /* META under way */
    ENTRY_ACKING,
    ENTRY_RETURNING /* NACK under way */
};

/* What becomes of an entry when the nodes have answered (owners.h). */
struct entry_calls {
    /* META: held = false when the own node does not hold the entry any more. */
    void (*recorded)(struct entry *, bool held);
    /* ACK: it is removed, and leaves the in-flight table after this. */
    void (*removed)(const struct entry *);
};

struct entry {
    struct entry *next;        /* in the table's bucket */
    TAILQ_ENTRY(entry) taken;  /* in the order of taking */
    TAILQ_ENTRY(entry) queued; /* RECORDING, ACKING: for the next command of its lane */
    struct relay *relay;
    struct lane *lane;
    unsigned char id[ENTRYID_LEN];
    enum entry_state state;
    const struct entry_calls *calls; /* mail.c's */

    long long lease;     /* 0: none, it was read and not taken (spill_to_postfix.h) */
    unsigned generation; /* of the connection that the lease belongs to */
    /* "attempts" of the server: leases of it that ended otherwise than by us */
    long long failed_leases;
    bool suspect; /* relays may have died of it: poison.h */
    uint32_t revision;
    struct envelope envelope;
    redisReply *holder; /* the part of TAKE's reply that holds the body; ours */
    double taken_at;    /* CLOCK_MONOTONIC */
    double stored_at;   /* in the own server: clock_boottime(), rather too early than too late */

    /* this time */
    enum spill_reason spill;
    unsigned char *tried; /* per recipient: TRIED_* */
    unsigned char *hop;   /* per recipient: of destination_hop(), the one to be tried */
    unsigned char *redo;  /* per recipient: REDO_*; NULL: none of them */
    size_t nredo;         /* how many recipients it is about, and `hop`, which came with it */
    bool expired;         /* it waited for too long, by a rule that bounces such mail */
    bool bodyless;        /* it was read without its body: nothing can be delivered */
    bool attempted;       /* someone was asked about someone: counts, and waits by the schedule */
    bool leaving;         /* acked or given back: counted in its lane */
    bool told;            /* delivered; the other owners know it, since the own node is away */
    bool leave;           /* nothing more is begun with it, it goes back */
    bool dirty;           /* the envelope has what META has not */
    bool sent;            /* and in that a delivery, or what may have been one */
    bool lean;            /* META without texts, because the server has no memory for more */
    struct smtp_mail mail;
    struct destination *at; /* where that is */
    unsigned bounces;       /* transactions with the bounce port, this time */
    char *head, *body;      /* of a bounce; body only where the message's own does not do */
};

/* COUNTED: a host was asked, and there may be others: all of them are one attempt */
enum { TRIED_DELIVERY = 1, TRIED_BOUNCE = 2, TRIED_COUNTED = 4 };

/* Of a retained recipient: it is delivered anew. LOST: its site does not have the mail any more.
 * AWAY: its site cannot be reached, and another one gets the mail, too. */
enum { REDO_NONE, REDO_LOST, REDO_AWAY };

struct inflight *inflight_open(void);
void inflight_close(struct inflight *);

struct entry *inflight_find(struct relay *, const unsigned char id[ENTRYID_LEN]);

/* A new entry. holder becomes the table's. */
struct entry *inflight_add(struct relay *, struct lane *, const unsigned char id[ENTRYID_LEN],
                           redisReply *holder);

/* Fills e->mail for these recipients (malloc'd, the entry's from now on), without head. */
void entry_set_mail(struct entry *, struct smtp_rcpt *, size_t n,
                    void (*done)(struct smtp_mail *, const char *relay));

/* Acked or given back; the command leaves at the end of this turn of the loop. Counts it in its
 * lane, whose next TAKE may leave with it. */
void inflight_leaving(struct entry *);

/* Removes the entry from the table and frees it. */
void inflight_release(struct entry *);

/* How often one was removed. */
unsigned inflight_released(const struct relay *);

/* The entry goes to Postfix's queue for that reason; or it bounces, since it waited for too long. How
 * many do, of each kind: a port that does not answer must not hold up the other. */
void inflight_spill(struct entry *, enum spill_reason);
void inflight_expire(struct entry *);
size_t inflight_spilled(const struct relay *);
size_t inflight_expired(const struct relay *);

/* Relays may have died of the entry (poison.h). Whether one such entry is there. */
void inflight_suspect(struct entry *);
bool inflight_has_suspect(const struct relay *);

/* Postfix's id of the mail, for the log. */
const char *entry_queue_id(const struct entry *);

/* Whether it keeps its place in an ordered lane. */
bool entry_keeps_place(const struct entry *);

size_t inflight_count(const struct relay *);
size_t inflight_bytes(const struct relay *);
struct entry *inflight_first(struct relay *); /* oldest; then TAILQ_NEXT(e, taken) */

#endif
