/* placement - which nodes hold a mail together (docs/placement.md). Pure: it reads no clock and
 * sends nothing.
 *
 * A domain is what fails together: a node, a zone, a site. Copies are spread over as many domains
 * as there can be, and over no fewer than is demanded. Among choices of as many domains the one
 * counts whose nodes come first in the caller's order. */
#ifndef DOVELANE_LIB_CLUSTER_PLACEMENT_H
#define DOVELANE_LIB_CLUSTER_PLACEMENT_H

#include <stdbool.h>
#include <stddef.h>

#define PLACEMENT_COPIES_MOST 8

struct placement {
    size_t n;           /* candidates */
    const size_t *node; /* what the caller calls each of them, in the order of preference */
    /* of each candidate, the number of its domain: any, equal for nodes that fail together */
    const size_t *domain;
    size_t copies;
    size_t least; /* domains that are demanded, at most copies */
    /* Whether these nodes may be owners together; all: they are all that there will be. It is
     * asked of parts first, and must be true of each part of what it is true of. */
    bool (*fit)(const void *arg, const size_t *node, size_t n, bool all);
    const void *arg;
};

/* Fills in copies nodes. False: no choice meets the demand, or none was found in
 * PLACEMENT_STEPS. */
#define PLACEMENT_STEPS 100000
bool placement_choose(const struct placement *, size_t *chosen);

#endif
