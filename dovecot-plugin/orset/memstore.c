/* memstore - B+ tree per table.
 *
 *     inner   | key head, entry, child | key head, entry, child | ...      the head is the key's first 16
 * bytes as two leaf    | key head, entry        | key head, entry        | ...      big-endian numbers, so
 * nearly all comparisons entry   key_len, value_len, room, key bytes, value bytes             stay inside the
 * node
 *
 * Most keys of the core are shorter than 16 bytes. An inner slot's key is the smallest key its subtree ever
 * held: a lower bound, so removal needs no repair upwards. A node is let go when it is empty and never merged
 * before: removes come in the order of age, so whole nodes empty together. */
#include "memstore.h"

#include <stdbool.h>
#include <string.h>

#define FAN 64
#define DEPTH_MAX 16

struct entry {
    uint32_t key_len, len, room;
    bool
        dead; /* removed in the open transaction; the slot goes at commit, so that rollback needs no memory */
    uint8_t bytes[]; /* key, then value */
};

struct slot {
    uint64_t head[2];
    struct entry *entry; /* leaf: the row; inner: NULL when the head says all, else an own copy of the key */
    struct node *child;
};

struct node {
    bool leaf;
    unsigned n;
    struct slot slot[FAN];
};

struct undo {
    enum orset_table table;
    struct entry *old; /* the row as it was */
    bool absent;       /* there was none: old holds only the key */
};

struct orset_memstore {
    struct orset_alloc alloc;
    struct node *root[ORSET_TABLES];
    size_t rows[ORSET_TABLES];
    size_t bytes;
    bool in_transaction;
    struct undo *undo;
    size_t nundo, undo_room;
};

static void *mem_get(struct orset_memstore *m, size_t n)
{
    void *p = m->alloc.resize(m->alloc.ctx, NULL, n);
    if (p)
        m->bytes += n;
    return p;
}

static void mem_free(struct orset_memstore *m, void *p, size_t n)
{
    if (!p)
        return;
    m->alloc.resize(m->alloc.ctx, p, 0);
    m->bytes -= n;
}

static void make_head(const void *key, size_t len, uint64_t head[2])
{
    uint8_t b[16] = {0};
    memcpy(b, key, len < 16 ? len : 16);
    for (int w = 0; w < 2; w++) {
        head[w] = 0;
        for (int i = 0; i < 8; i++)
            head[w] = head[w] << 8 | b[8 * w + i];
    }
}

static size_t entry_size(const struct entry *e)
{
    return sizeof *e + e->key_len + e->room;
}

static struct entry *entry_new(struct orset_memstore *m, const void *key, size_t key_len, const void *value,
                               size_t len)
{
    struct entry *e = mem_get(m, sizeof *e + key_len + len);
    if (!e)
        return NULL;
    e->key_len = (uint32_t)key_len;
    e->len = e->room = (uint32_t)len;
    e->dead = false;
    memcpy(e->bytes, key, key_len);
    if (len)
        memcpy(e->bytes + key_len, value, len);
    return e;
}

static void entry_free(struct orset_memstore *m, struct entry *e)
{
    if (e)
        mem_free(m, e, entry_size(e));
}

/* < 0, 0, > 0 as the slot's key is before, equal to, behind the key sought. */
static int slot_compare(const struct slot *s, const uint64_t head[2], const void *key, size_t len)
{
    if (s->head[0] != head[0])
        return s->head[0] < head[0] ? -1 : 1;
    if (s->head[1] != head[1])
        return s->head[1] < head[1] ? -1 : 1;
    size_t slot_len = s->entry->key_len, n = slot_len < len ? slot_len : len;
    int c = n > 16 ? memcmp(s->entry->bytes + 16, (const uint8_t *)key + 16, n - 16) : 0;
    return c ? c : slot_len < len ? -1 : slot_len > len;
}

/* First slot whose key is not before the key sought. */
static unsigned lower_bound(const struct node *nd, const uint64_t head[2], const void *key, size_t len,
                            bool *equal)
{
    unsigned lo = 0, hi = nd->n;
    *equal = false;
    while (lo < hi) {
        unsigned mid = (lo + hi) / 2;
        int c = slot_compare(&nd->slot[mid], head, key, len);
        if (c == 0) {
            *equal = true;
            return mid;
        }
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

struct path {
    struct node *node[DEPTH_MAX];
    unsigned at[DEPTH_MAX];
    int depth; /* index of the leaf, -1: the tree is empty */
    bool found;
};

static void descend(const struct orset_memstore *m, enum orset_table t, const void *key, size_t len,
                    struct path *p)
{
    uint64_t head[2];
    make_head(key, len, head);
    struct node *nd = m->root[t];
    p->depth = -1;
    p->found = false;
    while (nd) {
        bool equal;
        unsigned i = lower_bound(nd, head, key, len, &equal);
        p->node[++p->depth] = nd;
        if (nd->leaf) {
            p->at[p->depth] = i;
            p->found = equal;
            return;
        }
        if (!equal && i > 0)
            i--;
        p->at[p->depth] = i;
        nd = nd->slot[i].child;
    }
}

static void slot_put(struct node *nd, unsigned at, const struct slot *s)
{
    memmove(&nd->slot[at + 1], &nd->slot[at], (nd->n - at) * sizeof nd->slot[0]);
    nd->slot[at] = *s;
    nd->n++;
}

/* An inner slot needs its own copy of the key, because the row it came from may go first. */
static int inner_slot(struct orset_memstore *m, struct slot *s, const struct slot *of, struct node *child)
{
    *s = *of;
    s->child = child;
    s->entry = entry_new(m, of->entry->bytes, of->entry->key_len, NULL, 0);
    return s->entry ? 0 : -1;
}

/* Splits the full node at depth d; its parent has room. Appends in key order leave full nodes behind. */
static int split(struct orset_memstore *m, enum orset_table t, struct path *p, int d)
{
    struct node *nd = p->node[d], *right = mem_get(m, sizeof *right), *root = NULL;
    unsigned keep = p->at[d] >= FAN - 1 ? FAN - 1 : FAN / 2;
    struct slot up, left;
    if (!right)
        return -1;
    if (d == 0) {
        root = mem_get(m, sizeof *root);
        if (!root || inner_slot(m, &left, &nd->slot[0], nd) < 0) {
            mem_free(m, root, sizeof *root);
            mem_free(m, right, sizeof *right);
            return -1;
        }
    }
    if (inner_slot(m, &up, &nd->slot[keep], right) < 0) {
        if (root) {
            entry_free(m, left.entry);
            mem_free(m, root, sizeof *root);
        }
        mem_free(m, right, sizeof *right);
        return -1;
    }
    right->leaf = nd->leaf;
    right->n = nd->n - keep;
    memcpy(right->slot, &nd->slot[keep], right->n * sizeof right->slot[0]);
    nd->n = keep;
    if (root) {
        root->leaf = false;
        root->n = 0;
        slot_put(root, 0, &left);
        slot_put(root, 1, &up);
        m->root[t] = root;
    } else {
        slot_put(p->node[d - 1], p->at[d - 1] + 1, &up);
    }
    return 0;
}

static int insert(struct orset_memstore *m, enum orset_table t, struct entry *e)
{
    struct path p;
    struct slot s = {.entry = e};
    make_head(e->bytes, e->key_len, s.head);
    if (!m->root[t]) {
        m->root[t] = mem_get(m, sizeof *m->root[t]);
        if (!m->root[t])
            return -1;
        m->root[t]->leaf = true;
        m->root[t]->n = 0;
    }
    for (;;) {
        descend(m, t, e->bytes, e->key_len, &p);
        int full = -1;
        for (int d = 0; d <= p.depth && full < 0; d++)
            if (p.node[d]->n == FAN)
                full = d;
        if (full < 0)
            break;
        if (p.depth + 1 >= DEPTH_MAX || split(m, t, &p, full) < 0)
            return -1;
    }
    slot_put(p.node[p.depth], p.at[p.depth], &s);
    m->rows[t]++;
    return 0;
}

/* Takes the row out of its leaf and lets emptied nodes go. The entry is the caller's now. */
static struct entry *take_out(struct orset_memstore *m, enum orset_table t, struct path *p)
{
    struct entry *e = p->node[p->depth]->slot[p->at[p->depth]].entry;
    for (int d = p->depth; d >= 0; d--) {
        struct node *nd = p->node[d];
        if (!nd->leaf)
            entry_free(m, nd->slot[p->at[d]].entry);
        nd->n--;
        memmove(&nd->slot[p->at[d]], &nd->slot[p->at[d] + 1], (nd->n - p->at[d]) * sizeof nd->slot[0]);
        if (nd->n > 0)
            break;
        mem_free(m, nd, sizeof *nd);
        if (d == 0)
            m->root[t] = NULL;
    }
    return e;
}

/* Room for one more undo record, made before anything changes, so that a change can always be taken back. */
static int undo_room(struct orset_memstore *m)
{
    if (!m->in_transaction || m->nundo < m->undo_room)
        return 0;
    size_t room = m->undo_room ? m->undo_room * 2 : 64;
    struct undo *u = m->alloc.resize(m->alloc.ctx, m->undo, room * sizeof *u);
    if (!u)
        return -1;
    m->undo = u;
    m->undo_room = room;
    return 0;
}

static int mem_row_get(void *ctx, enum orset_table t, const void *key, size_t key_len, const uint8_t **value,
                       size_t *len)
{
    struct path p;
    descend(ctx, t, key, key_len, &p);
    if (!p.found)
        return 0;
    const struct entry *e = p.node[p.depth]->slot[p.at[p.depth]].entry;
    if (e->dead)
        return 0;
    *value = e->bytes + e->key_len;
    *len = e->len;
    return 1;
}

static int mem_row_put(void *ctx, enum orset_table t, const void *key, size_t key_len, const void *value,
                       size_t len)
{
    struct orset_memstore *m = ctx;
    struct path p;
    descend(m, t, key, key_len, &p);
    if (p.found && !m->in_transaction && p.node[p.depth]->slot[p.at[p.depth]].entry->room >= len) {
        struct entry *e = p.node[p.depth]->slot[p.at[p.depth]].entry;
        memmove(e->bytes + key_len, value, len);
        e->len = (uint32_t)len;
        return 0;
    }
    struct entry *e = entry_new(m, key, key_len, value, len), *undo = NULL;
    if (!e)
        return -1;
    if (undo_room(m) < 0) {
        entry_free(m, e);
        return -1;
    }
    if (p.found) {
        undo = p.node[p.depth]->slot[p.at[p.depth]].entry;
        m->rows[t] += undo->dead;
        p.node[p.depth]->slot[p.at[p.depth]].entry = e;
    } else {
        /* The key alone: rollback finds the row by it. */
        if (m->in_transaction && !(undo = entry_new(m, key, key_len, NULL, 0))) {
            entry_free(m, e);
            return -1;
        }
        if (insert(m, t, e) < 0) {
            entry_free(m, undo);
            entry_free(m, e);
            return -1;
        }
    }
    if (m->in_transaction)
        m->undo[m->nundo++] = (struct undo){t, undo, !p.found};
    else
        entry_free(m, undo);
    return 0;
}

static int mem_row_del(void *ctx, enum orset_table t, const void *key, size_t key_len)
{
    struct orset_memstore *m = ctx;
    struct path p;
    descend(m, t, key, key_len, &p);
    if (!p.found || p.node[p.depth]->slot[p.at[p.depth]].entry->dead)
        return 0;
    if (!m->in_transaction) {
        entry_free(m, take_out(m, t, &p));
        m->rows[t]--;
        return 0;
    }
    struct entry *dead = undo_room(m) < 0 ? NULL : entry_new(m, key, key_len, NULL, 0);
    if (!dead)
        return -1;
    dead->dead = true;
    struct slot *s = &p.node[p.depth]->slot[p.at[p.depth]];
    m->undo[m->nundo++] = (struct undo){t, s->entry, false};
    s->entry = dead;
    m->rows[t]--;
    return 0;
}

struct walk {
    const void *from;
    size_t from_len, prefix_len;
    uint64_t head[2];
    orset_row_fn *fn;
    void *arg;
};

static int walk_node(const struct node *nd, const struct walk *w, bool bounded, bool *stop)
{
    unsigned i = 0;
    if (bounded) {
        bool equal;
        i = lower_bound(nd, w->head, w->from, w->from_len, &equal);
        if (!nd->leaf && !equal && i > 0)
            i--;
    }
    for (; i < nd->n && !*stop; i++, bounded = false) {
        int r;
        if (nd->leaf) {
            const struct entry *e = nd->slot[i].entry;
            if (e->key_len < w->prefix_len || memcmp(e->bytes, w->from, w->prefix_len) != 0) {
                *stop = true;
                return 0;
            }
            if (e->dead)
                continue;
            r = w->fn(w->arg, e->bytes, e->key_len, e->bytes + e->key_len, e->len);
        } else {
            r = walk_node(nd->slot[i].child, w, bounded, stop);
        }
        if (r) {
            *stop = true;
            return r;
        }
    }
    return 0;
}

static int mem_row_each(void *ctx, enum orset_table t, const void *from, size_t from_len, size_t prefix_len,
                        orset_row_fn *fn, void *arg)
{
    struct orset_memstore *m = ctx;
    struct walk w = {from, from_len, prefix_len, {0, 0}, fn, arg};
    bool stop = false;
    make_head(from, from_len, w.head);
    return m->root[t] ? walk_node(m->root[t], &w, true, &stop) : 0;
}

static int mem_begin(void *ctx)
{
    struct orset_memstore *m = ctx;
    if (m->in_transaction)
        return -1;
    m->in_transaction = true;
    return 0;
}

static int mem_commit(void *ctx)
{
    struct orset_memstore *m = ctx;
    for (size_t i = 0; i < m->nundo; i++) {
        struct undo *u = &m->undo[i];
        struct path p;
        descend(m, u->table, u->old->bytes, u->old->key_len, &p);
        if (p.found && p.node[p.depth]->slot[p.at[p.depth]].entry->dead)
            entry_free(m, take_out(m, u->table, &p));
        entry_free(m, u->old);
    }
    m->nundo = 0;
    m->in_transaction = false;
    return 0;
}

/* Takes changes back, the last one first. Rows are only exchanged in their slots or taken out, so no memory
 * is needed. */
static void mem_rollback(void *ctx)
{
    struct orset_memstore *m = ctx;
    m->in_transaction = false;
    while (m->nundo > 0) {
        struct undo *u = &m->undo[--m->nundo];
        struct path p;
        descend(m, u->table, u->old->bytes, u->old->key_len, &p);
        struct slot *s = &p.node[p.depth]->slot[p.at[p.depth]];
        m->rows[u->table] -= !s->entry->dead;
        if (u->absent) {
            entry_free(m, take_out(m, u->table, &p));
            entry_free(m, u->old);
        } else {
            entry_free(m, s->entry);
            s->entry = u->old;
            m->rows[u->table] += !u->old->dead;
        }
    }
}

struct orset_memstore *orset_memstore_new(const struct orset_alloc *alloc)
{
    struct orset_memstore *m = alloc->resize(alloc->ctx, NULL, sizeof *m);
    if (!m)
        return NULL;
    memset(m, 0, sizeof *m);
    m->alloc = *alloc;
    return m;
}

static void node_free(struct orset_memstore *m, struct node *nd)
{
    for (unsigned i = 0; i < nd->n; i++) {
        entry_free(m, nd->slot[i].entry);
        if (!nd->leaf)
            node_free(m, nd->slot[i].child);
    }
    mem_free(m, nd, sizeof *nd);
}

void orset_memstore_free(struct orset_memstore *m)
{
    if (!m)
        return;
    mem_commit(m);
    for (int t = 0; t < ORSET_TABLES; t++)
        if (m->root[t])
            node_free(m, m->root[t]);
    m->alloc.resize(m->alloc.ctx, m->undo, 0);
    m->alloc.resize(m->alloc.ctx, m, 0);
}

void orset_memstore_interface(struct orset_memstore *m, struct orset_store *s)
{
    *s = (struct orset_store){m,         mem_row_get, mem_row_put, mem_row_del, mem_row_each,
                              mem_begin, mem_commit,  mem_rollback};
}

size_t orset_memstore_bytes(const struct orset_memstore *m)
{
    return m->bytes;
}

size_t orset_memstore_rows(const struct orset_memstore *m, enum orset_table t)
{
    return m->rows[t];
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
    struct copying c = {orset_memstore_new(&m->alloc), ORSET_T_META};
    if (!c.to)
        return NULL;
    for (int t = 0; t < ORSET_TABLES; t++) {
        c.table = (enum orset_table)t;
        if (mem_row_each((void *)(uintptr_t)m, c.table, "", 0, 0, copy_row, &c) != 0) {
            orset_memstore_free(c.to);
            return NULL;
        }
    }
    return c.to;
}
