/* waiting_line - the mails that wait for a connection to one destination: first come, first served.
 * Several classes (classes.h) go by their weights, and within a class mails go as they came. */
#ifndef DOVELANE_RELAY_TABLES_WAITING_LINE_H
#define DOVELANE_RELAY_TABLES_WAITING_LINE_H

#include "relay/tables/destinations.h"

/* At the end of the line; or at its head, before what came earlier. */
void waiting_add(struct destination *, struct smtp_mail *);
void waiting_put_back(struct destination *, struct smtp_mail *);

/* Takes it out of the line, wherever it stands. */
void waiting_remove(struct destination *, struct smtp_mail *);

/* The one whose turn it is; NULL: nothing waits. It stays in the line. */
struct smtp_mail *waiting_next(struct destination *);

/* The one whose turn it was leaves: takes it out, and its class has had one. */
void waiting_leaves(struct destination *, struct smtp_mail *);

/* The bytes of all that wait. */
size_t waiting_bytes(const struct destination *);

/* Any of them, to end them all; NULL: nothing waits. */
struct smtp_mail *waiting_any(struct destination *);

#endif
