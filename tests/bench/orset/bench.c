/* bench - what the OR-Set core costs. Writes a JSON file and prints a table; each number is the
 * median of several runs.
 *
 *     orset-bench FILE.json [messages]                       default 1,000,000
 *     orset-bench flags memory|sqlite MESSAGES AMONG CHANGES one case alone, for perf and callgrind
 *
 * Rates are per second of the clock. What is compared with a small folder, "cost per op", is CPU
 * time (user and kernel), because who else uses the machine's cores and disk at that moment is
 * not ours to measure; the runs of the cases take turns. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "dovecot-plugin/orset/ops/op_batch.h"
#include "tests/bench/orset/floor.h"
#include "dovecot-plugin/orset/exchange/exchange.h"
#include "tests/support/memstore/memstore.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/store/state_sqlite.h"

#include <sqlite3.h>

#define RUNS 5
#define LOCAL 1000 /* the mails a user touches: the newest thousand */

static void *resize(void *ctx, void *p, size_t n)
{
    (void)ctx;
    if (n == 0) {
        free(p);
        return NULL;
    }
    return realloc(p, n);
}

static const struct orset_alloc HEAP = {NULL, resize};

struct replica {
    struct orset_memstore *mem;
    struct state_sqlite *sql;
    struct orset *os;
    uint64_t site, rng;
    uint32_t messages;
    uint8_t *flags; /* by UID, as the mailbox has them */
    char path[64];
};

static FILE *json;
static int rows;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double cpu(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void check(struct replica *r, int e)
{
    if (e < 0) {
        fprintf(stderr, "bench: %d: %s\n", e, orset_error_text(r->os));
        exit(1);
    }
}

static void row(const char *measure, double value, const char *unit, double goal, bool at_least)
{
    bool met = goal == 0 || (at_least ? value >= goal : value <= goal);
    printf("  %-66s %14.1f %-10s", measure, value, unit);
    if (goal != 0)
        printf(" goal %s %.0f: %s", at_least ? ">=" : "<=", goal, met ? "met" : "NOT MET");
    printf("\n");
    fflush(stdout);
    fprintf(json,
            "%s\n  {\"measure\": \"%s\", \"value\": %.4f, \"unit\": \"%s\", \"comparator\": null, "
            "\"comparator_value\": null, "
            "\"ratio\": null, \"goal\": ",
            rows++ ? "," : "", measure, value, unit);
    if (goal != 0)
        fprintf(json, "\"%s %.0f\", \"met\": %s}", at_least ? ">=" : "<=", goal,
                met ? "true" : "false");
    else
        fprintf(json, "null, \"met\": null}");
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, by_value);
    return v[n / 2];
}

static void open_replica(struct replica *r, uint64_t site, bool sql)
{
    struct orset_store s;
    struct orset_origin me = {site, 1000 + site};
    char *error;
    memset(r, 0, sizeof *r);
    r->site = site;
    r->rng = site * 88172645463325252ULL;
    if (sql) {
        snprintf(r->path, sizeof r->path, "/tmp/orset-bench-%d-%d.db", (int)getpid(), (int)site);
        unlink(r->path);
        if (state_sqlite_open(&r->sql, r->path, &error) < 0) {
            fprintf(stderr, "bench: %s\n", error);
            exit(1);
        }
        state_sqlite_interface(r->sql, &s);
    } else {
        r->mem = orset_memstore_new(&HEAP);
        orset_memstore_interface(r->mem, &s);
    }
    if (orset_open(&r->os, &HEAP, &s, &me, NULL) < 0)
        exit(1);
}

static void close_replica(struct replica *r)
{
    free(r->flags);
    orset_close(r->os);
    orset_memstore_free(r->mem);
    if (r->sql) {
        state_sqlite_close(r->sql);
        unlink(r->path);
    }
}

static uint32_t rnd(struct replica *r, uint32_t n)
{
    r->rng ^= r->rng << 13;
    r->rng ^= r->rng >> 7;
    r->rng ^= r->rng << 17;
    return (uint32_t)(r->rng >> 20) % n;
}

static void random_bytes(struct replica *r, uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)rnd(r, 256);
}

/* Mails of 2 to 60 kB, a second to a minute apart, saved at once; a third is seen. */
static void append(struct replica *r, uint32_t n)
{
    r->flags = calloc(n + 1, 1);
    for (uint32_t i = 0; i < n;) {
        check(r, orset_begin(r->os));
        for (unsigned k = 0; k < 100 && i < n; k++, i++) {
            struct orset_facts f = {.received = 1600000000 + 30LL * r->messages,
                                    .size = 2000 + rnd(r, 58000)};
            struct orset_flags flags = {.system = rnd(r, 3) ? 0 : ORSET_SEEN};
            f.saved = f.received + rnd(r, 3);
            random_bytes(r, f.guid, 16);
            random_bytes(r, f.sha256, 32);
            check(r, orset_local_add(r->os, ORSET_INBOX, ++r->messages, &f, &flags, NULL));
            r->flags[r->messages] = flags.system;
        }
        check(r, orset_drop_out(r->os, orset_vector_get(r->os, orset_self(r->os))));
        check(r, orset_commit(r->os));
    }
}

struct spent {
    double rate, cpu; /* ops per second, CPU seconds per op */
};

/* Once its log is in it. */
static double file_bytes(const struct replica *r)
{
    struct stat st;
    return stat(r->path, &st) == 0 ? (double)st.st_size : 0;
}

static int by_uid(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* n flag changes on the newest `among` mails, 100 a transaction and these in the order of UIDs,
 * as a mailbox tells them. */
static struct spent flags(struct replica *r, unsigned n, uint32_t among, bool keep)
{
    double t = now(), c = cpu();
    uint32_t uid[100];
    for (unsigned i = 0; i < n; i += 100) {
        for (unsigned k = 0; k < 100; k++)
            uid[k] = r->messages - rnd(r, among);
        qsort(uid, 100, sizeof uid[0], by_uid);
        check(r, orset_begin(r->os));
        orset_prefetch(r->os, ORSET_INBOX, uid, 100);
        for (unsigned k = 0; k < 100; k++) {
            struct orset_flags f = {.system = r->flags[uid[k]] ^= (uint8_t)(1U << rnd(r, 5))};
            check(r, orset_local_flags(r->os, ORSET_INBOX, uid[k], &f, NULL));
        }
        if (!keep)
            check(r, orset_drop_out(r->os, orset_vector_get(r->os, orset_self(r->os))));
        check(r, orset_commit(r->os));
    }
    /* Each case pays for the pages that it left in the log, not the one after it. */
    if (r->sql)
        state_sqlite_checkpoint(r->sql);
    return (struct spent){n / (now() - t), (cpu() - c) / n};
}

/* The same ops at a peer: batches of about 100, and the mailbox follows. */
static struct spent flags_in(struct replica *from, struct replica *to, uint64_t first)
{
    struct orset_buf b = {.alloc = &HEAP};
    struct orset_batch_result res;
    unsigned ops = 0;
    double spent = 0, spent_cpu = 0;
    for (uint64_t next = first;;) {
        b.len = 0;
        if (orset_batch_make(from->os, next, 1500, NULL, 0, &b, &next) != 0)
            break;
        double t = now(), c = cpu();
        check(to, orset_begin(to->os));
        check(to, orset_batch_apply(to->os, from->site, b.data, b.len, &res));
        check(to, orset_commit(to->os));
        spent += now() - t;
        spent_cpu += cpu() - c;
        ops += res.applied;
    }
    orset_buf_free(&b);
    return (struct spent){ops / spent, spent_cpu / ops};
}

static void take_all(struct replica *from, struct replica *to, double *seconds, uint64_t *bytes)
{
    struct orset_exchange *x;
    struct orset_buf q = {.alloc = &HEAP}, a = {.alloc = &HEAP};
    int e;
    double t = now();
    *bytes = 0;
    check(to, orset_ask_hello(to->os, from->site, &x, &q));
    do {
        a.len = 0;
        check(from, orset_begin(from->os));
        check(from, orset_answer(from->os, to->site, q.data, q.len, &a));
        check(from, orset_commit(from->os));
        *bytes += q.len + a.len;
        q.len = 0;
        check(to, orset_begin(to->os));
        check(to, e = orset_take(to->os, x, a.data, a.len, &q));
        check(to, orset_commit(to->os));
    } while (e == ORSET_OK);
    orset_exchange_free(to->os, x);
    orset_buf_free(&q);
    orset_buf_free(&a);
    *seconds = now() - t;
}

static void place_all(struct replica *r)
{
    static struct orset_task t;
    struct orset_folder f;
    t.at_len = 0;
    check(r, orset_begin(r->os));
    while (orset_task_next(r->os, &t) > 0)
        if (t.kind == ORSET_TASK_PLACE) {
            check(r, orset_folder_get(r->os, t.folder, &f));
            check(r, orset_done_place(r->os, t.message.folder, t.message.dot,
                                      t.uid ? t.uid : f.uid_next, &t.flags));
        }
    check(r, orset_commit(r->os));
}

struct series {
    double rate[RUNS], cpu[RUNS];
};

static void note(struct series *s, int run, struct spent x)
{
    s->rate[run] = x.rate;
    s->cpu[run] = x.cpu;
}

/* A case in a large folder against the small one: what each run cost against the small one's
 * beside it. */
static void rows_of(const char *what, const char *where, struct series *s,
                    const struct series *small, double goal)
{
    char text[120];
    double ratio[RUNS];
    for (int i = 0; i < RUNS; i++)
        ratio[i] = s->cpu[i] / small->cpu[i] * 100;
    snprintf(text, sizeof text, "flag ops %s, %s", what, where);
    row(text, median(s->rate, RUNS), "ops/s", goal, true);
    snprintf(text, sizeof text, "cost per op against a folder of %d: %s, %s", LOCAL, what, where);
    row(text, median(ratio, RUNS), "percent", 110, false);
}

static void bench_ops(bool sql, uint32_t messages)
{
    struct replica small, big, peer;
    struct series kept, small_in, small_out, newest, any;
    double goal = sql ? 30000 : 300000;
    char text[120];
    const char *where = sql ? "SQLite, batches of 100" : "memory";
    unsigned n = sql ? 50000 : 200000;
    open_replica(&small, 1, sql);
    open_replica(&big, 2, sql);
    open_replica(&peer, 3, sql);
    append(&small, LOCAL);
    append(&big, messages);
    double seconds;
    uint64_t bytes;
    take_all(&small, &peer, &seconds, &bytes);
    place_all(&peer);
    for (int i = 0; i < RUNS; i++) {
        uint64_t first = orset_vector_get(small.os, orset_self(small.os)) + 1;
        note(&kept, i, flags(&small, n, LOCAL, true));
        note(&small_in, i, flags_in(&small, &peer, first));
    }
    check(&small, orset_begin(small.os));
    check(&small, orset_drop_out(small.os, UINT64_MAX));
    check(&small, orset_commit(small.os));
    for (int i = -1; i < RUNS; i++) { /* the first round warms up */
        struct spent s[3] = {flags(&small, n, LOCAL, false), flags(&big, n, LOCAL, false),
                             flags(&big, n, messages, false)};
        if (i < 0)
            continue;
        note(&small_out, i, s[0]);
        note(&newest, i, s[1]);
        note(&any, i, s[2]);
    }
    snprintf(text, sizeof text, "flag ops out, %s, %d messages", where, LOCAL);
    row(text, median(kept.rate, RUNS), "ops/s", goal, true);
    snprintf(text, sizeof text, "flag ops in, %s, %d messages", where, LOCAL);
    row(text, median(small_in.rate, RUNS), "ops/s", goal, true);
    snprintf(text, sizeof text, "out, newest %d of %u", LOCAL, messages);
    rows_of(text, where, &newest, &small_out, goal);
    snprintf(text, sizeof text, "out, any of %u", messages);
    rows_of(text, where, &any, &small_out, goal);
    snprintf(text, sizeof text, "CPU of one flag op out, %d messages, %s", LOCAL, where);
    row(text, median(small_out.cpu, RUNS) * 1e6, "us", 0, false);
    if (sql) {
        state_sqlite_checkpoint(big.sql);
        row("bytes of state per message (SQLite file)", file_bytes(&big) / messages, "bytes", 150,
            false);
    } else {
        row("bytes of state per message (memory store)",
            (double)orset_memstore_bytes(big.mem) / messages, "bytes", 0, false);
    }
    close_replica(&small);
    close_replica(&big);
    close_replica(&peer);
}

static void bench_growth(void)
{
    struct replica r;
    open_replica(&r, 1, true);
    append(&r, LOCAL);
    flags(&r, 20000, LOCAL, false); /* every mail has had each flag */
    state_sqlite_checkpoint(r.sql);
    double before = file_bytes(&r);
    flags(&r, 1000000, LOCAL, false);
    state_sqlite_checkpoint(r.sql);
    row("SQLite file after 1,000,000 flag changes on 1,000 mails, against before",
        file_bytes(&r) / before * 100, "percent", 105, false);
    close_replica(&r);
}

#define COPIES 999

/* CPU microseconds of each of a user's "mark all as read", in a folder of so many mails, or of
 * so many copies of one; two: another site has the same copies, so that each is two dots. */
static double mark_all(bool copies, bool two)
{
    struct replica r, other;
    struct orset_facts f = {
        .guid = {7}, .sha256 = {7}, .received = 1600000000, .saved = 1600000001, .size = 4000};
    struct orset_flags none = {0}, seen = {.system = ORSET_SEEN};
    struct orset_buf b = {.alloc = &HEAP};
    struct orset_batch_result result;
    uint64_t next;
    open_replica(&r, 1, true);
    open_replica(&other, 2, true);
    for (int i = 0; i < (two ? 2 : 1); i++) {
        struct replica *at = i ? &other : &r;
        check(at, orset_begin(at->os));
        for (uint32_t uid = 1; uid <= COPIES; uid++) {
            if (!copies)
                random_bytes(at, f.guid, 16);
            check(at, orset_local_add(at->os, ORSET_INBOX, uid, &f, &none, NULL));
        }
        check(at, orset_commit(at->os));
    }
    if (two) {
        check(&other, orset_batch_make(other.os, 1, 1 << 20, NULL, 0, &b, &next));
        check(&r, orset_begin(r.os));
        check(&r, orset_batch_apply(r.os, 2, b.data, b.len, &result));
        check(&r, orset_commit(r.os));
        orset_buf_free(&b);
    }
    double began = cpu();
    check(&r, orset_begin(r.os));
    for (uint32_t uid = 1; uid <= COPIES; uid++)
        check(&r, orset_local_flags(r.os, ORSET_INBOX, uid, &seen, NULL));
    check(&r, orset_commit(r.os));
    double spent = (cpu() - began) / COPIES * 1e6;
    close_replica(&r);
    close_replica(&other);
    return spent;
}

static void bench_copies(void)
{
    double mails = 1e9, copies = 1e9, two = 1e9, x;
    for (int i = 0; i < RUNS; i++) {
        mails = (x = mark_all(false, false)) < mails ? x : mails;
        copies = (x = mark_all(true, false)) < copies ? x : copies;
        two = (x = mark_all(true, true)) < two ? x : two;
    }
    row("one of 999 mails marked, SQLite: CPU", mails, "us", 0, false);
    row("one of 999 copies of one mail marked, against that", copies / mails * 100, "percent", 150,
        false);
    row("the same where two sites made the copies", two / mails * 100, "percent", 400, false);
}

static void bench_exchange(uint32_t messages)
{
    struct replica a, b;
    double seconds;
    uint64_t bytes;
    open_replica(&a, 1, false);
    open_replica(&b, 2, false);
    append(&a, messages);
    take_all(&a, &b, &seconds, &bytes);
    row("exchange: a new replica takes all messages, time", seconds, "s", 0, false);
    row("exchange: a new replica takes all messages, bytes per message", (double)bytes / messages,
        "bytes", 0, false);
    place_all(&b);
    check(&a, orset_begin(a.os));
    for (unsigned i = 0; i < 100; i++) {
        uint32_t uid = 1 + rnd(&a, messages);
        struct orset_message m;
        struct orset_flags f;
        check(&a, orset_message_by_uid(a.os, ORSET_INBOX, uid, &m));
        check(&a, orset_message_flags(a.os, ORSET_INBOX, m.dot, &f));
        f.system ^= ORSET_FLAGGED;
        check(&a, orset_local_flags(a.os, ORSET_INBOX, uid, &f, NULL));
    }
    check(&a, orset_commit(a.os));
    take_all(&a, &b, &seconds, &bytes);
    row("exchange of two states that differ in 100 messages, time", seconds * 1000, "ms", 0, false);
    row("exchange of two states that differ in 100 messages, bytes", (double)bytes, "bytes", 0,
        false);
    uint8_t x[16], y[16];
    orset_digest(a.os, x);
    orset_digest(b.os, y);
    if (memcmp(x, y, 16) != 0) {
        fprintf(stderr, "bench: digests differ after the exchange\n");
        exit(1);
    }
    take_all(&a, &b, &seconds, &bytes);
    row("exchange of two equal states, bytes", (double)bytes, "bytes", 0, false);
    close_replica(&a);
    close_replica(&b);
}

static void command(const char *text, char *out, size_t size)
{
    FILE *p = popen(text, "r");
    out[0] = '\0';
    if (p && fgets(out, (int)size, p))
        out[strcspn(out, "\n\"\\")] = '\0';
    if (p)
        pclose(p);
}

static int one_case(char **argv)
{
    struct replica r;
    unsigned n = (unsigned)atoi(argv[5]);
    open_replica(&r, 1, strcmp(argv[2], "sqlite") == 0);
    append(&r, (uint32_t)atoi(argv[3]));
    struct spent s = flags(&r, n, (uint32_t)atoi(argv[4]), false);
    printf("%s, %s of %s messages: %.0f ops/s, %.3f us CPU\n", argv[2], argv[4], argv[3], s.rate,
           s.cpu * 1e6);
    close_replica(&r);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 6 && strcmp(argv[1], "flags") == 0)
        return one_case(argv);
    uint32_t messages = argc > 2 ? (uint32_t)atoi(argv[2]) : 1000000;
    char machine[200], commit[64], date[64];
    if (argc < 2 || !(json = fopen(argv[1], "w"))) {
        fprintf(stderr, "usage: %s FILE.json [messages]; the file must be writable\n", argv[0]);
        return 1;
    }
    command("grep -m1 'model name' /proc/cpuinfo | cut -d: -f2- | sed 's/^ //'", machine,
            sizeof machine);
    command("git rev-parse --short HEAD 2>/dev/null", commit, sizeof commit);
    command("date -u +%Y-%m-%dT%H:%M:%SZ", date, sizeof date);
    fprintf(json,
            "{\"machine\": \"%s, %ld processors\", \"versions\": {\"sqlite\": \"%s\", "
            "\"compiler\": \"%s\"}, "
            "\"date\": \"%s\", "
            "\"commit\": \"%s\", \"rows\": [",
            machine, sysconf(_SC_NPROCESSORS_ONLN), sqlite3_libversion(), __VERSION__, date,
            commit);
    printf("OR-Set core, %u messages, median of %d runs, %s\n", messages, RUNS, machine);
    floor_rows(messages, row);
    bench_ops(false, messages);
    bench_ops(true, messages);
    bench_growth();
    bench_copies();
    bench_exchange(messages);
    fprintf(json, "\n]}\n");
    fclose(json);
    return 0;
}
