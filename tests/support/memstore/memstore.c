/* memstore - see memstore.h.
 *
 * Undo log: what a row was before each change, one record behind the other in one block, walked
 * backwards by rollback. A row's room never shrinks and a removed row stays, dead, until commit:
 * so whatever has been changed can be changed back without memory. */
#include "tests/support/memstore/memstore.h"

#include "tests/support/memstore/memhash.h"
#include "tests/support/memstore/memtree.h"

/* rows that are longer come in multiples of it: a mail's row has room for some flags */
#define ROW_LINE 64

struct table {
    struct memtree tree;
    struct memhash hash;
    size_t live;
};

enum was { WAS_ABSENT, WAS_DEAD, WAS_LIVE };

struct undo {
    size_t before; /* where the record before this one is */
    enum orset_table table;
    enum was was;
    bool removed;          /* the change was a removal: the value is still in the row */
    uint32_t key_len, len; /* key and old value follow */
};

struct orset_memstore {
    struct mem mem;
    struct table table[ORSET_TABLES];
    bool in_transaction;
    uint8_t *undo;
    /* last: where the last record is; none when undo_len is 0 */
    size_t undo_len, undo_room, undo_last;
};

/* --- undo
 * ---------------------------------------------------------------------------------------------- */

static size_t undo_size(size_t key_len, size_t len)
{
    size_t align = _Alignof(struct undo);
    return (sizeof(struct undo) + key_len + len + align - 1) & ~(align - 1);
}

/* Room for one more record, made before anything changes, so that a change can always be taken
 * back. */
static int undo_reserve(struct orset_memstore *m, size_t key_len, const struct memrow *old)
{
    size_t need = m->undo_len + undo_size(key_len, old ? old->len : 0), room = m->undo_room;
    if (!m->in_transaction || need <= room)
        return 0;
    for (room = room ? room : 4096; room < need; room *= 2)
        ;
    uint8_t *p = m->mem.alloc.resize(m->mem.alloc.ctx, m->undo, room);
    if (!p)
        return -1;
    m->undo = p;
    m->undo_room = room;
    return 0;
}

/* old: the row before the change, NULL: there was none. */
static void undo_note(struct orset_memstore *m, enum orset_table t, const void *key, size_t key_len,
                      const struct memrow *old, bool removed)
{
    if (!m->in_transaction)
        return;
    struct undo *u = (struct undo *)(m->undo + m->undo_len);
    size_t len = old && !removed ? old->len : 0;
    *u = (struct undo){m->undo_last,
                       t,
                       old ? (old->dead ? WAS_DEAD : WAS_LIVE) : WAS_ABSENT,
                       removed,
                       (uint32_t)key_len,
                       (uint32_t)len};
    uint8_t *p = (uint8_t *)(u + 1);
    memcpy(p, key, key_len);
    if (len)
        memcpy(p + key_len, old->bytes + key_len, len);
    m->undo_last = m->undo_len;
    m->undo_len += undo_size(key_len, len);
}

/* --- rows
 * ---------------------------------------------------------------------------------------------- */

static struct memrow *row_new(struct orset_memstore *m, const void *key, size_t key_len,
                              const void *value, size_t len)
{
    size_t size = sizeof(struct memrow) + key_len + len;
    if (size > ROW_LINE)
        size = (size + ROW_LINE - 1) / ROW_LINE * ROW_LINE;
    struct memrow *r = mem_get(&m->mem, size);
    if (!r)
        return NULL;
    *r = (struct memrow){(uint32_t)key_len, (uint32_t)len, (uint32_t)(size - sizeof *r - key_len),
                         false};
    memcpy(r->bytes, key, key_len);
    if (len)
        memcpy(r->bytes + key_len, value, len);
    return r;
}

static void row_free(struct orset_memstore *m, struct memrow *r)
{
    mem_free(&m->mem, r, memrow_size(r));
}

static void row_drop(struct orset_memstore *m, struct table *t, struct memrow *r)
{
    t->live -= !r->dead;
    memhash_remove(&t->hash, memhash_of(r->bytes, r->key_len), r);
    memtree_remove(&t->tree, &m->mem, r);
    row_free(m, r);
}

static int mem_row_get(void *ctx, enum orset_table table, const void *key, size_t key_len,
                       const uint8_t **value, size_t *len)
{
    const struct orset_memstore *m = ctx;
    struct memrow **at =
        memhash_find(&m->table[table].hash, memhash_of(key, key_len), key, key_len);
    if (!at || (*at)->dead)
        return 0;
    *value = (*at)->bytes + key_len;
    *len = (*at)->len;
    return 1;
}

static int insert(struct orset_memstore *m, enum orset_table table, uint64_t hash, const void *key,
                  size_t key_len, const void *value, size_t len)
{
    struct table *t = &m->table[table];
    struct memrow *r = row_new(m, key, key_len, value, len);
    if (!r)
        return -1;
    if (undo_reserve(m, key_len, NULL) < 0 || memhash_reserve(&t->hash, &m->mem) < 0 ||
        memtree_insert(&t->tree, &m->mem, r) < 0) {
        row_free(m, r);
        return -1;
    }
    memhash_add(&t->hash, hash, r);
    t->live++;
    undo_note(m, table, key, key_len, NULL, false);
    return 0;
}

static int mem_row_put(void *ctx, enum orset_table table, const void *key, size_t key_len,
                       const void *value, size_t len)
{
    struct orset_memstore *m = ctx;
    struct table *t = &m->table[table];
    uint64_t hash = memhash_of(key, key_len);
    struct memrow **at = memhash_find(&t->hash, hash, key, key_len), *old, *r;
    if (!at)
        return insert(m, table, hash, key, key_len, value, len);
    r = old = *at;
    if (undo_reserve(m, key_len, old) < 0 ||
        (old->room < len && !(r = row_new(m, key, key_len, value, len))))
        return -1;
    undo_note(m, table, key, key_len, old, false);
    t->live += old->dead;
    if (r == old) {
        memmove(r->bytes + key_len, value, len);
        r->len = (uint32_t)len;
        r->dead = false;
    } else {
        *at = r;
        memtree_move(&t->tree, r);
        row_free(m, old);
    }
    return 0;
}

static int mem_row_del(void *ctx, enum orset_table table, const void *key, size_t key_len)
{
    struct orset_memstore *m = ctx;
    struct table *t = &m->table[table];
    struct memrow **at = memhash_find(&t->hash, memhash_of(key, key_len), key, key_len), *r;
    if (!at || (*at)->dead)
        return 0;
    r = *at;
    if (!m->in_transaction) {
        row_drop(m, t, r);
        return 0;
    }
    if (undo_reserve(m, key_len, NULL) < 0)
        return -1;
    undo_note(m, table, key, key_len, r, true);
    r->dead = true;
    t->live--;
    return 0;
}

static int mem_row_each(void *ctx, enum orset_table table, const void *from, size_t from_len,
                        size_t prefix_len, orset_row_fn *fn, void *arg)
{
    const struct orset_memstore *m = ctx;
    return memtree_each(&m->table[table].tree, from, from_len, prefix_len, fn, arg);
}

/* The buckets of all keys are asked for before the first of them is looked at, then all rows:
 * the waits for memory run side by side instead of one after the other. */
static void mem_expect(void *ctx, enum orset_table table, const struct orset_ref *ref, size_t n)
{
    const struct orset_memstore *m = ctx;
    const struct memhash *t = &m->table[table].hash;
    uint64_t hash[ORSET_PREFETCH];
    n = n < ORSET_PREFETCH ? n : ORSET_PREFETCH;
    for (size_t i = 0; i < n; i++)
        memhash_expect_bucket(t, hash[i] = memhash_of(ref[i].key, ref[i].len));
    for (size_t i = 0; i < n; i++)
        memhash_expect_row(t, hash[i]);
}

/* --- transactions
 * ---------------------------------------------------------------------------------------------- */

static int mem_begin(void *ctx)
{
    struct orset_memstore *m = ctx;
    if (m->in_transaction)
        return -1;
    m->in_transaction = true;
    return 0;
}

/* Steps through the log backwards. */
static struct undo *undo_next(struct orset_memstore *m)
{
    if (m->undo_len == 0)
        return NULL;
    struct undo *u = (struct undo *)(m->undo + m->undo_last);
    m->undo_len = m->undo_last;
    m->undo_last = u->before;
    return u;
}

static struct memrow *undo_row(struct orset_memstore *m, const struct undo *u)
{
    const void *key = u + 1;
    struct memrow **at =
        memhash_find(&m->table[u->table].hash, memhash_of(key, u->key_len), key, u->key_len);
    return at ? *at : NULL;
}

static int mem_commit(void *ctx)
{
    struct orset_memstore *m = ctx;
    for (struct undo *u; (u = undo_next(m));) {
        struct memrow *r = u->removed ? undo_row(m, u) : NULL;
        if (r && r->dead)
            row_drop(m, &m->table[u->table], r);
    }
    m->in_transaction = false;
    return 0;
}

static void mem_rollback(void *ctx)
{
    struct orset_memstore *m = ctx;
    for (struct undo *u; (u = undo_next(m));) {
        struct table *t = &m->table[u->table];
        struct memrow *r = undo_row(m, u);
        if (u->was == WAS_ABSENT) {
            row_drop(m, t, r);
            continue;
        }
        t->live -= !r->dead;
        r->dead = u->was == WAS_DEAD;
        t->live += !r->dead;
        if (u->removed)
            continue;
        memcpy(r->bytes + u->key_len, (const uint8_t *)(u + 1) + u->key_len, u->len);
        r->len = u->len;
    }
    m->in_transaction = false;
}

/* --- the store
 * ---------------------------------------------------------------------------------------------- */

struct orset_memstore *orset_memstore_new(const struct orset_alloc *alloc)
{
    struct orset_memstore *m = alloc->resize(alloc->ctx, NULL, sizeof *m);
    if (!m)
        return NULL;
    memset(m, 0, sizeof *m);
    m->mem.alloc = *alloc;
    return m;
}

void orset_memstore_free(struct orset_memstore *m)
{
    if (!m)
        return;
    for (int t = 0; t < ORSET_TABLES; t++) {
        memtree_free(&m->table[t].tree, &m->mem);
        memhash_free(&m->table[t].hash, &m->mem);
    }
    struct orset_alloc alloc = m->mem.alloc;
    if (m->undo)
        alloc.resize(alloc.ctx, m->undo, 0);
    alloc.resize(alloc.ctx, m, 0);
}

void orset_memstore_interface(struct orset_memstore *m, struct orset_store *s)
{
    *s = (struct orset_store){.ctx = m,
                              .get = mem_row_get,
                              .put = mem_row_put,
                              .del = mem_row_del,
                              .each = mem_row_each,
                              .begin = mem_begin,
                              .commit = mem_commit,
                              .rollback = mem_rollback,
                              .expect = mem_expect};
}

size_t orset_memstore_bytes(const struct orset_memstore *m)
{
    return m->mem.bytes;
}

size_t orset_memstore_rows(const struct orset_memstore *m, enum orset_table t)
{
    return m->table[t].live;
}

struct copying {
    struct orset_memstore *to;
    enum orset_table table;
};

static int copy_row(void *arg, const uint8_t *key, size_t key_len, const uint8_t *value, size_t len)
{
    struct copying *c = arg;
    return mem_row_put(c->to, c->table, key, key_len, value, len);
}

struct orset_memstore *orset_memstore_copy(const struct orset_memstore *m)
{
    struct copying c = {orset_memstore_new(&m->mem.alloc), ORSET_T_META};
    if (!c.to)
        return NULL;
    for (int t = 0; t < ORSET_TABLES; t++) {
        c.table = (enum orset_table)t;
        if (memtree_each(&m->table[t].tree, "", 0, 0, copy_row, &c) != 0) {
            orset_memstore_free(c.to);
            return NULL;
        }
    }
    return c.to;
}
