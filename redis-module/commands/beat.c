/* beat - LANE.BEAT, LANE.BEATS and LANE.WHOLE: the last beat of each node, and for which sets of
 * owners this server is whole (docs/takeover.md).
 *
 * Beats live in module memory: maxmemory never refuses them, nothing expires, and a server that
 * was restarted knows none. */
#include <string.h>

#include "redis-module/server/args.h"
#include "redis-module/commands/commands.h"
#include "redis-module/keyspace/whole_sets.h"

#define NAME_MAX_LEN 64
#define INCARNATION_MAX 64
#define TEXT_MAX 8192
#define BEATS_MAX 256 /* nodes; the one that was heard longest ago goes */
#define SET_MAX 1024
#define TOKEN_MAX 64

/* ---- what is kept ---- */

struct beat {
    struct beat *next;
    struct text name, incarnation, text;
    uint64_t counter, nth; /* nth: of all beats that came */
    int64_t at;
};

static struct beat *all_beats;
static size_t nbeats;
static uint64_t came;

/* ---- replies ---- */

static void reply_text(RedisModuleCtx *ctx, const struct text *t)
{
    RedisModule_ReplyWithStringBuffer(ctx, t->p, t->len);
}

static void reply_whole(RedisModuleCtx *ctx)
{
    long n = 0;
    for (const struct whole_set *w = whole_sets(); w; w = w->next)
        n += w->token.len > 0;
    RedisModule_ReplyWithArray(ctx, 2 * n);
    for (const struct whole_set *w = whole_sets(); w; w = w->next)
        if (w->token.len) {
            reply_text(ctx, &w->set);
            reply_text(ctx, &w->token);
        }
}

static void reply_since(RedisModuleCtx *ctx)
{
    int64_t now = now_ms();
    long n = 0;
    RedisModule_ReplyWithArray(ctx, REDISMODULE_POSTPONED_LEN);
    for (const struct whole_set *w = whole_sets(); w; w = w->next)
        if (w->token.len) {
            reply_text(ctx, &w->set);
            RedisModule_ReplyWithLongLong(ctx, now - w->since);
            n += 2;
        }
    RedisModule_ReplySetArrayLength(ctx, n);
}

static void reply_beats(RedisModuleCtx *ctx)
{
    int64_t now = now_ms();
    RedisModule_ReplyWithArray(ctx, (long)nbeats);
    for (const struct beat *b = all_beats; b; b = b->next) {
        RedisModule_ReplyWithArray(ctx, 5);
        reply_text(ctx, &b->name);
        reply_text(ctx, &b->incarnation);
        RedisModule_ReplyWithLongLong(ctx, (long long)b->counter);
        RedisModule_ReplyWithLongLong(ctx, now - b->at);
        reply_text(ctx, &b->text);
    }
}

/* ---- BEAT ---- */

/* Text of at most so many bytes, and of one at least. */
static bool bounded(struct args *a, const char *name, size_t most, const char **p, size_t *len)
{
    RedisModuleString *s;
    if (!args_string(a, name, &s))
        return false;
    *p = RedisModule_StringPtrLen(s, len);
    if (*len >= 1 && *len <= most)
        return true;
    char allowed[64] = "1 to ";
    size_t at = strlen(allowed);
    for (size_t unit = 10000; unit; unit /= 10)
        if (most >= unit)
            allowed[at++] = (char)('0' + most / unit % 10);
    strcpy(allowed + at, " bytes");
    return args_bad_value(a, name, s, allowed);
}

static struct beat *beat_of(const char *name, size_t len)
{
    struct beat *b = all_beats, *oldest = all_beats;
    for (; b && !text_is(&b->name, name, len); b = b->next)
        if (b->nth < oldest->nth)
            oldest = b;
    if (!b && nbeats == BEATS_MAX) {
        b = oldest;
        text_set(&b->name, name, len);
    } else if (!b) {
        b = must_alloc(sizeof *b);
        *b = (struct beat){.next = all_beats};
        text_set(&b->name, name, len);
        all_beats = b;
        nbeats++;
    }
    return b;
}

static void reply_all(RedisModuleCtx *ctx)
{
    turn_ends(); /* the clock itself: the server may have stood still since this turn began */
    RedisModule_ReplyWithArray(ctx, 2);
    reply_beats(ctx);
    reply_whole(ctx);
}

/* LANE.BEAT [<name> <incarnation> <counter> <text>] */
int beat_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    struct args a = {ctx, argv, argc, 1};
    const char *name, *incarnation, *text;
    size_t name_len, incarnation_len, text_len;
    uint64_t counter;
    if (argc != 1 && argc != 5)
        return RedisModule_WrongArity(ctx);
    if (argc == 5 &&
        (!bounded(&a, "name", NAME_MAX_LEN, &name, &name_len) ||
         !bounded(&a, "incarnation", INCARNATION_MAX, &incarnation, &incarnation_len) ||
         !args_number(&a, "counter", 0, INT64_MAX, &counter) ||
         !bounded(&a, "text", TEXT_MAX, &text, &text_len)))
        return REDISMODULE_OK;
    reply_all(ctx);
    if (argc == 1)
        return REDISMODULE_OK;
    struct beat *b = beat_of(name, name_len);
    text_set(&b->incarnation, incarnation, incarnation_len);
    text_set(&b->text, text, text_len);
    b->counter = counter;
    b->nth = ++came;
    b->at = now_ms();
    return REDISMODULE_OK;
}

/* LANE.BEATS: a command of its own, for users who may hear the beats and leave none. */
int beats_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    (void)argv;
    if (argc != 1)
        return RedisModule_WrongArity(ctx);
    reply_all(ctx);
    return REDISMODULE_OK;
}

/* ---- WHOLE ---- */

/* LANE.WHOLE [SINCE|(BEGIN|END <owners> <token>)] */
int whole_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    struct args a = {ctx, argv, argc, 1};
    const char *set, *token;
    size_t set_len, token_len;
    if (argc != 1 && argc != 2 && argc != 4)
        return RedisModule_WrongArity(ctx);
    if (argc == 1) {
        reply_whole(ctx);
        return REDISMODULE_OK;
    }
    if (argc == 2) {
        if (args_word(&a, "SINCE"))
            reply_since(ctx);
        else
            args_expected(&a, "SINCE, or BEGIN or END with owners and token");
        return REDISMODULE_OK;
    }
    bool begins = args_word(&a, "BEGIN");
    if (!begins && !args_word(&a, "END")) {
        args_expected(&a, "BEGIN or END");
        return REDISMODULE_OK;
    }
    if (!bounded(&a, "owners", SET_MAX, &set, &set_len) ||
        !bounded(&a, "token", TOKEN_MAX, &token, &token_len))
        return REDISMODULE_OK;
    if (begins)
        return whole_begin(set, set_len, token, token_len)
                   ? RedisModule_ReplyWithSimpleString(ctx, "OK")
                   : RedisModule_ReplyWithError(
                         ctx, "ERR value: there are 10000 sets of owners, more are not kept");
    return RedisModule_ReplyWithLongLong(ctx, whole_end(set, set_len, token, token_len));
}
