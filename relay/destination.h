/* destination - one next hop: the mails that wait for it, the connections to it, and whether it can be
 * reached.
 *
 * Connections are opened by demand, at most destination_concurrency, and never more at a time than there are
 * good ones: a next hop that is away costs one attempt, not one per mail. When none can be opened it is
 * *down*: what waits here goes back to its lanes untried, nothing is taken for it, and one probe connection
 * at a time, with growing waits, finds out when it is back. */
#ifndef DOVELANE_RELAY_DESTINATION_H
#define DOVELANE_RELAY_DESTINATION_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/queue.h>

#include "lanes.h"
#include "nexthop.h"
#include "relay.h"
#include "resolve.h"
#include "smtp.h"

struct connection;
TAILQ_HEAD(connection_list, connection);
TAILQ_HEAD(lane_list, lane);
TAILQ_HEAD(mail_queue, smtp_mail);

struct destination {
    struct destination *next; /* in the table's bucket */
    struct relay *relay;
    char *name;       /* "lmtp:[10.0.0.5]:24" */
    bool deliverable; /* the name is one that we can connect to */
    struct nexthop hop;

    struct resolve *resolving; /* under way */
    struct addresses addresses;
    size_t address_at; /* the one to connect to */
    double resolved;   /* when, 0: not */

    struct mail_queue queue;
    size_t queued;
    struct connection_list idle, busy; /* busy: carrying a mail, or not greeted yet */
    size_t nopening, nready;           /* not greeted yet; greeted */
    bool pumping, closing;
    size_t limit; /* the server refused more connections than this, until limit_until */
    double limit_until;

    bool down;
    char *trouble; /* why, while down */
    double probe_wait;
    ev_timer probe;

    /* drain.c's */
    struct lane_list lanes;
    size_t in_hand, in_hand_bytes;
    bool taking;
    bool wanted;
    TAILQ_ENTRY(destination) want;
};

struct destinations *destinations_open(struct relay *);
void destinations_close(struct relay *); /* after lanes and hand */

/* Never NULL; deliverable may be false. */
struct destination *destination_get(struct relay *, const char *name);

/* The one of bounce_port, NULL when that is not set. */
struct destination *destination_bounce(struct relay *);

/* mail->done is called when it is over, maybe from within. While the next hop is down that is at once, with
 * nobody tried. */
void destination_submit(struct destination *, struct smtp_mail *);

/* Takes a mail back that no connection has begun with. false: too late. done is not called. */
bool destination_withdraw(struct destination *, struct smtp_mail *);

/* Ends all transfers that go on and begins no more, for the end of the program. */
void destinations_drop(struct relay *, const char *why);

/* Closes every connection. */
void destinations_quit(struct relay *);

/* Calls fn for each. */
void destinations_each(struct relay *, void (*fn)(struct destination *, void *), void *arg);

/* Forgets those without lanes, mails and connections. */
void destinations_reap(struct relay *);

#endif
