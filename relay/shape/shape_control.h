/* shape_control - the rules that hold now (lib/shape/shape.h): of the config's sections, and of what
 * `dovelane shape` said last (relay/heartbeat/notices.h). */
#ifndef DOVELANE_RELAY_SHAPE_SHAPE_CONTROL_H
#define DOVELANE_RELAY_SHAPE_SHAPE_CONTROL_H

#include "lib/shape/shape.h"
#include "relay/relay.h"
#include "relay/tables/destinations.h"

/* wake: more may be sent to a next hop than before. let_go: nothing is sent to it for now, and what
 * waits for a connection goes back to its lanes. Of heads. */
struct shape_calls {
    void (*wake)(struct destination *);
    void (*let_go)(struct destination *);
};

struct shape_control *shape_control_open(struct relay *, const struct shape_calls *);
void shape_control_close(struct relay *); /* after the destinations */

/* The config was read again. */
void shape_control_reload(struct relay *);

/* What `dovelane shape` said last: the rules' lines, copied. (notices_shape_fn) */
void shape_control_said(struct relay *, const char *text, unsigned long long serial);

/* For classes_open(): as the rules say, else as the config's section of the class does. */
double shape_class_weight(const struct destination *, const char *class);

/* Some rule bounces what waits for too long: lanes are looked through for that. */
bool shape_control_may_bounce(const struct relay *);

/* What holds for that next hop: any of its entries. Never NULL; the room's until the next change of
 * the rules. */
const struct shape *shape_for(struct destination *);

#endif
