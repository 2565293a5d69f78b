/* store - both stores against a naive one: an array of rows that is searched from the front. */
#include <check.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/memstore/memstore.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/store/state_sqlite.h"

#define ROWS 400
#define KEY 12
#define VALUE 200

/* --- the naive store
 * ---------------------------------------------------------------------------------------------- */

struct naive {
    size_t n;
    struct naive_row {
        enum orset_table table;
        size_t key_len, len;
        uint8_t key[KEY], value[VALUE];
    } row[ROWS];
};

static int naive_order(const struct naive_row *r, enum orset_table t, const uint8_t *key,
                       size_t len)
{
    if (r->table != t)
        return r->table < t ? -1 : 1;
    int c = memcmp(r->key, key, r->key_len < len ? r->key_len : len);
    return c ? c : r->key_len < len ? -1 : r->key_len > len;
}

static size_t naive_find(const struct naive *m, enum orset_table t, const uint8_t *key, size_t len)
{
    size_t i = 0;
    while (i < m->n && naive_order(&m->row[i], t, key, len) < 0)
        i++;
    return i;
}

static bool naive_has(const struct naive *m, size_t i, enum orset_table t, const uint8_t *key,
                      size_t len)
{
    return i < m->n && naive_order(&m->row[i], t, key, len) == 0;
}

static void naive_put(struct naive *m, enum orset_table t, const uint8_t *key, size_t key_len,
                      const uint8_t *value, size_t len)
{
    size_t i = naive_find(m, t, key, key_len);
    if (!naive_has(m, i, t, key, key_len)) {
        ck_assert_uint_lt(m->n, ROWS);
        memmove(&m->row[i + 1], &m->row[i], (m->n++ - i) * sizeof m->row[0]);
    }
    m->row[i] = (struct naive_row){.table = t, .key_len = key_len, .len = len};
    memcpy(m->row[i].key, key, key_len);
    memcpy(m->row[i].value, value, len);
}

static void naive_del(struct naive *m, enum orset_table t, const uint8_t *key, size_t len)
{
    size_t i = naive_find(m, t, key, len);
    if (naive_has(m, i, t, key, len))
        memmove(&m->row[i], &m->row[i + 1], (--m->n - i) * sizeof m->row[0]);
}

struct comparing {
    const struct naive *m;
    size_t at;
    enum orset_table table;
};

static int same_row(void *arg, const uint8_t *key, size_t key_len, const uint8_t *value, size_t len)
{
    struct comparing *c = arg;
    ck_assert_uint_lt(c->at, c->m->n);
    const struct naive_row *r = &c->m->row[c->at++];
    ck_assert_int_eq(r->table, c->table);
    ck_assert_uint_eq(r->key_len, key_len);
    ck_assert_uint_eq(r->len, len);
    ck_assert_mem_eq(r->key, key, key_len);
    ck_assert_mem_eq(r->value, value, len);
    return 0;
}

/* A walk from any key with any prefix of it shows what the naive store has there, and nothing
 * else. */
static void same_walk(const struct naive *m, struct orset_store *s, enum orset_table t,
                      const uint8_t *from, size_t from_len, size_t prefix)
{
    struct comparing c = {m, naive_find(m, t, from, from_len), t};
    size_t end = c.at;
    while (end < m->n && m->row[end].table == t && m->row[end].key_len >= prefix &&
           memcmp(m->row[end].key, from, prefix) == 0)
        end++;
    ck_assert_int_eq(s->each(s->ctx, t, from, from_len, prefix, same_row, &c), 0);
    ck_assert_uint_eq(c.at, end);
}

/* --- the walk over both
 * ---------------------------------------------------------------------------------------------- */

static long fail_after = -1; /* allocations until one fails, -1: none */
static long failed, pieces;

static void *resize(void *ctx, void *p, size_t n)
{
    (void)ctx;
    if (n > 0 && fail_after >= 0 && fail_after-- == 0) {
        failed++;
        return NULL;
    }
    pieces += (n > 0 && !p) - (n == 0 && p);
    if (n > 0)
        return realloc(p, n);
    free(p);
    return NULL;
}

static const struct orset_alloc HEAP = {NULL, resize};

static uint64_t seed;

static unsigned rnd(unsigned n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (unsigned)(seed >> 20) % n;
}

/* Keys of 0 to 12 bytes with many common beginnings: in SQLite on both sides of what fits into a
 * number. */
static size_t some_key(uint8_t *key)
{
    size_t len = rnd(KEY + 1);
    for (size_t i = 0; i < len; i++)
        key[i] = (uint8_t)(i + 3 < len ? (rnd(4) ? 0 : 0xff) : rnd(3) * 127);
    return len;
}

static const enum orset_table TABLES[] = {ORSET_T_MESSAGE, ORSET_T_TASK, ORSET_T_OUT};

/* One change or look at both. False when the store said that it could not. */
static bool one(struct naive *m, struct orset_store *s)
{
    enum orset_table t = TABLES[rnd(3)];
    uint8_t key[KEY], value[VALUE];
    size_t key_len = some_key(key), len = rnd(4) ? rnd(30) : rnd(VALUE),
           at = naive_find(m, t, key, key_len);
    bool has = naive_has(m, at, t, key, key_len);
    const uint8_t *v;
    struct orset_ref ref = {key, key_len};
    if (s->expect)
        s->expect(s->ctx, t, &ref, 1);
    switch (rnd(8)) {
    case 0:
    case 1:
    case 2:
        if (!has && m->n == ROWS)
            return true;
        for (size_t i = 0; i < len; i++)
            value[i] = (uint8_t)rnd(256);
        if (s->put(s->ctx, t, key, key_len, value, len) < 0)
            return false;
        naive_put(m, t, key, key_len, value, len);
        return true;
    case 3:
    case 4:
        if (s->del(s->ctx, t, key, key_len) < 0)
            return false;
        naive_del(m, t, key, key_len);
        return true;
    case 5: same_walk(m, s, t, key, key_len, rnd((unsigned)key_len + 1)); return true;
    default:
        ck_assert_int_eq(s->get(s->ctx, t, key, key_len, &v, &len), has);
        if (has) {
            ck_assert_uint_eq(len, m->row[at].len);
            ck_assert_mem_eq(v, m->row[at].value, len);
        }
        return true;
    }
}

static void same_rows(const struct naive *m, struct orset_store *s)
{
    for (int i = 0; i < 3; i++)
        same_walk(m, s, TABLES[i], (const uint8_t *)"", 0, 0);
}

#ifdef __SANITIZE_ADDRESS__
#define FEWER 5 /* each looks at all rows: two minutes */
#else
#define FEWER 1
#endif

/* Transactions that end well, are taken back, or break off where memory ends. */
static void against_naive(struct orset_store *s, unsigned transactions, bool starve)
{
    static struct naive now, before;
    now.n = 0;
    for (unsigned i = 0; i < transactions; i++) {
        before = now;
        bool good = true;
        ck_assert_int_eq(s->begin(s->ctx), 0);
        fail_after = starve && rnd(2) ? (long)rnd(60) : -1;
        for (unsigned k = rnd(60); k > 0 && good; k--)
            good = one(&now, s);
        if (good && rnd(3)) {
            ck_assert_int_eq(s->commit(s->ctx), 0);
        } else {
            s->rollback(s->ctx); /* without memory still */
            now = before;
        }
        fail_after = -1;
        same_rows(&now, s);
    }
}

START_TEST(test_the_memory_store_does_what_a_naive_one_does_and_lacks_memory_without_harm)
{
    struct orset_store s;
    failed = pieces = 0;
    for (seed = 1; seed < 2000000; seed = seed * 3 + 1) {
        uint64_t begun = seed;
        struct orset_memstore *m = orset_memstore_new(&HEAP), *copy;
        orset_memstore_interface(m, &s);
        against_naive(&s, 300 / FEWER, true);
        copy = orset_memstore_copy(m);
        ck_assert_uint_eq(orset_memstore_rows(copy, ORSET_T_OUT),
                          orset_memstore_rows(m, ORSET_T_OUT));
        orset_memstore_free(m);
        orset_memstore_free(copy);
        ck_assert_int_eq(pieces, 0);
        seed = begun;
    }
    ck_assert_int_gt(failed, 100 / FEWER);
}
END_TEST

/* Enough rows for several levels of both the tree and the hash table, and out again. */
START_TEST(test_the_memory_store_grows_and_empties)
{
    struct orset_store s;
    struct orset_memstore *m = orset_memstore_new(&HEAP);
    const uint8_t *v;
    size_t len;
    orset_memstore_interface(m, &s);
    size_t empty = orset_memstore_bytes(m);
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < 40000; i++) {
            uint32_t n = i * 2654435761U; /* in no order */
            uint8_t key[4] = {(uint8_t)(n >> 24), (uint8_t)(n >> 16), (uint8_t)(n >> 8),
                              (uint8_t)n};
            ck_assert_int_eq(s.get(s.ctx, ORSET_T_UID, key, 4, &v, &len), pass);
            ck_assert_int_eq(pass ? s.del(s.ctx, ORSET_T_UID, key, 4)
                                  : s.put(s.ctx, ORSET_T_UID, key, 4, &i, 4),
                             0);
            ck_assert_uint_eq(orset_memstore_rows(m, ORSET_T_UID), pass ? 39999 - i : i + 1);
        }
    /* What is left is the hash table's block. */
    ck_assert_uint_lt(orset_memstore_bytes(m) - empty, 2 << 20);
    orset_memstore_free(m);
}
END_TEST

static void remove_state(const char *path)
{
    char log[100];
    snprintf(log, sizeof log, "%s-wal", path);
    unlink(log);
    unlink(path);
}

/* In memory, where there is room: no test here is about power, and each commit would wait for a
 * disk. */
static void make_file(char path[64])
{
    snprintf(path, 64, "%s/orset-store-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
}

START_TEST(test_the_sqlite_store_does_what_a_naive_one_does)
{
    char path[64], *error = NULL;
    struct state_sqlite *q;
    struct orset_store s;
    seed = 4711;
    make_file(path);
    ck_assert_int_eq(state_sqlite_open(&q, path, &error), 0);
    state_sqlite_interface(q, &s);
    against_naive(&s, 1500 / FEWER, false);
    state_sqlite_close(q);
    remove_state(path);
}
END_TEST

static void run_sql(sqlite3 *db, const char *sql)
{
    char *error = NULL;
    sqlite3_exec(db, sql, NULL, NULL, &error);
    ck_assert_msg(!error, "%s: %s", sql, error ? error : "");
}

static sqlite3 *opened;

static int note_handle(sqlite3 *db, char **error, const void *api)
{
    (void)error;
    (void)api;
    opened = db;
    return SQLITE_OK;
}

static int no_row(void *arg, const uint8_t *key, size_t key_len, const uint8_t *value, size_t len)
{
    (void)arg;
    (void)key;
    (void)key_len;
    (void)value;
    (void)len;
    ck_abort_msg("a row");
}

/* The store is of use again. */
static void after_rollback(struct orset_store *s)
{
    s->rollback(s->ctx);
    ck_assert_int_eq(s->begin(s->ctx), 0);
    ck_assert_int_eq(s->put(s->ctx, ORSET_T_OUT, "good", 4, "v", 1), 0);
    ck_assert_int_eq(s->commit(s->ctx), 0);
}

/* Where a disk is full, SQLite rolls back by itself, and takes what follows for transactions of
 * their own. */
START_TEST(test_nothing_is_done_after_sqlite_rolled_back)
{
    static uint8_t big[1 << 20];
    char path[64], *error = NULL;
    struct state_sqlite *q;
    struct orset_store s;
    const uint8_t *v;
    size_t len;
    make_file(path);
    ck_assert_int_eq(sqlite3_auto_extension((void (*)(void))note_handle), SQLITE_OK);
    ck_assert_int_eq(state_sqlite_open(&q, path, &error), 0);
    sqlite3_reset_auto_extension();
    state_sqlite_interface(q, &s);
    ck_assert_int_eq(s.begin(s.ctx), 0);
    ck_assert_int_eq(s.put(s.ctx, ORSET_T_OUT, "old", 3, "v", 1), 0);
    ck_assert_int_eq(s.commit(s.ctx), 0);
    ck_assert_int_eq(s.begin(s.ctx), 0);
    ck_assert_int_eq(s.put(s.ctx, ORSET_T_OUT, "one", 3, "v", 1), 0);
    run_sql(opened, "PRAGMA max_page_count = 100");
    ck_assert_int_lt(s.put(s.ctx, ORSET_T_OUT, "big", 3, big, sizeof big), 0);
    if (!sqlite3_get_autocommit(opened)) /* a SQLite that takes the statement back alone */
        run_sql(opened, "ROLLBACK");
    ck_assert_int_lt(s.put(s.ctx, ORSET_T_OUT, "two", 3, "v", 1), 0);
    ck_assert_int_lt(s.del(s.ctx, ORSET_T_OUT, "old", 3), 0);
    ck_assert_int_lt(s.get(s.ctx, ORSET_T_OUT, "old", 3, &v, &len), 0);
    ck_assert_int_lt(s.each(s.ctx, ORSET_T_OUT, "", 0, 0, no_row, NULL), 0);
    ck_assert_int_lt(s.commit(s.ctx), 0);
    ck_assert_ptr_nonnull(strstr(state_sqlite_error(q), "full"));
    ck_assert_int_eq(state_sqlite_rows(q, ORSET_T_OUT), 1);
    after_rollback(&s);
    state_sqlite_close(q);
    ck_assert_int_eq(state_sqlite_open(&q, path, &error), 0);
    ck_assert_int_eq(state_sqlite_rows(q, ORSET_T_OUT), 2);
    state_sqlite_close(q);
    remove_state(path);
}
END_TEST

/* A file as version 1 wrote it. */
START_TEST(test_a_sqlite_state_of_version_1_becomes_one_of_version_2)
{
    static const char *const table[] = {"meta",      "origin", "folder", "message", "guid",
                                        "uid",       "ahead",  "todo",   "keyword", "subscription",
                                        "attribute", "out",    "app"};
    static struct naive m;
    char path[64], sql[800], *error = NULL;
    struct state_sqlite *q;
    struct orset_store s;
    sqlite3 *db;
    make_file(path);
    ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
    for (size_t t = 0; t < ORSET_TABLES; t++) {
        snprintf(sql, sizeof sql,
                 "CREATE TABLE %s (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
                 table[t]);
        run_sql(db, sql);
    }
    run_sql(db, "PRAGMA user_version = 1");
    m.n = 0;
    seed = 99;
    for (int i = 0; i < 300; i++) {
        enum orset_table t = TABLES[rnd(3)];
        uint8_t key[KEY], value[4] = {(uint8_t)i, (uint8_t)rnd(256)};
        size_t len = some_key(key);
        naive_put(&m, t, key, len, value, rnd(5));
    }
    for (size_t i = 0; i < m.n; i++) {
        int n = snprintf(sql, sizeof sql, "INSERT INTO %s VALUES (x'", table[m.row[i].table]);
        for (size_t k = 0; k < m.row[i].key_len; k++)
            n += snprintf(sql + n, sizeof sql - (size_t)n, "%02x", m.row[i].key[k]);
        n += snprintf(sql + n, sizeof sql - (size_t)n, "', x'");
        for (size_t k = 0; k < m.row[i].len; k++)
            n += snprintf(sql + n, sizeof sql - (size_t)n, "%02x", m.row[i].value[k]);
        snprintf(sql + n, sizeof sql - (size_t)n, "')");
        run_sql(db, sql);
    }
    sqlite3_close(db);
    for (int again = 0; again < 2; again++) {
        ck_assert_int_eq(state_sqlite_open(&q, path, &error), 0);
        state_sqlite_interface(q, &s);
        same_rows(&m, &s);
        int64_t rows = 0;
        for (int i = 0; i < 3; i++)
            rows += state_sqlite_rows(q, TABLES[i]);
        ck_assert_int_eq(rows, (int64_t)m.n);
        state_sqlite_close(q);
    }
    ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
    sqlite3_stmt *st;
    ck_assert_int_eq(
        sqlite3_prepare_v2(
            db,
            "SELECT (SELECT user_version FROM pragma_user_version), count(*),"
            " (SELECT count(*) FROM message_long WHERE length(key) > 7) FROM message_long",
            -1, &st, NULL),
        SQLITE_OK);
    ck_assert_int_eq(sqlite3_step(st), SQLITE_ROW);
    ck_assert_int_eq(sqlite3_column_int(st, 0), STATE_SQLITE_VERSION);
    ck_assert_int_gt(sqlite3_column_int(st, 1), 0);
    ck_assert_int_eq(sqlite3_column_int(st, 1), sqlite3_column_int(st, 2));
    sqlite3_finalize(st);
    sqlite3_close(db);
    remove_state(path);
}
END_TEST

/* The log is moved into the file as it grows, and what is still in it is read at the next open. */
START_TEST(test_the_sqlite_log_is_bounded)
{
    char path[64], log[100], command[400], *error = NULL;
    struct state_sqlite *q;
    struct orset_store s;
    struct stat st;
    off_t most = 0;
    uint8_t value[VALUE] = {0};
    seed = 7;
    make_file(path);
    snprintf(log, sizeof log, "%s-wal", path);
    ck_assert_int_eq(state_sqlite_open(&q, path, &error), 0);
    state_sqlite_interface(q, &s);
    for (uint32_t i = 0; i < 400; i++) {
        ck_assert_int_eq(s.begin(s.ctx), 0);
        for (int k = 0; k < 100; k++) {
            uint32_t n = rnd(20000);
            uint8_t key[3] = {(uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n};
            memcpy(value, &i, sizeof i);
            ck_assert_int_eq(s.put(s.ctx, ORSET_T_MESSAGE, key, 3, value, sizeof value), 0);
        }
        ck_assert_int_eq(s.commit(s.ctx), 0);
        ck_assert_int_eq(stat(log, &st), 0);
        most = st.st_size > most ? st.st_size : most;
    }
    /* 1000 pages and what the last transaction brought. */
    ck_assert_int_gt(most, 1000 * 4096);
    ck_assert_int_lt(most, 1400 * 4120);
    /* As a killed process leaves it. */
    int64_t rows = state_sqlite_rows(q, ORSET_T_MESSAGE);
    char copy[80];
    snprintf(copy, sizeof copy, "%s.copy", path);
    snprintf(command, sizeof command, "cp %s %s && cp %s-wal %s-wal", path, copy, path, copy);
    ck_assert_int_eq(system(command), 0);
    state_sqlite_close(q);
    /* Nothing that belongs to this state stays beside it: it would be read into an older one
     * that is put here. */
    ck_assert_int_eq(stat(log, &st), 0);
    ck_assert_int_eq(st.st_size, 0);
    ck_assert_int_eq(state_sqlite_open(&q, copy, &error), 0);
    ck_assert_int_eq(state_sqlite_rows(q, ORSET_T_MESSAGE), rows);
    state_sqlite_close(q);
    remove_state(copy);
    remove_state(path);
}
END_TEST

/* A hint is a hint: known UIDs, unknown ones, more than a store takes at once. */
START_TEST(test_what_is_expected_changes_nothing)
{
    struct orset_memstore *m = orset_memstore_new(&HEAP);
    struct orset_store s;
    struct orset *os;
    struct orset_origin me = {1, 101};
    uint32_t uid[3 * ORSET_PREFETCH + 1];
    uint8_t before[16], now[16];
    orset_memstore_interface(m, &s);
    ck_assert_int_eq(orset_open(&os, &HEAP, &s, &me, NULL), 0);
    ck_assert_int_eq(orset_begin(os), 0);
    for (uint32_t i = 1; i <= 50; i++) {
        struct orset_facts f = {
            .guid = {(uint8_t)i}, .sha256 = {(uint8_t)i}, .received = 1, .saved = 1};
        struct orset_flags none = {0};
        ck_assert_int_eq(orset_local_add(os, ORSET_INBOX, i, &f, &none, NULL), 0);
    }
    for (uint32_t i = 0; i < sizeof uid / sizeof uid[0]; i++)
        uid[i] = i * 7 % 120;
    orset_digest(os, before);
    orset_prefetch(os, ORSET_INBOX, uid, sizeof uid / sizeof uid[0]);
    orset_prefetch(os, 77, uid, 1);
    orset_digest(os, now);
    ck_assert_mem_eq(before, now, 16);
    ck_assert_int_eq(orset_commit(os), 0);
    orset_close(os);
    orset_memstore_free(m);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("orset stores");
    TCase *t = tcase_create("stores");
    tcase_set_timeout(t, 120);
    tcase_add_test(t,
                   test_the_memory_store_does_what_a_naive_one_does_and_lacks_memory_without_harm);
    tcase_add_test(t, test_the_memory_store_grows_and_empties);
    tcase_add_test(t, test_the_sqlite_store_does_what_a_naive_one_does);
    tcase_add_test(t, test_nothing_is_done_after_sqlite_rolled_back);
    tcase_add_test(t, test_a_sqlite_state_of_version_1_becomes_one_of_version_2);
    tcase_add_test(t, test_the_sqlite_log_is_bounded);
    tcase_add_test(t, test_what_is_expected_changes_nothing);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int bad = srunner_ntests_failed(r);
    srunner_free(r);
    return bad ? 1 : 0;
}
