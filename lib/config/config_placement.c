/* config_placement - what the settings say of where copies are (docs/placement.md). */
#include <string.h>

#include "lib/base/mem.h"
#include "lib/config/config.h"

/* 0 of a destination's words is "default"; the others come in the order of the general ones. */
struct config_placement config_placement(const struct config *c, const struct config_destination *d)
{
    size_t most = (size_t)c->copies;
    struct config_placement p = {d->spread_over ? d->spread_over - 1 : c->spread_over,
                                 d->spread_least ? (size_t)d->spread_least
                                                 : (size_t)c->spread_least,
                                 (d->prefer ? d->prefer - 1 : c->prefer) == PREFER_NEAR,
                                 d->until == UNTIL_REPLICATED && d->replicated_away == AWAY_KEEP,
                                 d->site,
                                 d->zone};
    /* Different nodes they are in any case. */
    if (p.over == SPREAD_OVER_NODE)
        p.least = most;
    return p;
}

void config_placement_meet(struct config_placement *p, const struct config_placement *other)
{
    if (other->over > p->over) {
        p->over = other->over;
        p->least = other->least;
    } else if (other->over == p->over && other->least > p->least) {
        p->least = other->least;
    }
    p->near = p->near && other->near;
    p->kept = p->kept || other->kept;
    /* One list of owners cannot be in the order of two places. */
    if (strcmp(p->site, other->site)) {
        p->site = "";
        p->zone = "";
    } else if (strcmp(p->zone, other->zone)) {
        p->zone = "";
    }
}

int config_labels_apart(const struct config *c, size_t node, const char *site, const char *zone)
{
    const struct config_node *n = &c->node[node];
    if (strcmp(n->site, site))
        return 2;
    if (*zone && !strcmp(n->zone, zone))
        return 0;
    return *site ? 1 : 2;
}

bool config_hop_labels_fit(const struct config *c, const struct config_destination *d)
{
    int most = *d->zone ? 0 : 1;
    if (!*d->site && !*d->zone)
        return true;
    for (size_t i = 0; i < c->nnodes; i++)
        if (config_labels_apart(c, i, d->site, d->zone) <= most)
            return true;
    return false;
}

static bool is_together(const struct config_node *a, const struct config_node *b, int over)
{
    return !strcmp(a->site, b->site) && (over == SPREAD_OVER_SITE || !strcmp(a->zone, b->zone));
}

size_t config_domain(const struct config *c, size_t node, int over)
{
    if (over == SPREAD_OVER_NODE)
        return node;
    size_t first = 0;
    while (first < node && !is_together(&c->node[first], &c->node[node], over))
        first++;
    return first;
}

char *config_domain_name(const struct config *c, size_t node, int over)
{
    const struct config_node *n = &c->node[node];
    if (over == SPREAD_OVER_NODE)
        return mem_strdup(n->name);
    if (over == SPREAD_OVER_SITE)
        return mem_strdup(*n->site ? n->site : "?");
    return mem_printf("%s%s%s", n->site, *n->site ? "/" : "", *n->zone ? n->zone : "?");
}
