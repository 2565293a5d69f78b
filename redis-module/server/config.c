/* config - each setting once: name, default, range, where it is kept. */
#include "redis-module/server/config.h"

#include <string.h>

#define NODE_MAX 64

static const struct number_setting {
    const char *name;
    long long standard, min, max;
    long long *value;
} numbers[] = {
    {"settle-ms", 5000, 0, 3600000, &server.settle_ms},
    {"lease-ms", 60000, 1, TIME_MAX, &server.lease_ms},
    {"max-sessions", 1024, 1, 1000000, &server.max_sessions},
};

static long long get_number(const char *name, void *setting)
{
    return *((const struct number_setting *)setting)->value;
}

static int set_number(const char *name, long long value, void *setting, RedisModuleString **err)
{
    *((const struct number_setting *)setting)->value = value;
    return REDISMODULE_OK;
}

static RedisModuleString *get_node(const char *name, void *data)
{
    /* The server does not free what it is given; the one before is freed instead. */
    static RedisModuleString *given;
    if (given)
        RedisModule_FreeString(NULL, given);
    given = RedisModule_CreateString(NULL, server.node, strlen(server.node));
    return given;
}

static int set_node(const char *name, RedisModuleString *value, void *data, RedisModuleString **err)
{
    static const char wrong[] =
        "lane.node is a name of at most 64 characters from A-Z a-z 0-9 . _ -";
    size_t len;
    const char *text = RedisModule_StringPtrLen(value, &len);
    if (len > NODE_MAX ||
        strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") != len) {
        *err = RedisModule_CreateString(NULL, wrong, strlen(wrong));
        return REDISMODULE_ERR;
    }
    char *copy = must_alloc(len + 1);
    memcpy(copy, text, len);
    copy[len] = '\0';
    if (server.node)
        RedisModule_Free(server.node);
    server.node = copy;
    return REDISMODULE_OK;
}

int config_register(RedisModuleCtx *ctx)
{
    server.node = must_alloc(1);
    server.node[0] = '\0';
    if (RedisModule_RegisterStringConfig(ctx, "node", "", REDISMODULE_CONFIG_DEFAULT, get_node,
                                         set_node, NULL, NULL) != REDISMODULE_OK)
        return REDISMODULE_ERR;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const struct number_setting *n = &numbers[i];
        *n->value = n->standard;
        if (RedisModule_RegisterNumericConfig(ctx, n->name, n->standard, REDISMODULE_CONFIG_DEFAULT,
                                              n->min, n->max, get_number, set_number, NULL,
                                              (void *)(uintptr_t)n) != REDISMODULE_OK)
            return REDISMODULE_ERR;
    }
    return RedisModule_LoadConfigs(ctx);
}
