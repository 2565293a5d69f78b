/* hints - the FIFO and the directory by which the plugin tells who changed
 * (docs/replicator/recording.md). */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_USERS_HINTS_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_USERS_HINTS_H

#include "dovecot-plugin/replicator/replicator.h"

struct hints *hints_open(struct replicator *);
/* The read end of the FIFO, non-blocking; owned from here on. */
void hints_fifo(struct hints *, int fd);
/* Of clients and deliveries at a backup site, since the start. */
unsigned long long hints_at_backup(const struct hints *);
void hints_stop(struct hints *);
void hints_close(struct hints *);

#endif
