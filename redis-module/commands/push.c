/* push - LANE.PUSH: stores entries, in several lanes if asked, once per transaction number; acknowledgements
 * may ride along.
 *
 *    read and check all --> the session's number --> ACK parts --> entries, by lane --> reply, remembered
 *                            repeat, gap, old: answered here, nothing is executed
 *
 * Memory is looked at here and not by the server (deny-oom): a refusal has to use the number up, or
 * everything pipelined behind it would be a gap. */
#include <stdio.h>
#include <string.h>

#include "ack.h"
#include "commands.h"
#include "holder.h"
#include "letgo.h"
#include "sessions.h"

/* Used memory is looked at again after that much was stored. */
#define LOOK_AGAIN 65536

struct push {
    RedisModuleCtx *ctx;
    RedisModuleString **argv, **keys, *session;
    uint64_t nkeys, txn, delay, n;
    int entries, acks, argc; /* where they begin in argv; acks == argc: none */
    /* while it is executed */
    int64_t now;
    int flags;
    uint64_t unlooked; /* bytes stored since memory was looked at */
    int64_t *answer;
};

/* Answers and effects are built in memory that stays: one push follows another. Grown, never shrunk below a
 * usual batch. */
static int64_t *answers;
static size_t answers_room;
static struct effect_add adds;

#define KEPT_ROOM 4096

/* ---- Reading ---- */

static bool read_lane_number(struct args *a, uint64_t nkeys)
{
    uint64_t k;
    return args_number(a, "number of a key", 1, nkeys, &k);
}

static bool read_entry(struct args *a, uint64_t nkeys)
{
    const uint8_t *id;
    RedisModuleString *meta, *body;
    size_t meta_len, body_len;
    if (!read_lane_number(a, nkeys) || !args_id(a, true, &id) || !args_string(a, "a meta", &meta) ||
        !args_string(a, "a body", &body))
        return false;
    RedisModule_StringPtrLen(meta, &meta_len);
    RedisModule_StringPtrLen(body, &body_len);
    if (meta_len <= LANE_META_MAX && body_len <= LANE_BODY_MAX)
        return true;
    RedisModule_ReplyWithError(
        a->ctx, meta_len > LANE_META_MAX
                    ? "ERR value: length of a meta is above 1 MiB, allowed is 0 to 1048576"
                    : "ERR value: length of a body is above 512 MiB, allowed is 0 to 536870912");
    return false;
}

static bool read_acks(struct args *a, uint64_t nkeys)
{
    const uint8_t *id;
    uint64_t n;
    while (args_word(a, "ACK")) {
        if (!read_lane_number(a, nkeys) || !args_count(a, "number of ids", 0, 1, &n))
            return false;
        while (n--)
            if (!args_id(a, false, &id))
                return false;
    }
    return a->at == a->argc || args_expected(a, "ACK or the end");
}

static bool read_options(struct args *a, struct push *p)
{
    while (!args_word(a, "ENTRIES")) {
        if (args_word(a, "SESSION") && !p->session) {
            size_t len;
            if (!args_string(a, "a session", &p->session))
                return false;
            RedisModule_StringPtrLen(p->session, &len);
            if (len < 1 || len > SESSION_NAME_MAX)
                return args_bad_value(a, "session", p->session, "1 to 64 bytes");
            if (!args_number(a, "txn", 1, INT64_MAX, &p->txn))
                return false;
        } else if (args_word(a, "DELAY")) {
            if (!args_number(a, "delay", 0, TIME_MAX, &p->delay))
                return false;
        } else {
            return args_expected(a, "SESSION, DELAY or ENTRIES");
        }
    }
    return true;
}

static bool read_push(struct args *a, struct push *p)
{
    if (!args_keys(a, &p->keys, &p->nkeys) || !read_options(a, p) ||
        !args_count(a, "number of entries", 0, 4, &p->n))
        return false;
    p->entries = a->at;
    for (uint64_t i = 0; i < p->n; i++)
        if (!read_entry(a, p->nkeys))
            return false;
    p->acks = a->at;
    return read_acks(a, p->nkeys);
}

/* ---- Executing ---- */

/* Read before. */
static uint64_t number(RedisModuleString *s)
{
    struct args a = {NULL, &s, 1, 0};
    uint64_t x = 0;
    args_number(&a, "", 0, INT64_MAX, &x);
    return x;
}

static uint64_t run_acks(struct push *p)
{
    uint64_t removed = 0;
    for (int at = p->acks; at < p->argc;) {
        struct selector s = {.by = BY_IDS, .n = number(p->argv[at + 2]), .arg = p->argv + at + 3};
        struct lane_key k;
        if (lane_key_open(p->ctx, p->keys[number(p->argv[at + 1]) - 1], true, &k)) {
            removed += ack_in(p->ctx, &k, &s).removed;
            lane_key_close(p->ctx, &k);
        }
        at += 3 + (int)s.n;
    }
    return removed;
}

static bool memory_left(struct push *p, size_t bytes)
{
    if (!(p->flags & REDISMODULE_CTX_FLAGS_MAXMEMORY))
        return true;
    if (p->unlooked > LOOK_AGAIN) {
        p->flags = RedisModule_GetContextFlags(p->ctx);
        p->unlooked = 0;
    }
    p->unlooked += bytes;
    return !(p->flags & REDISMODULE_CTX_FLAGS_OOM);
}

/* entry: <k> <id> <meta> <body> */
static int64_t store(struct push *p, struct lane_key *k, uint64_t hash, RedisModuleString **entry)
{
    size_t id_len;
    const char *id = RedisModule_StringPtrLen(entry[1], &id_len);
    struct lane_new e = {.id = id_len ? (const uint8_t *)id : NULL,
                         .born = p->now,
                         .due = p->delay ? p->now + (int64_t)p->delay : 0};
    struct lane_entry held;
    uint64_t seq;
    e.meta = RedisModule_StringPtrLen(entry[2], &e.meta_len);
    e.body = RedisModule_StringPtrLen(entry[3], &e.body_len);
    if (e.id) {
        /* Revoked while it is delivered: it is let go unless it is acked, so nobody may count it as a copy. */
        if (k->value && lane_find(k->value->lane, e.id, &held))
            return held.revoked ? ANSWER_REVOKED : ANSWER_DONE;
        enum letgo gone = letgo_find(hash, e.id, p->now);
        if (gone != LETGO_NOT)
            return gone == LETGO_REVOKED ? ANSWER_REVOKED : ANSWER_DONE;
    }
    if (p->flags & REDISMODULE_CTX_FLAGS_EVICT)
        return ANSWER_POLICY;
    if (!memory_left(p, e.meta_len + e.body_len) || !lane_key_make(p->ctx, k))
        return ANSWER_MEMORY;
    switch (lane_push(k->value->lane, &e, &seq)) {
    case LANE_OK: break;
    case LANE_FULL: return ANSWER_FULL;
    default: return ANSWER_MEMORY;
    }
    effect_add_entry(&adds, seq, e.id, (int64_t)p->delay, entry[2], entry[3]);
    return (int64_t)seq;
}

/* Entries i to the end of the run in one lane; returns where the next run begins. */
static uint64_t store_run(struct push *p, uint64_t i)
{
    RedisModuleString **entry = p->argv + p->entries + 4 * i;
    uint64_t key = number(entry[0]);
    RedisModuleString *name = p->keys[key - 1];
    struct lane_key k;
    bool open = lane_key_open(p->ctx, name, true, &k);
    size_t len;
    const char *text = RedisModule_StringPtrLen(name, &len);
    uint64_t hash = open && k.value ? k.value->hash : name_hash(RedisModule_GetSelectedDb(p->ctx), text, len);
    do {
        p->answer[i++] = open ? store(p, &k, hash, entry) : ANSWER_WRONGTYPE;
        entry += 4;
    } while (i < p->n && number(entry[0]) == key);
    if (!open)
        return i;
    bool stored = adds.n > 0;
    effect_add_send(p->ctx, name, &adds);
    lane_key_close(p->ctx, &k);
    if (stored)
        lane_event(p->ctx, "lane.push", name);
    return i;
}

/* ---- Answering ---- */

static void begin_reply(RedisModuleCtx *ctx, uint64_t txn, size_t n)
{
    RedisModule_ReplyWithArray(ctx, 3);
    RedisModule_ReplyWithLongLong(ctx, (long long)txn);
    RedisModule_ReplyWithArray(ctx, (long)n);
}

static void reply_answer(void *arg, int64_t answer)
{
    static const char *const word[] = {"", "DONE", "REVOKED", "FULL", "MEMORY", "POLICY", "WRONGTYPE"};
    if (answer > 0)
        RedisModule_ReplyWithLongLong(arg, answer);
    else
        RedisModule_ReplyWithSimpleString(arg, word[-answer]);
}

static void begin_again(void *arg, size_t n)
{
    const struct push *p = arg;
    begin_reply(p->ctx, p->txn, n);
}

static void answer_again(void *arg, int64_t answer)
{
    const struct push *p = arg;
    reply_answer(p->ctx, answer);
}

/* True: the number is the next one (or there is no session). */
static bool look_at_session(struct push *p, struct session **s)
{
    char text[200], name[SESSION_NAME_MAX + 1] = "";
    uint64_t number_r;
    size_t len;
    *s = NULL;
    if (!p->session)
        return true;
    const char *session = RedisModule_StringPtrLen(p->session, &len);
    for (size_t i = 0; i < len; i++)
        name[i] = (char)(session[i] >= ' ' && session[i] <= '~' ? session[i] : '?');
    switch (session_look(session, len, p->txn, s, &number_r)) {
    case SESSION_NEXT: return true;
    case SESSION_AGAIN:
        RedisModule_ReplyWithLongLong(p->ctx,
                                      (long long)session_again(*s, p->txn, begin_again, answer_again, p));
        return false;
    case SESSION_OLD:
        snprintf(text, sizeof text, "TXNOLD session %s txn %llu is forgotten, oldest remembered %llu", name,
                 (unsigned long long)p->txn, (unsigned long long)number_r);
        break;
    default:
        snprintf(text, sizeof text, "TXNGAP session %s txn %llu, expected %llu", name,
                 (unsigned long long)p->txn, (unsigned long long)number_r);
    }
    RedisModule_ReplyWithError(p->ctx, text);
    return false;
}

static void reserve_answers(uint64_t n)
{
    if (n <= answers_room)
        return;
    answers = must_grow(answers, 0, n * sizeof *answers);
    answers_room = n;
}

static void release_large(void)
{
    if (answers_room <= KEPT_ROOM)
        return;
    RedisModule_Free(answers);
    answers = NULL;
    answers_room = 0;
    if (adds.room > KEPT_ROOM) {
        RedisModule_Free(adds.records);
        RedisModule_Free(adds.data);
        adds = (struct effect_add){0};
    }
}

/* LANE.PUSH <numkeys> <key> ... [SESSION <session> <txn>] [DELAY <ms>] ENTRIES <n> (<k> <id> <meta> <body>) x
 * n [ACK <k> <n> <id> ...]... */
int push_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    struct args a = {ctx, argv, argc, 1};
    struct push p = {.ctx = ctx, .argv = argv, .argc = argc};
    struct session *session;
    if (argc < 5)
        return RedisModule_WrongArity(ctx);
    if (!read_push(&a, &p) || !look_at_session(&p, &session))
        return REDISMODULE_OK;
    reserve_answers(p.n);
    p.answer = answers;
    p.now = now_ms();
    holders_settle(ctx);
    uint64_t acked = run_acks(&p);
    p.flags = RedisModule_GetContextFlags(ctx);
    for (uint64_t i = 0; i < p.n;)
        i = store_run(&p, i);
    if (session)
        session_remember(session, p.answer, p.n, acked);
    begin_reply(ctx, p.txn, p.n);
    for (uint64_t i = 0; i < p.n; i++)
        reply_answer(ctx, p.answer[i]);
    release_large();
    return RedisModule_ReplyWithLongLong(ctx, (long long)acked);
}
