/* arrivals - what came into the state while somebody compares it with a giver's. */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_STATE_ARRIVALS_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_STATE_ARRIVALS_H

#include "dovecot-plugin/orset/base/vector.h"

struct watch {
    const struct peer *upto; /* what it covers is of interest; NULL: nothing yet */
    bool paused;             /* who watches does this itself */
    bool *again;             /* folders that something came into, by index */
    uint32_t room;
    bool any_again, named_again;
    struct watch *next;
};

void orset_watch(struct orset *, struct watch *);
void orset_unwatch(struct orset *, struct watch *); /* and forget what it was told */
/* d came into the state, in folder (ORSET_NO_FOLDER: a subscription): who watches looks there
 * again, if its vector covers d. */
int orset_arrived(struct orset *, uint32_t folder, struct orset_dot d);

#endif
