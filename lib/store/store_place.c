/* Which nodes own a new mail (docs/placement.md): the origin's own node first, then the others as
 * the config lists them, in a circle behind the origin's, or the nearest first. A node that has been silent for suspect_after, or
 * is not connected, gets nothing; one that said its memory is full a moment ago, or nearly so, is
 * used only when there are not enough others. One whose connection is too slow for what is sent
 * there comes after others (BEHIND), and gets nothing in the end until it has caught up
 * (unsent_most). With takeover = automatic only nodes
 * that live, hear each other, and hold all that they promised together (store_watch.c). */
#include "lib/store/store_work.h"

#include <stdlib.h>

#include "lib/base/clock.h"
#include "lib/cluster/placement.h"

#define NODES_MOST 256
/* Parts of unsent_most that wait for a node: from then on it is behind, and until then. */
#define BEHIND 4
#define CAUGHT_UP 16

struct link *store_link(struct store *s, size_t node, bool bulk)
{
    return &s->link[2 * node + (bulk ? 1 : 0)];
}

bool store_node_usable(struct store *s, size_t node, bool bulk)
{
    struct link *l = store_link(s, node, bulk);
    /* The small connection tells whether the server lives; the bulk one may owe an answer for as
     * long as a large mail takes. */
    struct link *small = store_link(s, node, false);
    return (node_ready(l->node) || node_turning(l->node)) &&
           (node_ready(small->node) || node_turning(small->node)) &&
           node_silence(small->node) < store_watch_time(s, node, FAR_SUSPECT_AFTER) &&
           wire_unsent_bytes(node_wire(l->node)) <= s->unsent_most &&
           !config_list_has(&s->config->dead, s->config->node[node].name);
}

size_t store_usable(struct store *s, bool bulk)
{
    size_t n = 0;
    for (size_t i = 0; i < s->config->nnodes; i++)
        n += store_node_usable(s, i, bulk);
    return n;
}

void store_look_behind(struct store *s)
{
    for (size_t i = 0; i < s->config->nnodes; i++) {
        size_t unsent = wire_unsent_bytes(node_wire(store_link(s, i, false)->node)) +
                        wire_unsent_bytes(node_wire(store_link(s, i, true)->node));
        s->behind[i] = unsent > s->unsent_most / (s->behind[i] ? CAUGHT_UP : BEHIND);
    }
}

static bool among(const size_t *list, size_t n, size_t node)
{
    for (size_t i = 0; i < n; i++)
        if (list[i] == node)
            return true;
    return false;
}

struct candidate {
    size_t node;
    bool full;
    bool behind;
    int distance; /* 0 for all where distance does not count */
    size_t place; /* in the order that there is without */
};

static int by_preference(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->full != y->full)
        return x->full ? 1 : -1;
    if (x->behind != y->behind)
        return x->behind ? 1 : -1;
    if (x->distance != y->distance)
        return x->distance < y->distance ? -1 : 1;
    return x->place < y->place ? -1 : 1;
}

/* The nodes in the order in which they are asked to be owners: those that are to be first, the
 * origin, then all others. */
static size_t candidates(struct store *s, const struct config_placement *rule, bool bulk,
                         const size_t *first, size_t nfirst, struct candidate *out)
{
    double now = clock_monotonic();
    size_t asked[NODES_MOST + 1], nasked = 0, n = 0;
    for (size_t k = 0; k < nfirst; k++)
        asked[nasked++] = first[k];
    if (s->origin >= 0 && !among(asked, nasked, (size_t)s->origin))
        asked[nasked++] = (size_t)s->origin;
    size_t before_others = nasked;
    /* In a circle, behind the own one: else the first nodes of the file have the copies of all. */
    for (size_t i = 0; i < s->config->nnodes; i++) {
        size_t node = ((size_t)(s->origin + 1) + i) % s->config->nnodes;
        if (!among(asked, nasked, node))
            asked[nasked++] = node;
    }
    for (size_t k = 0; k < nasked; k++)
        if (store_node_usable(s, asked[k], bulk) &&
            !(rule->kept && store_watch_retains_most(s, asked[k])))
            out[n++] = (struct candidate){
                .node = asked[k],
                .full = s->full_until[asked[k]] > now || store_watch_filling(s, asked[k]),
                /* an ordered destination keeps its owners: mail would wait for theirs anyway */
                .behind = k >= nfirst && s->behind[asked[k]],
                .distance = !rule->near         ? 0
                            : k < before_others ? -1
                                                : store_watch_distance(s, asked[k]),
                .place = k};
    qsort(out, n, sizeof *out, by_preference);
    return n;
}

struct choice {
    const struct store *store;
    bool ordered;
};

static bool fit(const void *arg, const size_t *node, size_t n, bool all)
{
    const struct choice *c = arg;
    return store_watch_fit(c->store, node, n, all) &&
           (!all || !c->ordered || store_watch_known(c->store, node, n));
}

bool store_choose(struct store *s, const struct config_placement *rule, bool bulk, bool ordered,
                  const size_t *first, size_t nfirst, size_t chosen[LANENAME_OWNERS_MAX])
{
    struct candidate candidate[NODES_MOST];
    size_t node[NODES_MOST], domain[NODES_MOST], nfull = 0;
    struct choice choice = {s, ordered};
    if (s->config->nnodes > NODES_MOST)
        return false;
    size_t n = candidates(s, rule, bulk, first, nfirst, candidate);
    for (size_t i = 0; i < n; i++) {
        node[i] = candidate[i].node;
        domain[i] = config_domain(s->config, node[i], rule->over);
        nfull += candidate[i].full;
    }
    struct placement p = {.n = n - nfull,
                          .node = node,
                          .domain = domain,
                          .copies = (size_t)s->config->copies,
                          .least = rule->least,
                          .fit = fit,
                          .arg = &choice};
    /* Full ones only where it does not go without: what they refuse is stored nowhere. */
    if (placement_choose(&p, chosen))
        return true;
    p.n = n;
    return nfull && placement_choose(&p, chosen);
}

size_t store_domains(struct store *s, int over, bool bulk)
{
    bool seen[NODES_MOST] = {false};
    size_t n = 0;
    for (size_t i = 0; i < s->config->nnodes && i < NODES_MOST; i++) {
        size_t domain = config_domain(s->config, i, over);
        if (seen[domain] || !store_node_usable(s, i, bulk))
            continue;
        seen[domain] = true;
        n++;
    }
    return n;
}

/* The order of owners is that of takeover: those nearer to the next hop come first, behind the
 * origin. What is equally near stays as it was chosen. */
static void nearest_to_hop_first(const struct store *s, const struct config_placement *rule,
                                 size_t *chosen, size_t n)
{
    size_t from = n && s->origin >= 0 && chosen[0] == (size_t)s->origin;
    for (size_t i = from + 1; i < n; i++) {
        size_t node = chosen[i], at = i;
        int apart = config_labels_apart(s->config, node, rule->site, rule->zone);
        for (; at > from &&
               config_labels_apart(s->config, chosen[at - 1], rule->site, rule->zone) > apart;
             at--)
            chosen[at] = chosen[at - 1];
        chosen[at] = node;
    }
}

bool store_place(struct store *s, const struct config_placement *rule, bool bulk,
                 struct link *owner[LANENAME_OWNERS_MAX])
{
    size_t chosen[LANENAME_OWNERS_MAX], n = (size_t)s->config->copies;
    if (!store_choose(s, rule, bulk, false, NULL, 0, chosen))
        return false;
    nearest_to_hop_first(s, rule, chosen, n);
    for (size_t i = 0; i < n; i++)
        owner[i] = store_link(s, chosen[i], bulk);
    return true;
}
