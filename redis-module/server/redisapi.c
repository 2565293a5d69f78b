/* redisapi - the addresses of the server's calls. */
#include "redis-module/server/redisapi.h"

#define DEFINE(name, returns, takes) returns(*RedisModule_##name) takes;
REDISAPI_REQUIRED(DEFINE)
REDISAPI_OPTIONAL(DEFINE)

/* The server stores an address through a pointer to a function pointer of whatever type; all
 * have the size of a plain one. */
typedef int get_api(const char *name, void *address);

const char *redisapi_resolve(RedisModuleCtx *ctx)
{
    /* The look-up function is the first member of the context: that is the documented way in. */
    get_api *get = *(get_api **)(void *)ctx;
#define REQUIRE(name, returns, takes)                                             \
    if (get("RedisModule_" #name, (void *)&RedisModule_##name) != REDISMODULE_OK) \
        return "RedisModule_" #name;
    REDISAPI_REQUIRED(REQUIRE)
#define ASK(name, returns, takes) (void)get("RedisModule_" #name, (void *)&RedisModule_##name);
    REDISAPI_OPTIONAL(ASK)
    return NULL;
}
