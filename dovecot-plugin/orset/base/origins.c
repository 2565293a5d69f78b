/* origins - who makes numbers: the table of origins with its version vector, the order of dots,
 * and Lamport clocks. */
#include "dovecot-plugin/orset/base/origins.h"
#include "dovecot-plugin/orset/base/rows.h"

#include <string.h>

int orset_find_origin(const struct orset *os, struct orset_origin id)
{
    for (int i = 0; i < os->norigins; i++)
        if (os->origin[i].id.site == id.site && os->origin[i].id.epoch == id.epoch)
            return i;
    return -1;
}

int orset_intern_origin(struct orset *os, struct orset_origin id)
{
    int i = orset_find_origin(os, id);
    if (i >= 0)
        return i;
    if (id.site == 0 || id.epoch == 0)
        return orset_fail(os, ORSET_E_MALFORMED, "an origin with site or epoch 0");
    if (os->norigins >= ORSET_ORIGINS_MAX)
        return orset_fail(os, ORSET_E_LIMIT, "more than %d origins; remove a site's old epochs",
                          ORSET_ORIGINS_MAX);
    struct origin *o = orset_mem(os, os->origin, (os->norigins + 1u) * sizeof *o);
    if (!o)
        return ORSET_E_MEMORY;
    os->origin = o;
    uint64_t words[2] = {id.site, id.epoch};
    uint8_t b[16];
    for (int n = 0; n < 16; n++)
        b[n] = (uint8_t)(words[n / 8] >> 8 * (n % 8));
    o[os->norigins] = (struct origin){.id = id, .hash = orset_hash(b, 16).lo, .dirty = true};
    return os->norigins++;
}

uint16_t orset_origins(const struct orset *os)
{
    return os->norigins;
}

struct orset_origin orset_origin_get(const struct orset *os, uint16_t i)
{
    return i < os->norigins ? os->origin[i].id : (struct orset_origin){0, 0};
}

uint64_t orset_vector_get(const struct orset *os, uint16_t i)
{
    return i < os->norigins ? os->origin[i].counter : 0;
}

uint16_t orset_self(const struct orset *os)
{
    return os->self;
}

bool orset_knows(const struct orset *os, uint64_t site, uint64_t epoch, uint64_t counter)
{
    int at = orset_find_origin(os, (struct orset_origin){site, epoch});
    struct orset_dot dot = {.origin = (uint16_t)at, .counter = counter};
    return at >= 0 && orset_covered(os, dot);
}

bool orset_covered(const struct orset *os, struct orset_dot d)
{
    return d.counter <= os->origin[d.origin].counter;
}

bool orset_same_dot(struct orset_dot a, struct orset_dot b)
{
    return a.origin == b.origin && a.counter == b.counter;
}

static int order(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

int orset_dot_order(const struct orset *os, struct orset_dot a, struct orset_dot b)
{
    const struct orset_origin *x = &os->origin[a.origin].id, *y = &os->origin[b.origin].id;
    int c = order(x->site, y->site);
    if (!c)
        c = order(x->epoch, y->epoch);
    return c ? c : order(a.counter, b.counter);
}

int orset_stamp_order(struct stamp a, struct stamp b)
{
    int c = order(a.clock, b.clock);
    if (!c)
        c = order(a.site, b.site);
    return c ? c : order(a.epoch, b.epoch);
}

/* A stamp from outside. A clock far ahead of all others would be final for its register, and one
 * at the end of the range would leave no successor; both are refused (F32). */
int orset_see_clock(struct orset *os, uint64_t clock)
{
    if (clock > ORSET_CLOCK_MAX || (clock > os->clock && clock - os->clock > ORSET_CLOCK_JUMP))
        return orset_fail(os, ORSET_E_MALFORMED,
                          "Lamport clock %llu, but the highest seen is %llu: a peer counts wrongly",
                          (unsigned long long)clock, (unsigned long long)os->clock);
    return 0;
}

struct stamp orset_next_stamp(struct orset *os)
{
    const struct orset_origin *me = &os->origin[os->self].id;
    return (struct stamp){os->clock + 1, me->site, me->epoch};
}

/* --- their rows */

static int read_origin(void *arg, const uint8_t *key, size_t key_len, const uint8_t *v, size_t len)
{
    struct orset *os = arg;
    struct orset_reader r = orset_reader_of(v, len);
    struct orset_origin id;
    id.site = orset_read_u64(&r);
    id.epoch = orset_read_u64(&r);
    uint64_t counter = orset_read_num(&r, ORSET_COUNTER_MAX), chain = orset_read_u64(&r);
    uint64_t ahead = orset_read_num(&r, UINT64_MAX);
    uint32_t brought[ORSET_QUOTAS];
    for (int q = 0; q < ORSET_QUOTAS; q++)
        brought[q] = (uint32_t)orset_read_num(&r, UINT32_MAX);
    struct orset_reader k = orset_reader_of(key, key_len);
    uint64_t index = orset_key_read(&k, ORSET_ORIGINS_MAX);
    if (!orset_sealed(v, len, &r) || k.bad || index != os->norigins ||
        orset_find_origin(os, id) >= 0 || id.site == 0 || id.epoch == 0 ||
        os->norigins >= ORSET_ORIGINS_MAX)
        return orset_corrupt(os, "an origin's row");
    int i = orset_intern_origin(os, id);
    if (i < 0)
        return -1;
    memcpy(os->origin[i].brought, brought, sizeof brought);
    os->origin[i].counter = counter;
    os->origin[i].chain = chain;
    os->origin[i].ahead = ahead;
    os->origin[i].dirty = false;
    return 0;
}

int orset_origins_read(struct orset *os)
{
    if (os->store.each(os->store.ctx, ORSET_T_ORIGIN, "", 0, 0, read_origin, os) < 0)
        return orset_storage_fail(os, "origins cannot be read");
    return 0;
}

int orset_origins_write(struct orset *os)
{
    for (int i = 0; i < os->norigins; i++) {
        struct origin *o = &os->origin[i];
        if (!o->dirty)
            continue;
        struct orset_key k = {0};
        orset_key_num(&k, (uint64_t)i);
        os->row.len = 0;
        orset_buf_u64(&os->row, o->id.site);
        orset_buf_u64(&os->row, o->id.epoch);
        orset_buf_num(&os->row, o->counter);
        orset_buf_u64(&os->row, o->chain);
        orset_buf_num(&os->row, o->ahead);
        for (int q = 0; q < ORSET_QUOTAS; q++)
            orset_buf_num(&os->row, o->brought[q]);
        orset_seal(&os->row);
        int r = orset_row_put(os, ORSET_T_ORIGIN, &k, &os->row);
        if (r < 0)
            return r;
        o->dirty = false;
    }
    return 0;
}

void orset_origins_free(struct orset *os)
{
    if (os->origin)
        os->alloc.resize(os->alloc.ctx, os->origin, 0);
    os->origin = NULL;
    os->norigins = 0;
}
