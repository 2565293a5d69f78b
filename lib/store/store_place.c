/* Which nodes own a new mail: the origin's own node first, then the others as the config lists
 * them (docs/design.md, "Mail in" 2, `spread`). A node that has been silent for suspect_after,
 * or is not connected, gets nothing; one that said its memory is full a moment ago is used only
 * when there are not enough others. One whose connection is too slow for what is sent there gets
 * nothing until it has caught up (unsent_most). With takeover = automatic only nodes that live,
 * hear each other, and hold all that they promised together (store_watch.c). */
#include "lib/store/store_work.h"

#include "lib/base/clock.h"

#define NODES_MOST 256

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
           node_silence(small->node) * 1000 < (double)s->config->suspect_after &&
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

static bool among(const size_t *list, size_t n, size_t node)
{
    for (size_t i = 0; i < n; i++)
        if (list[i] == node)
            return true;
    return false;
}

/* The nodes in the order in which they are asked to be owners: those that are to be first, the
 * origin, then all in the config's order. */
static size_t candidates(struct store *s, bool bulk, const size_t *first, size_t nfirst,
                         size_t *out)
{
    double now = clock_monotonic();
    size_t asked[NODES_MOST + 1], nasked = 0, n = 0;
    for (size_t k = 0; k < nfirst; k++)
        asked[nasked++] = first[k];
    if (s->origin >= 0 && !among(asked, nasked, (size_t)s->origin))
        asked[nasked++] = (size_t)s->origin;
    for (size_t i = 0; i < s->config->nnodes; i++)
        if (!among(asked, nasked, i))
            asked[nasked++] = i;
    for (int full = 0; full < 2; full++)
        for (size_t k = 0; k < nasked; k++)
            if (store_node_usable(s, asked[k], bulk) &&
                (s->full_until[asked[k]] > now) == (full > 0))
                out[n++] = asked[k];
    return n;
}

/* The first of them, in their order, that may hold a mail together. */
static bool choose(struct store *s, bool ordered, const size_t *candidate, size_t n, size_t *chosen,
                   size_t have, size_t want)
{
    if (have == want)
        return store_watch_fit(s, chosen, have, true) &&
               (!ordered || store_watch_known(s, chosen, have));
    for (size_t i = 0; i + (want - have) <= n; i++) {
        chosen[have] = candidate[i];
        if (store_watch_fit(s, chosen, have + 1, false) &&
            choose(s, ordered, candidate + i + 1, n - i - 1, chosen, have + 1, want))
            return true;
    }
    return false;
}

bool store_choose(struct store *s, bool bulk, bool ordered, const size_t *first, size_t nfirst,
                  size_t chosen[LANENAME_OWNERS_MAX])
{
    size_t candidate[NODES_MOST];
    if (s->config->nnodes > NODES_MOST)
        return false;
    size_t n = candidates(s, bulk, first, nfirst, candidate);
    return choose(s, ordered, candidate, n, chosen, 0, (size_t)s->config->copies);
}

bool store_place(struct store *s, bool bulk, struct link *owner[LANENAME_OWNERS_MAX])
{
    size_t chosen[LANENAME_OWNERS_MAX];
    if (!store_choose(s, bulk, false, NULL, 0, chosen))
        return false;
    for (size_t i = 0; i < (size_t)s->config->copies; i++)
        owner[i] = store_link(s, chosen[i], bulk);
    return true;
}
