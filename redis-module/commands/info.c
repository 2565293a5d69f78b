/* info - adds the fields. */
#include "redis-module/commands/info.h"

#include "redis-module/keyspace/tombstones.h"
#include "redis-module/server/server.h"
#include "redis-module/keyspace/sessions.h"

static void section(RedisModuleInfoCtx *info, int for_crash_report)
{
    if (RedisModule_InfoAddSection(info, "lanes") != REDISMODULE_OK)
        return;
    RedisModule_InfoAddFieldCString(info, "version", DOVELANE_VERSION);
    RedisModule_InfoAddFieldULongLong(info, "grammar", GRAMMAR_VERSION);
    RedisModule_InfoAddFieldCString(info, "node", server.node);
    RedisModule_InfoAddFieldULongLong(info, "lanes", server.lanes);
    RedisModule_InfoAddFieldULongLong(info, "entries", server.entries);
    RedisModule_InfoAddFieldULongLong(info, "bytes", server.bytes);
    RedisModule_InfoAddFieldULongLong(info, "leased", server.leased);
    RedisModule_InfoAddFieldULongLong(info, "sessions", sessions_count());
    /* A crash report must not change memory. */
    if (!for_crash_report)
        RedisModule_InfoAddFieldULongLong(info, "remembered", tombstone_count(now_ms()));
}

int info_register(RedisModuleCtx *ctx)
{
    return RedisModule_RegisterInfoFunc(ctx, section);
}
