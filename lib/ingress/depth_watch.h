/* depth_watch - asks the nodes for their lanes' lengths and ages (depth.h). A round of questions
 * comes once a second, and earlier when somebody is in a hurry. It asks nothing while nobody wants
 * it.
 *
 * Belongs to the thread of divert_switch.h, whose connections it uses: storing never waits for
 * it. */
#ifndef DOVELANE_LIB_INGRESS_DEPTH_WATCH_H
#define DOVELANE_LIB_INGRESS_DEPTH_WATCH_H

#include <stdbool.h>
#include <stddef.h>

#include <ev.h>

#include "lib/config/config.h"
#include "lib/ingress/depth.h"
#include "lib/redis/wire.h"

struct depth_watch;

struct depth_watch_calls {
    bool (*wanted)(void);
    /* The age of what waits there, too; class "": none. */
    bool (*wants_age)(const char *destination, const char *class);
    void (*looked)(void); /* a round has ended */
};

/* All must stay. */
struct depth_watch *depth_watch_open(const struct config *, struct ev_loop *, struct depth *,
                                     const struct depth_watch_calls *);
void depth_watch_node(struct depth_watch *, size_t node, struct wire *);
void depth_watch_look(struct depth_watch *); /* some times a second */

/* From any thread: what is known may soon be wrong. */
void depth_watch_hurry(struct depth_watch *);

#endif
