/* destination - one next hop: the mails that wait for it, the connections to it, and whether it can
 * be reached.
 *
 * Connections are opened by demand, and never more at a time than there are good ones: a next
 * hop that is away costs one attempt, not one per mail. How many may carry mails is the window:
 * destination_concurrency_first at first, one more for as many successes as it is wide, up to
 * destination_concurrency; one less for each connection that breaks under a mail (the feedback
 * of Postfix's qmgr(8), SCHEDULER_README "concurrency"; answers about a mail or a recipient are
 * no failures of the next hop). When none can be opened, or as many as the window is wide broke
 * with no success between, it is *down*: what waits here goes back to its lanes untried, nothing
 * is taken for it, and one probe connection at a time, with growing waits, finds out when it is
 * back. Greeted, it has to prove itself with one mail; then everything goes on at once. */
#ifndef DOVELANE_RELAY_DELIVERY_DESTINATION_H
#define DOVELANE_RELAY_DELIVERY_DESTINATION_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/queue.h>

#include "relay/state/lanes.h"
#include "relay/state/nexthop.h"
#include "relay/relay.h"
#include "lib/base/resolve.h"
#include "relay/smtp/smtp.h"

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
    bool own;                   /* a port of our own Postfix */
    struct smtp_policy *policy; /* by destination_policy */
    unsigned policy_turn;       /* of the config that it is from */
    const char *helo;           /* NULL: as naming.h says */

    struct resolve *resolving; /* under way */
    struct addresses addresses;
    size_t address_at; /* the one to connect to */
    double resolved;   /* when, 0: not */

    struct mail_queue queue;
    size_t queued;
    struct connection_list idle, busy; /* busy: carrying a mail, or not greeted yet */
    size_t nopening, nready;           /* not greeted yet; greeted */
    bool pumping, closing;
    size_t ncarrying; /* of nready: with a mail */
    double window;    /* how many may */
    double grown;     /* part of the next step of the window, 0 to 1 */
    double failed;    /* windowfuls of connections that broke since the last success */
    size_t limit;     /* the server refused more connections than this, until limit_until */
    double limit_until;

    bool down;
    bool proving;                   /* was down, and has carried no mail yet */
    char *trouble;                  /* why, while down */
    char trouble_dsn[SMTP_DSN_MAX]; /* and as a code: "4.4.1" */
    double probe_wait;
    ev_timer probe;

    /* intake.c's */
    struct lane_list lanes;
    size_t in_flight, in_hand_bytes;
    bool taking;
    bool wanted;
    TAILQ_ENTRY(destination) want;
};

struct destinations *destinations_open(struct relay *);
void destinations_close(struct relay *); /* after lanes and the in-flight table */

/* Never NULL; deliverable may be false. */
struct destination *destination_get(struct relay *, const char *name);

/* The one of bounce_port, NULL when that is not set. */
struct destination *destination_bounce(struct relay *);

/* The one of reinject_port, NULL when that is not set. */
struct destination *destination_reinject(struct relay *);

/* The same port, greeted so that it puts what it gets on hold (poison.h). */
struct destination *destination_hold(struct relay *);

/* How many mails of it may be in flight. */
size_t destination_in_hand_most(const struct destination *);

/* What is set for it, as the config says now; the destination's. */
struct smtp_policy *destination_policy(struct destination *);

/* Looks at once whether one that is down is back. */
void destination_probe(struct destination *);

/* mail->done is called when it is over, maybe from within. While the next hop is down that is at
 * once, with nobody tried. */
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
