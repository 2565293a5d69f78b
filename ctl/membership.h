/* membership - dovelane nodes --forget NAME, --join NAME (membership = learned). */
#ifndef DOVELANE_CTL_MEMBERSHIP_H
#define DOVELANE_CTL_MEMBERSHIP_H

#include "ctl/ctl.h"

/* Takes a node out for good; does not return when it must stay. lost: nodes that may lack what they
 * held together with it. With the node itself in that list, what only it has is given up. */
void membership_forget(struct ctl *, const char *node, const struct config_list *lost);

/* Takes it in again, as its section in this file has it. */
void membership_join(struct ctl *, const char *node);

/* Below the table of nodes: which of them have no section, and what is known of others. */
void membership_print(struct ctl *);

#endif
