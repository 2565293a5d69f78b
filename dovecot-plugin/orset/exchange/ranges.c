/* ranges - the messages of a folder by ranges of their places. */
#include "dovecot-plugin/orset/base/rows.h"
#include "dovecot-plugin/orset/exchange/exchange_internal.h"
#include "dovecot-plugin/orset/state/message.h"

#include <string.h>

uint32_t orset_place(const struct orset *os, struct orset_dot d)
{
    uint64_t h = (os->origin[d.origin].hash ^ d.counter) * 0x9e3779b97f4a7c15ULL;
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93ULL;
    return (uint32_t)(h >> (64 - X_DEPTH_MAX));
}

static uint64_t fingerprint(const struct orset *os, const struct message *m)
{
    uint64_t s = orset_message_sum(os, m).lo;
    for (unsigned i = 0; i < m->nflags; i++)
        s += orset_flagdot_sum(os, m, &m->flag[i]).lo;
    return s;
}

size_t orset_range_at(const struct prefixes *p, uint32_t place)
{
    uint32_t want = p->depth ? place >> (X_DEPTH_MAX - p->depth) : 0;
    size_t lo = 0, hi = p->n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (p->v[mid] < want)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < p->n && p->v[lo] == want ? lo : p->n;
}

int orset_prefixes_read(struct orset *os, struct orset_reader *r, unsigned depth,
                        struct prefixes *p)
{
    uint64_t n = orset_read_num(r, X_PREFIXES_MAX);
    memset(p, 0, sizeof *p);
    if (r->bad || n == 0 || (uint64_t)(r->end - r->at) < n)
        return orset_fail(os, ORSET_E_MALFORMED, "ranges that cannot be read");
    p->v = orset_mem(os, NULL, n * sizeof *p->v);
    if (!p->v)
        return ORSET_E_MEMORY;
    p->depth = depth;
    p->n = n;
    for (uint64_t i = 0; i < n; i++) {
        p->v[i] = (uint32_t)orset_read_num(r, (1U << depth) - 1);
        if (r->bad || (i > 0 && p->v[i] <= p->v[i - 1]))
            return orset_fail(os, ORSET_E_MALFORMED, "ranges that cannot be read");
    }
    return 0;
}

void orset_prefixes_free(struct orset *os, struct prefixes *p)
{
    if (p->v)
        os->alloc.resize(os->alloc.ctx, p->v, 0);
    memset(p, 0, sizeof *p);
}

/* The row's message, in m[0]; the index of its range. */
int orset_scan_row(struct scan *s, const uint8_t *key, size_t len, const uint8_t *v, size_t vlen,
                   size_t *range, uint32_t *place)
{
    struct orset_reader k = orset_reader_of(key, len), r = orset_reader_of(v, vlen);
    struct message *m = &s->os->m[0];
    if (!orset_message_key_read(s->os, &k, m))
        return orset_corrupt(s->os, "a message's key");
    *place = orset_place(s->os, m->p.dot);
    *range = orset_range_at(s->p, *place);
    return *range < s->p->n ? orset_message_parse(s->os, &r, m) : 0;
}

static int sum_row(void *arg, const uint8_t *key, size_t len, const uint8_t *v, size_t vlen)
{
    struct scan *s = arg;
    size_t range = 0;
    uint32_t place = 0;
    int r = orset_scan_row(s, key, len, v, vlen, &range, &place);
    if (r <= 0)
        return r;
    uint32_t sub = place >> (X_DEPTH_MAX - s->p->depth - s->split) & ((1U << s->split) - 1);
    s->sums[(range << s->split) + sub] += fingerprint(s->os, &s->os->m[0]);
    return 0;
}

int orset_scan(struct orset *os, uint32_t folder, orset_row_fn *fn, struct scan *s)
{
    struct orset_key k = {0};
    orset_key_num(&k, folder);
    int r = os->store.each(os->store.ctx, ORSET_T_MESSAGE, k.b, k.n, k.n, fn, s);
    return r < 0 ? (os->broken ? r : orset_storage_fail(os, "messages")) : 0;
}

int orset_range_sums(struct orset *os, uint32_t folder, const struct prefixes *p, unsigned split,
                     uint64_t *sums)
{
    struct scan s = {.os = os, .p = p, .split = split, .sums = sums};
    memset(sums, 0, (p->n << split) * sizeof *sums);
    return orset_scan(os, folder, sum_row, &s);
}
