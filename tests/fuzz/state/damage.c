/* damage - what somebody writes into a state file: bytes anywhere, rows by SQL, tables of his
 * own, a cut file. */
#include "tests/fuzz/state/state.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const uint8_t odd[] = {0, 1, 2, 5, 8, 15, 0x7f, 0x80, 0xf1, 0xf2, 0xf8, 0xfe, 0xff};
static const char *const table[] = {"meta",    "origin",       "folder",    "message",
                                    "guid",    "uid",          "ahead",     "todo",
                                    "keyword", "subscription", "attribute", "out",
                                    "app",     "message_long", "uid_long",  "out_long"};
#define TABLES (sizeof table / sizeof table[0])

static void write_file(const char *path, const uint8_t *bytes, size_t len)
{
    FILE *f = fopen(path, "w");
    require(f && fwrite(bytes, 1, len, f) == len && fclose(f) == 0, "write");
}

/* --- bytes --- */

static void change_byte(uint8_t *p, struct choices *c)
{
    switch (below(c, 3)) {
    case 0: *p ^= (uint8_t)(1U << below(c, 8)); break;
    case 1: *p = odd[below(c, sizeof odd)]; break;
    default: *p = (uint8_t)below(c, 256); break;
    }
}

/* Free space is most of a file, and nobody reads it. */
static void damage_bytes(const char *path, struct choices *c)
{
    static size_t *full, n;
    size_t len;
    const uint8_t *base = base_file(&len);
    uint8_t *copy = malloc(len);
    require(copy != NULL, "memory");
    memcpy(copy, base, len);
    if (!full) {
        full = malloc(len * sizeof *full);
        require(full != NULL, "memory");
        for (size_t i = 0; i < len; i++)
            if (base[i])
                full[n++] = i;
    }
    for (unsigned times = 1 + below(c, 8); times > 0; times--) {
        size_t at = below(c, 256) << 8;
        at |= below(c, 256);
        change_byte(below(c, 8) ? &copy[full[at % n]] : &copy[at % len], c);
    }
    write_file(path, copy, below(c, 20) ? len : len * below(c, 256) / 256);
    free(copy);
}

/* --- rows --- */

static void run(sqlite3 *db, const char *sql)
{
    sqlite3_exec(db, sql, NULL, NULL, NULL);
}

static size_t change_blob(uint8_t *b, size_t len, struct choices *c)
{
    size_t at = len ? below(c, 256) % len : 0;
    switch (below(c, 5)) {
    case 0: return at; /* cut */
    case 1:
        memmove(b + at + 1, b + at, len - at);
        b[at] = odd[below(c, sizeof odd)];
        return len + 1;
    default:
        if (len)
            change_byte(&b[at], c);
        return len;
    }
}

/* One row's key or value is another one. */
static void change_row(sqlite3 *db, struct choices *c)
{
    const char *name = table[below(c, TABLES)];
    uint8_t key[2000], value[8000];
    char sql[200];
    sqlite3_stmt *st;
    snprintf(sql, sizeof sql,
             "SELECT * FROM %s LIMIT 1 OFFSET (SELECT %u %% max(1, count(*)) FROM %s)", name,
             below(c, 256), name);
    if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK)
        return;
    bool there = sqlite3_step(st) == SQLITE_ROW,
         number = there && sqlite3_column_type(st, 0) == SQLITE_INTEGER;
    int64_t n = there ? sqlite3_column_int64(st, 0) : 0;
    size_t key_len = there ? (size_t)sqlite3_column_bytes(st, 0) : 0,
           len = there ? (size_t)sqlite3_column_bytes(st, 1) : 0;
    key_len = key_len < sizeof key - 1 ? key_len : sizeof key - 1;
    len = len < sizeof value - 1 ? len : sizeof value - 1;
    if (key_len && !number)
        memcpy(key, sqlite3_column_blob(st, 0), key_len);
    if (len)
        memcpy(value, sqlite3_column_blob(st, 1), len);
    sqlite3_finalize(st);
    unsigned what = below(c, 8);
    if (what < 2) /* beside the old one, or in its place */
        what == 0 && !number ? (void)(key_len = change_blob(key, key_len, c))
                             : (void)(n ^= 1LL << below(c, 62));
    else
        len = change_blob(value, len, c);
    snprintf(sql, sizeof sql, "INSERT OR REPLACE INTO %s VALUES (?1, ?2)", name);
    if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK)
        return;
    number
        ? sqlite3_bind_int64(st, 1, n)
        : sqlite3_bind_blob(st, 1, key_len ? (const void *)key : "", (int)key_len, SQLITE_STATIC);
    sqlite3_bind_blob(st, 2, len ? (const void *)value : "", (int)len, SQLITE_STATIC);
    sqlite3_step(st);
    sqlite3_finalize(st);
}

/* What no single byte makes. */
static void change_much(sqlite3 *db, struct choices *c)
{
    static const char *const what[] = {
        "DELETE FROM %s",
        "DELETE FROM %s WHERE random() & 1",
        "UPDATE %s SET value = CAST(value AS TEXT)",
        "UPDATE %s SET value = 5",
        "UPDATE %s SET value = value || zeroblob(3000)",
        "UPDATE %s SET value = x''",
        "UPDATE %s SET value = (SELECT value FROM folder ORDER BY random() LIMIT 1)",
        "INSERT OR IGNORE INTO %s SELECT * FROM message_long",
        "UPDATE OR IGNORE %s SET key = CAST(key AS TEXT)",
        "UPDATE OR IGNORE %s SET key = 5",
        "UPDATE OR IGNORE %s SET key = key || x'00'",
        "UPDATE OR IGNORE %s SET key = zeroblob(1400)",
        "UPDATE OR IGNORE %s SET key = zeroblob(1401)",
        "UPDATE OR IGNORE %s SET number = number | 15",
        "UPDATE OR IGNORE %s SET number = -number",
        "INSERT OR IGNORE INTO %s VALUES (zeroblob(1399), x'00')",
        "INSERT OR IGNORE INTO %s VALUES (zeroblob(3), x'00')",
        "INSERT OR IGNORE INTO %s VALUES (x'', x'')"};
    char sql[200];
    snprintf(sql, sizeof sql, what[below(c, sizeof what / sizeof what[0])],
             table[below(c, TABLES)]);
    run(db, sql);
}

/* --- tables --- */

static void change_tables(sqlite3 *db, struct choices *c)
{
    static const char *const what[] = {
        "DROP TABLE app; CREATE VIEW app AS WITH RECURSIVE c(key, value) AS (SELECT x'00', x'00' "
        "UNION ALL "
        "SELECT key, value FROM c) SELECT * FROM c",
        "DROP TABLE message; CREATE VIEW message AS SELECT rowid AS number, zeroblob(9) AS value "
        "FROM out",
        "CREATE TRIGGER t AFTER INSERT ON todo BEGIN DELETE FROM message; END",
        "CREATE INDEX i ON message (value)",
        "DROP TABLE ahead",
        "CREATE TABLE other (a)",
        "DROP TABLE meta; CREATE TABLE meta (key, value)",
        "DROP TABLE todo; CREATE TABLE todo (key BLOB PRIMARY KEY, value BLOB NOT NULL)",
        "ALTER TABLE out ADD COLUMN more",
        "PRAGMA user_version = 0",
        "PRAGMA user_version = 1",
        "PRAGMA user_version = 3",
        "PRAGMA user_version = -1",
        "ANALYZE",
        "PRAGMA auto_vacuum = 1; VACUUM",
        "PRAGMA page_size = 512; VACUUM",
        "PRAGMA application_id = 5",
        "PRAGMA writable_schema = 1; UPDATE sqlite_master SET sql = 'CREATE TABLE app (key BLOB "
        "PRIMARY KEY, "
        "value BLOB NOT NULL)' WHERE name = 'app'",
        "PRAGMA writable_schema = 1; UPDATE sqlite_master SET rootpage = (SELECT rootpage FROM "
        "sqlite_master "
        "WHERE name = 'todo') WHERE name = 'ahead'"};
    run(db, what[below(c, sizeof what / sizeof what[0])]);
}

/* A seal tells of each change of its row. What is behind that is found out in rows without. */
static void unseal(sqlite3 *db)
{
    run(db, "UPDATE folder SET value = substr(value, 1, length(value) - 4);"
            "UPDATE origin SET value = substr(value, 1, length(value) - 4);"
            "UPDATE meta SET value = substr(value, 1, length(value) - 4) WHERE key = x'73656c66'");
}

static void damage_rows(const char *path, struct choices *c)
{
    size_t len;
    const uint8_t *base = base_file(&len);
    sqlite3 *db;
    write_file(path, base, len);
    require(sqlite3_open(path, &db) == SQLITE_OK, "open to damage");
    run(db, "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN");
    if (below(c, 4))
        unseal(db);
    for (unsigned times = 1 + below(c, 6); times > 0; times--)
        below(c, 6) ? change_row(db, c) : change_much(db, c);
    run(db, "COMMIT");
    if (below(c, 12) == 0)
        change_tables(db, c);
    sqlite3_close(db);
}

void damage(const char *path, struct choices *c)
{
    below(c, 3) == 0 ? damage_bytes(path, c) : damage_rows(path, c);
}
