#include "relay/state/destinations.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "relay/state/agent_settings.h"
#include "relay/state/namehash.h"
#include "relay/state/poison.h"

#define BUCKETS 1024 /* next hops of a gateway are few; a power of two */

TAILQ_HEAD(want_list, destination);

struct destinations {
    struct destination *bucket[BUCKETS];
    struct want_list want;
};

double destination_window_first(const struct destination *d)
{
    const struct config *c = d->relay->config;
    return (double)(c->destination_concurrency_first < c->destination_concurrency
                        ? c->destination_concurrency_first
                        : c->destination_concurrency);
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

size_t destination_in_hand_most(const struct destination *d)
{
    return d->proving ? 1 : (size_t)d->relay->config->destination_in_flight;
}

struct smtp_policy *destination_policy(struct destination *d)
{
    const struct config *c = d->relay->config;
    if (d->policy && d->policy_turn == d->relay->config_turn)
        return d->policy;
    smtp_policy_release(d->policy);
    d->policy = d->own ? smtp_policy_own(c)
                       : smtp_policy_new(c, d->name, &d->hop, agent_settings_for(d->name));
    d->policy_turn = d->relay->config_turn;
    return d->policy;
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
    resolve_cancel(d->resolving);
    ev_timer_stop(d->relay->loop, &d->probe);
    nexthop_free(&d->hop);
    smtp_policy_release(d->policy);
    free(d->trouble);
    free(d->name);
    free(d->metrics);
    free(d);
}

static bool in_use(const struct destination *d)
{
    return d->queued || d->nopening || d->nready || d->resolving || d->in_flight || d->taking ||
           d->wanted || !TAILQ_EMPTY(&d->lanes) || ev_is_active(&d->probe);
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
            free_destination(d);
        }
}

struct destinations *destinations_open(void)
{
    struct destinations *all = mem_zero(sizeof *all);
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
