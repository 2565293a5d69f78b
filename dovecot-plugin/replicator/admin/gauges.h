/* gauges - what metrics_listen shows of the replicator beside what it counts: each peer and the
 * users as they are when somebody asks. */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_ADMIN_GAUGES_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_ADMIN_GAUGES_H

#include "dovecot-plugin/replicator/replicator.h"

/* metrics_listen is served until metrics_http_stop(). It has a thread: behind bridge_open(). */
void replicator_gauges_open(struct replicator *);

#endif
