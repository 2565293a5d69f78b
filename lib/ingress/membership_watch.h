/* membership_watch - membership = learned, for the milter and the proxy. Which nodes joined or were
 * taken out is read from the nodes' servers, and kept in this program's file. Then a new process
 * uses it, which takes the socket over (process_handover.h), as after an admin's reload.
 *
 * Not before every relay that beats knows the newcomer: mail that is placed on nodes which do
 * not know each other would not be stored. Belongs to the thread of divert_switch.h, whose
 * connections it uses. */
#ifndef DOVELANE_LIB_INGRESS_MEMBERSHIP_WATCH_H
#define DOVELANE_LIB_INGRESS_MEMBERSHIP_WATCH_H

#include "lib/config/config.h"
#include "lib/redis/wire.h"

struct membership_watch;

/* NULL with membership = file. Both must stay. */
struct membership_watch *membership_watch_open(const struct config *, const char *program);

/* Asks the server of a node, once a second at most, and does what follows from the answers. The
 * watch may be NULL. */
void membership_watch_look(struct membership_watch *, size_t node, struct wire *);

#endif
