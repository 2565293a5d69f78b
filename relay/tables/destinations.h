/* destinations - the next hops that lanes name, and the ports of our own Postfix. Each has one
 * entry, with what is in flight for it, and with its connections (relay/delivery/connections.h).
 *
 * What one host did not take is tried at others, as smtp(8) does it. These are other addresses of
 * that host, the next host of a list, and the fallback relays. Each of these is an entry, too,
 * behind the one that lanes name, the head. A host has one for its first address that answers, and
 * others for each further one. */
#ifndef DOVELANE_RELAY_TABLES_DESTINATIONS_H
#define DOVELANE_RELAY_TABLES_DESTINATIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/resolve.h"
#include "lib/base/queue.h"
#include "relay/relay.h"
#include "lib/config/nexthop.h"
#include "relay/smtp/smtp.h"
#include "relay/tables/lanes.h"

struct connection;
struct delivery_metrics; /* delivery_metrics.c's */
struct gate;
TAILQ_HEAD(connection_list, connection);
TAILQ_HEAD(lane_list, lane);
TAILQ_HEAD(mail_queue, smtp_mail);

struct destination {
    struct destination *next; /* in the table's bucket */
    struct relay *relay;
    char *name;       /* "lmtp:[10.0.0.5]:24" */
    bool deliverable; /* the name is one that we can connect to */
    struct nexthop hop;
    struct destination *head;   /* NULL: it is one itself, or a port of our own Postfix */
    unsigned further;           /* behind how many other addresses of its host it comes */
    struct hop_list *hops;      /* of a head that has others: by destination_hop */
    size_t followers;           /* entries whose head it is */
    bool own;                   /* a port of our own Postfix */
    struct smtp_policy *policy; /* by destination_policy */
    unsigned policy_turn;       /* of the config that it is from */
    const char *helo;           /* NULL: as agent_settings.h says */

    struct gate *gate;  /* of a head: relay/shape/gate.h; NULL: no rule was ever looked for */
    size_t concurrency; /* of a head: its own destination_concurrency; 0: the config's */
    struct delivery_metrics *metrics; /* NULL: nothing was delivered yet */

    struct resolve *resolving; /* under way */
    struct addresses addresses;
    size_t address_at; /* the one to connect to */
    double resolved;   /* when, 0: not */

    struct mail_queue queue; /* waiting_line.h */
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
    long long retained_over;        /* bytes above replicated_memory, of this relay */
    bool retained_told;             /* the log says so */
    double down_since;              /* clock_monotonic, while down */
    bool proving;                   /* was down, and has carried no mail yet */
    char *trouble;                  /* why, while down */
    char trouble_dsn[SMTP_DSN_MAX]; /* and as a code: "4.4.1" */
    double probe_wait;
    ev_timer probe;

    /* what is taken for it */
    struct lane_list lanes;
    struct destination_classes *classes; /* classes.h; NULL: all its mail has none */
    size_t in_flight, in_hand_bytes;
    bool taking;
    bool wanted;
    TAILQ_ENTRY(destination) want;
};

/* forget: a head is not named any more, what is kept of it elsewhere goes. */
struct destinations *destinations_open(void (*forget)(struct destination *));
void destinations_close(struct relay *); /* after lanes and the in-flight table */

/* Never NULL; deliverable may be false. */
struct destination *destination_get(struct relay *, const char *name);

/* The one of bounce_port, NULL when that is not set. */
struct destination *destination_bounce(struct relay *);

/* The one of reinject_port, NULL when that is not set. */
struct destination *destination_reinject(struct relay *);

/* The same port, greeted so that it puts what it gets on hold (poison.h). */
struct destination *destination_hold(struct relay *);

/* The n-th entry that a head's mail is tried at: 0 is the head itself. NULL: there are no more.
 * Valid until destinations_reap(). Room for a list and as many fallback relays. */
#define DESTINATION_HOPS_MAX (2 * NEXTHOP_HOSTS_MAX)
struct destination *destination_hop(struct destination *, unsigned n);

/* How lanes, the config and Postfix name it: the head's name. */
const char *destination_named(const struct destination *);

/* For the log, malloc'd: "smtp:[b] of smtp:[a],[b]". */
char *destination_title(const struct destination *);

/* For a further address: the entry of the n-th one before it, of `further`. */
struct destination *destination_before(struct destination *, unsigned n);

/* The site that a host delivers to, when mail is retained until it is replicated; 0: none, it is
 * not so. Of any entry. */
uint32_t destination_site(struct destination *);

/* The first entry of a head for that site, and its place; NULL: there is none. */
struct destination *destination_at_site(struct destination *, uint32_t site, unsigned *n_r);

/* False: it is away, or there is no further address. */
bool destination_may_answer(struct destination *);

/* True: it was away, and the one mail that shows whether it is back is on its way. */
bool destination_is_proving(const struct destination *);

/* Whether no host that its mail may be tried at can be reached. Of a head. */
bool destination_is_away(struct destination *);

/* How many mails of it may be in flight. */
size_t destination_in_hand_most(struct destination *);

/* Most connections of this relay to it. */
size_t destination_concurrency(const struct destination *);

/* How many connections may carry mails as long as nothing is known of it. */
double destination_window_first(const struct destination *);

/* What is set for it, as the config says now; the destination's. */
struct smtp_policy *destination_policy(struct destination *);

/* Something changed that may allow a TAKE: intake.c looks at the end of this turn of the loop. */
void destination_want(struct destination *);
void destinations_want_all(struct relay *);

/* One that is wanted, and is not any more; NULL: there is none. */
struct destination *destinations_wanted(struct relay *);

/* Calls fn for each. */
void destinations_each(struct relay *, void (*fn)(struct destination *, void *), void *arg);

/* Forgets those without lanes, mails and connections. */
void destinations_reap(struct relay *);

#endif
