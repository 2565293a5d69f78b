/* config_ownership - whether a lane is ours to serve (docs/design.md, "Mail in" 1). Pure.
 *
 * For takeover = manual: who is alive is what the config says, its `dead` list and its node
 * sections. With automatic takeover cluster_view.c decides by the nodes' beats. */
#ifndef DOVELANE_RELAY_CLUSTER_CONFIG_OWNERSHIP_H
#define DOVELANE_RELAY_CLUSTER_CONFIG_OWNERSHIP_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/config/config.h"
#include "lib/mail/lanename.h"

enum ownership {
    OWNERSHIP_NONE,  /* this node is no owner of it */
    OWNERSHIP_LATER, /* an owner before this node is alive and delivers */
    OWNERSHIP_OURS
};

/* Listed in `dead`, or in no node section: an owner that is in nobody's table is dead, else its
 * lanes would wait for ever. */
bool ownership_dead(const struct config *, const char *node);

/* place_r: how many owners stand before this node (when it is an owner at all): 0 is the first one,
 * more is a takeover.
 *
 * A node that the config calls dead serves nothing itself. All hosts share one file, so the next
 * owner serves its lanes by the same words, and two would deliver. */
enum ownership ownership_judge(const struct config *, const char *self, const struct lanename *,
                               size_t *place_r);

#endif
