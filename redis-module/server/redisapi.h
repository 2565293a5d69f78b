/* redisapi - the part of the Redis module interface that this module uses, declared by hand.
 *
 * No Debian package ships redismodule.h. A server that loads a module hands OnLoad a context whose
 * first pointer is its look-up function: given "RedisModule_<call>" it stores the call's address.
 * Calls are asked for by name and never by version, so the same binary loads on Redis 7.0 to 8 and
 * on Valkey 8. A required call that is missing refuses the load and is named; an optional one stays
 * NULL. tests/unit/lane/test_redisapi.py compares every line here with the redismodule.h of the
 * distribution's source package. */
#ifndef DOVELANE_REDIS_MODULE_SERVER_REDISAPI_H
#define DOVELANE_REDIS_MODULE_SERVER_REDISAPI_H

#include <stddef.h>
#include <stdint.h>

typedef struct RedisModuleCtx RedisModuleCtx;
typedef struct RedisModuleKey RedisModuleKey;
typedef struct RedisModuleString RedisModuleString;
typedef struct RedisModuleIO RedisModuleIO;
typedef struct RedisModuleType RedisModuleType;
typedef struct RedisModuleDigest RedisModuleDigest;
typedef struct RedisModuleCommand RedisModuleCommand;
typedef struct RedisModuleBlockedClient RedisModuleBlockedClient;
typedef struct RedisModuleKeyOptCtx RedisModuleKeyOptCtx;
typedef struct RedisModuleInfoCtx RedisModuleInfoCtx;
typedef struct RedisModuleServerInfoData RedisModuleServerInfoData;
typedef struct RedisModuleDefragCtx RedisModuleDefragCtx;
typedef struct RedisModuleUser RedisModuleUser;
typedef uint64_t RedisModuleTimerID;
typedef long long mstime_t;

/* ---- Constants ---- */

#define REDISMODULE_OK 0
#define REDISMODULE_ERR 1
#define REDISMODULE_APIVER_1 1
#define REDISMODULE_READ (1 << 0)
#define REDISMODULE_WRITE (1 << 1)
#define REDISMODULE_OPEN_KEY_NOTOUCH (1 << 16)
#define REDISMODULE_KEYTYPE_EMPTY 0
#define REDISMODULE_POSTPONED_LEN -1
#define REDISMODULE_CTX_FLAGS_LUA (1 << 0)
#define REDISMODULE_CTX_FLAGS_MULTI (1 << 1)
#define REDISMODULE_CTX_FLAGS_SLAVE (1 << 3)
#define REDISMODULE_CTX_FLAGS_AOF (1 << 6)
#define REDISMODULE_CTX_FLAGS_MAXMEMORY (1 << 8)
#define REDISMODULE_CTX_FLAGS_EVICT (1 << 9)
#define REDISMODULE_CTX_FLAGS_OOM (1 << 10)
#define REDISMODULE_CTX_FLAGS_REPLICATED (1 << 12)
#define REDISMODULE_CTX_FLAGS_LOADING (1 << 13)
#define REDISMODULE_CTX_FLAGS_DENY_BLOCKING (1 << 21)
#define REDISMODULE_NOTIFY_GENERIC (1 << 2)
#define REDISMODULE_NOTIFY_EXPIRED (1 << 8)
#define REDISMODULE_NOTIFY_EVICTED (1 << 9)
#define REDISMODULE_NOTIFY_MODULE (1 << 13)
#define REDISMODULE_OPTIONS_HANDLE_IO_ERRORS (1 << 0)
#define REDISMODULE_CONFIG_DEFAULT 0
#define REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED 0
#define REDISMODULE_EVENT_FLUSHDB 2
#define REDISMODULE_EVENT_LOADING 3
#define REDISMODULE_EVENT_CLIENT_CHANGE 4
#define REDISMODULE_EVENT_REPLICA_CHANGE 6
#define REDISMODULE_EVENT_SWAPDB 11
#define REDISMODULE_EVENT_FORK_CHILD 13
#define REDISMODULE_EVENT_EVENTLOOP 15
#define REDISMODULE_EVENT_REPLROLECHANGED_NOW_REPLICA 1
#define REDISMODULE_SUBEVENT_EVENTLOOP_AFTER_SLEEP 1
#define REDISMODULE_SUBEVENT_LOADING_ENDED 3
#define REDISMODULE_SUBEVENT_FLUSHDB_START 0
#define REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED 1
#define REDISMODULE_CMD_KEY_RO (1ULL << 0)
#define REDISMODULE_CMD_KEY_RW (1ULL << 1)
#define REDISMODULE_CMD_KEY_ACCESS (1ULL << 4)
#define REDISMODULE_CMD_KEY_UPDATE (1ULL << 5)
#define REDISMODULE_CMD_KEY_INSERT (1ULL << 6)
#define REDISMODULE_CMD_KEY_DELETE (1ULL << 7)
#define REDISMODULE_CMD_KEY_NOT_KEY (1ULL << 8)
#define REDISMODULE_CMD_ARG_NONE (0)
#define REDISMODULE_CMD_ARG_OPTIONAL (1 << 0)
#define REDISMODULE_CMD_ARG_MULTIPLE (1 << 1)
#define REDISMODULE_CMD_ARG_MULTIPLE_TOKEN (1 << 2)

/* The fields known to 7.0; a newer server copies only what belongs to the version that is named. */
#define REDISMODULE_TYPE_METHOD_VERSION 4

/* ---- Callbacks ---- */

typedef int (*RedisModuleCmdFunc)(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);
typedef void (*RedisModuleDisconnectFunc)(RedisModuleCtx *ctx, RedisModuleBlockedClient *bc);
typedef int (*RedisModuleNotificationFunc)(RedisModuleCtx *ctx, int type, const char *event,
                                           RedisModuleString *key);
typedef void *(*RedisModuleTypeLoadFunc)(RedisModuleIO *rdb, int encver);
typedef void (*RedisModuleTypeSaveFunc)(RedisModuleIO *rdb, void *value);
typedef int (*RedisModuleTypeAuxLoadFunc)(RedisModuleIO *rdb, int encver, int when);
typedef void (*RedisModuleTypeAuxSaveFunc)(RedisModuleIO *rdb, int when);
typedef void (*RedisModuleTypeRewriteFunc)(RedisModuleIO *aof, RedisModuleString *key, void *value);
typedef size_t (*RedisModuleTypeMemUsageFunc)(const void *value);
typedef size_t (*RedisModuleTypeMemUsageFunc2)(RedisModuleKeyOptCtx *ctx, const void *value,
                                               size_t sample_size);
typedef void (*RedisModuleTypeDigestFunc)(RedisModuleDigest *digest, void *value);
typedef void (*RedisModuleTypeFreeFunc)(void *value);
typedef size_t (*RedisModuleTypeFreeEffortFunc)(RedisModuleString *key, const void *value);
typedef size_t (*RedisModuleTypeFreeEffortFunc2)(RedisModuleKeyOptCtx *ctx, const void *value);
typedef void (*RedisModuleTypeUnlinkFunc)(RedisModuleString *key, const void *value);
typedef void (*RedisModuleTypeUnlinkFunc2)(RedisModuleKeyOptCtx *ctx, const void *value);
typedef void *(*RedisModuleTypeCopyFunc)(RedisModuleString *fromkey, RedisModuleString *tokey,
                                         const void *value);
typedef void *(*RedisModuleTypeCopyFunc2)(RedisModuleKeyOptCtx *ctx, const void *value);
typedef int (*RedisModuleTypeDefragFunc)(RedisModuleDefragCtx *ctx, RedisModuleString *key,
                                         void **value);
typedef void (*RedisModuleTimerProc)(RedisModuleCtx *ctx, void *data);
typedef void (*RedisModuleInfoFunc)(RedisModuleInfoCtx *ctx, int for_crash_report);
typedef RedisModuleString *(*RedisModuleConfigGetStringFunc)(const char *name, void *privdata);
typedef long long (*RedisModuleConfigGetNumericFunc)(const char *name, void *privdata);
typedef int (*RedisModuleConfigSetStringFunc)(const char *name, RedisModuleString *val,
                                              void *privdata, RedisModuleString **err);
typedef int (*RedisModuleConfigSetNumericFunc)(const char *name, long long val, void *privdata,
                                               RedisModuleString **err);
typedef int (*RedisModuleConfigApplyFunc)(RedisModuleCtx *ctx, void *privdata,
                                          RedisModuleString **err);

/* ---- Structures ---- */

typedef struct RedisModuleTypeMethods {
    uint64_t version;
    RedisModuleTypeLoadFunc rdb_load;
    RedisModuleTypeSaveFunc rdb_save;
    RedisModuleTypeRewriteFunc aof_rewrite;
    RedisModuleTypeMemUsageFunc mem_usage;
    RedisModuleTypeDigestFunc digest;
    RedisModuleTypeFreeFunc free;
    RedisModuleTypeAuxLoadFunc aux_load;
    RedisModuleTypeAuxSaveFunc aux_save;
    int aux_save_triggers;
    RedisModuleTypeFreeEffortFunc free_effort;
    RedisModuleTypeUnlinkFunc unlink;
    RedisModuleTypeCopyFunc copy;
    RedisModuleTypeDefragFunc defrag;
    RedisModuleTypeMemUsageFunc2 mem_usage2;
    RedisModuleTypeFreeEffortFunc2 free_effort2;
    RedisModuleTypeUnlinkFunc2 unlink2;
    RedisModuleTypeCopyFunc2 copy2;
} RedisModuleTypeMethods;

typedef struct RedisModuleEvent {
    uint64_t id, dataver;
} RedisModuleEvent;

typedef void (*RedisModuleEventCallback)(struct RedisModuleCtx *ctx, RedisModuleEvent eid,
                                         uint64_t subevent, void *data);

typedef struct RedisModuleClientInfo {
    uint64_t version, flags, id;
    char addr[46];
    uint16_t port, db;
} RedisModuleClientInfo;

typedef struct RedisModuleFlushInfo {
    uint64_t version;
    int32_t sync, dbnum; /* dbnum -1: all */
} RedisModuleFlushInfo;

typedef struct RedisModuleSwapDbInfo {
    uint64_t version;
    int32_t dbnum_first, dbnum_second;
} RedisModuleSwapDbInfo;

typedef enum {
    REDISMODULE_ARG_TYPE_STRING,
    REDISMODULE_ARG_TYPE_INTEGER,
    REDISMODULE_ARG_TYPE_DOUBLE,
    REDISMODULE_ARG_TYPE_KEY,
    REDISMODULE_ARG_TYPE_PATTERN,
    REDISMODULE_ARG_TYPE_UNIX_TIME,
    REDISMODULE_ARG_TYPE_PURE_TOKEN,
    REDISMODULE_ARG_TYPE_ONEOF,
    REDISMODULE_ARG_TYPE_BLOCK
} RedisModuleCommandArgType;

typedef enum {
    REDISMODULE_KSPEC_BS_INVALID = 0,
    REDISMODULE_KSPEC_BS_UNKNOWN,
    REDISMODULE_KSPEC_BS_INDEX,
    REDISMODULE_KSPEC_BS_KEYWORD
} RedisModuleKeySpecBeginSearchType;

typedef enum {
    REDISMODULE_KSPEC_FK_OMITTED = 0,
    REDISMODULE_KSPEC_FK_UNKNOWN,
    REDISMODULE_KSPEC_FK_RANGE,
    REDISMODULE_KSPEC_FK_KEYNUM
} RedisModuleKeySpecFindKeysType;

typedef struct RedisModuleCommandArg {
    const char *name;
    RedisModuleCommandArgType type;
    int key_spec_index; /* -1: not a key */
    const char *token;
    const char *summary;
    const char *since;
    int flags;
    const char *deprecated_since;
    struct RedisModuleCommandArg *subargs;
    /* Since 7.2, without a new version: a newer server reads it, an older one steps over it by
     * sizeof_arg. Without it the next argument's name would be shown. */
    const char *display_text;
} RedisModuleCommandArg;

typedef struct {
    const char *since;
    const char *changes;
} RedisModuleCommandHistoryEntry;

typedef struct {
    const char *notes;
    uint64_t flags;
    RedisModuleKeySpecBeginSearchType begin_search_type;
    union {
        struct {
            int pos;
        } index;
        struct {
            const char *keyword;
            int startfrom;
        } keyword;
    } bs;
    RedisModuleKeySpecFindKeysType find_keys_type;
    union {
        struct {
            int lastkey, keystep, limit;
        } range;
        struct {
            int keynumidx, firstkey, keystep;
        } keynum;
    } fk;
} RedisModuleCommandKeySpec;

typedef struct {
    int version;
    size_t sizeof_historyentry, sizeof_keyspec, sizeof_arg;
} RedisModuleCommandInfoVersion;

typedef struct {
    const RedisModuleCommandInfoVersion *version;
    const char *summary;
    const char *complexity;
    const char *since;
    RedisModuleCommandHistoryEntry *history;
    const char *tips;
    int arity;
    RedisModuleCommandKeySpec *key_specs;
    RedisModuleCommandArg *args;
} RedisModuleCommandInfo;

/* ---- Calls: name, what it returns, what it takes ---- */

#define REDISAPI_REQUIRED(X)                                                                       \
    X(Log, void, (RedisModuleCtx * ctx, const char *levelstr, const char *fmt, ...))               \
    X(Alloc, void *, (size_t bytes))                                                               \
    X(TryAlloc, void *, (size_t bytes))                                                            \
    X(Free, void, (void *ptr))                                                                     \
    X(CreateCommand, int,                                                                          \
      (RedisModuleCtx * ctx, const char *name, RedisModuleCmdFunc cmdfunc, const char *strflags,   \
       int firstkey, int lastkey, int keystep))                                                    \
    X(GetCommand, RedisModuleCommand *, (RedisModuleCtx * ctx, const char *name))                  \
    X(SetCommandInfo, int, (RedisModuleCommand * command, const RedisModuleCommandInfo *info))     \
    X(SetModuleAttribs, void, (RedisModuleCtx * ctx, const char *name, int ver, int apiver))       \
    X(IsModuleNameBusy, int, (const char *name))                                                   \
    X(SetModuleOptions, void, (RedisModuleCtx * ctx, int options))                                 \
    X(CreateDataType, RedisModuleType *,                                                           \
      (RedisModuleCtx * ctx, const char *name, int encver, RedisModuleTypeMethods *typemethods))   \
    X(ModuleTypeSetValue, int, (RedisModuleKey * key, RedisModuleType * mt, void *value))          \
    X(ModuleTypeGetType, RedisModuleType *, (RedisModuleKey * key))                                \
    X(ModuleTypeGetValue, void *, (RedisModuleKey * key))                                          \
    X(OpenKey, RedisModuleKey *, (RedisModuleCtx * ctx, RedisModuleString * keyname, int mode))    \
    X(CloseKey, void, (RedisModuleKey * kp))                                                       \
    X(DeleteKey, int, (RedisModuleKey * key))                                                      \
    X(KeyType, int, (RedisModuleKey * kp))                                                         \
    X(GetSelectedDb, int, (RedisModuleCtx * ctx))                                                  \
    X(SelectDb, int, (RedisModuleCtx * ctx, int newid))                                            \
    X(ReplyWithArray, int, (RedisModuleCtx * ctx, long len))                                       \
    X(ReplySetArrayLength, void, (RedisModuleCtx * ctx, long len))                                 \
    X(ReplyWithEmptyArray, int, (RedisModuleCtx * ctx))                                            \
    X(ReplyWithLongLong, int, (RedisModuleCtx * ctx, long long ll))                                \
    X(ReplyWithStringBuffer, int, (RedisModuleCtx * ctx, const char *buf, size_t len))             \
    X(ReplyWithCString, int, (RedisModuleCtx * ctx, const char *buf))                              \
    X(ReplyWithString, int, (RedisModuleCtx * ctx, RedisModuleString * str))                       \
    X(ReplyWithSimpleString, int, (RedisModuleCtx * ctx, const char *msg))                         \
    X(ReplyWithError, int, (RedisModuleCtx * ctx, const char *err))                                \
    X(ReplyWithNull, int, (RedisModuleCtx * ctx))                                                  \
    X(WrongArity, int, (RedisModuleCtx * ctx))                                                     \
    X(StringPtrLen, const char *, (const RedisModuleString *str, size_t *len))                     \
    X(CreateString, RedisModuleString *, (RedisModuleCtx * ctx, const char *ptr, size_t len))      \
    X(FreeString, void, (RedisModuleCtx * ctx, RedisModuleString * str))                           \
    X(Replicate, int, (RedisModuleCtx * ctx, const char *cmdname, const char *fmt, ...))           \
    X(ReplicateVerbatim, int, (RedisModuleCtx * ctx))                                              \
    X(GetContextFlags, int, (RedisModuleCtx * ctx))                                                \
    X(GetClientId, unsigned long long, (RedisModuleCtx * ctx))                                     \
    X(GetCurrentUserName, RedisModuleString *, (RedisModuleCtx * ctx))                             \
    X(GetModuleUserFromUserName, RedisModuleUser *, (RedisModuleString * name))                    \
    X(ACLCheckCommandPermissions, int,                                                             \
      (RedisModuleUser * user, RedisModuleString * *argv, int argc))                               \
    X(FreeModuleUser, void, (RedisModuleUser * user))                                              \
    X(BlockClientOnKeys, RedisModuleBlockedClient *,                                               \
      (RedisModuleCtx * ctx, RedisModuleCmdFunc reply_callback,                                    \
       RedisModuleCmdFunc timeout_callback, void (*free_privdata)(RedisModuleCtx *, void *),       \
       long long timeout_ms, RedisModuleString **keys, int numkeys, void *privdata))               \
    X(BlockClient, RedisModuleBlockedClient *,                                                     \
      (RedisModuleCtx * ctx, RedisModuleCmdFunc reply_callback,                                    \
       RedisModuleCmdFunc timeout_callback, void (*free_privdata)(RedisModuleCtx *, void *),       \
       long long timeout_ms))                                                                      \
    X(UnblockClient, int, (RedisModuleBlockedClient * bc, void *privdata))                         \
    X(SetDisconnectCallback, void,                                                                 \
      (RedisModuleBlockedClient * bc, RedisModuleDisconnectFunc callback))                         \
    X(GetBlockedClientHandle, RedisModuleBlockedClient *, (RedisModuleCtx * ctx))                  \
    X(SignalKeyAsReady, void, (RedisModuleCtx * ctx, RedisModuleString * key))                     \
    X(CreateTimer, RedisModuleTimerID,                                                             \
      (RedisModuleCtx * ctx, mstime_t period, RedisModuleTimerProc callback, void *data))          \
    X(StopTimer, int, (RedisModuleCtx * ctx, RedisModuleTimerID id, void **data))                  \
    X(SubscribeToServerEvent, int,                                                                 \
      (RedisModuleCtx * ctx, RedisModuleEvent event, RedisModuleEventCallback callback))           \
    X(SubscribeToKeyspaceEvents, int,                                                              \
      (RedisModuleCtx * ctx, int types, RedisModuleNotificationFunc cb))                           \
    X(NotifyKeyspaceEvent, int,                                                                    \
      (RedisModuleCtx * ctx, int type, const char *event, RedisModuleString *key))                 \
    X(IsIOError, int, (RedisModuleIO * io))                                                        \
    X(SaveUnsigned, void, (RedisModuleIO * io, uint64_t value))                                    \
    X(LoadUnsigned, uint64_t, (RedisModuleIO * io))                                                \
    X(SaveStringBuffer, void, (RedisModuleIO * io, const char *str, size_t len))                   \
    X(LoadStringBuffer, char *, (RedisModuleIO * io, size_t * lenptr))                             \
    X(EmitAOF, void, (RedisModuleIO * io, const char *cmdname, const char *fmt, ...))              \
    X(GetKeyNameFromIO, const RedisModuleString *, (RedisModuleIO * io))                           \
    X(GetDbIdFromIO, int, (RedisModuleIO * io))                                                    \
    X(DigestAddStringBuffer, void, (RedisModuleDigest * md, const char *ele, size_t len))          \
    X(DigestAddLongLong, void, (RedisModuleDigest * md, long long ele))                            \
    X(DigestEndSequence, void, (RedisModuleDigest * md))                                           \
    X(GetToKeyNameFromOptCtx, const RedisModuleString *, (RedisModuleKeyOptCtx * ctx))             \
    X(GetToDbIdFromOptCtx, int, (RedisModuleKeyOptCtx * ctx))                                      \
    X(RegisterStringConfig, int,                                                                   \
      (RedisModuleCtx * ctx, const char *name, const char *default_val, unsigned int flags,        \
       RedisModuleConfigGetStringFunc getfn, RedisModuleConfigSetStringFunc setfn,                 \
       RedisModuleConfigApplyFunc applyfn, void *privdata))                                        \
    X(RegisterNumericConfig, int,                                                                  \
      (RedisModuleCtx * ctx, const char *name, long long default_val, unsigned int flags,          \
       long long min, long long max, RedisModuleConfigGetNumericFunc getfn,                        \
       RedisModuleConfigSetNumericFunc setfn, RedisModuleConfigApplyFunc applyfn, void *privdata)) \
    X(LoadConfigs, int, (RedisModuleCtx * ctx))                                                    \
    X(RegisterInfoFunc, int, (RedisModuleCtx * ctx, RedisModuleInfoFunc cb))                       \
    X(InfoAddSection, int, (RedisModuleInfoCtx * ctx, const char *name))                           \
    X(InfoAddFieldULongLong, int,                                                                  \
      (RedisModuleInfoCtx * ctx, const char *field, unsigned long long value))                     \
    X(InfoAddFieldCString, int, (RedisModuleInfoCtx * ctx, const char *field, const char *value))  \
    X(GetServerInfo, RedisModuleServerInfoData *, (RedisModuleCtx * ctx, const char *section))     \
    X(FreeServerInfo, void, (RedisModuleCtx * ctx, RedisModuleServerInfoData * data))              \
    X(ServerInfoGetFieldC, const char *, (RedisModuleServerInfoData * data, const char *field))    \
    X(ServerInfoGetFieldUnsigned, unsigned long long,                                              \
      (RedisModuleServerInfoData * data, const char *field, int *out_err))                         \
    X(GetRandomBytes, void, (unsigned char *dst, size_t len))                                      \
    X(AvoidReplicaTraffic, int, (void))                                                            \
    X(DefragAlloc, void *, (RedisModuleDefragCtx * ctx, void *ptr))                                \
    X(DefragShouldStop, int, (RedisModuleDefragCtx * ctx))                                         \
    X(DefragCursorSet, int, (RedisModuleDefragCtx * ctx, unsigned long cursor))                    \
    X(DefragCursorGet, int, (RedisModuleDefragCtx * ctx, unsigned long *cursor))                   \
    X(GetDetachedThreadSafeContext, RedisModuleCtx *, (RedisModuleCtx * ctx))                      \
    X(LogIOError, void, (RedisModuleIO * io, const char *levelstr, const char *fmt, ...))          \
    X(_Assert, void, (const char *estr, const char *file, int line))

/* Since 7.2; may be NULL. */
#define REDISAPI_OPTIONAL(X) \
    X(SetCommandACLCategories, int, (RedisModuleCommand * command, const char *ctgrsflags))

#define REDISAPI_DECLARE(name, returns, takes) extern returns(*RedisModule_##name) takes;
REDISAPI_REQUIRED(REDISAPI_DECLARE)
REDISAPI_OPTIONAL(REDISAPI_DECLARE)
#undef REDISAPI_DECLARE

/* What a comment says must hold; else the server logs a report, and ends. */
#define RedisModule_Assert(holds) \
    (__builtin_expect(!!(holds), 1) ? (void)0 : RedisModule__Assert(#holds, __FILE__, __LINE__))

/* Resolves all calls. Returns NULL, or the name of the first required one that the server does
 * not have. */
const char *redisapi_resolve(RedisModuleCtx *ctx);

#endif
