/* Which nodes own a new mail: the origin's own node first, then the others as the config lists them (docs/design.md, "Mail in" 2,
 * `spread`). A node that has been silent for suspect_after, or is not connected, gets nothing; one that said its memory is full a
 * moment ago is used only when there are not enough others. */
#include "store_work.h"

#include "clock.h"

static struct link *link_of(struct store *s, size_t node, bool bulk)
{
    return &s->link[2 * node + (bulk ? 1 : 0)];
}

static bool usable(struct store *s, size_t node, bool bulk)
{
    struct link *l = link_of(s, node, bulk);
    /* The small connection tells whether the server lives; the bulk one may owe an answer for as long as a large mail takes. */
    struct link *small = link_of(s, node, false);
    return node_ready(l->node) && node_ready(small->node) && node_silence(small->node) * 1000 < (double)s->config->suspect_after &&
           !config_list_has(&s->config->dead, s->config->node[node].name);
}

size_t store_usable(struct store *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->config->nnodes; i++)
        n += usable(s, i, false);
    return n;
}

static size_t add(struct store *s, bool bulk, bool full_ones, struct link **owner, size_t n, size_t want)
{
    double now = clock_monotonic();
    size_t nnodes = s->config->nnodes;
    for (size_t k = 0; k <= nnodes && n < want; k++) {
        /* k = 0 is the origin, then all in the config's order. */
        if (k == 0 && s->origin < 0)
            continue;
        size_t i = k == 0 ? (size_t)s->origin : k - 1;
        if (k > 0 && (int)i == s->origin)
            continue;
        if (usable(s, i, bulk) && (s->full_until[i] > now) == full_ones)
            owner[n++] = link_of(s, i, bulk);
    }
    return n;
}

bool store_place(struct store *s, bool bulk, struct link *owner[LANENAME_OWNERS_MAX])
{
    size_t want = (size_t)s->config->copies;
    size_t n = add(s, bulk, false, owner, 0, want);
    if (n < want)
        n = add(s, bulk, true, owner, n, want);
    return n == want;
}
