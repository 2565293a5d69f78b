#include "relay/intake/memory_pressure.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/metrics.h"
#include "relay/acks/owners.h"

#define ASK 1.  /* seconds between two questions */
#define EASED 5 /* percent below spill_above, where it ends */
#define MINUTE 60.
#define FAR 31536000. /* seconds; what is further away never comes */

struct gauge {
    struct gauge *next;
    struct relay *relay;
    char *node;
    bool on, asked, connected;
    int percent;                              /* of its maxmemory; 0: not known */
    struct metric_series *used, *most, *full; /* of the node */
    long long maxmemory;                      /* as it was last told */
    long long used_before;                    /* at */
    double at;                                /* clock_monotonic; 0: it was not asked yet */
    double growth;                            /* bytes a second, of about the last minute */
};

struct pressure {
    struct relay *relay;
    struct gauge *first;
    ev_timer ask;
};

static struct gauge *gauge_of(struct pressure *p, const char *node)
{
    struct gauge *g = p->first;
    while (g && strcmp(g->node, node))
        g = g->next;
    if (g)
        return g;
    g = mem_zero(sizeof *g);
    *g = (struct gauge){.next = p->first,
                        .relay = p->relay,
                        .node = mem_strdup(node),
                        .used = metric_series(METRIC_node_memory_bytes, node, NULL),
                        .most = metric_series(METRIC_node_memory_most_bytes, node, NULL),
                        .full = metric_series(METRIC_node_memory_full_seconds, node, NULL)};
    return p->first = g;
}

static long long number(const redisReply *info, const char *name)
{
    for (size_t i = 0; i + 1 < info->elements; i += 2)
        if (info->element[i]->str && !strcmp(info->element[i]->str, name))
            return info->element[i + 1]->type == REDIS_REPLY_INTEGER ? info->element[i + 1]->integer
                   : info->element[i + 1]->str ? atoll(info->element[i + 1]->str)
                                               : -1;
    return -1;
}

/* When it will be full, if it goes on growing as in about the last minute. */
static void measure(struct gauge *g, long long used, long long most)
{
    double now = clock_monotonic(), since = now - g->at;
    if (g->at > 0. && since > 0.) {
        double part = since < MINUTE ? since / MINUTE : 1.;
        g->growth += part * ((double)(used - g->used_before) / since - g->growth);
    }
    g->used_before = used;
    g->at = now;
    double left = most > 0 && g->growth >= 1. ? (double)(most - used) / g->growth : FAR;
    metric_series_set(g->used, used);
    metric_series_set(g->most, most > 0 ? most : METRIC_NEVER);
    metric_series_set(g->full, left >= FAR ? METRIC_NEVER
                               : left > 0. ? (long long)(left * 1e6)
                                           : 0);
}

/* Nobody knows what a node has that does not answer: one that was nearly full may come back
 * empty. */
static void forget(struct gauge *g)
{
    g->at = g->growth = 0.;
    g->percent = 0;
    metric_series_set(g->used, METRIC_UNKNOWN);
    metric_series_set(g->most, METRIC_UNKNOWN);
    metric_series_set(g->full, METRIC_UNKNOWN);
}

static void on_info(struct wire *w, redisReply *reply, void *arg)
{
    struct gauge *g = arg;
    g->asked = false;
    if (!reply || reply->type != REDIS_REPLY_ARRAY) {
        forget(g); /* `on` stays what it was: a node that is away cannot be emptied either */
        return;
    }
    long long used = number(reply, "used-memory"), most = number(reply, "maxmemory"),
              above = g->relay->config->spill_above;
    g->maxmemory = most;
    if (used >= 0)
        measure(g, used, most);
    double percent = most > 0 && used > 0 ? 100. * (double)used / (double)most : 0.;
    g->percent = (int)percent;
    bool on = percent > (double)(g->on ? above - EASED : above);
    if (on != g->on)
        log_warning("node %s uses %.0f%% of its maxmemory: %s", g->node, percent,
                    !on ? "mail stays in its lanes again"
                    : *g->relay->config->reinject_port
                        ? "the oldest mail goes to Postfix's queue"
                        : "reinject_port is empty, so nothing can go to Postfix's queue");
    g->on = on;
}

static void ask_one(const char *node, struct wire *wire, void *arg)
{
    struct gauge *g = gauge_of(arg, node);
    g->connected = true;
    if (!g->asked && wire_sendf(wire, on_info, g, "LANE.INFO"))
        g->asked = true;
}

static void on_ask(struct ev_loop *loop, ev_timer *t, int events)
{
    struct pressure *p = t->data;
    for (struct gauge *g = p->first; g; g = g->next)
        g->connected = false;
    owners_each_node(p->relay, ask_one, p);
    for (struct gauge *g = p->first; g; g = g->next)
        if (!g->connected)
            forget(g);
}

bool pressure_on(const struct relay *r, const struct lane *lane)
{
    for (const struct gauge *g = r->pressure->first; g; g = g->next)
        for (size_t i = 0; g->on && i < lane->parsed.nowners; i++)
            if (!strcmp(lane->parsed.owner[i], g->node))
                return true;
    return false;
}

long long pressure_own_most(const struct relay *r)
{
    const struct gauge *g = r->pressure->first;
    while (g && strcmp(g->node, r->node))
        g = g->next;
    return g && g->maxmemory > 0 ? g->maxmemory : 0;
}

bool pressure_any(const struct relay *r)
{
    for (const struct gauge *g = r->pressure->first; g; g = g->next)
        if (g->on)
            return true;
    return false;
}

int pressure_percent(const struct relay *r, const char *node)
{
    for (const struct gauge *g = r->pressure ? r->pressure->first : NULL; g; g = g->next)
        if (!strcmp(g->node, node))
            return g->percent;
    return 0;
}

struct pressure *pressure_open(struct relay *r)
{
    struct pressure *p = mem_zero(sizeof *p);
    p->relay = r;
    ev_timer_init(&p->ask, on_ask, ASK, ASK);
    p->ask.data = p;
    ev_timer_start(r->loop, &p->ask);
    return p;
}

void pressure_close(struct pressure *p)
{
    ev_timer_stop(p->relay->loop, &p->ask);
    while (p->first) {
        struct gauge *g = p->first;
        p->first = g->next;
        free(g->node);
        free(g);
    }
    free(p);
}
