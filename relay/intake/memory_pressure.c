#include "relay/intake/memory_pressure.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "relay/acks/owners.h"

#define ASK 1.  /* seconds between two questions */
#define EASED 5 /* percent below spill_above, where it ends */

struct gauge {
    struct gauge *next;
    struct relay *relay;
    char *node;
    bool on, asked;
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
    *g = (struct gauge){p->first, p->relay, mem_strdup(node), false, false};
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

static void on_info(struct wire *w, redisReply *reply, void *arg)
{
    struct gauge *g = arg;
    g->asked = false;
    if (!reply || reply->type != REDIS_REPLY_ARRAY)
        return; /* it stays what it was: a node that is away cannot be emptied either */
    long long used = number(reply, "used-memory"), most = number(reply, "maxmemory"),
              above = g->relay->config->spill_above;
    double percent = most > 0 && used > 0 ? 100. * (double)used / (double)most : 0.;
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
    if (!g->asked && wire_sendf(wire, on_info, g, "LANE.INFO"))
        g->asked = true;
}

static void on_ask(struct ev_loop *loop, ev_timer *t, int events)
{
    struct pressure *p = t->data;
    owners_each_node(p->relay, ask_one, p);
}

bool pressure_on(const struct relay *r, const struct lane *lane)
{
    for (const struct gauge *g = r->pressure->first; g; g = g->next)
        for (size_t i = 0; g->on && i < lane->parsed.nowners; i++)
            if (!strcmp(lane->parsed.owner[i], g->node))
                return true;
    return false;
}

bool pressure_any(const struct relay *r)
{
    for (const struct gauge *g = r->pressure->first; g; g = g->next)
        if (g->on)
            return true;
    return false;
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
