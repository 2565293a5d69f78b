/* beat - the last beat of each node, and for which sets of owners this server is whole
 * (docs/takeover.md).
 *
 * Both live in module memory: maxmemory never refuses them, nothing expires, and a server that
 * was restarted knows neither. That is the point of WHOLE: whatever may take entries away (a
 * restart with an old file, FLUSHALL, a failover) takes it away as well. */
#ifndef DOVELANE_REDIS_MODULE_COMMANDS_BEAT_H
#define DOVELANE_REDIS_MODULE_COMMANDS_BEAT_H

#include "redis-module/keyspace/value.h"

/* Entries of database 0 may be gone, or others there: this server is whole for nothing. */
void whole_lost(void);

/* The same when this lane is one that has owners (dovelane:<destination>|<owners>, in database
 * 0). What other users of the type lose nobody compares. */
void whole_lost_with(const struct value *);

#endif
