/* relay - the way out: what one node's lanes hold goes to the next hops.
 *
 *   READY ─▶ lanes ─▶ intake (TAKE) ─▶ inflight ─▶ mail ─▶ destination ─▶ smtp_* ─▶ next hop
 *                                             │ ▲ results
 *                                             ▼ │
 *                       owners: META, ACK, NACK on the own node ─▶ peers: META and ACK on the other owners
 *
 * One thread, one libev loop. lanes.h says which lanes are ours, inflight.h what we have of them,
 * mail.h what becomes of one mail. owners.h sends the nodes what they must know, and stall.h says
 * when not to take. spill_to_postfix.h is the second way out, back into Postfix's own queue;
 * admin_requests.h is what an admin wants here, notices.h what he wants everywhere.
 *
 *   BEATs ─▶ heartbeat ─▶ liveness ─▶ role ─▶ which lanes are ours       resync ─▶ lane_scan, backfill: what other owners hold and we do not
 *
 *                                                                  rereplicate ─▶ lost_lanes, backfill: another owner for what a lost node held
 *
 * heartbeat.h hears the other nodes, takeover_rules.h says what follows from that, and
 * cluster_view.h is where the rest of the relay looks it up. resync.h makes this node hold what it
 * promised; membership.h learns which nodes there are.
 *
 * shape/gate.h says what may leave for a next hop, and when. gauges.h is what a scraper sees of all
 * that.
 *
 * Calls go down: smtp, cluster, tables, acks, shape, delivery, intake, repair, heartbeat, gauges, main.
 * What a room finds for one above it goes through tables (destination_want(), lanes_mark()),
 * cluster_wake(), a callback (struct entry_calls, lanes_open()) or relay_kick(). */
#ifndef DOVELANE_RELAY_RELAY_H
#define DOVELANE_RELAY_RELAY_H

#include <ev.h>

#include "lib/config/config.h"
#include "lib/redis/node.h"

struct relay {
    struct ev_loop *loop;
    const char *config_path;
    const char *node;      /* our name in the config */
    struct config *config; /* replaced at SIGHUP: nobody keeps a pointer into it */
    unsigned config_turn;  /* how often it, or what Postfix says of delivery, was replaced */
    bool stopping;         /* nothing is taken any more, what is in flight is finished */
    unsigned kicked;       /* enum relay_kick */

    struct classes *classes;
    struct lanes *lanes;
    struct admin_requests *admin_requests;
    struct poison *poison;
    struct whole_sets *whole_sets;
    struct lane_pauses *lane_pauses;
    struct reinject *reinject;
    struct ordered_lanes *ordered_lanes;
    struct pressure *pressure;
    struct spill *spill;
    struct destinations *destinations;
    struct lane_watch *lane_watch;
    struct intake *intake;
    struct inflight *inflight;
    struct retained_table *retained;
    struct site_links *site_links;
    struct retained_looks *retained_looks;
    struct owners *owners;
    struct stall *stall;
    struct membership *membership;
    struct notices *notices;
    struct shape_control *shape;

    /* NULL with takeover = manual */
    struct heartbeat *heartbeat;
    struct cluster_view *view;
    struct role *role;
    struct resync *resync;
    struct rereplicate *rereplicate;
};

/* What a room asks of one above it; main.c sees to it at the end of this turn of the loop. */
enum relay_kick {
    RELAY_LIST = 1 << 0, /* lane_watch_list() */
    RELAY_WANT = 1 << 1, /* destinations_want_all() */
};

static inline void relay_kick(struct relay *r, enum relay_kick what)
{
    r->kicked |= what;
}

#endif
