/* hello - the first frame to each worker: who the replicas are, and what it needs of the
 * settings. */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_WORKERS_HELLO_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_WORKERS_HELLO_H

#include "dovecot-plugin/replicator/replicator.h"

/* Puts the frame behind what is in `out`. */
void hello_encode(struct orset_buf *out, const struct replicator *);

#endif
