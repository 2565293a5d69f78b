/* tree - see tree.h. */
#include "dovecot-plugin/orset/state/tree.h"
#include "dovecot-plugin/orset/internal.h"

#include <stdlib.h>
#include <string.h>

struct named {
    const struct orset *os;
    struct folder *f;
};

static int by_name(const void *a, const void *b)
{
    const struct named *x = a, *y = b;
    size_t n = x->f->name_len < y->f->name_len ? x->f->name_len : y->f->name_len;
    int c = memcmp(x->f->name, y->f->name, n);
    if (c == 0)
        c = x->f->name_len < y->f->name_len ? -1 : x->f->name_len > y->f->name_len;
    return c ? c : orset_dot_order(x->os, x->f->id, y->f->id);
}

/* Live and named folders but INBOX, sorted. *list_r is freed by the caller. Returns how many. */
static int sorted(struct orset *os, struct named **list_r)
{
    uint32_t n = 0;
    struct named *v = orset_mem(os, NULL, (os->nfolders + 1) * sizeof *v);
    *list_r = v;
    if (!v)
        return ORSET_E_MEMORY;
    for (uint32_t i = 1; i < os->nfolders; i++)
        if (orset_folder_live(os->folder[i]) && os->folder[i]->name_stamp.clock)
            v[n++] = (struct named){os, os->folder[i]};
    qsort(v, n, sizeof *v, by_name);
    return (int)n;
}

static bool same_name(const struct folder *a, const struct folder *b)
{
    return a->name_len == b->name_len && memcmp(a->name, b->name, a->name_len) == 0;
}

struct some {
    unsigned n;
    struct orset_dot dot[256];
};

static int collect_bound(void *arg, const struct orset_message *m, const struct orset_flags *own)
{
    struct some *s = arg;
    (void)own;
    if (m->uid)
        s->dot[s->n++] = m->dot;
    return s->n == 256;
}

/* The folder is shown in another mailbox from now on: its mails are placed anew there (by copy,
 * the old UIDs can still be read) and then removed from the old one. */
static int move_home(struct orset *os, struct folder *f, uint32_t home)
{
    struct folder *old = orset_folder_at(os, f->home);
    struct some s;
    int r;
    do {
        s.n = 0;
        if ((r = orset_each_message(os, f->index, collect_bound, &s)) < 0)
            return r;
        for (unsigned i = 0; i < s.n; i++) {
            if ((r = orset_message_load(os, f->index, s.dot[i], &os->m[0])) < 0)
                return r;
            if (r > 0 && os->m[0].p.uid && (r = orset_unbind(os, old, &os->m[0], false)) < 0)
                return r;
        }
    } while (s.n > 0);
    f->home = home;
    os->place_changes++;
    if (home == f->index && orset_folder_live(f)) {
        struct orset_buf none = {0}; /* it may have no mailbox yet */
        if ((r = orset_task_put(os, ORSET_TASK_FOLDER, home, "", 0, &none)) < 0)
            return r;
    }
    return orset_folder_touch(os, f);
}

int orset_rehome(struct orset *os)
{
    struct named *v;
    int n = sorted(os, &v), r = 0;
    if (n < 0)
        return n;
    os->tree_dirty = false;
    uint32_t home = 0;
    for (int i = 0; i < n && r >= 0; i++) {
        if (i == 0 || !same_name(v[i].f, v[i - 1].f))
            home = v[i].f->index;
        if (v[i].f->home != home)
            r = move_home(os, v[i].f, home);
    }
    os->alloc.resize(os->alloc.ctx, v, 0);
    /* A dead or nameless folder is its own mailbox again. */
    for (uint32_t i = 1; i < os->nfolders && r >= 0; i++) {
        struct folder *f = os->folder[i];
        if ((!orset_folder_live(f) || !f->name_stamp.clock) && f->home != i)
            r = move_home(os, f, i);
    }
    return r;
}

/* Components in a name: the namespace key counts as one. */
static size_t prefix_of(const char *name, size_t len, unsigned parts)
{
    for (size_t i = 0; i < len; i++)
        if (name[i] == '\0' && --parts == 0)
            return i;
    return len;
}

/* Parents of the name that neither the mailbox before (in order) nor anything between is or has:
 * they do not exist. */
static int show_parents(const struct named *v, int i, orset_mailbox_fn *fn, void *arg)
{
    const struct folder *f = v[i].f, *before = i > 0 ? v[i - 1].f : NULL;
    for (unsigned parts = 2;; parts++) {
        size_t len = prefix_of(f->name, f->name_len, parts);
        if (len == f->name_len)
            return 0;
        bool known = before && before->name_len >= len && memcmp(before->name, f->name, len) == 0 &&
                     (before->name_len == len || before->name[len] == '\0');
        struct orset_mailbox m = {f->name, len, ORSET_NO_FOLDER, 0};
        int r = known ? 0 : fn(arg, &m);
        if (r)
            return r;
    }
}

int orset_tree(struct orset *os, orset_mailbox_fn *fn, void *arg)
{
    struct named *v;
    struct orset_mailbox m = {NULL, 0, ORSET_INBOX, 1};
    int n = sorted(os, &v), r;
    if (n < 0)
        return n;
    r = fn(arg, &m);
    for (int i = 0; i < n && r == 0; i++) {
        if (i > 0 && same_name(v[i].f, v[i - 1].f))
            continue;
        if ((r = show_parents(v, i, fn, arg)) != 0)
            break;
        m = (struct orset_mailbox){v[i].f->name, v[i].f->name_len, v[i].f->index, 1};
        while (i + (int)m.ids < n && same_name(v[i].f, v[i + (int)m.ids].f))
            m.ids++;
        r = fn(arg, &m);
    }
    os->alloc.resize(os->alloc.ctx, v, 0);
    return r;
}

uint32_t orset_folder_by_name(const struct orset *os, const char *name, size_t len)
{
    const struct folder *best = NULL;
    for (uint32_t i = 1; i < os->nfolders; i++) {
        const struct folder *f = os->folder[i];
        if (orset_folder_live(f) && f->name_len == len && memcmp(f->name, name, len) == 0 &&
            (!best || orset_dot_order(os, f->id, best->id) < 0))
            best = f;
    }
    return best ? best->index : ORSET_NO_FOLDER;
}

static bool is_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F') || (c >= 'a' && c <= 'f');
}

size_t orset_escape(const char *s, size_t len, char separator, char *out)
{
    static const char digit[] = "0123456789ABCDEF";
    bool dots = (len == 1 && s[0] == '.') || (len == 2 && s[0] == '.' && s[1] == '.');
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)s[i];
        bool percent = c == '%' && i + 2 < len && is_hex(s[i + 1]) && is_hex(s[i + 2]);
        if (c < 0x20 || c == 0x7f || c == '/' || s[i] == separator || (c == '~' && i == 0) ||
            dots || percent) {
            out[n++] = '%';
            out[n++] = digit[c >> 4];
            out[n++] = digit[c & 15];
        } else {
            out[n++] = s[i];
        }
    }
    out[n] = '\0';
    return n;
}
