/* floor - see floor.h. */
#include "tests/bench/orset/floor.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define BYTES 125 /* of state per message */
#define SMALL 1000
#define LINE 64

static uint64_t seed = 88172645463325252ULL;

static uint64_t rnd(uint64_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (seed >> 20) % n;
}

static double cpu(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ns per read of a random line of 64 bytes. in_turn: each address comes out of the line read
 * before. */
static double reads(uint32_t messages, bool in_turn)
{
    enum { READS = 3000000, WORDS = LINE / 8 };
    size_t lines = (size_t)messages * BYTES / LINE;
    uint64_t *m = malloc(lines * LINE), sum = 0;
    if (!m)
        exit(1);
    for (size_t i = 0; i < lines * WORDS; i++)
        m[i] = rnd(lines);
    double t = cpu();
    for (unsigned i = 0; i < READS; i++)
        sum += m[(rnd(lines) + (in_turn ? sum & 1 : 0)) % lines * WORDS];
    t = cpu() - t;
    free(m);
    return sum ? t / READS * 1e9 : 0;
}

static void sql(sqlite3 *db, const char *text)
{
    if (sqlite3_exec(db, text, NULL, NULL, NULL) != SQLITE_OK) {
        fprintf(stderr, "bench: %s: %s\n", text, sqlite3_errmsg(db));
        exit(1);
    }
}

static void put(sqlite3_stmt *st, uint32_t number)
{
    uint8_t value[BYTES - 40] = {(uint8_t)seed};
    sqlite3_bind_int64(st, 1, number);
    sqlite3_bind_blob(st, 2, value, sizeof value, SQLITE_TRANSIENT);
    if (sqlite3_step(st) != SQLITE_DONE)
        exit(1);
    sqlite3_reset(st);
}

static int by_number(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* CPU us per UPDATE of a row of a message's size, any of all, 100 in a transaction and in order,
 * settings as the state's. */
static double updates(uint32_t messages)
{
    enum { UPDATES = 100000, BATCH = 100 };
    char path[64];
    sqlite3 *db;
    sqlite3_stmt *insert, *update;
    snprintf(path, sizeof path, "/tmp/orset-floor-%d.db", (int)getpid());
    unlink(path);
    if (sqlite3_open(path, &db) != SQLITE_OK)
        exit(1);
    sql(db,
        "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
        "PRAGMA cache_size = -65536; CREATE TABLE m (number INTEGER PRIMARY KEY, value BLOB NOT "
        "NULL)");
    sqlite3_wal_autocheckpoint(db, messages > 100000 ? 8000 : 1000);
    if (sqlite3_prepare_v2(db, "INSERT INTO m VALUES (?1, ?2)", -1, &insert, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(db, "UPDATE m SET value = ?2 WHERE number = ?1", -1, &update, NULL) !=
            SQLITE_OK)
        exit(1);
    sql(db, "BEGIN");
    for (uint32_t i = 0; i < messages; i++)
        put(insert, i);
    sql(db, "COMMIT");
    double t = 0;
    for (int i = -UPDATES; i < UPDATES; i += BATCH) { /* the first half warms up */
        uint32_t number[BATCH];
        if (i == 0)
            t = cpu();
        for (int k = 0; k < BATCH; k++)
            number[k] = (uint32_t)rnd(messages);
        qsort(number, BATCH, sizeof number[0], by_number);
        sql(db, "BEGIN");
        for (int k = 0; k < BATCH; k++)
            put(update, number[k]);
        sql(db, "COMMIT");
    }
    t = cpu() - t;
    sqlite3_finalize(insert);
    sqlite3_finalize(update);
    sqlite3_close(db);
    unlink(path);
    return t / UPDATES * 1e6;
}

void floor_rows(uint32_t messages, floor_row_fn *row)
{
    static const char *const how[] = {"side by side", "one after the other"};
    char text[120];
    for (int i = 0; i < 2; i++)
        for (int large = 0; large < 2; large++) {
            uint32_t n = large ? messages : SMALL;
            snprintf(text, sizeof text, "floor: random reads of 64 bytes in %.3f MB, %s",
                     n * 1e-6 * BYTES, how[i]);
            row(text, reads(n, i), "ns", 0, true);
        }
    for (int large = 0; large < 2; large++) {
        uint32_t n = large ? messages : SMALL;
        snprintf(text, sizeof text, "floor: bare SQLite UPDATE of any of %u rows, batches of 100",
                 n);
        row(text, updates(n), "us CPU", 0, true);
    }
}
