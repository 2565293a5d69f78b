/* mailbox_tree - sorts the live folders by name and id, and says which mailbox each one is. */
#include "dovecot-plugin/orset/state/mailbox_tree.h"
#include "dovecot-plugin/orset/state/homes.h"

#include <string.h>

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
static int show_parents(const struct named_folder *v, int i, orset_mailbox_fn *fn, void *arg)
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
    struct named_folder *v;
    struct orset_mailbox m = {NULL, 0, ORSET_INBOX, 1};
    int n = orset_folders_by_name(os, &v), r;
    if (n < 0)
        return n;
    r = fn(arg, &m);
    for (int i = 0; i < n && r == 0; i++) {
        if (i > 0 && orset_same_name(v[i].f, v[i - 1].f))
            continue;
        if ((r = show_parents(v, i, fn, arg)) != 0)
            break;
        m = (struct orset_mailbox){v[i].f->name, v[i].f->name_len, v[i].f->index, 1};
        while (i + (int)m.ids < n && orset_same_name(v[i].f, v[i + (int)m.ids].f))
            m.ids++;
        r = fn(arg, &m);
    }
    os->alloc.resize(os->alloc.ctx, v, 0);
    return r;
}

uint64_t orset_tree_changes(const struct orset *os)
{
    return os->tree_changes;
}
