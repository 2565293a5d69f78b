/* exhaust_map - exact pairs of numbers to numbers, and memory that is given back all at once. */
#ifndef DOVELANE_TESTS_UNIT_ORSET_EXHAUST_MAP_H
#define DOVELANE_TESTS_UNIT_ORSET_EXHAUST_MAP_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct map {
    struct entry {
        uint64_t a, b;
        uint32_t value, second; /* value 0: empty */
    } * v;
    size_t n, room; /* room: a power of two */
};

static inline size_t map_slot(const struct map *m, uint64_t a, uint64_t b)
{
    uint64_t h = (a ^ b * 0x9e3779b97f4a7c15ULL) * 0xc2b2ae3d27d4eb4fULL;
    size_t j = (h ^ h >> 32) & (m->room - 1);
    while (m->v[j].value && (m->v[j].a != a || m->v[j].b != b))
        j = (j + 1) & (m->room - 1);
    return j;
}

/* The entry of (a, b), or an empty one to be filled by map_put before the next call. */
static inline struct entry *map_at(struct map *m, uint64_t a, uint64_t b)
{
    if (m->n * 2 >= m->room) {
        struct map big = {.n = m->n, .room = m->room ? m->room * 2 : 1024};
        if (!(big.v = calloc(big.room, sizeof *big.v)))
            abort();
        for (size_t i = 0; i < m->room; i++)
            if (m->v[i].value)
                big.v[map_slot(&big, m->v[i].a, m->v[i].b)] = m->v[i];
        free(m->v);
        *m = big;
    }
    return &m->v[map_slot(m, a, b)];
}

static inline void map_put(struct map *m, uint64_t a, uint64_t b, uint32_t value, uint32_t second)
{
    *map_at(m, a, b) = (struct entry){a, b, value, second};
    m->n++;
}

static inline void map_clear(struct map *m)
{
    if (m->n)
        memset(m->v, 0, m->room * sizeof *m->v);
    m->n = 0;
}

/* Memory in pieces of one size, given back all at once. */
#define POOL_PIECE ((size_t)1 << 20)

struct pool {
    uint8_t **piece;
    size_t pieces, at, used; /* at: piece in use; used: bytes of it */
};

static inline void *pool_take(struct pool *p, size_t n)
{
    n = (n + 15) & ~(size_t)15;
    if (p->pieces == 0 || p->used + n > POOL_PIECE) {
        p->at += p->pieces > 0;
        if (p->at == p->pieces) {
            if (n > POOL_PIECE ||
                !(p->piece = realloc(p->piece, (p->pieces + 1) * sizeof *p->piece)) ||
                !(p->piece[p->pieces++] = malloc(POOL_PIECE)))
                abort();
        }
        p->used = 0;
    }
    p->used += n;
    return p->piece[p->at] + p->used - n;
}

static inline size_t pool_bytes(const struct pool *p)
{
    return p->at * POOL_PIECE + p->used;
}

static inline void pool_clear(struct pool *p)
{
    p->at = p->used = 0;
}

#endif
