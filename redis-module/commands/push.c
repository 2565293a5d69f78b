/* push - LANE.PUSH: stores entries, in several lanes if asked, once per transaction number;
 * acknowledgements may ride along. LANE.PUT: one entry in one lane, nothing else. LANE.MPUT: packed
 * ones in one lane.
 *
 *    read and check all --> the session's number --> ACK parts --> entries, by lane --> reply,
 *                            remembered repeat, gap, old: answered here, nothing is executed
 *
 * Memory is looked at here and not by the server (deny-oom): a refusal has to use the number up, or
 * everything pipelined behind it would be a gap. */
#include <stdio.h>
#include <string.h>

#include "redis-module/commands/ack.h"
#include "redis-module/commands/commands.h"
#include "redis-module/keyspace/lease_holder.h"
#include "redis-module/propagate/packed.h"
#include "redis-module/keyspace/store.h"

struct push {
    RedisModuleCtx *ctx;
    RedisModuleString **argv, **keys, *session;
    uint64_t nkeys, txn, delay, expire, n;
    int entries, acks, argc; /* where they begin in argv; acks == argc: none */
    bool packed;             /* argv[entries] is all of them */
    /* while it is executed */
    struct store store;
    /* the one that is open, when `open` is not 0: acks and entries mostly name the same */
    struct lane_key key;
    uint64_t open;  /* its number, from 1 */
    bool lane;      /* it is a lane, or nothing yet */
    const char *at; /* packed: the next entry */
    int64_t *answer;
};

/* Answers and effects are built in memory that stays: one push follows another. Grown, never
 * shrunk below a usual batch. */
static int64_t *answers;
static size_t answers_room;
static struct effect_add adds;
static struct chunk expiring; /* what expires is told with its life */

#define KEPT_ROOM 4096

/* ---- Reading ---- */

static bool read_lane_number(struct args *a, uint64_t nkeys)
{
    uint64_t k;
    return args_number(a, "number of a key", 1, nkeys, &k);
}

static bool check_lengths(RedisModuleCtx *ctx, size_t meta_len, size_t body_len)
{
    if (meta_len <= LANE_META_MAX && body_len <= LANE_BODY_MAX)
        return true;
    RedisModule_ReplyWithError(
        ctx, meta_len > LANE_META_MAX
                 ? "ERR value: length of a meta is above 1 MiB, allowed is 0 to 1048576"
                 : "ERR value: length of a body is above 512 MiB, allowed is 0 to 536870912");
    return false;
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
    return check_lengths(a->ctx, meta_len, body_len);
}

static bool look_at_packed(struct push *p, RedisModuleString *entries)
{
    size_t len;
    const char *data = RedisModule_StringPtrLen(entries, &len);
    const char *wrong = packed_check(data, len, p->nkeys, &p->n);
    p->at = data;
    if (!wrong)
        return true;
    char text[160];
    snprintf(text, sizeof text, "ERR syntax: packed entry %llu: %s", (unsigned long long)p->n + 1,
             wrong);
    RedisModule_ReplyWithError(p->ctx, text);
    return false;
}

static bool read_packed(struct args *a, struct push *p)
{
    RedisModuleString *entries;
    p->packed = true;
    p->entries = a->at;
    if (!args_string(a, "packed entries", &entries))
        return false;
    return look_at_packed(p, entries);
}

/* ACK <k> <n> <id> ... is the short form of ACK <k> IDS <n> <id> ... */
static bool read_ack(struct args *a, struct selector *s)
{
    size_t len;
    if (a->at >= a->argc)
        return args_expected(a, "a number of ids, or a selector");
    const char *p = RedisModule_StringPtrLen(a->argv[a->at], &len);
    return len && *p >= '0' && *p <= '9' ? args_ids(a, s) : args_selector(a, s);
}

static bool read_acks(struct args *a, uint64_t nkeys)
{
    struct selector s;
    while (args_word(a, "ACK"))
        if (!read_lane_number(a, nkeys) || !read_ack(a, &s))
            return false;
    return a->at == a->argc || args_expected(a, "ACK or the end");
}

static bool read_options(struct args *a, struct push *p)
{
    while (!args_word(a, "ENTRIES")) {
        if (args_word(a, "PACKED")) {
            p->packed = true;
            return true;
        }
        if (args_option(a, "SESSION", 1)) {
            size_t len;
            if (!args_string(a, "a session", &p->session))
                return false;
            RedisModule_StringPtrLen(p->session, &len);
            if (len < 1 || len > SESSION_NAME_MAX)
                return args_bad_value(a, "session", p->session, "1 to 64 bytes");
            if (!args_number(a, "txn", 1, INT64_MAX, &p->txn))
                return false;
        } else if (args_option(a, "DELAY", 2)) {
            if (!args_number(a, "delay", 0, TIME_MAX, &p->delay))
                return false;
        } else if (args_option(a, "EXPIRE", 4)) {
            if (!args_number(a, "expire", 1, TIME_MAX, &p->expire))
                return false;
        } else {
            return args_expected(a, "SESSION, DELAY, EXPIRE (each once), ENTRIES or PACKED");
        }
    }
    return true;
}

static bool read_push(struct args *a, struct push *p)
{
    if (!args_keys(a, &p->keys, &p->nkeys) || !read_options(a, p))
        return false;
    if (p->packed) {
        if (!read_packed(a, p))
            return false;
    } else {
        if (!args_count(a, "number of entries", 0, 4, &p->n))
            return false;
        p->entries = a->at;
        for (uint64_t i = 0; i < p->n; i++)
            if (!read_entry(a, p->nkeys))
                return false;
    }
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

static void close_open(struct push *p)
{
    if (p->open && p->lane)
        lane_key_close(p->ctx, &p->key);
    p->open = 0;
}

/* False when the key holds something else. */
static bool open_key(struct push *p, uint64_t k)
{
    if (p->open == k)
        return p->lane;
    close_open(p);
    p->open = k;
    p->lane = lane_key_open(p->ctx, p->keys[k - 1], true, &p->key);
    return p->lane;
}

/* Asked once for keys that follow each other. */
static bool acks_allowed(struct push *p)
{
    struct args a = {p->ctx, p->argv, p->argc, p->acks};
    uint64_t last = 0;
    while (args_word(&a, "ACK")) {
        struct selector s;
        uint64_t k = number(a.argv[a.at++]);
        read_ack(&a, &s); /* checked before */
        if (k != last && !ack_allowed(p->ctx, p->keys[k - 1]))
            return false;
        last = k;
    }
    return true;
}

static uint64_t run_acks(struct push *p)
{
    struct args a = {p->ctx, p->argv, p->argc, p->acks};
    uint64_t removed = 0;
    while (args_word(&a, "ACK")) {
        struct selector s;
        uint64_t k = number(a.argv[a.at++]);
        read_ack(&a, &s); /* checked before */
        if (open_key(p, k))
            removed += ack_in(p->ctx, &p->key, &s).removed;
    }
    return removed;
}

static uint64_t hash_of_open(struct push *p)
{
    size_t len;
    if (p->key.value)
        return p->key.value->hash;
    const char *name = RedisModule_StringPtrLen(p->key.name, &len);
    return name_hash(RedisModule_GetSelectedDb(p->ctx), name, len);
}

static void tell_expiring(struct push *p, int64_t answer)
{
    struct lane_entry e;
    if (answer > 0 && server.streams && lane_get(p->key.value->lane, (uint64_t)answer, &e))
        chunk_add(&expiring, &e);
}

/* Entries i to the end of the run in one lane; returns where the next run begins. */
static uint64_t store_run(struct push *p, uint64_t i)
{
    RedisModuleString **entry = p->argv + p->entries + 4 * i;
    uint64_t key = number(entry[0]);
    bool open = open_key(p, key), stored = false;
    uint64_t hash = open ? hash_of_open(p) : 0;
    do {
        size_t id_len;
        const char *id = RedisModule_StringPtrLen(entry[1], &id_len);
        struct lane_new e = {.id = id_len ? (const uint8_t *)id : NULL};
        e.meta = RedisModule_StringPtrLen(entry[2], &e.meta_len);
        e.body = RedisModule_StringPtrLen(entry[3], &e.body_len);
        p->answer[i] = open ? store_entry(&p->store, &p->key, hash, &e) : ANSWER_WRONGTYPE;
        stored = stored || p->answer[i] > 0;
        if (p->expire)
            tell_expiring(p, p->answer[i]);
        else if (p->answer[i] > 0)
            effect_add_entry(&adds, (uint64_t)p->answer[i], e.id, p->store.delay, entry[2],
                             entry[3]);
        entry += 4;
    } while (++i < p->n && number(entry[0]) == key);
    effect_add_send(p->ctx, p->keys[key - 1], &adds);
    effect_load(p->ctx, p->keys[key - 1], &expiring);
    if (stored)
        lane_event(p->ctx, "lane.push", p->keys[key - 1]);
    return i;
}

/* The ids of the next entries; how many entries they belong to. */
static uint64_t look_ahead(const struct push *p, const char *at, uint64_t left, uint64_t lane)
{
    struct ahead a;
    ahead_begin(&a, lane, p->key.value);
    uint64_t n = left < LANE_AHEAD ? left : LANE_AHEAD;
    for (uint64_t i = 0; i < n; i++) {
        struct packed e = packed_next(&at);
        if (e.id)
            ahead_add(&a, e.id);
    }
    ahead_fetch(&a);
    return n;
}

#define PLAIN_MOST 32

/* What begins with entries that have no id, as many as can be stored at once; p->at is behind
 * them. */
static size_t store_plain_run(struct push *p, const char *at, uint64_t i, uint64_t key)
{
    struct lane_data data[PLAIN_MOST];
    const char *behind[PLAIN_MOST];
    uint64_t seq;
    size_t n = 0;
    for (; n < PLAIN_MOST && i + n < p->n; n++) {
        struct packed e = packed_next(&at);
        if (e.id || e.key != key)
            break;
        data[n] = (struct lane_data){e.body, e.meta, (uint32_t)e.body_len, (uint32_t)e.meta_len};
        behind[n] = at;
    }
    n = store_plain(&p->store, &p->key, data, n, &seq);
    for (size_t k = 0; k < n; k++)
        p->answer[i + k] = (int64_t)(seq + k);
    if (n)
        p->at = behind[n - 1];
    return n;
}

/* The same for packed ones. */
static uint64_t store_packed_run(struct push *p, uint64_t i)
{
    const char *from = p->at, *here = from;
    uint64_t first = i, stored = 0, ahead = i;
    struct packed entry = packed_next(&p->at);
    uint64_t key = entry.key;
    bool open = open_key(p, key);
    uint64_t hash = open ? hash_of_open(p) : 0;
    for (;;) {
        size_t plain = open && !entry.id ? store_plain_run(p, here, i, key) : 0;
        if (plain) {
            stored += plain;
            ahead = i += plain;
            if (i == p->n)
                break;
            here = p->at;
            entry = packed_next(&p->at);
            if (entry.key == key)
                continue;
            p->at = here;
            break;
        }
        if (i == ahead && open)
            ahead += entry.id ? look_ahead(p, here, p->n - i, hash) : 1;
        struct lane_new e = {.id = entry.id,
                             .meta = entry.meta,
                             .meta_len = entry.meta_len,
                             .body = entry.body,
                             .body_len = entry.body_len};
        p->answer[i] = open ? store_entry(&p->store, &p->key, hash, &e) : ANSWER_WRONGTYPE;
        stored += p->answer[i] > 0;
        if (p->expire)
            tell_expiring(p, p->answer[i]);
        if (++i == p->n)
            break;
        const char *next = p->at;
        entry = packed_next(&p->at);
        if (entry.key != key) {
            p->at = next;
            break;
        }
        here = next;
    }
    if (!stored)
        return i;
    RedisModuleString *whole = first == 0 && i == p->n ? p->argv[p->entries] : NULL;
    if (p->expire)
        effect_load(p->ctx, p->keys[key - 1], &expiring);
    else
        effect_pack(p->ctx, p->keys[key - 1], p->answer + first, i - first, p->store.delay, whole,
                    from, (size_t)(p->at - from));
    lane_event(p->ctx, "lane.push", p->keys[key - 1]);
    return i;
}

/* ---- Answering ---- */

static void begin_reply(RedisModuleCtx *ctx, uint64_t txn)
{
    RedisModule_ReplyWithArray(ctx, 3);
    RedisModule_ReplyWithLongLong(ctx, (long long)txn);
}

/* In place. */
static int reply_packed(RedisModuleCtx *ctx, int64_t *answer, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t bits = (uint64_t)answer[i];
        put64((char *)&answer[i], bits);
    }
    return RedisModule_ReplyWithStringBuffer(ctx, (const char *)answer, n * sizeof *answer);
}

/* The answers, as they were asked for. */
static void reply_answers(RedisModuleCtx *ctx, bool packed, int64_t *answer, size_t n)
{
    if (packed) {
        reply_packed(ctx, answer, n);
        return;
    }
    RedisModule_ReplyWithArray(ctx, (long)n);
    for (size_t i = 0; i < n; i++)
        store_reply(ctx, answer[i]);
}

static void reserve_answers(uint64_t n)
{
    if (n <= answers_room && answers)
        return;
    answers_room = n > 16 ? n : 16;
    answers = must_grow(answers, 0, answers_room * sizeof *answers);
}

/* What a repeated number is answered. */
struct again {
    struct push *push;
    size_t n;
};

static void begin_again(void *arg, size_t n)
{
    reserve_answers(n);
}

static void answer_again(void *arg, int64_t answer)
{
    struct again *a = arg;
    answers[a->n++] = answer;
}

static void reply_again(struct push *p, const struct session *s)
{
    struct again a = {p, 0};
    uint64_t acked = session_again(s, p->txn, begin_again, answer_again, &a);
    begin_reply(p->ctx, p->txn);
    reply_answers(p->ctx, p->packed, answers, a.n);
    RedisModule_ReplyWithLongLong(p->ctx, (long long)acked);
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
    switch (session_look(session, len, p->txn, s, &number_r)) {
    case SESSION_NEXT: return true;
    case SESSION_AGAIN: reply_again(p, *s); return false;
    case SESSION_OLD:
    case SESSION_AHEAD: break;
    }
    for (size_t i = 0; i < len; i++)
        name[i] = (char)(session[i] >= ' ' && session[i] <= '~' ? session[i] : '?');
    bool old = p->txn < number_r;
    snprintf(text, sizeof text,
             old ? "TXNOLD session %s txn %llu is forgotten, oldest remembered %llu"
                 : "TXNGAP session %s txn %llu, expected %llu",
             name, (unsigned long long)p->txn, (unsigned long long)number_r);
    RedisModule_ReplyWithError(p->ctx, text);
    return false;
}

static void release_large(void)
{
    if (answers_room > KEPT_ROOM) {
        RedisModule_Free(answers);
        answers = NULL;
        answers_room = 0;
    }
    if (adds.room > KEPT_ROOM) {
        RedisModule_Free(adds.records);
        RedisModule_Free(adds.data);
        adds = (struct effect_add){0};
    }
}

/* LANE.PUSH <numkeys> <key> ... [SESSION <session> <txn>] [DELAY <ms>] [EXPIRE <ms>]
 * ENTRIES <n> (<k> <id> <meta> <body>) x n | PACKED <entries>   [ACK <k> <n> <id> ... | ACK <k> <selector>]... */
int push_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    struct args a = {ctx, argv, argc, 1};
    struct push p = {.ctx = ctx, .argv = argv, .argc = argc};
    struct session *session;
    if (argc < 2)
        return RedisModule_WrongArity(ctx);
    if (!read_push(&a, &p) || !acks_allowed(&p) || !look_at_session(&p, &session))
        return REDISMODULE_OK;
    reserve_answers(p.n);
    p.answer = answers;
    lease_holders_settle(ctx);
    uint64_t acked = p.acks < argc ? run_acks(&p) : 0;
    store_begin(&p.store, ctx, (int64_t)p.delay, (int64_t)p.expire);
    for (uint64_t i = 0; i < p.n;)
        i = p.packed ? store_packed_run(&p, i) : store_run(&p, i);
    close_open(&p);
    if (session)
        session_remember(session, p.answer, p.n, acked);
    begin_reply(ctx, p.txn);
    reply_answers(ctx, p.packed, p.answer, p.n);
    release_large();
    return RedisModule_ReplyWithLongLong(ctx, (long long)acked);
}

/* LANE.PUT <key> <body> [<id> [<meta>]] */
int put_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    struct args a = {ctx, argv, argc, 3};
    struct lane_new e = {.meta = ""};
    struct store store;
    struct lane_key k;
    if (argc < 3 || argc > 5)
        return RedisModule_WrongArity(ctx);
    e.body = RedisModule_StringPtrLen(argv[2], &e.body_len);
    if (argc > 4)
        e.meta = RedisModule_StringPtrLen(argv[4], &e.meta_len);
    if ((argc > 3 && !args_id(&a, true, &e.id)) || !check_lengths(ctx, e.meta_len, e.body_len))
        return REDISMODULE_OK;
    lease_holders_settle(ctx);
    if (!lane_key_open_or_reply(ctx, argv[1], true, &k))
        return REDISMODULE_OK;
    size_t len;
    const char *name = RedisModule_StringPtrLen(argv[1], &len);
    uint64_t lane = !e.id     ? 0
                    : k.value ? k.value->hash
                              : name_hash(RedisModule_GetSelectedDb(ctx), name, len);
    store_begin(&store, ctx, 0, 0);
    int64_t answer = store_entry(&store, &k, lane, &e);
    if (answer > 0)
        effect_put(ctx, argv[1], (uint64_t)answer, e.id, e.meta, e.meta_len, argv[2]);
    lane_key_close(ctx, &k);
    if (answer > 0)
        lane_event(ctx, "lane.push", argv[1]);
    return store_reply(ctx, answer);
}

/* LANE.MPUT <key> <entries> [<up-to>] */
int mput_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    struct args a = {ctx, argv, argc, 3};
    struct push p = {.ctx = ctx,
                     .argv = argv,
                     .argc = argc,
                     .keys = argv + 1,
                     .nkeys = 1,
                     .entries = 2,
                     .packed = true};
    struct selector s = {0};
    if (argc < 3 || argc > 4)
        return RedisModule_WrongArity(ctx);
    if (!look_at_packed(&p, argv[2]) ||
        (argc > 3 && !args_number(&a, "sequence", 0, LANE_SEQ_MAX, &s.upto)) ||
        (argc > 3 && !ack_allowed(ctx, argv[1])))
        return REDISMODULE_OK;
    reserve_answers(p.n + 1);
    p.answer = answers + 1;
    lease_holders_settle(ctx);
    if (!lane_key_open_or_reply(ctx, argv[1], true, &p.key))
        return REDISMODULE_OK;
    p.open = 1;
    p.lane = true;
    answers[0] = argc > 3 ? (int64_t)ack_in(ctx, &p.key, &s).removed : 0;
    store_begin(&p.store, ctx, 0, 0);
    for (uint64_t i = 0; i < p.n;)
        i = store_packed_run(&p, i);
    close_open(&p);
    reply_packed(ctx, answers, p.n + 1);
    release_large();
    return REDISMODULE_OK;
}
