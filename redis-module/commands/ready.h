/* ready - which lanes have got something to take: LANE.READY. Lanes of database 0 only. */
#ifndef DOVELANE_REDIS_MODULE_COMMANDS_READY_H
#define DOVELANE_REDIS_MODULE_COMMANDS_READY_H

#include "redis-module/server/server.h"

/* Cursors begin at a random number in each life of the server, so that a cursor of another life is
 * known as such. */
void ready_start(void);

#endif
