#include "relay/tables/destinations.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "relay/tables/agent_settings.h"
#include "relay/tables/namehash.h"
#include "relay/tables/poison.h"

#define BUCKETS 1024 /* next hops of a gateway are few; a power of two */

/* Names of hosts that are tried begin so, which no lane's does. */
#define FOLLOWER "hop "

struct hop {
    char *host; /* "smtp:[b]:587" */
    unsigned further;
    struct destination *entry; /* NULL: not looked for yet, or forgotten */
};

struct hop_list {
    struct hop v[DESTINATION_HOPS_MAX]; /* the first one is the head */
    unsigned n, turn;                   /* of the config that it is from */
};

TAILQ_HEAD(want_list, destination);

struct destinations {
    struct destination *bucket[BUCKETS];
    struct want_list want;
    void (*forget)(struct destination *);
};

size_t destination_concurrency(const struct destination *d)
{
    const struct destination *head = d->head ? d->head : d;
    return head->concurrency ? head->concurrency
                             : (size_t)d->relay->config->destination_concurrency;
}

double destination_window_first(const struct destination *d)
{
    size_t first = (size_t)d->relay->config->destination_concurrency_first,
           most = destination_concurrency(d);
    return (double)(first < most ? first : most);
}

static unsigned bucket_of(const char *name)
{
    return namehash(name, strlen(name)) & (BUCKETS - 1);
}

static struct destination *find(struct relay *r, const char *name)
{
    struct destination *d = r->destinations->bucket[bucket_of(name)];
    while (d && strcmp(d->name, name))
        d = d->next;
    return d;
}

static struct destination *add(struct relay *r, const char *name)
{
    struct destination *d = mem_zero(sizeof *d),
                       **bucket = &r->destinations->bucket[bucket_of(name)];
    d->relay = r;
    d->name = mem_strdup(name);
    d->window = destination_window_first(d);
    TAILQ_INIT(&d->queue);
    TAILQ_INIT(&d->idle);
    TAILQ_INIT(&d->busy);
    TAILQ_INIT(&d->lanes);
    d->next = *bucket;
    *bucket = d;
    return d;
}

struct destination *destination_get(struct relay *r, const char *name)
{
    struct destination *d = find(r, name);
    if (d)
        return d;
    d = add(r, name);
    d->deliverable = nexthop_parse(name, &d->hop);
    const char *elsewhere =
        d->deliverable && !d->hop.port ? config_socket_at(r->config, d->hop.host) : NULL;
    if (elsewhere) {
        free(d->hop.host);
        d->hop.host = mem_strdup(elsewhere);
    }
    if (!d->deliverable)
        log_error(
            "destination %s: no next hop with an address (smtp:[host]:port, lmtp:unix:/path); its "
            "lanes are left alone",
            name);
    return d;
}

/* A port of our own Postfix. */
static struct destination *own_port(struct relay *r, const char *setting, const char *address)
{
    if (!*address)
        return NULL;
    char *name = mem_printf("%s:%s", setting, address);
    struct destination *d = find(r, name);
    if (!d) {
        d = add(r, name);
        d->deliverable = nexthop_from_address(address, &d->hop);
        d->own = true;
    }
    free(name);
    return d;
}

struct destination *destination_bounce(struct relay *r)
{
    return own_port(r, "bounce_port", r->config->bounce_port);
}

struct destination *destination_reinject(struct relay *r)
{
    return own_port(r, "reinject_port", r->config->reinject_port);
}

/* ---- the hosts that mail is tried at ---- */

static bool is_address(const char *host)
{
    struct in6_addr a;
    return inet_pton(AF_INET, host, &a) == 1 || inet_pton(AF_INET6, host, &a) == 1;
}

/* A name may have more than one address. */
static unsigned tried_of(const char *host, const struct agent *agent)
{
    struct nexthop hop;
    unsigned most =
        agent->sessions && agent->sessions < ADDRESSES_MAX ? agent->sessions : ADDRESSES_MAX;
    if (!nexthop_parse(host, &hop))
        return 0;
    if (!hop.port || is_address(hop.host))
        most = 1;
    else if (agent->addresses && agent->addresses < most)
        most = agent->addresses;
    nexthop_free(&hop);
    return most;
}

static unsigned count_hosts(const char *list)
{
    unsigned n = 0;
    for (char *host; (host = nexthop_host(list, n)); n++)
        free(host);
    return n;
}

/* after: how many hosts come behind the list. Each has an entry, before any has a further one. */
static void add_hosts(struct hop_list *l, const char *list, unsigned after,
                      const struct agent *agent)
{
    unsigned left = count_hosts(list) + after;
    char *host;
    for (size_t i = 0; (host = nexthop_host(list, i)); i++) {
        unsigned most = tried_of(host, agent);
        left--;
        for (unsigned further = 0; further < most && l->n + left < DESTINATION_HOPS_MAX; further++)
            l->v[l->n++] = (struct hop){mem_strdup(host), further, NULL};
        free(host);
    }
}

static void free_hops(struct hop_list *l)
{
    for (unsigned i = 0; l && i < l->n; i++)
        free(l->v[i].host);
    free(l);
}

/* For UNIX sockets lmtp(8) has no fallback relay. */
static void list_hops(struct destination *d)
{
    const struct agent *agent = agent_settings_for(d->name);
    free_hops(d->hops);
    d->hops = mem_zero(sizeof *d->hops);
    d->hops->turn = d->relay->config_turn;
    const char *fallback = d->hop.port ? agent->fallback : NULL;
    add_hosts(d->hops, d->name, fallback ? count_hosts(fallback) : 0, agent);
    if (fallback)
        add_hosts(d->hops, fallback, 0, agent);
}

static struct destination *follower(struct destination *head, const struct hop *h)
{
    char *name = h->further ? mem_printf(FOLLOWER "%s (address %u) of %s", h->host, h->further + 1,
                                         head->name)
                            : mem_printf(FOLLOWER "%s of %s", h->host, head->name);
    struct destination *d = find(head->relay, name);
    if (!d) {
        d = add(head->relay, name);
        d->deliverable = nexthop_parse(h->host, &d->hop);
        d->closing = head->closing;
        d->further = h->further;
        d->head = head;
        head->followers++;
    }
    free(name);
    return d;
}

struct destination *destination_hop(struct destination *d, unsigned n)
{
    ASSERT(!d->head);
    if (!n)
        return d;
    if (d->own || !d->deliverable)
        return NULL;
    if (!d->hops || d->hops->turn != d->relay->config_turn)
        list_hops(d);
    if (n >= d->hops->n)
        return NULL;
    struct hop *h = &d->hops->v[n];
    if (!h->entry) /* once: mail for many asks for each of a list, again and again */
        h->entry = follower(d, h);
    return h->entry;
}

const char *destination_named(const struct destination *d)
{
    return d->head ? d->head->name : d->name;
}

char *destination_title(const struct destination *d)
{
    char *host = d->own || d->head ? NULL : nexthop_host(d->name, 0);
    bool list = host && strcmp(host, d->name) != 0;
    char *title = list ? mem_printf("%s of %s", host, d->name)
                       : mem_strdup(d->head ? d->name + strlen(FOLLOWER) : d->name);
    free(host);
    return title;
}

struct destination *destination_before(struct destination *d, unsigned n)
{
    struct destination *at = NULL;
    ASSERT(d->head && n < d->further);
    for (unsigned i = 0; (at = destination_hop(d->head, i)) && at != d; i++)
        ;
    for (unsigned i = 0; at && (at = destination_hop(d->head, i)); i++)
        if (at->further == n && !strcmp(at->hop.host, d->hop.host) &&
            !strcmp(at->hop.port, d->hop.port))
            return at;
    return NULL;
}

/* The connections of the first entry of a host try all its addresses. */
bool destination_may_answer(struct destination *d)
{
    const struct destination *first = d->further ? destination_before(d, 0) : d;
    return !d->down && first && !first->down && (!d->further || first->addresses.n > d->further);
}

bool destination_is_proving(const struct destination *d)
{
    return d->proving && (d->queued || d->ncarrying);
}

/* Further addresses count with the first one: its connections try all of them. */
static bool any_answers(struct destination *d, bool proving)
{
    struct destination *at;
    bool any = false;
    for (unsigned n = 0; !any && (at = destination_hop(d, n)); n++)
        any = !at->down && !at->further && (proving || !at->proving);
    return any;
}

bool destination_is_away(struct destination *d)
{
    return !any_answers(d, true);
}

/* A host that has to prove itself gets one; where there is another, that does not stop the list. */
size_t destination_in_hand_most(struct destination *d)
{
    bool proves = !any_answers(d, false) && any_answers(d, true);
    return proves ? 1 : (size_t)d->relay->config->destination_in_flight;
}

struct smtp_policy *destination_policy(struct destination *d)
{
    const struct config *c = d->relay->config;
    if (d->policy && d->policy_turn == d->relay->config_turn)
        return d->policy;
    smtp_policy_release(d->policy);
    d->policy = d->own ? smtp_policy_own(c)
                       : smtp_policy_new(c, destination_named(d), &d->hop,
                                         agent_settings_for(destination_named(d)));
    d->policy_turn = d->relay->config_turn;
    return d->policy;
}

uint32_t destination_site(struct destination *d)
{
    return d->own ? 0 : destination_policy(d)->site;
}

struct destination *destination_at_site(struct destination *d, uint32_t site, unsigned *n_r)
{
    struct destination *at;
    for (unsigned n = 0; (at = destination_hop(d, n)); n++)
        if (!at->further && destination_site(at) == site) {
            *n_r = n;
            return at;
        }
    return NULL;
}

struct destination *destination_hold(struct relay *r)
{
    struct destination *d = own_port(r, "hold", r->config->reinject_port);
    if (d)
        d->helo = POISON_HELO;
    return d;
}

void destinations_each(struct relay *r, void (*fn)(struct destination *, void *), void *arg)
{
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct destination *d = r->destinations->bucket[i], *next; d; d = next) {
            next = d->next;
            fn(d, arg);
        }
}

/* ---- something may be taken for it ---- */

void destination_want(struct destination *d)
{
    if (d->head)
        d = d->head;
    if (d->wanted)
        return;
    d->wanted = true;
    TAILQ_INSERT_TAIL(&d->relay->destinations->want, d, want);
}

static void want_one(struct destination *d, void *arg)
{
    if (!TAILQ_EMPTY(&d->lanes))
        destination_want(d);
}

void destinations_want_all(struct relay *r)
{
    destinations_each(r, want_one, NULL);
}

struct destination *destinations_wanted(struct relay *r)
{
    struct destination *d = TAILQ_FIRST(&r->destinations->want);
    if (d) {
        ASSERT(d->wanted);
        TAILQ_REMOVE(&r->destinations->want, d, want);
        d->wanted = false;
    }
    return d;
}

/* ---- forgetting ---- */

static void free_destination(struct destination *d)
{
    ASSERT(!d->in_flight && TAILQ_EMPTY(&d->lanes));
    d->relay->destinations->forget(d);
    resolve_cancel(d->resolving);
    ev_timer_stop(d->relay->loop, &d->probe);
    nexthop_free(&d->hop);
    free_hops(d->hops);
    smtp_policy_release(d->policy);
    free(d->trouble);
    free(d->name);
    free(d->metrics);
    free(d->classes);
    free(d);
}

static bool in_use(const struct destination *d)
{
    return d->queued || d->nopening || d->nready || d->resolving || d->in_flight || d->taking ||
           d->followers || d->wanted || !TAILQ_EMPTY(&d->lanes) || ev_is_active(&d->probe);
}

static void leave_head(const struct destination *d)
{
    struct hop_list *l = d->head->hops;
    d->head->followers--;
    for (unsigned i = 0; l && i < l->n; i++)
        if (l->v[i].entry == d)
            l->v[i].entry = NULL;
}

void destinations_reap(struct relay *r)
{
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct destination **at = &r->destinations->bucket[i]; *at;) {
            struct destination *d = *at;
            if (in_use(d)) {
                at = &d->next;
                continue;
            }
            *at = d->next;
            if (d->head)
                leave_head(d);
            free_destination(d);
        }
}

struct destinations *destinations_open(void (*forget)(struct destination *))
{
    struct destinations *all = mem_zero(sizeof *all);
    all->forget = forget;
    TAILQ_INIT(&all->want);
    return all;
}

static void free_one(struct destination *d, void *arg)
{
    free_destination(d);
}

void destinations_close(struct relay *r)
{
    destinations_each(r, free_one, NULL);
    free(r->destinations);
}
