/* config - the module's settings, as "lane.<name>" in redis.conf and CONFIG SET. */
#ifndef DOVELANE_REDIS_MODULE_SERVER_CONFIG_H
#define DOVELANE_REDIS_MODULE_SERVER_CONFIG_H

#include "redis-module/server/server.h"

/* REDISMODULE_ERR when the server refuses. */
int config_register(RedisModuleCtx *ctx);

#endif
