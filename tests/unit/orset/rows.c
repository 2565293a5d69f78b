/* rows - a state file that its user wrote into: what cannot be true is known as that, wherever
 * it is, and nothing of it is run. */
#include "dovecot-plugin/orset/ops/op_batch.h"
#include "dovecot-plugin/store/guard.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/store/state_sqlite.h"

#include <check.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void *resize(void *ctx, void *p, size_t n)
{
    (void)ctx;
    if (n > 0)
        return realloc(p, n);
    free(p);
    return NULL;
}

static const struct orset_alloc HEAP = {NULL, resize};
static char path[80];

static void remove_files(void)
{
    static const char *const part[] = {"", "-wal", "-journal"};
    char name[100];
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s%s", path, part[i]);
        if (unlink(name) < 0)
            rmdir(name);
    }
}

static int open_state(struct state_sqlite **db, struct orset **os)
{
    struct orset_origin me = {1, 101};
    struct orset_store s;
    char *error = NULL;
    *os = NULL;
    int r = state_sqlite_open(db, path, &error);
    free(error);
    if (r < 0)
        return r;
    state_sqlite_interface(*db, &s);
    return orset_open(os, &HEAP, &s, &me, NULL);
}

/* A folder, three mails with a keyword, a subscription, an attribute. */
static void make_state(void)
{
    struct state_sqlite *db;
    struct orset *os;
    struct orset_flags flags = {.system = ORSET_SEEN, .nkeywords = 1};
    uint32_t folder;
    strcpy(path, "/tmp/orset-rows-XXXXXX");
    close(mkstemp(path));
    ck_assert_int_eq(open_state(&db, &os), 0);
    ck_assert_int_eq(orset_begin(os), 0);
    ck_assert_int_eq(orset_local_create(os, "\0F", 2, 5, (const uint8_t[16]){1}, &folder), 0);
    ck_assert_int_eq(orset_keyword(os, "Kw", 2), 0);
    for (uint8_t i = 1; i <= 3; i++) {
        struct orset_facts f = {.guid = {i}, .sha256 = {i}, .received = i, .saved = i};
        ck_assert_int_eq(orset_local_add(os, folder, i, &f, &flags, NULL), 0);
    }
    ck_assert_int_eq(orset_local_subscribe(os, "\0F", 2, true), 0);
    ck_assert_int_eq(orset_local_attribute(os, folder, "pk", 2, (const uint8_t *)"v", 1), 0);
    ck_assert_int_eq(orset_commit(os), 0);
    orset_close(os);
    state_sqlite_close(db);
}

static void run_sql(const char *sql)
{
    sqlite3 *db;
    char *error = NULL;
    ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
    sqlite3_exec(db, sql, NULL, NULL, &error);
    ck_assert_msg(!error, "%s: %s", sql, error ? error : "");
    sqlite3_close(db);
}

static int each(void *arg, const struct orset_message *m, const struct orset_flags *own)
{
    size_t len;
    for (unsigned i = 0; i < own->nkeywords; i++)
        ck_assert_ptr_nonnull(orset_keyword_name(arg, own->keyword[i], &len));
    ck_assert_uint_lt(m->dot.origin, orset_origins(arg));
    return 0;
}

/* What a worker asks. A failure by what is stored ends it. */
static int ask_all(struct orset *os)
{
    struct orset_task t = {.at_len = 0};
    struct orset_buf b = {.alloc = &HEAP};
    const uint8_t *v;
    size_t len;
    uint64_t next;
    uint8_t digest[16];
    int r = 0;
    orset_digest(os, digest);
    for (uint32_t f = 0; f < orset_folders(os) && r >= 0; f++) {
        r = orset_each_message(os, f, each, os);
        for (uint32_t uid = 1; uid <= 3 && r >= 0; uid++)
            r = orset_message_by_uid(os, f, uid, NULL);
    }
    while (r >= 0 && (r = orset_task_next(os, &t)) > 0)
        ;
    if (r >= 0) {
        orset_subscribed(os, "\0F", 2);
        r = orset_attribute_get(os, 1, "pk", 2, &v, &len);
    }
    if (r >= 0)
        r = orset_batch_make(os, 1, 100000, NULL, 0, &b, &next);
    if (r >= 0 && (r = orset_begin(os)) == 0) {
        struct orset_flags none = {0};
        r = orset_local_flags(os, 1, 1, &none, NULL);
        orset_rollback(os);
    }
    orset_buf_free(&b);
    return r;
}

static bool is_known_as_spoilt(void)
{
    struct state_sqlite *db;
    struct orset *os;
    int r = open_state(&db, &os);
    if (r == -2 && !os && !db)
        return true;
    if (r == 0)
        r = ask_all(os);
    bool spoilt = state_sqlite_spoilt(db);
    ck_assert_msg(r < 0 || !spoilt, "a damaged state was believed before it was found out");
    orset_close(os);
    state_sqlite_close(db);
    return spoilt;
}

/* Each is one change to a true state. */
static const char *const untrue[] = {
    /* rows: indices and lengths */
    /* id.origin 127, of one */
    "UPDATE folder SET value = x'ff00' || substr(value, 2) WHERE key = x'01'",
    /* home 9, of two */
    "UPDATE folder SET value = substr(value, 1, 2) || x'09' || substr(value, 4) WHERE key = x'01'",
    /* an empty component */
    "UPDATE folder SET value = replace(value, x'0046', x'0000') WHERE key = x'01'",
    "UPDATE folder SET value = substr(value, 1, 20)",
    "UPDATE folder SET key = x'05' WHERE key = x'01'", "DELETE FROM folder WHERE key = x'00'",
    "DELETE FROM folder", "UPDATE origin SET key = x'03'",
    "UPDATE meta SET value = x'07' || substr(value, 2)", /* self */
    "DELETE FROM keyword",                               /* mails have one */
    "INSERT INTO keyword VALUES (x'07', 'x')", "UPDATE keyword SET value = zeroblob(300)",
    "UPDATE message SET value = substr(value, 1, 40)",
    "UPDATE message SET value = x'60' || substr(value, 2)", /* bits that none has */
    "UPDATE message SET value = value || x'0a0901'",        /* a flag of origin 9 */
    "UPDATE uid SET value = x'010901'",                     /* a mail of origin 9 */
    "UPDATE uid SET value = x'090001'",                     /* of folder 9 */
    "UPDATE out SET value = x'0102'",
    "UPDATE out SET value = substr(value, 1, 50) || x'77' || substr(value, 52) WHERE number = "
    "(SELECT "
    "max(number) FROM out)", /* another op */
    "UPDATE out SET value = substr(value, 1, 12) || x'77' || substr(value, 14) WHERE number = "
    "(SELECT "
    "min(number) FROM out)",
    "UPDATE subscription SET value = x'0901'", "UPDATE attribute SET value = x'01'",
    /* a kind that is none */
    "INSERT INTO todo VALUES (x'', x'')", "INSERT INTO todo VALUES (x'0909', x'')",
    /* of folder 9 */
    "INSERT INTO todo VALUES (x'010909', x'')",
    "INSERT INTO todo VALUES (x'020000', x'00')",   /* UID 0 */
    "INSERT INTO todo VALUES (x'02f10001', x'00')", /* a number in another form */
    "INSERT INTO todo VALUES (zeroblob(1400), x'')",
    "INSERT INTO todo VALUES (zeroblob(1401), x'')",
    "INSERT INTO todo VALUES (x'050000', x'')", /* a subscription without a name */
    /* keys as numbers */
    "UPDATE message SET number = number | 15", "UPDATE message SET number = number | 9",
    "UPDATE message SET number = number + 65536",
    "INSERT INTO message_long SELECT x'010001', value FROM message LIMIT 1",
    /* types */
    "UPDATE folder SET value = CAST(value AS TEXT)", "UPDATE origin SET key = 1",
    "UPDATE message SET value = 7", "UPDATE meta SET key = CAST(key AS TEXT)",
    /* tables */
    "DROP TABLE app; CREATE VIEW app AS WITH RECURSIVE c(key, value) AS (SELECT x'00', x'00' UNION "
    "ALL "
    "SELECT key, value FROM c) SELECT * FROM c",
    "CREATE TRIGGER t AFTER INSERT ON todo BEGIN DELETE FROM message; END",
    "CREATE INDEX i ON message (value)", "CREATE TABLE other (a)", "DROP TABLE ahead",
    "DROP TABLE meta; CREATE TABLE meta (key, value)", "PRAGMA user_version = 1",
    "PRAGMA user_version = 0", "PRAGMA user_version = -5", "PRAGMA user_version = 70000"};

/* As a program wrote them that knows no seals. */
static const char unseal[] =
    "UPDATE folder SET value = substr(value, 1, length(value) - 4);"
    "UPDATE origin SET value = substr(value, 1, length(value) - 4);"
    "UPDATE meta SET value = substr(value, 1, length(value) - 4) WHERE key = x'73656c66'";

/* The rows tell it themselves, where no seal does. */
START_TEST(test_what_cannot_be_true_is_known_as_that)
{
    make_state();
    run_sql(unseal);
    run_sql(untrue[_i]);
    ck_assert_msg(is_known_as_spoilt(), "believed: %s", untrue[_i]);
    remove_files();
}
END_TEST

START_TEST(test_a_state_that_nobody_touched_is_believed)
{
    make_state();
    ck_assert(!is_known_as_spoilt());
    run_sql("ANALYZE"); /* as an admin may */
    ck_assert(!is_known_as_spoilt());
    run_sql("VACUUM");
    ck_assert(!is_known_as_spoilt());
    remove_files();
}
END_TEST

/* --- seals */

/* The last row of the table: its value is read, or (len not 0) written. Returns its length. */
static size_t last_row(const char *table, uint8_t *value, size_t len)
{
    char sql[200];
    sqlite3 *db;
    sqlite3_stmt *st;
    ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
    snprintf(sql, sizeof sql,
             len ? "UPDATE %s SET value = ?1 WHERE key = (SELECT max(key) FROM %s)"
                 : "SELECT value FROM %s WHERE key = (SELECT max(key) FROM %s)",
             table, table);
    ck_assert_int_eq(sqlite3_prepare_v2(db, sql, -1, &st, NULL), SQLITE_OK);
    if (len)
        ck_assert_int_eq(sqlite3_bind_blob(st, 1, value, (int)len, SQLITE_STATIC), SQLITE_OK);
    ck_assert_int_eq(sqlite3_step(st), len ? SQLITE_DONE : SQLITE_ROW);
    if (!len) {
        len = (size_t)sqlite3_column_bytes(st, 0);
        memcpy(value, sqlite3_column_blob(st, 0), len);
    }
    sqlite3_finalize(st);
    sqlite3_close(db);
    return len;
}

/* An epoch, the number of a folder, a name, a clock: what a flip makes of them is as good as they
 * were. Peers would be told of it, and keep it for ever. */
START_TEST(test_each_flipped_bit_of_a_sealed_row_is_known)
{
    static const char *const sealed[] = {"meta", "origin", "folder"};
    uint8_t value[1000];
    make_state();
    size_t len = last_row(sealed[_i], value, 0);
    ck_assert_uint_gt(len, 20);
    for (size_t bit = 0; bit < 8 * len; bit++) {
        value[bit / 8] ^= (uint8_t)(1U << bit % 8);
        last_row(sealed[_i], value, len);
        ck_assert_msg(is_known_as_spoilt(), "%s: byte %zu, bit %zu", sealed[_i], bit / 8, bit % 8);
        value[bit / 8] ^= (uint8_t)(1U << bit % 8);
    }
    last_row(sealed[_i], value, len);
    ck_assert(!is_known_as_spoilt());
    remove_files();
}
END_TEST

/* A program that knows none writes rows without; the next change of a row seals it again. */
START_TEST(test_a_row_without_a_seal_is_believed_and_sealed_when_it_is_written)
{
    struct orset_facts mail = {.guid = {4}, .sha256 = {4}};
    struct orset_flags none = {0};
    struct state_sqlite *db;
    struct orset *os;
    uint8_t before[1000], value[1000];
    make_state();
    size_t sealed = last_row("folder", value, 0);
    run_sql(unseal);
    ck_assert_uint_eq(last_row("folder", before, 0), sealed - 4);
    ck_assert(!is_known_as_spoilt());
    ck_assert_uint_eq(last_row("folder", value, 0), sealed - 4);
    ck_assert_int_eq(open_state(&db, &os), 0);
    ck_assert_int_eq(orset_begin(os), 0);
    ck_assert_int_eq(orset_local_add(os, 1, 4, &mail, &none, NULL), 0);
    ck_assert_int_eq(orset_commit(os), 0);
    orset_close(os);
    state_sqlite_close(db);
    size_t again = last_row("folder", value, 0);
    ck_assert_uint_ge(again, sealed);
    value[again - 5] ^= 64;
    last_row("folder", value, again);
    ck_assert(is_known_as_spoilt());
    remove_files();
}
END_TEST

static int count_row(void *arg, const uint8_t *key, size_t key_len, const uint8_t *v, size_t len)
{
    (void)key;
    (void)key_len;
    (void)v;
    (void)len;
    ++*(unsigned *)arg;
    return 0;
}

/* A walk in a file whose pages are not in order would show the same rows again and again. */
START_TEST(test_rows_out_of_order_end_a_walk)
{
    make_state();
    run_sql("INSERT INTO todo VALUES (x'05000061626364', x''), (x'05000061626365', x'')");
    FILE *f = fopen(path, "r+");
    static uint8_t bytes[200000];
    size_t n = fread(bytes, 1, sizeof bytes, f), at;
    for (at = 0; at + 5 < n && memcmp(bytes + at, "\0abcd", 5) != 0; at++)
        ;
    ck_assert_uint_lt(at + 5, n);
    fseek(f, (long)at + 4, SEEK_SET);
    fputc('z', f);
    fclose(f);
    struct state_sqlite *db;
    struct orset *os;
    struct orset_store s;
    unsigned rows = 0;
    ck_assert_int_eq(open_state(&db, &os), 0);
    state_sqlite_interface(db, &s);
    ck_assert_int_eq(s.each(s.ctx, ORSET_T_TASK, "", 0, 0, count_row, &rows), -1);
    ck_assert(state_sqlite_spoilt(db));
    orset_close(os);
    state_sqlite_close(db);
    remove_files();
}
END_TEST

START_TEST(test_no_other_file_is_opened)
{
    static const char *const part[] = {"", "-wal", "-journal"};
    char name[100], target[100];
    struct state_sqlite *db;
    struct stat st;
    for (int i = 0; i < 3; i++)
        for (int link = 0; link < 2; link++) {
            char *error = NULL;
            make_state();
            snprintf(name, sizeof name, "%s%s", path, part[i]);
            snprintf(target, sizeof target, "%s.other", path);
            unlink(name);
            if (link)
                ck_assert_int_eq(symlink(target, name), 0);
            else
                ck_assert_int_eq(mkdir(name, 0700), 0);
            ck_assert_int_eq(state_sqlite_open(&db, path, &error), -2);
            ck_assert_ptr_nonnull(strstr(error, "no regular file"));
            ck_assert_int_eq(lstat(target, &st), -1);
            free(error);
            remove_files();
        }
}
END_TEST

/* Where the tables were looked at and are others now, as when somebody writes into an open file. */
START_TEST(test_no_statement_is_endless_and_nothing_else_is_run)
{
    static const char *const refused[] = {
        "WITH RECURSIVE c(a) AS (SELECT 1 UNION ALL SELECT a FROM c) SELECT count(*) FROM c",
        "SELECT * FROM v", "ATTACH '/tmp/orset-rows-attached' AS other"};
    struct state_guard g = {0};
    sqlite3 *db;
    ck_assert_int_eq(sqlite3_open(":memory:", &db), SQLITE_OK);
    ck_assert_int_eq(
        sqlite3_exec(db,
                     "CREATE TABLE t (a); WITH RECURSIVE c(a) AS (SELECT 1 UNION ALL SELECT a + "
                     "1 FROM c LIMIT 2000) INSERT INTO t SELECT a FROM c;"
                     "CREATE VIEW v AS SELECT a FROM t",
                     NULL, NULL, NULL),
        SQLITE_OK);
    ck_assert_int_eq(state_guard_begin(db, &g), SQLITE_OK);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        ck_assert_int_ne(sqlite3_exec(db, refused[i], NULL, NULL, NULL), SQLITE_OK);
    state_guard_row(&g);
    ck_assert_int_eq(sqlite3_exec(db, "SELECT sum(a) FROM t", NULL, NULL, NULL), SQLITE_OK);
    ck_assert_uint_gt(g.most, 0);
    g.most = 2;
    ck_assert_int_eq(sqlite3_exec(db, "SELECT sum(w.a + x.a + y.a + z.a) FROM t w, t x, t y, t z",
                                  NULL, NULL, NULL),
                     SQLITE_INTERRUPT);
    ck_assert(state_guard_blames_file(db, "", false));
    state_guard_row(&g); /* the next one begins anew */
    ck_assert_int_eq(sqlite3_exec(db, "SELECT sum(a) FROM t", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}
END_TEST

/* A home behind a link is as good as any. */
START_TEST(test_a_directory_may_be_a_link)
{
    char dir[] = "/tmp/orset-rows-XXXXXX", link[60];
    struct state_sqlite *db;
    char *error;
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(link, sizeof link, "%s.link", dir);
    ck_assert_int_eq(symlink(dir, link), 0);
    snprintf(path, sizeof path, "%s/db", link);
    ck_assert_int_eq(state_sqlite_open(&db, path, &error), 0);
    state_sqlite_close(db);
    remove_files();
    unlink(link);
    rmdir(dir);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("orset rows");
    TCase *t = tcase_create("rows");
    tcase_add_loop_test(t, test_what_cannot_be_true_is_known_as_that, 0,
                        (int)(sizeof untrue / sizeof untrue[0]));
    tcase_add_test(t, test_a_state_that_nobody_touched_is_believed);
    tcase_add_loop_test(t, test_each_flipped_bit_of_a_sealed_row_is_known, 0, 3);
    tcase_add_test(t, test_a_row_without_a_seal_is_believed_and_sealed_when_it_is_written);
    tcase_add_test(t, test_rows_out_of_order_end_a_walk);
    tcase_add_test(t, test_no_other_file_is_opened);
    tcase_add_test(t, test_no_statement_is_endless_and_nothing_else_is_run);
    tcase_add_test(t, test_a_directory_may_be_a_link);
    tcase_set_timeout(t, 60);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
