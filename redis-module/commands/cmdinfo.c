/* cmdinfo - what the server needs to know of each command: flags, where its keys are, and how
 * COMMAND DOCS shows it.
 *
 * PUSH, META and the rest carry no deny-oom: PUSH answers memory per entry, and what frees or
 * gives back must pass when memory is full. */
#include "redis-module/commands/commands.h"
#include "redis-module/propagate/effect.h"

#define SINCE "1.0.0"

/* ---- Arguments ---- */

#define STRING(n)                                                            \
    {                                                                        \
        .name = n, .type = REDISMODULE_ARG_TYPE_STRING, .key_spec_index = -1 \
    }
#define NUMBER(n)                                                             \
    {                                                                         \
        .name = n, .type = REDISMODULE_ARG_TYPE_INTEGER, .key_spec_index = -1 \
    }
#define NUMBERS(n)                                                             \
    {                                                                          \
        .name = n, .type = REDISMODULE_ARG_TYPE_INTEGER, .key_spec_index = -1, \
        .flags = REDISMODULE_CMD_ARG_MULTIPLE                                  \
    }
#define STRINGS(n)                                                            \
    {                                                                         \
        .name = n, .type = REDISMODULE_ARG_TYPE_STRING, .key_spec_index = -1, \
        .flags = REDISMODULE_CMD_ARG_MULTIPLE                                 \
    }
#define OPTION(n, word)                                                                       \
    {                                                                                         \
        .name = n, .type = REDISMODULE_ARG_TYPE_INTEGER, .key_spec_index = -1, .token = word, \
        .flags = REDISMODULE_CMD_ARG_OPTIONAL                                                 \
    }
#define TOKEN(n, word)                                                                          \
    {                                                                                           \
        .name = n, .type = REDISMODULE_ARG_TYPE_PURE_TOKEN, .key_spec_index = -1, .token = word \
    }
#define FLAG(n, word)                                                                            \
    {                                                                                            \
        .name = n, .type = REDISMODULE_ARG_TYPE_PURE_TOKEN, .key_spec_index = -1, .token = word, \
        .flags = REDISMODULE_CMD_ARG_OPTIONAL                                                    \
    }
#define BLOCK(n, word, how, subs)                                                           \
    {                                                                                       \
        .name = n, .type = REDISMODULE_ARG_TYPE_BLOCK, .key_spec_index = -1, .token = word, \
        .flags = how, .subargs = subs                                                       \
    }
#define ONEOF(n, how, subs)                                                                \
    {                                                                                      \
        .name = n, .type = REDISMODULE_ARG_TYPE_ONEOF, .key_spec_index = -1, .flags = how, \
        .subargs = subs                                                                    \
    }
#define KEY(n, spec)                                                        \
    {                                                                       \
        .name = n, .type = REDISMODULE_ARG_TYPE_KEY, .key_spec_index = spec \
    }
#define KEYS(n, spec)                                                        \
    {                                                                        \
        .name = n, .type = REDISMODULE_ARG_TYPE_KEY, .key_spec_index = spec, \
        .flags = REDISMODULE_CMD_ARG_MULTIPLE                                \
    }
#define END \
    {       \
        0   \
    }

typedef RedisModuleCommandArg arg;

static arg range_args[] = {NUMBER("from"), NUMBER("to"), END};
static arg ranges_args[] = {NUMBER("count"),
                            BLOCK("range", NULL, REDISMODULE_CMD_ARG_MULTIPLE, range_args), END};
static arg seqs_args[] = {NUMBER("count"), NUMBERS("sequence"), END};
static arg ids_args[] = {NUMBER("count"), STRINGS("id"), END};
static arg selector_args[] = {
    {.name = "upto", .type = REDISMODULE_ARG_TYPE_INTEGER, .key_spec_index = -1, .token = "UPTO"},
    BLOCK("ranges", "RANGES", 0, ranges_args),
    BLOCK("seqs", "SEQS", 0, seqs_args),
    BLOCK("ids", "IDS", 0, ids_args),
    {.name = "packed-ids",
     .type = REDISMODULE_ARG_TYPE_STRING,
     .key_spec_index = -1,
     .token = "PACKED"},
    END};
#define SELECTOR ONEOF("selector", 0, selector_args)

static arg order_args[] = {TOKEN("strict", "STRICT"), TOKEN("skip", "SKIP"), END};
static arg create_args[] = {KEY("key", 0),
                            OPTION("maxlen", "MAXLEN"),
                            OPTION("maxbytes", "MAXBYTES"),
                            ONEOF("order", REDISMODULE_CMD_ARG_OPTIONAL, order_args),
                            OPTION("maxattempts", "MAXATTEMPTS"),
                            {.name = "dead-key",
                             .type = REDISMODULE_ARG_TYPE_KEY,
                             .key_spec_index = 1,
                             .token = "DEAD",
                             .flags = REDISMODULE_CMD_ARG_OPTIONAL},
                            END};

static arg session_args[] = {STRING("session"), NUMBER("txn"), END};
static arg entry_args[] = {NUMBER("k"), STRING("id"), STRING("meta"), STRING("body"), END};
static arg entries_args[] = {
    NUMBER("n"),
    BLOCK("entry", NULL, REDISMODULE_CMD_ARG_MULTIPLE | REDISMODULE_CMD_ARG_OPTIONAL, entry_args),
    END};
static arg what_args[] = {BLOCK("entries", "ENTRIES", 0, entries_args),
                          {.name = "packed-entries",
                           .type = REDISMODULE_ARG_TYPE_STRING,
                           .key_spec_index = -1,
                           .token = "PACKED"},
                          END};
static arg acked_args[] = {BLOCK("ids", NULL, 0, ids_args), SELECTOR, END};
static arg push_ack_args[] = {NUMBER("k"), ONEOF("acked", 0, acked_args), END};
static arg push_args[] = {NUMBER("numkeys"),
                          KEYS("key", 0),
                          BLOCK("session", "SESSION", REDISMODULE_CMD_ARG_OPTIONAL, session_args),
                          OPTION("delay", "DELAY"),
                          OPTION("expire", "EXPIRE"),
                          ONEOF("what", 0, what_args),
                          BLOCK("ack", "ACK",
                                REDISMODULE_CMD_ARG_OPTIONAL | REDISMODULE_CMD_ARG_MULTIPLE |
                                    REDISMODULE_CMD_ARG_MULTIPLE_TOKEN,
                                push_ack_args),
                          END};

/* What is optional stands inside what is before it: a meta needs an id. */
static arg put_meta_args[] = {STRING("id"),
                              {.name = "meta",
                               .type = REDISMODULE_ARG_TYPE_STRING,
                               .key_spec_index = -1,
                               .flags = REDISMODULE_CMD_ARG_OPTIONAL},
                              END};
static arg put_args[] = {KEY("key", 0), STRING("body"),
                         BLOCK("named", NULL, REDISMODULE_CMD_ARG_OPTIONAL, put_meta_args), END};

static arg mput_args[] = {KEY("key", 0),
                          STRING("entries"),
                          {.name = "upto",
                           .type = REDISMODULE_ARG_TYPE_INTEGER,
                           .key_spec_index = -1,
                           .flags = REDISMODULE_CMD_ARG_OPTIONAL},
                          END};

static arg ack_args[] = {KEY("key", 0), SELECTOR, END};
static arg revoke_args[] = {KEY("key", 0), STRINGS("id"), END};
static arg change_args[] = {STRING("id"), NUMBER("revision"), STRING("meta"), END};
static arg meta_args[] = {KEY("key", 0), NUMBER("n"),
                          BLOCK("change", NULL, REDISMODULE_CMD_ARG_MULTIPLE, change_args), END};
static arg take_args[] = {NUMBER("numkeys"),
                          KEYS("key", 0),
                          OPTION("count", "COUNT"),
                          OPTION("bytes", "BYTES"),
                          OPTION("lease-ms", "LEASE"),
                          OPTION("block-ms", "BLOCK"),
                          END};
static arg how_args[] = {TOKEN("retry", "RETRY"), TOKEN("keep", "KEEP"), TOKEN("fatal", "FATAL"),
                         END};
static arg nack_args[] = {KEY("key", 0),      NUMBER("lease"), ONEOF("how", 0, how_args),
                          NUMBER("delay-ms"), SELECTOR,        END};
static arg extend_args[] = {KEY("key", 0), NUMBER("lease"), NUMBER("ms"), SELECTOR, END};
static arg read_args[] = {KEY("key", 0),
                          NUMBER("from-sequence"),
                          OPTION("count", "COUNT"),
                          OPTION("bytes", "BYTES"),
                          FLAG("nobody", "NOBODY"),
                          FLAG("packed", "PACKED"),
                          END};
static arg get_args[] = {KEY("key", 0), SELECTOR, FLAG("nobody", "NOBODY"), END};
static arg lane_ids_args[] = {KEY("key", 0), NUMBER("from-sequence"), OPTION("count", "COUNT"),
                              END};
static arg move_args[] = {KEY("from-key", 0), KEY("to-key", 1), OPTION("clock-ms", "BEFORE"),
                          SELECTOR, END};
static arg ready_args[] = {NUMBER("cursor"), OPTION("block-ms", "BLOCK"), OPTION("count", "COUNT"),
                           END};
static arg list_args[] = {NUMBER("cursor"),
                          {.name = "glob",
                           .type = REDISMODULE_ARG_TYPE_PATTERN,
                           .key_spec_index = -1,
                           .token = "MATCH",
                           .flags = REDISMODULE_CMD_ARG_OPTIONAL},
                          OPTION("count", "COUNT"),
                          END};
static arg key_args[] = {KEY("key", 0), END};
static arg info_args[] = {{.name = "key",
                           .type = REDISMODULE_ARG_TYPE_KEY,
                           .key_spec_index = 0,
                           .flags = REDISMODULE_CMD_ARG_OPTIONAL},
                          END};
static arg beat_node_args[] = {STRING("name"), STRING("incarnation"), NUMBER("counter"),
                               STRING("text"), END};
static arg beat_args[] = {BLOCK("beat", NULL, REDISMODULE_CMD_ARG_OPTIONAL, beat_node_args), END};
static arg step_args[] = {TOKEN("begin", "BEGIN"), TOKEN("end", "END"), END};
static arg comparison_args[] = {ONEOF("step", 0, step_args), STRING("owners"), STRING("token"),
                                END};
static arg whole_args[] = {{.name = "since",
                            .type = REDISMODULE_ARG_TYPE_PURE_TOKEN,
                            .token = "SINCE",
                            .flags = REDISMODULE_CMD_ARG_OPTIONAL},
                           BLOCK("comparison", NULL, REDISMODULE_CMD_ARG_OPTIONAL, comparison_args),
                           END};
static arg apply_args[] = {KEY("key", 0), STRING("effect"), STRINGS("value"), END};

/* ---- Keys ---- */

typedef RedisModuleCommandKeySpec keys;

#define AT(position, what)                                                                        \
    {                                                                                             \
        .flags = what, .begin_search_type = REDISMODULE_KSPEC_BS_INDEX, .bs.index.pos = position, \
        .find_keys_type = REDISMODULE_KSPEC_FK_RANGE, .fk.range = {                               \
            0,                                                                                    \
            1,                                                                                    \
            0                                                                                     \
        }                                                                                         \
    }
#define COUNTED(position, what)                                                                   \
    {                                                                                             \
        .flags = what, .begin_search_type = REDISMODULE_KSPEC_BS_INDEX, .bs.index.pos = position, \
        .find_keys_type = REDISMODULE_KSPEC_FK_KEYNUM, .fk.keynum = {                             \
            0,                                                                                    \
            1,                                                                                    \
            1                                                                                     \
        }                                                                                         \
    }
#define BEHIND(word, from, what)                                                                \
    {                                                                                           \
        .flags = what, .begin_search_type = REDISMODULE_KSPEC_BS_KEYWORD,                       \
        .bs.keyword = {word, from}, .find_keys_type = REDISMODULE_KSPEC_FK_RANGE, .fk.range = { \
            0,                                                                                  \
            1,                                                                                  \
            0                                                                                   \
        }                                                                                       \
    }

#define READS (REDISMODULE_CMD_KEY_RO | REDISMODULE_CMD_KEY_ACCESS)
#define INSERTS (REDISMODULE_CMD_KEY_RW | REDISMODULE_CMD_KEY_INSERT)
#define UPDATES (REDISMODULE_CMD_KEY_RW | REDISMODULE_CMD_KEY_UPDATE)
#define DELETES (REDISMODULE_CMD_KEY_RW | REDISMODULE_CMD_KEY_DELETE)

static keys create_keys[] = {AT(1, UPDATES), BEHIND("DEAD", 2, INSERTS), END};
static keys push_keys[] = {COUNTED(1, INSERTS), END};
static keys put_keys[] = {AT(1, INSERTS), END};
static keys take_keys[] = {COUNTED(1, UPDATES | REDISMODULE_CMD_KEY_ACCESS), END};
static keys update_keys[] = {AT(1, UPDATES), END};
static keys delete_keys[] = {AT(1, DELETES), END};
static keys read_keys[] = {AT(1, READS), END};
static keys move_keys[] = {AT(1, DELETES | REDISMODULE_CMD_KEY_ACCESS), AT(2, INSERTS), END};

/* ---- Commands ---- */

static const struct command {
    const char *name;
    RedisModuleCmdFunc call;
    const char *flags, *categories; /* categories: where the server lets modules name them */
    int arity;
    keys *keys;
    arg *args;
    const char *summary, *complexity;
} commands[] = {
    {"LANE.CREATE", create_command, "write fast", "write fast", -2, create_keys, create_args,
     "Makes a lane that stays when it is empty, or changes its settings", "O(1)"},
    {"LANE.PUSH", push_command, "write", "write", -5, push_keys, push_args,
     "Stores entries in lanes, once per transaction number, with an answer for each",
     "O(N) for N entries and ids acknowledged"},
    {"LANE.PUT", put_command, "write fast", "write fast", -3, put_keys, put_args,
     "Stores one entry in a lane", "O(1)"},
    {"LANE.MPUT", mput_command, "write", "write", -3, put_keys, mput_args,
     "Stores packed entries in a lane, and acknowledges those up to a sequence",
     "O(N) for N entries stored and removed"},
    {"LANE.ACK", ack_command, "write", "write", -4, delete_keys, ack_args,
     "Removes entries that are done", "O(N) for N entries"},
    {"LANE.REVOKE", revoke_command, "write", "write", -3, delete_keys, revoke_args,
     "Takes entries back and says what became of each", "O(N) for N ids"},
    {"LANE.META", meta_command, "write", "write", -6, update_keys, meta_args,
     "Replaces the meta part of entries by a higher revision", "O(N) for N entries"},
    {"LANE.TAKE", take_command, "write blocking", "write blocking", -3, take_keys, take_args,
     "Leases the next entries of lanes in order",
     "O(K + N log M) for K keys, N entries given, M leased"},
    {"LANE.NACK", nack_command, "write", "write", -7, update_keys, nack_args,
     "Gives leased entries back", "O(N log M) for N entries, M leased or delayed"},
    {"LANE.EXTEND", extend_command, "write", "write", -6, update_keys, extend_args,
     "Lets leases last longer", "O(N log M) for N entries, M leased"},
    {"LANE.READ", read_command, "readonly", "read", -3, read_keys, read_args,
     "Reads entries from a sequence on, without leasing", "O(N) for N entries"},
    {"LANE.GET", get_command, "readonly", "read", -4, read_keys, get_args,
     "Reads named entries, without leasing", "O(N) for N entries"},
    {"LANE.IDS", ids_command, "readonly", "read", -3, read_keys, lane_ids_args,
     "Sequences, ids, revisions and ages in one string", "O(N) for N entries"},
    {"LANE.MOVE", move_command, "write", "write", -5, move_keys, move_args,
     "Moves entries to another lane", "O(N) for N entries"},
    {"LANE.READY", ready_command, "readonly blocking", "read blocking", -2, NULL, ready_args,
     "Lanes with something to take, since a cursor", "O(N) for N lanes named"},
    {"LANE.LIST", list_command, "readonly", "read", -2, NULL, list_args,
     "Lanes, their lengths and bytes, page by page", "O(N) for N lanes looked at"},
    {"LANE.LEN", len_command, "readonly fast", "read fast", 2, read_keys, key_args,
     "Number of entries", "O(1)"},
    {"LANE.INFO", info_command, "readonly no-mandatory-keys", "read", -1, read_keys, info_args,
     "What is known of a lane, or of the server", "O(1)"},
    {"LANE.BEAT", beat_command, "fast", "fast dangerous", -1, NULL, beat_args,
     "Leaves a node's beat, and tells all beats left here, and for which owners this server is "
     "whole",
     "O(N) for N nodes and sets of owners"},
    {"LANE.BEATS", beats_command, "readonly fast", "read fast", 1, NULL, NULL,
     "Tells all beats left here, and for which owners this server is whole",
     "O(N) for N nodes and sets of owners"},
    {"LANE.WHOLE", whole_command, "fast", "fast dangerous", -1, NULL, whole_args,
     "Begins or ends a comparison, or tells for which owners this server is whole",
     "O(N) for N sets of owners"},
    {"LANE.RESET", reset_command, "write", "write dangerous", 2, delete_keys, key_args,
     "Removes all entries, for admins", "O(N) for N entries"},
    {"LANE.CHECK", check_command, "readonly admin", "admin dangerous slow", 2, read_keys, key_args,
     "Whether a lane is whole in memory, for tests and bug reports", "O(N) for N entries"},
    {"LANE.APPLY", apply_command, "write admin", "write admin dangerous", -3, update_keys,
     apply_args, "Effects for replicas and the append-only file, not for clients",
     "O(N) for N entries"},
};

static int add(RedisModuleCtx *ctx, const struct command *c)
{
    static const RedisModuleCommandInfoVersion version = {
        .version = 1,
        .sizeof_historyentry = sizeof(RedisModuleCommandHistoryEntry),
        .sizeof_keyspec = sizeof(RedisModuleCommandKeySpec),
        .sizeof_arg = sizeof(RedisModuleCommandArg)};
    RedisModuleCommandInfo info = {.version = &version,
                                   .summary = c->summary,
                                   .complexity = c->complexity,
                                   .since = SINCE,
                                   .arity = c->arity,
                                   .key_specs = c->keys,
                                   .args = c->args};
    if (RedisModule_CreateCommand(ctx, c->name, c->call, c->flags, 0, 0, 0) != REDISMODULE_OK)
        return REDISMODULE_ERR;
    RedisModuleCommand *command = RedisModule_GetCommand(ctx, c->name);
    if (!command || RedisModule_SetCommandInfo(command, &info) != REDISMODULE_OK)
        return REDISMODULE_ERR;
    if (RedisModule_SetCommandACLCategories)
        return RedisModule_SetCommandACLCategories(command, c->categories);
    return REDISMODULE_OK;
}

int commands_register(RedisModuleCtx *ctx)
{
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (add(ctx, &commands[i]) != REDISMODULE_OK) {
            RedisModule_Log(ctx, "warning", "lane: the server refuses the command %s",
                            commands[i].name);
            return REDISMODULE_ERR;
        }
    return REDISMODULE_OK;
}
