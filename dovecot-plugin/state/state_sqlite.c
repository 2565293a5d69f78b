/* state_sqlite - see state_sqlite.h. */
#include "state_sqlite.h"

#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *const TABLE[ORSET_TABLES] = {"meta",      "origin", "folder", "message", "guid",
                                                "uid",       "ahead",  "todo",   "keyword", "subscription",
                                                "attribute", "out",    "app"};

enum statement { GET, PUT, DEL, EACH, STATEMENTS };

struct state_sqlite {
    sqlite3 *db;
    char error[256];
    /* EACH is used by nested iterations of different tables only; a table's own is made anew when busy. */
    sqlite3_stmt *st[ORSET_TABLES][STATEMENTS];
    sqlite3_stmt *begin, *commit, *rollback;
};

static int failed(struct state_sqlite *s, const char *what)
{
    snprintf(s->error, sizeof s->error, "%s: %s", what, sqlite3_errmsg(s->db));
    return -1;
}

static sqlite3_stmt *prepare(struct state_sqlite *s, const char *sql)
{
    sqlite3_stmt *st = NULL;
    if (sqlite3_prepare_v3(s->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &st, NULL) != SQLITE_OK)
        failed(s, sql);
    return st;
}

static sqlite3_stmt *statement(struct state_sqlite *s, enum orset_table t, enum statement which)
{
    static const char *const sql[STATEMENTS][2] = {
        {"SELECT value FROM ", " WHERE key = ?1"},
        {"INSERT INTO ", " (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = ?2"},
        {"DELETE FROM ", " WHERE key = ?1"},
        {"SELECT key, value FROM ", " WHERE key >= ?1 ORDER BY key"}};
    char text[160];
    if (!s->st[t][which]) {
        snprintf(text, sizeof text, "%s%s%s", sql[which][0], TABLE[t], sql[which][1]);
        s->st[t][which] = prepare(s, text);
    }
    return s->st[t][which];
}

static int bind_key(sqlite3_stmt *st, const void *key, size_t len)
{
    return sqlite3_bind_blob(st, 1, len ? key : "", (int)len, SQLITE_STATIC);
}

/* The row's value stays readable until the statement is reset: at the next get of this table. */
static int row_get(void *ctx, enum orset_table t, const void *key, size_t len, const uint8_t **v,
                   size_t *vlen)
{
    struct state_sqlite *s = ctx;
    sqlite3_stmt *st = statement(s, t, GET);
    if (!st)
        return -1;
    sqlite3_reset(st);
    if (bind_key(st, key, len) != SQLITE_OK)
        return failed(s, "get");
    int r = sqlite3_step(st);
    if (r == SQLITE_DONE) {
        sqlite3_reset(st);
        return 0;
    }
    if (r != SQLITE_ROW)
        return failed(s, "get");
    *v = sqlite3_column_blob(st, 0);
    *vlen = (size_t)sqlite3_column_bytes(st, 0);
    if (!*v)
        *v = (const uint8_t *)"";
    return 1;
}

/* An open read would keep a write of the same table from being seen, and a commit from ending. */
static void end_reads(struct state_sqlite *s, enum orset_table t)
{
    if (s->st[t][GET])
        sqlite3_reset(s->st[t][GET]);
}

static int row_put(void *ctx, enum orset_table t, const void *key, size_t len, const void *v, size_t vlen)
{
    struct state_sqlite *s = ctx;
    sqlite3_stmt *st = statement(s, t, PUT);
    if (!st)
        return -1;
    if (bind_key(st, key, len) != SQLITE_OK ||
        sqlite3_bind_blob(st, 2, vlen ? v : "", (int)vlen, SQLITE_STATIC) != SQLITE_OK)
        return failed(s, "put");
    end_reads(s, t);
    int r = sqlite3_step(st);
    sqlite3_reset(st);
    return r == SQLITE_DONE ? 0 : failed(s, "put");
}

static int row_del(void *ctx, enum orset_table t, const void *key, size_t len)
{
    struct state_sqlite *s = ctx;
    sqlite3_stmt *st = statement(s, t, DEL);
    if (!st)
        return -1;
    if (bind_key(st, key, len) != SQLITE_OK)
        return failed(s, "delete");
    end_reads(s, t);
    int r = sqlite3_step(st);
    sqlite3_reset(st);
    return r == SQLITE_DONE ? 0 : failed(s, "delete");
}

static int each_row(struct state_sqlite *s, sqlite3_stmt *st, const void *from, size_t prefix_len,
                    orset_row_fn *fn, void *arg)
{
    int step, r = 0;
    while (r == 0 && (step = sqlite3_step(st)) != SQLITE_DONE) {
        if (step != SQLITE_ROW)
            return failed(s, "each");
        const uint8_t *key = sqlite3_column_blob(st, 0), *v = sqlite3_column_blob(st, 1);
        size_t len = (size_t)sqlite3_column_bytes(st, 0), vlen = (size_t)sqlite3_column_bytes(st, 1);
        if (len < prefix_len || (prefix_len && memcmp(key, from, prefix_len) != 0))
            return 0;
        r = fn(arg, key ? key : (const uint8_t *)"", len, v ? v : (const uint8_t *)"", vlen);
    }
    return r;
}

static int row_each(void *ctx, enum orset_table t, const void *from, size_t from_len, size_t prefix_len,
                    orset_row_fn *fn, void *arg)
{
    struct state_sqlite *s = ctx;
    sqlite3_stmt *st = statement(s, t, EACH);
    if (!st)
        return -1;
    /* Taken out while in use: an iteration inside fn gets its own. */
    s->st[t][EACH] = NULL;
    int r = bind_key(st, from, from_len) == SQLITE_OK ? each_row(s, st, from, prefix_len, fn, arg)
                                                      : failed(s, "each");
    sqlite3_reset(st);
    if (s->st[t][EACH])
        sqlite3_finalize(st);
    else
        s->st[t][EACH] = st;
    return r;
}

static int run(struct state_sqlite *s, sqlite3_stmt *st, const char *what)
{
    for (int t = 0; t < ORSET_TABLES; t++)
        end_reads(s, (enum orset_table)t);
    int r = sqlite3_step(st);
    sqlite3_reset(st);
    return r == SQLITE_DONE ? 0 : failed(s, what);
}

static int store_begin(void *ctx)
{
    struct state_sqlite *s = ctx;
    return run(s, s->begin, "begin");
}

static int store_commit(void *ctx)
{
    struct state_sqlite *s = ctx;
    return run(s, s->commit, "commit");
}

static void store_rollback(void *ctx)
{
    struct state_sqlite *s = ctx;
    if (!sqlite3_get_autocommit(s->db))
        run(s, s->rollback, "rollback");
}

/* --- schema
 * ---------------------------------------------------------------------------------------------------------------
 */

static int pragma_number(struct state_sqlite *s, const char *sql, int64_t *n)
{
    sqlite3_stmt *st = prepare(s, sql);
    int r = st && sqlite3_step(st) == SQLITE_ROW ? 0 : -1;
    if (r == 0)
        *n = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return r;
}

static int make_tables(struct state_sqlite *s)
{
    char sql[160];
    for (int t = 0; t < ORSET_TABLES; t++) {
        snprintf(sql, sizeof sql, "CREATE TABLE %s (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
                 TABLE[t]);
        if (sqlite3_exec(s->db, sql, NULL, NULL, NULL) != SQLITE_OK)
            return failed(s, sql);
    }
    return 0;
}

/* migration[v] makes version v + 1 out of version v. Append only: files of every version are out there. */
static int (*const migration[STATE_SQLITE_VERSION])(struct state_sqlite *) = {make_tables};

static int migrate(struct state_sqlite *s, char *text, size_t size)
{
    int64_t version;
    char sql[64];
    if (pragma_number(s, "PRAGMA user_version", &version) < 0)
        return -1;
    if (version > STATE_SQLITE_VERSION || version < 0) {
        snprintf(text, size,
                 "its schema is version %lld, this program knows up to %d: update Dovelane on this host",
                 (long long)version, STATE_SQLITE_VERSION);
        return -1;
    }
    if (version == STATE_SQLITE_VERSION)
        return 0;
    if (sqlite3_exec(s->db, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK)
        return failed(s, "begin");
    for (int r = 0; version < STATE_SQLITE_VERSION; version++)
        if ((r = migration[version](s)) < 0)
            return r;
    snprintf(sql, sizeof sql, "PRAGMA user_version = %d; COMMIT", STATE_SQLITE_VERSION);
    return sqlite3_exec(s->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : failed(s, "migration");
}

/* --- open and close
 * ---------------------------------------------------------------------------------------------------------
 */

static char *error_text(const char *path, const char *what)
{
    size_t n = strlen(path) + strlen(what) + 64;
    char *t = malloc(n);
    if (t)
        snprintf(t, n, "state file %s: %s", path, what);
    return t;
}

static int set_up(struct state_sqlite *s, char *text, size_t size)
{
    static const char pragmas[] =
        "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
        "PRAGMA temp_store = MEMORY; PRAGMA wal_autocheckpoint = 1000;"
        "PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON";
    sqlite3_busy_timeout(s->db, 5000);
    if (sqlite3_exec(s->db, pragmas, NULL, NULL, NULL) != SQLITE_OK || migrate(s, text, size) < 0)
        return failed(s, "open");
    s->begin = prepare(s, "BEGIN IMMEDIATE");
    s->commit = prepare(s, "COMMIT");
    s->rollback = prepare(s, "ROLLBACK");
    return s->begin && s->commit && s->rollback ? 0 : -1;
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
    mode_t mask = umask(077);
    int r =
        sqlite3_open_v2(path, &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
    if (r == SQLITE_OK)
        r = set_up(s, text, sizeof text);
    else
        failed(s, "open");
    umask(mask);
    if (r != 0) {
        *error_r = error_text(path, text[0] ? text : s->error);
        state_sqlite_close(s);
        return -1;
    }
    *s_r = s;
    return 0;
}

void state_sqlite_close(struct state_sqlite *s)
{
    if (!s)
        return;
    for (int t = 0; t < ORSET_TABLES; t++)
        for (int i = 0; i < STATEMENTS; i++)
            sqlite3_finalize(s->st[t][i]);
    if (s->db && !sqlite3_get_autocommit(s->db))
        sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
    sqlite3_finalize(s->begin);
    sqlite3_finalize(s->commit);
    sqlite3_finalize(s->rollback);
    sqlite3_close(s->db);
    free(s);
}

void state_sqlite_interface(struct state_sqlite *s, struct orset_store *store)
{
    *store = (struct orset_store){s,        row_get,     row_put,      row_del,
                                  row_each, store_begin, store_commit, store_rollback};
}

const char *state_sqlite_error(const struct state_sqlite *s)
{
    return s->error;
}

int64_t state_sqlite_bytes(struct state_sqlite *s)
{
    int64_t pages, size;
    if (pragma_number(s, "PRAGMA page_count", &pages) < 0 || pragma_number(s, "PRAGMA page_size", &size) < 0)
        return -1;
    return pages * size;
}

int64_t state_sqlite_rows(struct state_sqlite *s, enum orset_table t)
{
    char sql[80];
    int64_t n;
    snprintf(sql, sizeof sql, "SELECT count(*) FROM %s", TABLE[t]);
    return pragma_number(s, sql, &n) < 0 ? -1 : n;
}

int state_sqlite_checkpoint(struct state_sqlite *s)
{
    for (int t = 0; t < ORSET_TABLES; t++)
        end_reads(s, (enum orset_table)t);
    return sqlite3_wal_checkpoint_v2(s->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL) == SQLITE_OK
               ? 0
               : failed(s, "checkpoint");
}
