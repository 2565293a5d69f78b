/* homes - which mailbox shows which folder: of those with one name, the folder with the smallest
 * id. */
#include "dovecot-plugin/orset/state/homes.h"
#include "dovecot-plugin/orset/base/origins.h"
#include "dovecot-plugin/orset/base/rows.h"
#include "dovecot-plugin/orset/state/binding.h"
#include "dovecot-plugin/orset/state/doomed.h"
#include "dovecot-plugin/orset/state/folder.h"
#include "dovecot-plugin/orset/state/message.h"
#include "dovecot-plugin/orset/state/tasks.h"

#include <stdlib.h>
#include <string.h>

static int by_name(const void *a, const void *b)
{
    const struct named_folder *x = a, *y = b;
    size_t n = x->f->name_len < y->f->name_len ? x->f->name_len : y->f->name_len;
    int c = memcmp(x->f->name, y->f->name, n);
    if (c == 0)
        c = x->f->name_len < y->f->name_len ? -1 : x->f->name_len > y->f->name_len;
    return c ? c : orset_dot_order(x->os, x->f->id, y->f->id);
}

/* Live and named folders but INBOX, sorted. *list_r is freed by the caller. Returns how many. */
int orset_folders_by_name(struct orset *os, struct named_folder **list_r)
{
    uint32_t n = 0;
    struct named_folder *v = orset_mem(os, NULL, (os->nfolders + 1) * sizeof *v);
    *list_r = v;
    if (!v)
        return ORSET_E_MEMORY;
    for (uint32_t i = 1; i < os->nfolders; i++)
        if (orset_folder_live(os->folder[i]) && os->folder[i]->name_stamp.clock)
            v[n++] = (struct named_folder){os, os->folder[i]};
    qsort(v, n, sizeof *v, by_name);
    return (int)n;
}

bool orset_same_name(const struct folder *a, const struct folder *b)
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

/* A folder that has got another name was not shown by that one. */
static int leave(struct orset *os, struct folder *f, struct folder *old, struct message *m)
{
    struct left_mail left = {.folder = f->index, .dot = m->p.dot};
    uint32_t uid = m->p.uid;
    int r = orset_unbind(os, old, m, false);
    if (!f->renamed)
        left.name = f->name_stamp;
    return r < 0 || !f->name_stamp.clock ? r : orset_doom_left(os, old->index, uid, &left);
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
            if (r > 0 && os->m[0].p.uid && (r = leave(os, f, old, &os->m[0])) < 0)
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
    struct named_folder *v;
    int n = orset_folders_by_name(os, &v), r = 0;
    if (n < 0)
        return n;
    os->tree_dirty = false;
    uint32_t home = 0;
    for (int i = 0; i < n && r >= 0; i++) {
        if (i == 0 || !orset_same_name(v[i].f, v[i - 1].f))
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
    for (uint32_t i = 1; i < os->nfolders; i++)
        os->folder[i]->renamed = false;
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

bool orset_has_name(const struct orset *os, const char *name, size_t len)
{
    for (uint32_t i = 1; i < os->nfolders; i++) {
        const struct folder *f = os->folder[i];
        if (orset_folder_live(f) && f->name_stamp.clock && f->name_len >= len &&
            memcmp(f->name, name, len) == 0 && (f->name_len == len || f->name[len] == '\0'))
            return true;
    }
    return false;
}
