#include "tests/bench/geo_load.h"

#include "lib/cluster/nearness.h"
#include "lib/cluster/placement.h"

static bool fits(const void *arg, const size_t *node, size_t n, bool all)
{
    (void)arg, (void)node, (void)n, (void)all;
    return true;
}

static int distance(size_t from, size_t to)
{
    struct nearness n = {0};
    nearness_add(&n, o.rtt[from][to]);
    return nearness_class(&n);
}

/* The gateway's own node, then the others: nearest first, or as they are listed behind it, in a
 * circle. */
static void by_preference(size_t gateway, size_t *node)
{
    size_t n = 0;
    node[n++] = gateway;
    for (size_t k = 1; k < o.nodes; k++) {
        size_t i = (gateway + k) % o.nodes, at = n++;
        for (; o.near && at > 1 && distance(gateway, node[at - 1]) > distance(gateway, i); at--)
            node[at] = node[at - 1];
        node[at] = i;
    }
}

void geo_owners(size_t gateway, size_t owner[COPIES_MOST])
{
    size_t node[NODES_MOST], domain[NODES_MOST];
    by_preference(gateway, node);
    for (size_t i = 0; i < o.nodes; i++)
        domain[i] = o.domain[node[i]];
    struct placement p = {.n = o.nodes,
                          .node = node,
                          .domain = domain,
                          .copies = o.copies,
                          .least = o.least,
                          .fit = fits};
    if (!placement_choose(&p, owner))
        geo_fail("no %zu nodes in %zu domains for node %zu", o.copies, o.least, gateway);
}
