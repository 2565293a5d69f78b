/* info - the module's section of INFO. */
#ifndef DOVELANE_REDIS_MODULE_COMMANDS_INFO_H
#define DOVELANE_REDIS_MODULE_COMMANDS_INFO_H

#include "redis-module/server/redisapi.h"

int info_register(RedisModuleCtx *ctx);

#endif
