/* rows - rows of the store, memory, and what is said of a failure of either. */
#include "dovecot-plugin/orset/base/rows.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *orset_error_text(const struct orset *os)
{
    return os->error;
}

int orset_fail(struct orset *os, int error, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    vsnprintf(os->error, sizeof os->error, format, ap);
    va_end(ap);
    if (error == ORSET_E_MEMORY || error == ORSET_E_STORAGE)
        os->broken = true;
    return error;
}

int orset_storage_fail(struct orset *os, const char *what)
{
    return orset_fail(os, ORSET_E_STORAGE,
                      "%s: the store failed; roll back, look at the disk and its log", what);
}

int orset_corrupt(struct orset *os, const char *what)
{
    if (os->store.corrupt)
        os->store.corrupt(os->store.ctx, what);
    return orset_fail(os, ORSET_E_STORAGE, "the state's rows cannot be true: %s", what);
}

void *orset_mem(struct orset *os, void *p, size_t n)
{
    void *q = os->alloc.resize(os->alloc.ctx, p, n);
    if (!q && n > 0)
        orset_fail(os, ORSET_E_MEMORY, "no memory for %zu bytes; roll back and try again", n);
    return q;
}

int orset_need_transaction(struct orset *os)
{
    if (os->broken)
        return orset_fail(os, ORSET_E_STORAGE,
                          "an earlier call of this transaction failed; roll back first");
    if (!os->open)
        return orset_fail(os, ORSET_E_LIMIT,
                          "a change outside a transaction; call orset_begin first");
    return 0;
}

/* --- rows */

int orset_row_put(struct orset *os, enum orset_table t, const struct orset_key *k,
                  const struct orset_buf *v)
{
    if (v && v->failed)
        return orset_fail(os, ORSET_E_MEMORY, "no memory for a row; roll back and try again");
    if (os->store.put(os->store.ctx, t, k->b, k->n, v && v->len ? v->data : (const void *)"",
                      v ? v->len : 0) < 0)
        return orset_storage_fail(os, "put");
    return 0;
}

int orset_row_del(struct orset *os, enum orset_table t, const struct orset_key *k)
{
    return os->store.del(os->store.ctx, t, k->b, k->n) < 0 ? orset_storage_fail(os, "delete") : 0;
}

int orset_row_get(struct orset *os, enum orset_table t, const struct orset_key *k,
                  struct orset_reader *r)
{
    const uint8_t *v;
    size_t n;
    int got = os->store.get(os->store.ctx, t, k->b, k->n, &v, &n);
    if (got < 0)
        return orset_storage_fail(os, "get");
    *r = got ? orset_reader_of(v, n) : (struct orset_reader){NULL, NULL, true};
    return got;
}

/* --- seals */

#define SEAL_BYTES 4

static void seal_of(const uint8_t *row, size_t len, uint8_t seal[SEAL_BYTES])
{
    uint64_t hash = orset_hash(row, len).lo;
    for (int i = 0; i < SEAL_BYTES; i++)
        seal[i] = (uint8_t)(hash >> 8 * i);
}

void orset_seal(struct orset_buf *row)
{
    uint8_t seal[SEAL_BYTES];
    if (row->failed)
        return;
    seal_of(row->data, row->len, seal);
    orset_buf_put(row, seal, sizeof seal);
}

bool orset_sealed(const uint8_t *row, size_t len, const struct orset_reader *left)
{
    uint8_t seal[SEAL_BYTES];
    if (left->bad || left->at == left->end)
        return !left->bad;
    if (left->end - left->at < SEAL_BYTES)
        return false;
    seal_of(row, len - SEAL_BYTES, seal);
    return memcmp(left->end - SEAL_BYTES, seal, SEAL_BYTES) == 0;
}

/* --- dots and folders in them */

void orset_dot_write(struct orset_buf *b, struct orset_dot d)
{
    orset_buf_num(b, d.origin);
    orset_buf_num(b, d.counter);
}

void orset_key_dot(struct orset_key *k, struct orset_dot d)
{
    orset_key_num(k, d.origin);
    orset_key_num(k, d.counter);
}

/* A state that is open, or about to be, has an origin and a folder: index 0 is always one. */
static struct orset_dot known_dot(const struct orset *os, struct orset_reader *r, uint64_t origin,
                                  uint64_t counter)
{
    r->bad |= origin >= os->norigins;
    return r->bad ? (struct orset_dot){0, 0} : (struct orset_dot){(uint16_t)origin, counter};
}

struct orset_dot orset_key_read_dot(const struct orset *os, struct orset_reader *r)
{
    uint64_t origin = orset_key_read(r, UINT16_MAX), counter = orset_key_read(r, ORSET_COUNTER_MAX);
    return known_dot(os, r, origin, counter);
}

struct orset_dot orset_row_read_dot(const struct orset *os, struct orset_reader *r)
{
    uint64_t origin = orset_read_num(r, UINT16_MAX), counter = orset_read_num(r, ORSET_COUNTER_MAX);
    return known_dot(os, r, origin, counter);
}

uint32_t orset_key_read_folder(const struct orset *os, struct orset_reader *r)
{
    uint32_t folder = (uint32_t)orset_key_read(r, ORSET_FOLDERS_MAX);
    r->bad |= folder >= os->nfolders;
    return r->bad ? 0 : folder;
}
