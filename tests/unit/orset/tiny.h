/* tiny - a store that is one block of memory, so that a state can be copied and hashed at once.
 * For the exhaustive test; it knows no rollback. */
#ifndef DOVELANE_TESTS_UNIT_ORSET_TINY_H
#define DOVELANE_TESTS_UNIT_ORSET_TINY_H

#include <stdlib.h>
#include <string.h>

#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/orset/store.h"

#define TINY_ROWS 256
#define TINY_DATA 16000

struct tiny {
    uint16_t n, used;
    struct tiny_row {
        uint8_t table, key_len;
        uint16_t len, at;
    } row[TINY_ROWS]; /* sorted */
    uint8_t data[TINY_DATA];
};

static inline int tiny_compare(const struct tiny *t, const struct tiny_row *r, unsigned table,
                               const void *key, size_t len)
{
    if (r->table != table)
        return r->table < table ? -1 : 1;
    size_t n = r->key_len < len ? r->key_len : len;
    int c = memcmp(t->data + r->at, key, n);
    return c ? c : r->key_len < len ? -1 : r->key_len > len;
}

static inline unsigned tiny_find(const struct tiny *t, unsigned table, const void *key, size_t len,
                                 int *equal)
{
    unsigned lo = 0, hi = t->n;
    *equal = 0;
    while (lo < hi) {
        unsigned mid = (lo + hi) / 2;
        int c = tiny_compare(t, &t->row[mid], table, key, len);
        if (c == 0) {
            *equal = 1;
            return mid;
        }
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Rows' bytes in the rows' order, nothing between: equal states are equal blocks. */
static inline void tiny_compact(struct tiny *t)
{
    static uint8_t copy[TINY_DATA];
    uint16_t used = 0;
    for (unsigned i = 0; i < t->n; i++) {
        struct tiny_row *r = &t->row[i];
        memcpy(copy + used, t->data + r->at, r->key_len + r->len);
        r->at = used;
        used = (uint16_t)(used + r->key_len + r->len);
    }
    memcpy(t->data, copy, used);
    t->used = used;
}

static int tiny_get(void *ctx, enum orset_table table, const void *key, size_t len,
                    const uint8_t **v, size_t *vlen)
{
    struct tiny *t = ctx;
    int equal;
    unsigned i = tiny_find(t, table, key, len, &equal);
    if (!equal)
        return 0;
    *v = t->data + t->row[i].at + t->row[i].key_len;
    *vlen = t->row[i].len;
    return 1;
}

static int tiny_put(void *ctx, enum orset_table table, const void *key, size_t len, const void *v,
                    size_t vlen)
{
    struct tiny *t = ctx;
    int equal;
    unsigned i = tiny_find(t, table, key, len, &equal);
    if (t->used + len + vlen > TINY_DATA)
        tiny_compact(t);
    if (t->used + len + vlen > TINY_DATA || len > 255 || (!equal && t->n == TINY_ROWS))
        abort();
    if (!equal) {
        memmove(&t->row[i + 1], &t->row[i], (t->n - i) * sizeof t->row[0]);
        t->n++;
    }
    t->row[i] = (struct tiny_row){(uint8_t)table, (uint8_t)len, (uint16_t)vlen, t->used};
    memcpy(t->data + t->used, key, len);
    memcpy(t->data + t->used + len, v, vlen);
    t->used = (uint16_t)(t->used + len + vlen);
    return 0;
}

static int tiny_del(void *ctx, enum orset_table table, const void *key, size_t len)
{
    struct tiny *t = ctx;
    int equal;
    unsigned i = tiny_find(t, table, key, len, &equal);
    if (equal) {
        t->n--;
        memmove(&t->row[i], &t->row[i + 1], (t->n - i) * sizeof t->row[0]);
    }
    return 0;
}

static int tiny_each(void *ctx, enum orset_table table, const void *from, size_t len, size_t prefix,
                     orset_row_fn *fn, void *arg)
{
    struct tiny *t = ctx;
    int equal, r = 0;
    for (unsigned i = tiny_find(t, table, from, len, &equal); i < t->n && r == 0; i++) {
        const struct tiny_row *w = &t->row[i];
        const uint8_t *key = t->data + w->at;
        if (w->table != table || w->key_len < prefix || memcmp(key, from, prefix) != 0)
            break;
        r = fn(arg, key, w->key_len, key + w->key_len, w->len);
    }
    return r;
}

static int tiny_ok(void *ctx)
{
    (void)ctx;
    return 0;
}

static void tiny_rollback(void *ctx)
{
    (void)ctx;
    abort();
}

static inline void tiny_interface(struct tiny *t, struct orset_store *s)
{
    *s = (struct orset_store){t,         tiny_get, tiny_put, tiny_del,
                              tiny_each, tiny_ok,  tiny_ok,  tiny_rollback};
}

#endif
