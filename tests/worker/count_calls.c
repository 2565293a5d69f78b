/* Loaded before the libraries of a dovelane-worker: counts what it reads of index records and rows
 * of its state, into the file that DOVELANE_COUNTS names. Tests compare these counts between a
 * small mailbox and a large one. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct {
    uint64_t uids;    /* asked of an index by a mail's number */
    uint64_t steps;   /* of SQLite's statements */
    uint64_t written; /* bytes of rows that they are given */
    uint64_t copied;  /* bytes put into buffers, as a copy of all index records is */
    uint64_t records; /* of index logs */
} * counts, nowhere;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("DOVELANE_COUNTS");
    counts = &nowhere;
    if (path == NULL || strncmp(program_invocation_short_name, "dovelane-worker", 15) != 0)
        return;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    void *map = MAP_FAILED;
    if (fd >= 0)
        map = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map != MAP_FAILED)
        counts = map;
    if (fd >= 0)
        (void)close(fd);
}

static void *next(const char *name)
{
    void *p = dlsym(RTLD_NEXT, name);
    if (p == NULL)
        abort();
    return p;
}

void mail_index_lookup_uid(void *view, uint32_t seq, uint32_t *uid_r);
int mail_transaction_log_view_next(void *view, const void **hdr_r, const void **data_r);
int sqlite3_step(void *statement);
int sqlite3_bind_blob(void *statement, int at, const void *data, int size, void (*destroy)(void *));
void buffer_append(void *buf, const void *data, size_t size);

void mail_index_lookup_uid(void *view, uint32_t seq, uint32_t *uid_r)
{
    static void (*real)(void *, uint32_t, uint32_t *);
    if (real == NULL)
        *(void **)&real = next("mail_index_lookup_uid");
    counts->uids++;
    real(view, seq, uid_r);
}

int sqlite3_step(void *statement)
{
    static int (*real)(void *);
    if (real == NULL)
        *(void **)&real = next("sqlite3_step");
    counts->steps++;
    return real(statement);
}

int sqlite3_bind_blob(void *statement, int at, const void *data, int size, void (*destroy)(void *))
{
    static int (*real)(void *, int, const void *, int, void (*)(void *));
    if (real == NULL)
        *(void **)&real = next("sqlite3_bind_blob");
    counts->written += (uint64_t)(size > 0 ? size : 0);
    return real(statement, at, data, size, destroy);
}

void buffer_append(void *buf, const void *data, size_t size)
{
    static void (*real)(void *, const void *, size_t);
    if (real == NULL)
        *(void **)&real = next("buffer_append");
    counts->copied += size;
    real(buf, data, size);
}

int mail_transaction_log_view_next(void *view, const void **hdr_r, const void **data_r)
{
    static int (*real)(void *, const void **, const void **);
    if (real == NULL)
        *(void **)&real = next("mail_transaction_log_view_next");
    counts->records++;
    return real(view, hdr_r, data_r);
}
