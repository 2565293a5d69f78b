/* module - where Redis comes in. lane.so is loaded by `loadmodule .../lane.so` in redis.conf. */
#include "redis-module/commands/commands.h"
#include "redis-module/server/config.h"
#include "redis-module/commands/info.h"
#include "redis-module/commands/ready.h"
#include "redis-module/persist/type.h"

#define MODULE_NAME "lane" /* the first part of the settings' names */
#define MODULE_VERSION 1

/* All else may be missing when one call is, so the refusal uses only what every server that
 * loads modules has. */
static int refuse(RedisModuleCtx *ctx, const char *missing)
{
    if (RedisModule_Log)
        RedisModule_Log(
            ctx, "warning",
            "lane: this server has no %s, which the module needs; Redis 7.0 or later does",
            missing);
    return REDISMODULE_ERR;
}

__attribute__((visibility("default"))) int RedisModule_OnLoad(RedisModuleCtx *ctx,
                                                              RedisModuleString **argv, int argc);

int RedisModule_OnLoad(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    const char *missing = redisapi_resolve(ctx);
    if (missing)
        return refuse(ctx, missing);
    if (RedisModule_IsModuleNameBusy(MODULE_NAME))
        return REDISMODULE_ERR;
    RedisModule_SetModuleAttribs(ctx, MODULE_NAME, MODULE_VERSION, REDISMODULE_APIVER_1);
    if (argc > 0) {
        RedisModule_Log(
            ctx, "warning",
            "lane: takes no arguments; write lane.node and the like as settings of their own");
        return REDISMODULE_ERR;
    }
    server_start(ctx);
    ready_start();
    if (config_register(ctx) != REDISMODULE_OK || type_register(ctx) != REDISMODULE_OK ||
        commands_register(ctx) != REDISMODULE_OK || info_register(ctx) != REDISMODULE_OK)
        return REDISMODULE_ERR;
    RedisModule_SetModuleOptions(ctx, REDISMODULE_OPTIONS_HANDLE_IO_ERRORS);
    return REDISMODULE_OK;
}
