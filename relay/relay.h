/* relay - the way out: what one node's lanes hold goes to the next hops.
 *
 *   READY ─▶ lanes ─▶ drain (TAKE) ─▶ hand ─▶ mail ─▶ destination ─▶ smtp_* ─▶ next hop
 *                                             │ ▲ results
 *                                             ▼ │
 *                       owners: META, ACK, NACK on the own node ─▶ peers: META and ACK on the other owners
 *
 * One thread, one libev loop. lanes.h says what is ours, hand.h what we have of it, mail.h what becomes of
 * one mail, owners.h tells the nodes, stillness.h when not to take. */
#ifndef DOVELANE_RELAY_H
#define DOVELANE_RELAY_H

#include <ev.h>

#include "config.h"
#include "node.h"

struct relay {
    struct ev_loop *loop;
    const char *config_path;
    const char *node;      /* our name in the config */
    struct config *config; /* replaced at SIGHUP: nobody keeps a pointer into it */
    char *helo;
    bool stopping; /* nothing is taken any more, what is in hand is finished */

    struct lanes *lanes;
    struct destinations *destinations;
    struct discover *discover;
    struct drain *drain;
    struct hand *hand;
    struct owners *owners;
    struct stillness *stillness;
};

#endif
