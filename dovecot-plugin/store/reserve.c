/* reserve - reads and writes the file's records. Records are fixed and never move; the index over
 * them is in memory. */
#include "dovecot-plugin/store/reserve.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "dovecot-plugin/orset/base/bytes.h"

#define RECORD 64
static const uint8_t MAGIC[RECORD] = "dovelane reserved numbers 1\n";

struct entry {
    uint8_t key[16];
    uint64_t epoch, end, noted, boot;
    bool clean, used;
    off_t at;
};

struct reserve {
    uint64_t boot;
    int fd;
    size_t n, room;
    struct entry *entry; /* open addressing, room is a power of 2 */
    off_t size;
};

static void put64(uint8_t *p, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

static uint64_t get64(const uint8_t *p)
{
    uint64_t v = 0;
    for (int i = 7; i >= 0; i--)
        v = v << 8 | p[i];
    return v;
}

static struct entry *slot(struct reserve *r, const uint8_t key[16])
{
    size_t i = (size_t)get64(key) & (r->room - 1);
    while (r->entry[i].used && memcmp(r->entry[i].key, key, 16) != 0)
        i = (i + 1) & (r->room - 1);
    return &r->entry[i];
}

static int grow(struct reserve *r)
{
    if (r->n * 2 < r->room)
        return 0;
    struct reserve big = {.room = r->room ? r->room * 2 : 64};
    big.entry = calloc(big.room, sizeof *big.entry);
    if (!big.entry)
        return -1;
    for (size_t i = 0; i < r->room; i++)
        if (r->entry[i].used)
            *slot(&big, r->entry[i].key) = r->entry[i];
    free(r->entry);
    r->entry = big.entry;
    r->room = big.room;
    return 0;
}

static void encode(const struct entry *e, uint8_t b[RECORD])
{
    memcpy(b, e->key, 16);
    put64(b + 16, e->epoch);
    put64(b + 24, e->end);
    put64(b + 32, e->noted << 1 | e->clean);
    put64(b + 40, e->boot);
    put64(b + 48, 0);
    put64(b + 56, orset_hash(b, 56).lo);
}

/* A record that was torn by a power cut is taken for in use without an end: its state is treated
 * as an old copy, which is always safe. */
static int read_all(struct reserve *r)
{
    uint8_t b[RECORD];
    ssize_t n = pread(r->fd, b, RECORD, 0);
    if (n == 0 && pwrite(r->fd, MAGIC, RECORD, 0) == RECORD) {
        r->size = RECORD;
        return fdatasync(r->fd);
    }
    if (n != RECORD || memcmp(b, MAGIC, RECORD) != 0) {
        errno = n < 0 ? errno : EILSEQ;
        return -1;
    }
    for (r->size = RECORD; (n = pread(r->fd, b, RECORD, r->size)) == RECORD; r->size += RECORD) {
        bool whole = get64(b + 56) == orset_hash(b, 56).lo;
        if (grow(r) < 0)
            return -1;
        struct entry *e = slot(r, b);
        r->n += !e->used;
        memcpy(e->key, b, 16);
        e->used = true;
        e->epoch = whole ? get64(b + 16) : 0;
        e->end = whole ? get64(b + 24) : UINT64_MAX;
        e->noted = whole ? get64(b + 32) >> 1 : UINT64_MAX >> 1;
        e->clean = whole && get64(b + 32) & 1;
        e->boot = whole ? get64(b + 40) : 0;
        e->at = r->size;
    }
    return n < 0 ? -1 : 0;
}

int reserve_open(struct reserve **r_r, const char *path, uint64_t boot)
{
    struct reserve *r = calloc(1, sizeof *r);
    *r_r = NULL;
    if (!r)
        return -1;
    r->boot = boot;
    r->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (r->fd < 0 || flock(r->fd, LOCK_EX | LOCK_NB) < 0 || grow(r) < 0 || read_all(r) < 0) {
        int e = errno;
        reserve_close(r);
        errno = e;
        return -1;
    }
    *r_r = r;
    return 0;
}

void reserve_close(struct reserve *r)
{
    if (!r)
        return;
    if (r->fd >= 0)
        close(r->fd);
    free(r->entry);
    free(r);
}

static int write_entry(struct reserve *r, const struct entry *e, bool flush)
{
    uint8_t b[RECORD];
    encode(e, b);
    ssize_t n = pwrite(r->fd, b, RECORD, e->at);
    if (n == RECORD)
        return flush ? fdatasync(r->fd) : 0;
    errno = n < 0 ? errno : ENOSPC;
    return -1;
}

static struct entry *entry(struct reserve *r, const uint8_t key[16])
{
    if (grow(r) < 0)
        return NULL;
    struct entry *e = slot(r, key);
    if (!e->used) {
        memcpy(e->key, key, 16);
        e->used = true;
        e->at = r->size;
        r->size += RECORD;
        r->n++;
    }
    return e;
}

int reserve_check(struct reserve *r, const uint8_t key[16], uint64_t epoch, uint64_t counter)
{
    struct entry *e = entry(r, key);
    if (!e)
        return -1;
    bool fresh = e->epoch == 0 && e->end == 0, good;
    if (e->clean)
        good = counter == e->noted;
    else if (e->boot == r->boot)
        good = counter >= e->noted && counter <= e->end;
    else
        good = counter == e->end;
    good = fresh ? counter == 0 : good && e->epoch == epoch;
    if (good && e->clean)
        return RESERVE_GO_ON; /* the first number that is given will say "in use" */
    if (good) {
        e->epoch = epoch;
        e->noted = counter;
        e->end = e->end > counter ? e->end : counter;
    }
    e->boot = r->boot;
    e->clean = false;
    return write_entry(r, e, true) < 0 ? -1 : good ? RESERVE_GO_ON : RESERVE_NEW_EPOCH;
}

int reserve_note(struct reserve *r, const uint8_t key[16], uint64_t counter)
{
    struct entry *e = entry(r, key);
    if (!e)
        return -1;
    e->noted = counter;
    return write_entry(r, e, false);
}

int reserve_raise(struct reserve *r, const uint8_t key[16], uint64_t epoch, uint64_t counter)
{
    struct entry *e = entry(r, key);
    if (!e)
        return -1;
    if (!e->clean && e->epoch == epoch && counter <= e->end)
        return 0;
    struct entry old = *e;
    if (e->epoch != epoch)
        e->noted = 0;
    e->epoch = epoch;
    e->end = counter + RESERVE_BLOCK;
    e->boot = r->boot;
    e->clean = false;
    if (write_entry(r, e, true) == 0)
        return 0;
    *e = old;
    return -1;
}

void reserve_user_key(const char *user, uint8_t key[16])
{
    struct orset_sum sum = orset_hash(user, strlen(user));
    memcpy(key, &sum, 16);
}

uint64_t reserve_epoch(struct reserve *r, const uint8_t key[16])
{
    const struct entry *e = slot(r, key);
    return e->used ? e->epoch : 0;
}

int reserve_forget(struct reserve *r, const uint8_t key[16])
{
    struct entry *e = slot(r, key);
    if (!e->used)
        return 0;
    e->epoch = e->end = e->noted = e->boot = 0;
    e->clean = false;
    return write_entry(r, e, true);
}

int reserve_clean(struct reserve *r, const uint8_t key[16], uint64_t epoch, uint64_t counter)
{
    struct entry *e = entry(r, key);
    if (!e)
        return -1;
    if (e->clean && e->epoch == epoch && e->noted == counter && e->end == counter)
        return 0; /* no number was given since */
    e->epoch = epoch;
    e->noted = e->end = counter;
    e->clean = true;
    return write_entry(r, e, true);
}
