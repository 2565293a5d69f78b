/* state_sqlite - opens a state file; gets, puts, deletes and walks rows in its transactions.
 *
 * Tables whose keys are nearly always short have them as numbers: seven bytes and their count in
 * one INTEGER PRIMARY KEY, which sorts as the bytes do. A search compares numbers then, in a tree
 * whose inner pages hold
 * 340 of them; in a WITHOUT ROWID tree they hold whole rows, 34, and a million rows are four
 * pages deep instead of three. Keys of more than seven bytes (a number above 2^32, a folder's
 * index above 65,000) are in NAME_long beside it. */
#include "dovecot-plugin/store/state_sqlite.h"

#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/store/guard.h"
#include "dovecot-plugin/store/schema.h"

#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Memory for pages, at most (KiB). It holds what a mailbox of half a million messages touches,
 * and is only taken as far as it is used. */
#define CACHE_KIB 65536
#ifdef SQLITE_OPEN_NOFOLLOW
#define STATE_OPEN_NOFOLLOW SQLITE_OPEN_NOFOLLOW
#else
#define STATE_OPEN_NOFOLLOW 0
#endif
#define TEXT(number) TEXT_OF(number)
#define TEXT_OF(number) #number

/* Pages the log may hold before they are moved into the file: a quarter of the file, between
 * these. A page that was changed again and again moves once, so a log in proportion to the file
 * keeps the price of moving per change the same for a large file as for a small one. At most 32
 * MB are read again at the open after a crash. */
#define LOG_PAGES_MIN 1000
#define LOG_PAGES_MAX 8000

enum statement { GET, PUT, DEL, EACH, STATEMENTS };

struct state_sqlite {
    sqlite3 *db;
    char error[256];
    /* Of NAME, then of NAME_long. EACH is used by nested iterations of different tables only; a
     * table's own is made anew when busy. */
    sqlite3_stmt *st[ORSET_TABLES][2][STATEMENTS];
    bool any_long[ORSET_TABLES]; /* NAME_long may have rows */
    sqlite3_stmt *begin, *commit, *rollback;
    int log_pages; /* as of the last commit */
    int log_most;
    bool bounded; /* log_most is of the file's size; it is read when it matters first */
    char *path;
    struct state_guard guard;
    bool opening, spoilt;
    bool begun; /* between store_begin() and the commit or the rollback */
};

static int failed(struct state_sqlite *s, const char *what)
{
    if (s->spoilt)
        return -1; /* the first reason is the one that counts */
    s->spoilt = state_guard_blames_file(s->db, s->path, s->opening);
    snprintf(s->error, sizeof s->error, "%s: %s", what, sqlite3_errmsg(s->db));
    return -1;
}

void state_sqlite_corrupt(struct state_sqlite *s, const char *what)
{
    if (!s->spoilt)
        snprintf(s->error, sizeof s->error, "its rows cannot be true: %s", what);
    s->spoilt = true;
}

static int not_true(struct state_sqlite *s, const char *what)
{
    state_sqlite_corrupt(s, what);
    return -1;
}

/* A step of a statement that reads a row: one that is longer than all that were ever written is
 * the file's doing. */
static int step_row(struct state_sqlite *s, sqlite3_stmt *st, const char *what)
{
    state_guard_row(&s->guard);
    int r = sqlite3_step(st);
    if (r == SQLITE_ROW || r == SQLITE_DONE)
        return r;
    if (sqlite3_errcode(s->db) == SQLITE_TOOBIG)
        return not_true(s, "a row is too long");
    return failed(s, what);
}

static sqlite3_stmt *prepare(struct state_sqlite *s, const char *sql)
{
    sqlite3_stmt *st = NULL;
    /* Not "persistent", which is parsed with memory from the heap alone: where users take turns,
     * statements do not live long. */
    if (sqlite3_prepare_v2(s->db, sql, -1, &st, NULL) != SQLITE_OK)
        failed(s, sql);
    return st;
}

/* --- keys
 * ---------------------------------------------------------------------------------------------- */

/* Where a key's row is: in the table with numbers, the table beside it, or the only one there
 * is. */
enum where { NUMBERED, LONG, PLAIN };

static enum where where(enum orset_table t, size_t key_len)
{
    return !schema_has_numbers(t) ? PLAIN : key_len <= NUMBER_BYTES ? NUMBERED : LONG;
}

/* The key's length; NUMBER_BYTES + 1 or more: no key has that number. */
static size_t from_number(int64_t number, uint8_t key[NUMBER_BYTES])
{
    size_t len = (size_t)(number & 15);
    for (int i = 0; i < NUMBER_BYTES; i++)
        key[i] = (uint8_t)(number >> (4 + 8 * (NUMBER_BYTES - 1 - i)));
    return len <= NUMBER_BYTES && schema_number(key, len) == number ? len : NUMBER_BYTES + 1;
}

static sqlite3_stmt *statement(struct state_sqlite *s, enum orset_table t, enum where w,
                               enum statement which)
{
    static const char *const sql[STATEMENTS] = {
        "SELECT value FROM %s%s WHERE %s = ?1", "REPLACE INTO %s%s (%s, value) VALUES (?1, ?2)",
        "DELETE FROM %s%s WHERE %s = ?1", "SELECT * FROM %s%s WHERE %s >= ?1 ORDER BY 1"};
    sqlite3_stmt **st = &s->st[t][w == LONG][which];
    char text[160];
    if (!*st) {
        snprintf(text, sizeof text, sql[which], schema_table[t], w == LONG ? "_long" : "",
                 w == NUMBERED ? "number" : "key");
        *st = prepare(s, text);
    }
    return *st;
}

static int bind_key(sqlite3_stmt *st, enum where w, const void *key, size_t len)
{
    return w == NUMBERED ? sqlite3_bind_int64(st, 1, schema_number(key, len))
                         : sqlite3_bind_blob(st, 1, len ? key : "", (int)len, SQLITE_STATIC);
}

/* --- rows
 * ---------------------------------------------------------------------------------------------- */

/* An open read would keep a write of the same table from being seen, and a commit from ending. */
static void end_reads(struct state_sqlite *s, enum orset_table t)
{
    for (int i = 0; i < 2; i++)
        if (s->st[t][i][GET])
            sqlite3_reset(s->st[t][i][GET]);
}

/* A statement that lacks memory or disk makes SQLite roll the whole transaction back: each one
 * after it would be a transaction of its own. The reason is the first one's error. */
static bool taken_back(struct state_sqlite *s)
{
    if (!s->begun || !sqlite3_get_autocommit(s->db))
        return false;
    if (!s->error[0])
        snprintf(s->error, sizeof s->error, "SQLite rolled the transaction back");
    return true;
}

/* The row's value stays readable until the statement is reset: at the next get of this table. */
static int row_get(void *ctx, enum orset_table t, const void *key, size_t len, const uint8_t **v,
                   size_t *vlen)
{
    struct state_sqlite *s = ctx;
    enum where w = where(t, len);
    sqlite3_stmt *st = statement(s, t, w, GET);
    if (!st || taken_back(s))
        return -1;
    sqlite3_reset(st);
    if (bind_key(st, w, key, len) != SQLITE_OK)
        return failed(s, "get");
    int r = step_row(s, st, "get");
    if (r == SQLITE_DONE) {
        sqlite3_reset(st);
        return 0;
    }
    if (r != SQLITE_ROW)
        return -1;
    if (sqlite3_column_type(st, 0) != SQLITE_BLOB)
        return not_true(s, "a value is no bytes");
    *v = sqlite3_column_blob(st, 0);
    *vlen = (size_t)sqlite3_column_bytes(st, 0);
    if (!*v)
        *v = (const uint8_t *)"";
    return 1;
}

static int row_put(void *ctx, enum orset_table t, const void *key, size_t len, const void *v,
                   size_t vlen)
{
    struct state_sqlite *s = ctx;
    enum where w = where(t, len);
    sqlite3_stmt *st = statement(s, t, w, PUT);
    if (!st || taken_back(s))
        return -1;
    if (bind_key(st, w, key, len) != SQLITE_OK ||
        sqlite3_bind_blob(st, 2, vlen ? v : "", (int)vlen, SQLITE_STATIC) != SQLITE_OK)
        return failed(s, "put");
    s->any_long[t] |= w == LONG;
    end_reads(s, t);
    state_guard_row(&s->guard);
    int r = sqlite3_step(st);
    sqlite3_reset(st);
    return r == SQLITE_DONE ? 0 : failed(s, "put");
}

static int row_del(void *ctx, enum orset_table t, const void *key, size_t len)
{
    struct state_sqlite *s = ctx;
    enum where w = where(t, len);
    sqlite3_stmt *st = statement(s, t, w, DEL);
    if (!st || taken_back(s))
        return -1;
    if (bind_key(st, w, key, len) != SQLITE_OK)
        return failed(s, "delete");
    end_reads(s, t);
    state_guard_row(&s->guard);
    int r = sqlite3_step(st);
    sqlite3_reset(st);
    return r == SQLITE_DONE ? 0 : failed(s, "delete");
}

/* --- walks
 * ---------------------------------------------------------------------------------------------- */

struct cursor {
    sqlite3_stmt *st; /* NULL: none, or at its end */
    enum where where;
    const uint8_t *key;
    size_t len;
    uint8_t number[NUMBER_BYTES];
    /* Where the row before was, or the walk is to begin: rows are shown in order, or a walk
     * might not end. */
    uint8_t before[ORSET_KEY_MAX];
    size_t before_len;
    bool begun;
};

static int key_order(const uint8_t *a, size_t alen, const uint8_t *b, size_t blen)
{
    size_t n = alen < blen ? alen : blen;
    int order = n ? memcmp(a, b, n) : 0;
    return order ? order : (alen > blen) - (alen < blen);
}

static int read_key(struct state_sqlite *s, struct cursor *c)
{
    bool numbered = c->where == NUMBERED;
    if (sqlite3_column_type(c->st, 0) != (numbered ? SQLITE_INTEGER : SQLITE_BLOB))
        return not_true(s, "a key is no bytes");
    if (numbered) {
        c->key = c->number;
        c->len = from_number(sqlite3_column_int64(c->st, 0), c->number);
        return c->len <= NUMBER_BYTES ? 0 : not_true(s, "a number that is no key's");
    }
    c->key = sqlite3_column_blob(c->st, 0);
    c->len = (size_t)sqlite3_column_bytes(c->st, 0);
    c->key = c->key ? c->key : (const uint8_t *)"";
    if (c->len > ORSET_KEY_MAX || (c->where == LONG && c->len <= NUMBER_BYTES))
        return not_true(s, "a key's length");
    return 0;
}

static int step(struct state_sqlite *s, struct cursor *c)
{
    int r = step_row(s, c->st, "each");
    if (r == SQLITE_DONE)
        c->st = NULL;
    if (r != SQLITE_ROW)
        return r == SQLITE_DONE ? 0 : -1;
    if (read_key(s, c) < 0)
        return -1;
    if (sqlite3_column_type(c->st, 1) != SQLITE_BLOB)
        return not_true(s, "a value is no bytes");
    int order = key_order(c->key, c->len, c->before, c->before_len);
    if (order < 0 || (order == 0 && c->begun))
        return not_true(s, "rows out of order");
    memcpy(c->before, c->key, c->len);
    c->before_len = c->len;
    c->begun = true;
    return 0;
}

static struct cursor *first_of(struct cursor c[2])
{
    if (!c[0].st || !c[1].st)
        return c[0].st ? &c[0] : &c[1];
    return key_order(c[0].key, c[0].len, c[1].key, c[1].len) < 0 ? &c[0] : &c[1];
}

/* Both cursors' rows in the order of their keys. */
static int each_row(struct state_sqlite *s, struct cursor c[2], const void *from, size_t prefix_len,
                    orset_row_fn *fn, void *arg)
{
    int r = 0;
    for (int i = 0; i < 2; i++)
        if (c[i].st && step(s, &c[i]) < 0)
            return -1;
    while (r == 0 && (c[0].st || c[1].st)) {
        struct cursor *at = first_of(c);
        const uint8_t *v = sqlite3_column_blob(at->st, 1);
        size_t vlen = (size_t)sqlite3_column_bytes(at->st, 1);
        if (at->len < prefix_len || (prefix_len && memcmp(at->key, from, prefix_len) != 0))
            return 0;
        r = fn(arg, at->key, at->len, v ? v : (const uint8_t *)"", vlen);
        if (r == 0 && step(s, at) < 0)
            return -1;
    }
    return r;
}

/* Taken out of the statements while in use: an iteration inside fn gets its own. */
static sqlite3_stmt *take_each(struct state_sqlite *s, enum orset_table t, enum where w,
                               const void *from, size_t from_len)
{
    sqlite3_stmt *st = statement(s, t, w, EACH);
    s->st[t][w == LONG][EACH] = NULL;
    if (st && bind_key(st, w, from, from_len) != SQLITE_OK) {
        failed(s, "each");
        sqlite3_finalize(st);
        return NULL;
    }
    return st;
}

static void give_each(struct state_sqlite *s, enum orset_table t, enum where w, sqlite3_stmt *st)
{
    sqlite3_stmt **place = &s->st[t][w == LONG][EACH];
    sqlite3_reset(st);
    if (*place)
        sqlite3_finalize(st);
    else
        *place = st;
}

static void begin_walk(struct cursor *c, sqlite3_stmt *st, enum where w, const void *from,
                       size_t from_len)
{
    c->st = st;
    c->where = w;
    c->begun = false;
    c->before_len = from_len < sizeof c->before ? from_len : sizeof c->before;
    if (c->before_len)
        memcpy(c->before, from, c->before_len);
}

static int row_each(void *ctx, enum orset_table t, const void *from, size_t from_len,
                    size_t prefix_len, orset_row_fn *fn, void *arg)
{
    struct state_sqlite *s = ctx;
    enum where w = schema_has_numbers(t) ? NUMBERED : PLAIN;
    bool both = w == NUMBERED && s->any_long[t];
    if (taken_back(s))
        return -1;
    sqlite3_stmt *st = take_each(s, t, w, from, from_len),
                 *beside = both ? take_each(s, t, LONG, from, from_len) : NULL;
    struct cursor c[2];
    begin_walk(&c[0], st, w, from, from_len);
    begin_walk(&c[1], beside, LONG, from, from_len);
    int r = st && (beside || !both) ? each_row(s, c, from, prefix_len, fn, arg) : -1;
    give_each(s, t, w, st);
    if (both)
        give_each(s, t, LONG, beside);
    return r;
}

static int run(struct state_sqlite *s, sqlite3_stmt *st, const char *what)
{
    for (int t = 0; t < ORSET_TABLES; t++)
        end_reads(s, (enum orset_table)t);
    state_guard_row(&s->guard);
    int r = sqlite3_step(st);
    sqlite3_reset(st);
    return r == SQLITE_DONE ? 0 : failed(s, what);
}

static int query_number(struct state_sqlite *s, const char *sql, int64_t *n)
{
    sqlite3_stmt *st = prepare(s, sql);
    state_guard_row(&s->guard);
    int r = st && sqlite3_step(st) == SQLITE_ROW ? 0 : failed(s, sql);
    if (r == 0)
        *n = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return r;
}

static void bound_log(struct state_sqlite *s)
{
    int64_t pages = 0;
    s->log_most = LOG_PAGES_MIN;
    if (query_number(s, "PRAGMA page_count", &pages) == 0 && pages / 4 > LOG_PAGES_MIN)
        s->log_most = pages / 4 < LOG_PAGES_MAX ? (int)(pages / 4) : LOG_PAGES_MAX;
    s->bounded = true;
}

static int store_begin(void *ctx)
{
    struct state_sqlite *s = ctx;
    if (run(s, s->begin, "begin") < 0)
        return -1;
    s->begun = true;
    if (!s->spoilt)
        s->error[0] = '\0';
    return 0;
}

static int log_grew(void *arg, sqlite3 *db, const char *name, int pages)
{
    struct state_sqlite *s = arg;
    (void)db;
    (void)name;
    s->log_pages = pages;
    return SQLITE_OK;
}

static int store_commit(void *ctx)
{
    struct state_sqlite *s = ctx;
    if (taken_back(s))
        return -1;
    int r = run(s, s->commit, "commit");
    s->begun = s->begun && r != 0;
    /* The commit stands whatever comes of this: what cannot be moved now stays in the log. */
    if (r == 0 && s->log_pages >= s->log_most && !s->bounded)
        bound_log(s);
    if (r == 0 && s->log_pages >= s->log_most) {
        sqlite3_wal_checkpoint_v2(s->db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
        bound_log(s);
        s->log_pages = 0;
    }
    return r;
}

static void store_rollback(void *ctx)
{
    struct state_sqlite *s = ctx;
    if (!sqlite3_get_autocommit(s->db))
        run(s, s->rollback, "rollback");
    s->begun = false;
}

/* --- open and close
 * -------------------------------------------------------------------------------------------------
 */

static char *error_text(const char *path, const char *what)
{
    size_t n = strlen(path) + strlen(what) + 64;
    char *t = malloc(n);
    if (t)
        snprintf(t, n, "state file %s: %s", path, what);
    return t;
}

static int prepare_schema(struct state_sqlite *s, char *text, size_t size)
{
    int64_t version = 0;
    state_guard_migration(&s->guard);
    switch (schema_prepare(s->db, &version)) {
    case SCHEMA_OK: return 0;
    case SCHEMA_FOREIGN:
        return not_true(s, "it has other tables than a state, or views, triggers or indexes");
    case SCHEMA_NEWER:
        snprintf(
            text, size,
            "its schema is version %lld, this program knows up to %d: update Dovelane on this host",
            (long long)version, STATE_SQLITE_VERSION);
        return -1;
    default: return failed(s, "its tables");
    }
}

/* One question, nearly always without a row: each that is parsed costs more than what it asks. */
static int find_long(struct state_sqlite *s)
{
    char sql[200];
    size_t n = 0;
    for (int t = 0; t < ORSET_TABLES; t++)
        if (schema_has_numbers((enum orset_table)t))
            n += (size_t)snprintf(sql + n, sizeof sql - n, "%sSELECT 1 FROM %s_long",
                                  n ? " UNION ALL " : "", schema_table[t]);
    sqlite3_stmt *st = prepare(s, sql);
    int r = st ? step_row(s, st, sql) : -1;
    sqlite3_finalize(st);
    for (int t = 0; t < ORSET_TABLES; t++)
        s->any_long[t] = r == SQLITE_ROW;
    return r < 0 ? -1 : 0;
}

static int set_up(struct state_sqlite *s, char *text, size_t size)
{
    static const char pragmas[] =
        "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
        "PRAGMA journal_size_limit = 0; PRAGMA temp_store = MEMORY; PRAGMA cell_size_check = ON;"
        "PRAGMA cache_size = -" TEXT(CACHE_KIB);
    sqlite3_busy_timeout(s->db, 5000);
    if (state_guard_begin(s->db, &s->guard) != SQLITE_OK ||
        sqlite3_exec(s->db, pragmas, NULL, NULL, NULL) != SQLITE_OK)
        return failed(s, "open");
    if (prepare_schema(s, text, size) < 0)
        return -1;
    if (find_long(s) < 0)
        return -1;
    s->log_most = LOG_PAGES_MIN;
    sqlite3_wal_hook(s->db, log_grew, s); /* in place of wal_autocheckpoint */
    s->begin = prepare(s, "BEGIN IMMEDIATE");
    s->commit = prepare(s, "COMMIT");
    s->rollback = prepare(s, "ROLLBACK");
    return s->begin && s->commit && s->rollback ? 0 : -1;
}

/* SQLite counts what it allocates under a lock, each time. Nobody asks for that count, and an
 * opening allocates much: it reads the schema and parses the statements. Where SQLite is in use in
 * the process already, this changes nothing. */
static void set_up_process(void)
{
    static bool done;
    if (!done)
        (void)sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    done = true;
}

static int open_file(struct state_sqlite *s, const char *path, char *text, size_t size)
{
    const char *no_file = state_guard_no_file(path);
    s->opening = true;
    s->path = state_guard_path(path);
    if (no_file || !s->path) {
        s->spoilt = no_file != NULL;
        if (no_file)
            snprintf(text, size, "it, or its companion \"%s\", is no regular file", no_file);
        else
            snprintf(text, size, "no memory");
        return -1;
    }
    set_up_process();
    mode_t mask = umask(077);
    int r = sqlite3_open_v2(s->path, &s->db,
                            SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX |
                                STATE_OPEN_NOFOLLOW,
                            NULL);
    /* The log's file stays after a close: making it anew costs a wait for the directory. It is
     * empty then (journal_size_limit): what stood in it would be read into an older file that is
     * put in this one's place. */
    int stays = 1;
    if (r == SQLITE_OK)
        sqlite3_file_control(s->db, NULL, SQLITE_FCNTL_PERSIST_WAL, &stays);
    r = r == SQLITE_OK ? set_up(s, text, size) : failed(s, "open");
    umask(mask);
    return r;
}

int state_sqlite_open(struct state_sqlite **s_r, const char *path, char **error_r)
{
    struct state_sqlite *s = calloc(1, sizeof *s);
    char text[200] = "";
    *s_r = NULL;
    if (!s) {
        *error_r = error_text(path, "no memory");
        return -1;
    }
    int r = open_file(s, path, text, sizeof text);
    s->opening = false;
    if (r != 0) {
        r = s->spoilt ? -2 : -1;
        *error_r = error_text(path, text[0] ? text : s->error);
        state_sqlite_close(s);
        return r;
    }
    *s_r = s;
    return 0;
}

void state_sqlite_close(struct state_sqlite *s)
{
    if (!s)
        return;
    for (int t = 0; t < ORSET_TABLES; t++)
        for (int i = 0; i < 2 * STATEMENTS; i++)
            sqlite3_finalize(s->st[t][i / STATEMENTS][i % STATEMENTS]);
    if (s->db && !sqlite3_get_autocommit(s->db))
        sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
    sqlite3_finalize(s->begin);
    sqlite3_finalize(s->commit);
    sqlite3_finalize(s->rollback);
    sqlite3_close(s->db);
    free(s->path);
    free(s);
}

static void corrupt(void *ctx, const char *what)
{
    state_sqlite_corrupt(ctx, what);
}

void state_sqlite_interface(struct state_sqlite *s, struct orset_store *store)
{
    *store = (struct orset_store){.ctx = s,
                                  .get = row_get,
                                  .put = row_put,
                                  .del = row_del,
                                  .each = row_each,
                                  .begin = store_begin,
                                  .commit = store_commit,
                                  .rollback = store_rollback,
                                  .corrupt = corrupt};
}

const char *state_sqlite_error(const struct state_sqlite *s)
{
    return s->error;
}

bool state_sqlite_spoilt(const struct state_sqlite *s)
{
    return s->spoilt;
}

void state_sqlite_replaced(struct state_sqlite *s)
{
    int keep = 1;
    sqlite3_file_control(s->db, NULL, SQLITE_FCNTL_PERSIST_WAL, &keep);
}

int64_t state_sqlite_rows(struct state_sqlite *s, enum orset_table t)
{
    char sql[80];
    int64_t n, beside = 0;
    snprintf(sql, sizeof sql, "SELECT count(*) FROM %s", schema_table[t]);
    if (query_number(s, sql, &n) < 0)
        return -1;
    snprintf(sql, sizeof sql, "SELECT count(*) FROM %s_long", schema_table[t]);
    return schema_has_numbers(t) && query_number(s, sql, &beside) < 0 ? -1 : n + beside;
}

int state_sqlite_checkpoint(struct state_sqlite *s)
{
    for (int t = 0; t < ORSET_TABLES; t++)
        end_reads(s, (enum orset_table)t);
    return sqlite3_wal_checkpoint_v2(s->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL) ==
                   SQLITE_OK
               ? 0
               : failed(s, "checkpoint");
}
