/* type - the native Redis type of lanes: all that Redis asks of a value. */
#ifndef DOVELANE_REDIS_MODULE_PERSIST_TYPE_H
#define DOVELANE_REDIS_MODULE_PERSIST_TYPE_H

#include "redis-module/keyspace/value.h"

#define TYPE_NAME "dovelane1" /* exactly nine characters; part of every RDB file */
#define RDB_VERSION 2         /* 1: its chunks were of version 1 */

/* Registers the type, and follows lanes through RENAME, MOVE, SWAPDB, FLUSHALL, and connections
 * through their end. REDISMODULE_ERR when the server refuses. */
int type_register(RedisModuleCtx *ctx);

/* rdb.c */
void rdb_save(RedisModuleIO *rdb, void *value);
void *rdb_load(RedisModuleIO *rdb, int version);

#endif
