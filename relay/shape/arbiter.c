#include "relay/shape/arbiter.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "relay/acks/owners.h"
#include "relay/cluster/cluster_view.h"

#define LOOK 0.2    /* seconds */
#define SILENCE 0.6 /* seconds: a server that owes an answer for longer does not answer */
#define ALWAYS 1e9  /* seconds */

/* What is known of a node's server, beside its connection. */
struct look {
    bool silent; /* it did not answer when it was last looked at, and was not seen to close */
    unsigned life;
    double renewed; /* clock_monotonic: another server answers there since then; 0: the first one */
};

struct arbiters {
    struct relay *relay;
    ev_timer look;
    struct look node[CONFIG_NODES_MAX];
};

static bool answers(const struct node *n)
{
    return n && node_ready(n) && wire_silence(node_wire(n)) <= SILENCE;
}

static void look_at(struct node *n, void *arg)
{
    struct arbiters *all = arg;
    int i = config_node_index(all->relay->config, node_name(n));
    if (i < 0 || i >= CONFIG_NODES_MAX)
        return;
    struct look *l = &all->node[i];
    if (node_ready(n))
        l->silent = !answers(n);
    if (node_life(n) != l->life) {
        l->renewed = l->life ? clock_monotonic() : 0.;
        l->life = node_life(n);
    }
}

static void on_look(struct ev_loop *loop, ev_timer *t, int events)
{
    struct arbiters *all = t->data;
    owners_each(all->relay, look_at, all);
}

/* FNV-1a, and a last step that mixes the high bits into the low ones. */
static uint64_t weight(const char *destination, const char *node)
{
    uint64_t h = 14695981039346656037u;
    for (const char *s = destination; *s; s++)
        h = (h ^ (unsigned char)*s) * 1099511628211u;
    h = (h ^ '|') * 1099511628211u;
    for (const char *s = node; *s; s++)
        h = (h ^ (unsigned char)*s) * 1099511628211u;
    h ^= h >> 33;
    h *= 0xff51afd7ed558ccdu;
    return h ^ (h >> 33);
}

struct choice {
    struct arbiters *all;
    const char *destination;
    int best, silent; /* the first that answers; the first that is silent */
    uint64_t best_weight, silent_weight;
    struct node *node;
    size_t answering, nodes;
};

static void consider(struct node *n, void *arg)
{
    struct choice *c = arg;
    const struct relay *r = c->all->relay;
    int i = config_node_index(r->config, node_name(n));
    if (i < 0 || i >= CONFIG_NODES_MAX || r->config->node[i].dropped ||
        config_list_has(&r->config->dead, node_name(n)))
        return;
    c->nodes++;
    uint64_t w = weight(c->destination, node_name(n));
    if (answers(n)) {
        c->answering++;
        if (!c->node || w > c->best_weight) {
            c->node = n;
            c->best = i;
            c->best_weight = w;
        }
    } else if (c->all->node[i].silent && !cluster_dead(r, node_name(n)) &&
               (c->silent < 0 || w > c->silent_weight)) {
        c->silent = i;
        c->silent_weight = w;
    }
}

struct wire *arbiter_choose(struct arbiters *all, struct arbiter *a, const char *destination,
                            double *part_r)
{
    struct choice c = {.all = all, .destination = destination, .best = -1, .silent = -1};
    owners_each(all->relay, consider, &c);
    *part_r = 1.;
    if (!c.node)
        return NULL;
    if (c.silent >= 0 && c.silent_weight > c.best_weight)
        *part_r = 1. / (double)c.nodes;
    else if (2 * c.answering < c.nodes)
        *part_r = (double)c.answering / (double)c.nodes;
    if (a->node != c.best) {
        a->since = a->node < 0 ? -1. : clock_monotonic();
        a->node = c.best;
    }
    return node_wire(c.node);
}

double arbiter_known(const struct arbiters *all, const struct arbiter *a)
{
    double now = clock_monotonic(), since = a->since;
    if (a->node >= 0 && all->node[a->node].renewed > since)
        since = all->node[a->node].renewed;
    return since <= 0. ? ALWAYS : now - since;
}

struct arbiters *arbiters_open(struct relay *r)
{
    struct arbiters *all = mem_zero(sizeof *all);
    all->relay = r;
    ev_timer_init(&all->look, on_look, LOOK, LOOK);
    all->look.data = all;
    ev_timer_start(r->loop, &all->look);
    return all;
}

void arbiters_close(struct arbiters *all)
{
    ev_timer_stop(all->relay->loop, &all->look);
    free(all);
}
