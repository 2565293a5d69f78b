/* memtree - see memtree.h. */
#include "tests/support/memstore/memtree.h"

#define FAN 64
#define DEPTH_MAX 16

struct slot {
    uint64_t head[2];
    /* inner: an own row of the key alone, because the one it came from may go first */
    struct memrow *row;
    struct memnode *child;
};

struct memnode {
    bool leaf;
    unsigned n;
    struct slot slot[FAN];
};

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

/* < 0, 0, > 0 as the slot's key is before, equal to, behind the key sought. */
static int slot_compare(const struct slot *s, const uint64_t head[2], const void *key, size_t len)
{
    if (s->head[0] != head[0])
        return s->head[0] < head[0] ? -1 : 1;
    if (s->head[1] != head[1])
        return s->head[1] < head[1] ? -1 : 1;
    size_t slot_len = s->row->key_len, n = slot_len < len ? slot_len : len;
    int c = n > 16 ? memcmp(s->row->bytes + 16, (const uint8_t *)key + 16, n - 16) : 0;
    return c ? c : slot_len < len ? -1 : slot_len > len;
}

/* First slot whose key is not before the key sought. */
static unsigned lower_bound(const struct memnode *nd, const uint64_t head[2], const void *key,
                            size_t len, bool *equal)
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
    struct memnode *node[DEPTH_MAX];
    unsigned at[DEPTH_MAX];
    int depth; /* index of the leaf, -1: the tree is empty */
    bool found;
};

static void descend(const struct memtree *t, const void *key, size_t len, struct path *p)
{
    uint64_t head[2];
    make_head(key, len, head);
    struct memnode *nd = t->root;
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

static void slot_put(struct memnode *nd, unsigned at, const struct slot *s)
{
    memmove(&nd->slot[at + 1], &nd->slot[at], (nd->n - at) * sizeof nd->slot[0]);
    nd->slot[at] = *s;
    nd->n++;
}

static int inner_slot(struct mem *m, struct slot *s, const struct slot *of, struct memnode *child)
{
    struct memrow *key = mem_get(m, sizeof *key + of->row->key_len);
    if (!key)
        return -1;
    *key = (struct memrow){.key_len = of->row->key_len};
    memcpy(key->bytes, of->row->bytes, key->key_len);
    *s = (struct slot){{of->head[0], of->head[1]}, key, child};
    return 0;
}

/* Splits the full node at depth d; its parent has room. Appends in key order leave full nodes
 * behind. */
static int split(struct memtree *t, struct mem *m, struct path *p, int d)
{
    struct memnode *nd = p->node[d], *right = mem_get(m, sizeof *right), *root = NULL;
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
            mem_free(m, left.row, memrow_size(left.row));
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
        t->root = root;
    } else {
        slot_put(p->node[d - 1], p->at[d - 1] + 1, &up);
    }
    return 0;
}

int memtree_insert(struct memtree *t, struct mem *m, struct memrow *e)
{
    struct path p;
    struct slot s = {.row = e};
    make_head(e->bytes, e->key_len, s.head);
    if (!t->root) {
        t->root = mem_get(m, sizeof *t->root);
        if (!t->root)
            return -1;
        t->root->leaf = true;
        t->root->n = 0;
    }
    for (;;) {
        descend(t, e->bytes, e->key_len, &p);
        int full = -1;
        for (int d = 0; d <= p.depth && full < 0; d++)
            if (p.node[d]->n == FAN)
                full = d;
        if (full < 0)
            break;
        if (p.depth + 1 >= DEPTH_MAX || split(t, m, &p, full) < 0)
            return -1;
    }
    slot_put(p.node[p.depth], p.at[p.depth], &s);
    return 0;
}

void memtree_move(struct memtree *t, struct memrow *row)
{
    struct path p;
    descend(t, row->bytes, row->key_len, &p);
    p.node[p.depth]->slot[p.at[p.depth]].row = row;
}

void memtree_remove(struct memtree *t, struct mem *m, const struct memrow *row)
{
    struct path p;
    descend(t, row->bytes, row->key_len, &p);
    for (int d = p.depth; d >= 0; d--) {
        struct memnode *nd = p.node[d];
        struct slot *s = &nd->slot[p.at[d]];
        if (!nd->leaf)
            mem_free(m, s->row, memrow_size(s->row));
        nd->n--;
        memmove(s, s + 1, (nd->n - p.at[d]) * sizeof *s);
        if (nd->n > 0)
            break;
        mem_free(m, nd, sizeof *nd);
        if (d == 0)
            t->root = NULL;
    }
}

struct walk {
    const void *from;
    size_t from_len, prefix_len;
    uint64_t head[2];
    orset_row_fn *fn;
    void *arg;
};

static int walk_node(const struct memnode *nd, const struct walk *w, bool bounded, bool *stop)
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
            const struct memrow *e = nd->slot[i].row;
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

int memtree_each(const struct memtree *t, const void *from, size_t from_len, size_t prefix_len,
                 orset_row_fn *fn, void *arg)
{
    struct walk w = {from, from_len, prefix_len, {0, 0}, fn, arg};
    bool stop = false;
    make_head(from, from_len, w.head);
    return t->root ? walk_node(t->root, &w, true, &stop) : 0;
}

static void node_free(struct mem *m, struct memnode *nd)
{
    for (unsigned i = 0; i < nd->n; i++) {
        mem_free(m, nd->slot[i].row, memrow_size(nd->slot[i].row));
        if (!nd->leaf)
            node_free(m, nd->slot[i].child);
    }
    mem_free(m, nd, sizeof *nd);
}

void memtree_free(struct memtree *t, struct mem *m)
{
    if (t->root)
        node_free(m, t->root);
    t->root = NULL;
}
