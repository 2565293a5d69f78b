/* beat - the last beat of each node, and for which sets of owners this server is whole (docs/takeover.md).
 *
 * Both live in module memory: maxmemory never refuses them, nothing expires, and a server that was restarted knows neither. That is the point
 * of WHOLE: whatever may take entries away (a restart with an old file, FLUSHALL, a failover) takes it away as well. */
#ifndef DOVELANE_COMMANDS_BEAT_H
#define DOVELANE_COMMANDS_BEAT_H

/* Entries of database 0 may be gone, or others there: this server is whole for nothing. */
void whole_lost(void);

#endif
