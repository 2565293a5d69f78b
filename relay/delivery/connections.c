#include "relay/delivery/connections.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/metrics.h"
#include "relay/tables/agent_settings.h"
#include "relay/tables/waiting_line.h"
#include "relay/acks/owners.h"
#include "relay/shape/gate.h"

#define ADDRESS_FRESH 60. /* seconds for which a looked-up name is believed */
#define LIMIT_FRESH 60.   /* seconds for which "too many connections" is believed */
#define ADMITTED 2.       /* seconds after which a server that closes is tired of waiting */
#define PROBE_FIRST 1.    /* or retry_first when that is shorter */
#define PROBE_MOST 60.    /* or retry_most */

struct connection {
    TAILQ_ENTRY(connection) link;
    struct destination *destination;
    struct smtp_session *session;
    double opened; /* clock_monotonic */
    unsigned turn; /* of the config that it was opened by */
    bool greeted, idle;
    bool carrying;  /* a mail was given to it, and it is not ready again */
    bool blameless; /* that mail goes to another one, or ends because we do */
    bool left;      /* by us */
};

static void pump(struct destination *);
static void open_connection(struct destination *);
static void connect_now(struct destination *);

/* ---- the window ---- */

static void went_well(struct destination *d)
{
    d->failed = 0.;
    d->probe_wait = 0.;
    if (d->proving) {
        d->proving = false;
        destination_want(d);
    }
    /* Only a window that is used shows that a wider one could be. */
    if (d->window >= (double)destination_concurrency(d) ||
        d->window >= (double)d->ncarrying + destination_window_first(d))
        return;
    d->grown += gate_grows_by(d, d->window);
    if (d->grown < 0.999)
        return;
    d->grown = 0.;
    d->window += 1.;
}

/* true: that was the last one of a whole window. */
static bool went_wrong(struct destination *d)
{
    d->failed += 1. / d->window;
    d->grown = 0.;
    d->window -= gate_shrinks_by(d, d->window);
    if (d->window < 1.)
        d->window = 1.;
    metric_add(relay_connections_broken, 1);
    return d->failed >= 0.999;
}

/* ---- down and up ---- */

static void on_probe(struct ev_loop *, ev_timer *, int events);

static void probe_in(struct destination *d, double seconds)
{
    ev_timer_stop(d->relay->loop, &d->probe);
    ev_timer_init(&d->probe, on_probe, seconds, 0.);
    d->probe.data = d;
    ev_timer_start(d->relay->loop, &d->probe);
}

static void start_probe(struct destination *d)
{
    const struct config *c = d->relay->config;
    double first = (double)c->retry_first / 1000., most = (double)c->retry_most / 1000.;
    if (first > PROBE_FIRST)
        first = PROBE_FIRST;
    if (most > PROBE_MOST)
        most = PROBE_MOST;
    d->probe_wait = d->probe_wait > 0. ? 2 * d->probe_wait : first;
    if (d->probe_wait > most)
        d->probe_wait = most;
    probe_in(d, d->probe_wait * (0.75 + 0.25 * drand48()));
}

/* What waits for a connection goes back to its lanes, untried. */
static void let_go(struct destination *d)
{
    struct smtp_mail *m;
    while ((m = waiting_any(d))) {
        waiting_remove(d, m);
        m->done(m, "none");
    }
}

static void go_down(struct destination *d, const char *dsn, const char *why)
{
    snprintf(d->trouble_dsn, sizeof d->trouble_dsn, "%s", dsn);
    free(d->trouble);
    d->trouble = mem_strdup(why);
    char *title = destination_title(d);
    if (!d->down && d->further) {
        log_debug("next hop %s: %s", title, why);
    } else if (!d->down) {
        log_warning("next hop %s is away: %s", title, why);
        metric_add(relay_nexthops_lost, 1);
    }
    if (!d->down)
        d->down_since = clock_monotonic();
    d->down = true;
    free(title);
    start_probe(d);
    let_go(d);
}

/* How long the next probe would wait is forgotten with the first mail that is carried: greetings
 * alone prove little. */
static void go_up(struct destination *d)
{
    ev_timer_stop(d->relay->loop, &d->probe);
    if (!d->down)
        return;
    d->down = false;
    d->proving = true;
    d->failed = 0.;
    d->window = destination_window_first(d);
    free(d->trouble);
    d->trouble = NULL;
    char *title = destination_title(d);
    log_info("next hop %s is back", title);
    free(title);
    destination_want(d);
}

/* ---- is it worth a probe ---- */

struct length {
    struct lane *lane;
    unsigned told;
};

static void on_length(struct wire *w, redisReply *reply, void *arg)
{
    struct length *l = arg;
    l->lane->commands--;
    if (reply && reply->type == REDIS_REPLY_INTEGER && !reply->integer && l->lane->told == l->told)
        l->lane->waiting = false;
    free(l);
}

/* A site that has mail which is retained is looked for, too: how long it is away decides. */
static bool holds_retained(struct destination *d)
{
    const struct destination *head = d->head ? d->head : d;
    const struct lane *lane;
    TAILQ_FOREACH (lane, &head->lanes, beside)
        if (lane->retained)
            return destination_site(d) != 0;
    return false;
}

/* Whether a lane of it may hold something. Asks the server for the lengths on the way, so that
 * the next answer knows better. */
static bool is_needed(struct destination *d)
{
    struct destination *head = d->head ? d->head : d;
    bool waits = d->queued > 0 || holds_retained(d);
    struct lane *lane;
    TAILQ_FOREACH (lane, &head->lanes, beside) {
        if (lane->ownership != OWNERSHIP_OURS || !lane->waiting)
            continue;
        waits = true;
        if (!owners_ready(d->relay))
            continue;
        struct length *l = mem_alloc(sizeof *l);
        *l = (struct length){lane, lane->told};
        lane->commands++;
        if (!wire_sendf(owners_wire(d->relay), on_length, l, "LANE.LEN %b", lane->name,
                        lane->name_len)) {
            lane->commands--;
            free(l);
        }
    }
    return waits;
}

static void on_probe(struct ev_loop *loop, ev_timer *t, int events)
{
    struct destination *d = t->data;
    /* What waits in the lanes may have been taken over or revoked meanwhile: then there is
     * nothing to probe for. A further address is tried when mail wants it, and a host of a list,
     * whose mail goes elsewhere meanwhile, has to prove itself then. */
    if (d->further || !is_needed(d)) {
        d->down = false;
        d->proving = !d->further && (d->head || destination_hop(d, 1));
        d->probe_wait = 0.;
        free(d->trouble);
        d->trouble = NULL;
        return;
    }
    if (!d->nopening && !d->resolving)
        open_connection(d);
}

static void cannot_open(struct destination *d, const char *dsn, const char *why)
{
    if (d->closing)
        return;
    metric_add(relay_connect_failures, 1);
    gate_heard(d, dsn, why);
    if (d->address_at + 1 < d->addresses.n && (d->own || !agent_settings_unread())) {
        d->address_at++;
        connect_now(d); /* however long ago that was looked up */
        return;
    }
    d->address_at = 0;
    d->resolved = 0.;
    if (!d->nready || d->down) {
        go_down(d, dsn, why);
        return;
    }
    log_warning("next hop %s takes no more than %zu connections: %s", d->name, d->nready, why);
    d->limit = d->nready;
    d->limit_until = clock_monotonic() + LIMIT_FRESH;
}

/* ---- connections ---- */

static void leave(struct connection *c)
{
    c->left = true;
    smtp_quit(c->session);
}

static void on_ready(struct smtp_session *s)
{
    struct connection *c = smtp_arg(s);
    struct destination *d = c->destination;
    ASSERT(!c->idle);
    if (!c->greeted) {
        ASSERT(d->nopening);
        c->greeted = true;
        d->nopening--;
        d->nready++;
        metric_add(relay_connections, 1);
        go_up(d);
    }
    if (c->carrying) {
        ASSERT(d->ncarrying);
        c->carrying = false;
        d->ncarrying--;
        went_well(d);
    }
    TAILQ_REMOVE(&d->busy, c, link);
    TAILQ_INSERT_HEAD(&d->idle, c, link);
    c->idle = true;
    pump(d);
}

static void give_to_another(struct destination *d, struct smtp_mail *m)
{
    m->again = true;
    waiting_put_back(d, m);
    /* Its connection was kept for too long, and so were the other idle ones. */
    struct connection *c;
    while ((c = TAILQ_FIRST(&d->idle)))
        leave(c);
}

static void on_done(struct smtp_session *s, struct smtp_mail *m)
{
    struct connection *c = smtp_arg(s);
    struct destination *d = c->destination;
    /* ready() or closed() follows and goes on: a mail submitted from within done() may well have
     * this connection. */
    bool pumping = d->pumping;
    d->pumping = true;
    if (m->stale && !m->again) {
        c->blameless = true;
        give_to_another(d, m);
    } else {
        if (m->stale)
            smtp_mail_refuse(m, SMTP_DEFERRED, "4.4.2",
                             "the server closed two connections before it answered");
        m->done(m, smtp_name(s));
    }
    d->pumping = pumping;
}

/* A mail waits for its rate, and the next hop closes what was just opened for it: as when it closes
 * in the middle of a mail, or we would connect to it again and again. */
static bool turned_away(const struct connection *c)
{
    const struct destination *d = c->destination;
    return c->idle && !c->left && !d->closing && (d->queued || d->proving) &&
           !smtp_mails(c->session) && clock_monotonic() - c->opened < ADMITTED;
}

static void on_closed(struct smtp_session *s, const char *why)
{
    struct connection *c = smtp_arg(s);
    struct destination *d = c->destination;
    bool broke = (c->carrying && !c->blameless && !d->closing) || turned_away(c);
    ASSERT(d->ncarrying >= c->carrying && (c->greeted ? d->nready : d->nopening));
    TAILQ_REMOVE(c->idle ? &d->idle : &d->busy, c, link);
    d->ncarrying -= c->carrying;
    free(c);
    if (!smtp_was_ready(s)) {
        d->nopening--;
        cannot_open(d, smtp_trouble(s), why);
    } else {
        d->nready--;
        log_debug("%s: connection closed after %u mails: %s", smtp_name(s), smtp_mails(s), why);
        if (broke && (went_wrong(d) || d->proving))
            go_down(d, smtp_trouble(s), why);
    }
    pump(d);
}

static const struct smtp_events session_events = {on_ready, on_done, on_closed};

static void connect_now(struct destination *d)
{
    const struct agent *agent = agent_settings_for(d->own ? NULL : destination_named(d));
    const struct socket_address *address = &d->addresses.v[d->address_at];
    struct smtp_options o = {
        .lmtp = d->hop.lmtp,
        .host = d->hop.host,
        .port = d->hop.port,
        .address = address,
        .from = d->own ? NULL : agent_from(agent, address->sa.ss_family),
        .from_enforced = agent->from_enforced,
        .helo = d->helo ? d->helo : agent->name,
        .policy = destination_policy(d),
    };
    struct connection *c = mem_zero(sizeof *c);
    c->destination = d;
    c->opened = clock_monotonic();
    c->turn = d->relay->config_turn;
    o.arg = c;
    d->nopening++;
    TAILQ_INSERT_TAIL(&d->busy, c, link);
    c->session = smtp_open(d->relay->loop, &o, &session_events);
}

/* A further address is one that no entry before it is connected to. */
static void leave_out(struct addresses *list, const struct socket_address *used)
{
    size_t n = 0;
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->v[i].text, used->text))
            list->v[n++] = list->v[i];
    list->n = n;
}

static void choose_addresses(struct destination *d)
{
    const struct agent *agent = agent_settings_for(destination_named(d));
    agent_sort(agent, &d->addresses);
    if (agent->addresses && d->addresses.n > agent->addresses)
        d->addresses.n = agent->addresses;
    for (unsigned n = 0; n < d->further; n++) {
        const struct destination *before = destination_before(d, n);
        if (before && before->addresses.n)
            leave_out(&d->addresses, &before->addresses.v[before->address_at]);
    }
}

static void on_resolved(const struct addresses *found, const char *error, void *arg)
{
    struct destination *d = arg;
    d->resolving = NULL;
    if (error) {
        char why[300];
        snprintf(why, sizeof why, "%s: %s", d->hop.host, error);
        d->addresses.n = d->address_at = 0;
        cannot_open(d, "4.4.3", why);
        return;
    }
    d->addresses = *found;
    d->address_at = 0;
    if (!d->own)
        choose_addresses(d);
    if (!d->addresses.n) {
        cannot_open(d, "4.4.3",
                    d->further ? "the next hop has no other address"
                               : "the next hop has no address of inet_protocols");
        return;
    }
    d->resolved = clock_monotonic();
    connect_now(d);
}

static void open_connection(struct destination *d)
{
    const char *unread = d->own ? NULL : agent_settings_unread();
    if (unread) {
        char why[400];
        snprintf(why, sizeof why, "Postfix's settings for next hops cannot be read: %s", unread);
        cannot_open(d, "4.3.5", why);
    } else if (d->resolved > 0. && clock_monotonic() - d->resolved < ADDRESS_FRESH)
        connect_now(d);
    else if (!d->resolving)
        resolve_start(d->relay->loop, d->hop.host, d->hop.port, RESOLVE_HOP, on_resolved, d,
                      &d->resolving);
}

static size_t most_connections(struct destination *d)
{
    size_t most = destination_concurrency(d);
    if (d->window < (double)most)
        most = (size_t)d->window;
    if (d->limit && clock_monotonic() >= d->limit_until)
        d->limit = 0;
    return gate_connections(d, d->limit && d->limit < most ? d->limit : most);
}

static void open_more(struct destination *d)
{
    size_t most = most_connections(d);
    if (d->queued && (TAILQ_EMPTY(&d->idle) ? !gate_opens_soon(d) : !gate_opens(d)))
        return; /* it would idle, and end, again and again */
    /* As many at a time as there are good ones: one at first, then it doubles. */
    while (!d->down && !d->closing && !d->resolving && d->nopening < d->queued &&
           d->nready + d->nopening < most && d->nopening < (d->nready ? d->nready : 1)) {
        size_t before = d->nopening;
        open_connection(d);
        if (d->nopening == before)
            break;
    }
}

static void give_mail(struct destination *d, struct connection *c, struct smtp_mail *m)
{
    ASSERT(m->waiting && d->queued && c->greeted && c->idle && !c->carrying);
    waiting_leaves(d, m);
    TAILQ_REMOVE(&d->idle, c, link);
    TAILQ_INSERT_TAIL(&d->busy, c, link);
    c->idle = false;
    c->blameless = false;
    c->carrying = true;
    d->ncarrying++;
    if (smtp_send(c->session, m))
        return;
    c->carrying = false;
    d->ncarrying--;
    TAILQ_REMOVE(&d->busy, c, link);
    TAILQ_INSERT_HEAD(&d->idle, c, link);
    c->idle = true;
    m->done(m, smtp_name(c->session));
}

/* Also one that other settings opened: they may want TLS now, or another name of ours. */
static bool worn(const struct connection *c)
{
    const struct relay *r = c->destination->relay;
    const struct config *cfg = r->config;
    return c->turn != r->config_turn ||
           smtp_mails(c->session) >= gate_connection_mails(c->destination) ||
           clock_monotonic() - c->opened >= (double)cfg->connection_age / 1000.;
}

/* The rules may have changed since these were opened. */
static bool is_crowded(struct destination *d)
{
    return d->nready + d->nopening > destination_concurrency(d) || gate_is_crowded(d);
}

static void pump(struct destination *d)
{
    if (d->pumping)
        return;
    d->pumping = true;
    struct smtp_mail *m;
    struct connection *c;
    while ((c = TAILQ_FIRST(&d->idle)) && is_crowded(d))
        leave(c);
    while ((double)d->ncarrying < d->window && (m = waiting_next(d)) &&
           (c = TAILQ_FIRST(&d->idle))) {
        if (worn(c)) {
            leave(c);
            continue;
        }
        if (!gate_opens(d))
            break;
        gate_passed(d, m);
        give_mail(d, c, m);
    }
    d->pumping = false;
    open_more(d);
}

/* ---- interface ---- */

void destination_submit(struct destination *d, struct smtp_mail *m)
{
    ASSERT(m->nrcpt && m->done && !m->waiting);
    m->queued = clock_monotonic();
    m->begun = 0.;
    m->again = m->stale = false;
    if (!destination_may_answer(d) || d->closing || !d->deliverable || gate_suspended(d, NULL)) {
        m->done(m, "none");
        return;
    }
    waiting_add(d, m);
    pump(d);
}

bool destination_withdraw(struct destination *d, struct smtp_mail *m)
{
    if (!m->waiting)
        return false;
    waiting_remove(d, m);
    return true;
}

static void probe_now(struct destination *d)
{
    if (!d->down)
        return;
    d->probe_wait = 0.;
    probe_in(d, 0.);
}

void destination_probe(struct destination *d)
{
    struct destination *at;
    for (unsigned n = 0; (at = destination_hop(d, n)); n++)
        probe_now(at);
}

void destination_go_on(struct destination *head)
{
    struct destination *at;
    destination_want(head);
    for (unsigned n = 0; (at = destination_hop(head, n)); n++)
        if (at->queued || at->nready)
            pump(at);
}

void destination_let_go(struct destination *head)
{
    struct destination *at;
    for (unsigned n = 0; (at = destination_hop(head, n)); n++)
        let_go(at);
}

static void let_go_shut(struct destination *d, void *arg)
{
    if (d->queued && !gate_opens(d))
        let_go(d);
}

void destinations_let_go_shut(struct relay *r)
{
    destinations_each(r, let_go_shut, NULL);
}

void destination_try(struct destination *d)
{
    if (!d->down && !d->closing && !d->nready && !d->nopening && !d->resolving)
        open_connection(d);
}

static void drop_busy(struct destination *d, void *why)
{
    struct connection *c;
    d->closing = true;
    while ((c = TAILQ_FIRST(&d->busy)))
        smtp_drop(c->session, why);
}

void destinations_drop(struct relay *r, const char *why)
{
    destinations_each(r, drop_busy, (void *)why);
}

static void quit_one(struct destination *d, void *arg)
{
    struct connection *c;
    while ((c = TAILQ_FIRST(&d->idle)))
        smtp_quit(c->session);
}

void destinations_quit(struct relay *r)
{
    destinations_drop(r, "the relay ends");
    destinations_each(r, quit_one, NULL);
}
