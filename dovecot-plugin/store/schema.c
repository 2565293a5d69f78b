/* schema - makes the tables, and converts those of versions before. */
#include "dovecot-plugin/store/schema.h"
#include "dovecot-plugin/store/state_sqlite.h"

#include <stdio.h>
#include <string.h>

const char *const schema_table[ORSET_TABLES] = {
    "meta", "origin",  "folder",       "message",   "guid", "uid", "ahead",
    "todo", "keyword", "subscription", "attribute", "out",  "app"};

#define ROWS_BY_KEY " (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"
#define ROWS_BY_NUMBER " (number INTEGER PRIMARY KEY, value BLOB NOT NULL)"
/* No version of this program is numbered higher: it is no version, but damage. */
#define VERSION_MAX 1000

bool schema_has_numbers(enum orset_table t)
{
    return t == ORSET_T_MESSAGE || t == ORSET_T_UID || t == ORSET_T_OUT;
}

int64_t schema_number(const uint8_t *key, size_t len)
{
    uint64_t n = 0;
    for (size_t i = 0; i < NUMBER_BYTES; i++)
        n = n << 8 | (i < len ? key[i] : 0);
    return (int64_t)(n << 4 | (len <= NUMBER_BYTES ? len : NUMBER_BYTES + 1));
}

/* --- what is in the file
 * -------------------------------------------------------------------------------------------------
 */

/* The text behind what it begins with; NULL: it does not. SQLite quotes a name when it renames
 * its table. */
static const char *behind(const char *text, const char *begin)
{
    size_t n = strlen(begin);
    if (text && strncmp(text, begin, n) == 0) { /* unless it is quoted */
        text += n;
        begin += n;
    }
    for (; text && *begin; text++)
        if (*text != '"' && *text != *begin++)
            return NULL;
    while (text && *text == '"')
        text++;
    return text;
}

static bool same_text(const char *text, const char *wanted)
{
    const char *rest = behind(text, wanted);
    return rest && *rest == '\0';
}

/* An admin may run ANALYZE. */
static bool is_statistics(const char *text)
{
    return same_text(text, "CREATE TABLE sqlite_stat1(tbl,idx,stat)") ||
           same_text(text, "CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)");
}

static bool is_table(const char *text, int64_t version)
{
    const char *name = behind(text, "CREATE TABLE ");
    for (int t = 0; name && t < ORSET_TABLES; t++) {
        const char *rest = behind(name, schema_table[t]);
        bool numbers = version >= 2 && schema_has_numbers((enum orset_table)t);
        if (same_text(numbers ? behind(rest, "_long") : rest, ROWS_BY_KEY) ||
            (numbers && same_text(rest, ROWS_BY_NUMBER)))
            return true;
    }
    return false;
}

static unsigned tables_of(int64_t version)
{
    unsigned n = version >= 1 ? ORSET_TABLES : 0;
    for (int t = 0; version >= 2 && t < ORSET_TABLES; t++)
        n += schema_has_numbers((enum orset_table)t);
    return n;
}

/* All tables of that version, and nothing else. Names are unique in a file, so as many as there
 * are to be are those. */
static enum schema_result check(sqlite3 *db, int64_t version)
{
    sqlite3_stmt *st;
    unsigned n = 0;
    bool foreign = false;
    if (sqlite3_prepare_v2(db, "SELECT type, sql FROM sqlite_master", -1, &st, NULL) != SQLITE_OK)
        return SCHEMA_FAILED;
    int r;
    while ((r = sqlite3_step(st)) == SQLITE_ROW && !foreign) {
        const char *type = (const char *)sqlite3_column_text(st, 0),
                   *sql = (const char *)sqlite3_column_text(st, 1);
        bool known = sql && is_table(sql, version);
        foreign = !type || strcmp(type, "table") != 0 || (!known && !is_statistics(sql));
        n += known;
    }
    sqlite3_finalize(st);
    if (foreign || (r == SQLITE_DONE && n != tables_of(version)))
        return SCHEMA_FOREIGN;
    return r == SQLITE_DONE ? SCHEMA_OK : SCHEMA_FAILED;
}

/* --- versions
 * -------------------------------------------------------------------------------------------------
 */

static int make_tables(sqlite3 *db)
{
    char sql[160];
    int r = SQLITE_OK;
    for (int t = 0; t < ORSET_TABLES && r == SQLITE_OK; t++) {
        snprintf(sql, sizeof sql, "CREATE TABLE %s" ROWS_BY_KEY, schema_table[t]);
        r = sqlite3_exec(db, sql, NULL, NULL, NULL);
    }
    return r;
}

static void sql_number(sqlite3_context *context, int n, sqlite3_value **key)
{
    (void)n;
    const uint8_t *k = sqlite3_value_blob(key[0]);
    sqlite3_result_int64(
        context, schema_number(k ? k : (const uint8_t *)"", (size_t)sqlite3_value_bytes(key[0])));
}

/* Version 2: short keys as numbers. */
static int number_keys(sqlite3 *db)
{
    static const char *const sql[] = {
        "ALTER TABLE %s RENAME TO %s_long", ("CREATE TABLE %s" ROWS_BY_NUMBER),
        "INSERT INTO %s SELECT number(key), value FROM %s_long WHERE length(key) <= 7 ORDER BY key",
        "DELETE FROM %s_long WHERE length(key) <= 7"};
    char text[160];
    int r = sqlite3_create_function(db, "number", 1, SQLITE_UTF8 | SQLITE_DETERMINISTIC, NULL,
                                    sql_number, NULL, NULL);
    for (int t = 0; t < ORSET_TABLES; t++)
        for (size_t i = 0; r == SQLITE_OK && schema_has_numbers((enum orset_table)t) &&
                           i < sizeof sql / sizeof sql[0];
             i++) {
            snprintf(text, sizeof text, sql[i], schema_table[t], schema_table[t]);
            r = sqlite3_exec(db, text, NULL, NULL, NULL);
        }
    return r;
}

/* migration[v] makes version v + 1 out of version v. Append only: files of every version are out
 * there. */
static int (*const migration[STATE_SQLITE_VERSION])(sqlite3 *) = {make_tables, number_keys};

static int migrate(sqlite3 *db, int64_t version)
{
    char sql[64];
    int r = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    for (; r == SQLITE_OK && version < STATE_SQLITE_VERSION; version++)
        r = migration[version](db);
    snprintf(sql, sizeof sql, "PRAGMA user_version = %d; COMMIT", STATE_SQLITE_VERSION);
    return r == SQLITE_OK ? sqlite3_exec(db, sql, NULL, NULL, NULL) : r;
}

static int read_version(sqlite3 *db, int64_t *version_r)
{
    sqlite3_stmt *st = NULL;
    int r = sqlite3_prepare_v2(db, "PRAGMA user_version", -1, &st, NULL);
    if (r == SQLITE_OK && (r = sqlite3_step(st)) == SQLITE_ROW)
        *version_r = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return r == SQLITE_ROW ? SQLITE_OK : r;
}

enum schema_result schema_prepare(sqlite3 *db, int64_t *version_r)
{
    if (read_version(db, version_r) != SQLITE_OK)
        return SCHEMA_FAILED;
    if (*version_r < 0 || *version_r > VERSION_MAX)
        return SCHEMA_FOREIGN;
    if (*version_r > STATE_SQLITE_VERSION)
        return SCHEMA_NEWER;
    enum schema_result r = check(db, *version_r);
    if (r != SCHEMA_OK || *version_r == STATE_SQLITE_VERSION)
        return r;
    return migrate(db, *version_r) == SQLITE_OK ? SCHEMA_OK : SCHEMA_FAILED;
}
