/* state_fuzz - a state.db as its user may have written it: bytes, rows, tables of his own
 * (damage.c), and all that a worker does with it (use.c).
 *
 * After each: nothing crashed or was read past its end; what failed by the file's doing is known
 * as that, so that the worker puts the file aside and makes a new state. */
#include "tests/fuzz/state/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void *resize(void *ctx, void *p, size_t n)
{
    (void)ctx;
    if (n == 0) {
        free(p);
        return NULL;
    }
    return realloc(p, n);
}

const struct orset_alloc HEAP = {NULL, resize};

void require(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "state_fuzz: %s\n", what);
        abort();
    }
}

unsigned below(struct choices *c, unsigned n)
{
    return c->at < c->end ? *c->at++ % n : 0;
}

static struct {
    unsigned long refused, opened, found, whole;
} count;

static void tell(void)
{
    printf("%lu states refused at their open, %lu read: %lu of them known as damaged later\n",
           count.refused, count.opened, count.found);
}

static char path[100];

static void remove_files(void)
{
    static const char *const part[] = {"", "-wal", "-journal"};
    char name[120];
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s%s", path, part[i]);
        unlink(name);
    }
}

static void set_up(void)
{
    struct stat st;
    snprintf(path, sizeof path, "%s/dovelane-fuzz-state-%ld",
             stat("/dev/shm", &st) == 0 ? "/dev/shm" : "/tmp", (long)getpid());
    atexit(remove_files);
    atexit(tell);
}

/* The worker's way: worker/user.c. */
static void one(struct choices *c)
{
    struct orset_origin me = {1, 5000};
    struct state_sqlite *db;
    struct orset_store s;
    struct orset *os = NULL;
    char *error = NULL;
    int r = state_sqlite_open(&db, path, &error);
    if (r < 0) {
        count.refused++;
        if (r == -1 && !strstr(error, "update Dovelane"))
            fprintf(stderr, "%s\n", error);
        require(r == -2 || strstr(error, "update Dovelane") != NULL,
                "a damaged file that is not known as one at its open");
        free(error);
        return;
    }
    count.opened++;
    state_sqlite_interface(db, &s);
    r = orset_open(&os, &HEAP, &s, &me, NULL);
    /* LIMIT: another site's state, which the admin is told. */
    bool failed = r < 0 ? r != ORSET_E_LIMIT : use(os, c);
    if (failed && !state_sqlite_spoilt(db))
        fprintf(stderr, "%s; %s\n", state_sqlite_error(db), os ? orset_error_text(os) : "open");
    require(!failed || state_sqlite_spoilt(db), "a damaged file that is not known as one");
    count.found += failed;
    orset_close(os);
    state_sqlite_close(db);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct choices c = {data, data + size};
    if (!*path)
        set_up();
    remove_files();
    damage(path, &c);
    one(&c);
    return 0;
}
