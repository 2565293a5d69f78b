/* match_mails - binds mails that are here already to the peers' messages that are the same. */
#include "dovecot-plugin/orset/ops/match_mails.h"
#include "dovecot-plugin/orset/base/flags.h"
#include "dovecot-plugin/orset/base/rows.h"
#include "dovecot-plugin/orset/ops/emit.h"
#include "dovecot-plugin/orset/ops/local_changes.h"
#include "dovecot-plugin/orset/state/aliases.h"
#include "dovecot-plugin/orset/state/binding.h"
#include "dovecot-plugin/orset/state/folder.h"
#include "dovecot-plugin/orset/state/group.h"
#include "dovecot-plugin/orset/state/message.h"
#include "dovecot-plugin/orset/state/tasks.h"

#include <stdlib.h>
#include <string.h>

struct candidate {
    uint8_t sha256[32], guid[16];
    uint32_t folder;
    struct orset_dot dot;
};

struct list {
    struct candidate *v;
    size_t n, room;
};

struct orset_join {
    uint32_t home;
    struct list unplaced; /* by (SHA-256, GUID) */
};

/* --- lists
 * ---------------------------------------------------------------------------------------------- */

static int by_bytes(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    int c = memcmp(x->sha256, y->sha256, 32);
    return c ? c : memcmp(x->guid, y->guid, 16);
}

static int list_add(struct orset *os, struct list *l, const struct message *m)
{
    if (l->n == l->room) {
        size_t room = l->room ? l->room * 2 : 256;
        struct candidate *p = orset_mem(os, l->v, room * sizeof *p);
        if (!p)
            return -1;
        l->v = p;
        l->room = room;
    }
    struct candidate *c = &l->v[l->n++];
    memcpy(c->sha256, m->p.facts.sha256, 32);
    memcpy(c->guid, m->p.facts.guid, 16);
    c->folder = m->p.folder;
    c->dot = m->p.dot;
    return 0;
}

static void list_sort(struct list *l)
{
    if (l->n)
        qsort(l->v, l->n, sizeof *l->v, by_bytes);
}

static void list_free(struct orset *os, struct list *l)
{
    if (l->v)
        os->alloc.resize(os->alloc.ctx, l->v, 0);
    memset(l, 0, sizeof *l);
}

struct collecting {
    struct orset *os;
    struct list *list;
    bool placed; /* which: placed messages of this site alone, or unplaced ones */
};

static int collect(void *arg, const uint8_t *key, size_t len, const uint8_t *v, size_t vlen)
{
    struct collecting *c = arg;
    struct orset *os = c->os;
    struct orset_reader k = orset_reader_of(key, len), r = orset_reader_of(v, vlen);
    struct message *m = &os->m[0];
    if (!orset_message_key_read(os, &k, m))
        return orset_corrupt(os, "a message's key");
    if (orset_message_parse(os, &r, m) < 0)
        return -1;
    bool own = os->origin[m->p.dot.origin].id.site == os->origin[os->self].id.site;
    if (c->placed ? m->p.uid == 0 || m->siblings || !own : m->p.uid != 0)
        return 0;
    return list_add(os, c->list, m);
}

static int collect_all(struct orset *os, uint32_t home, bool placed, struct list *l)
{
    struct collecting c = {os, l, placed};
    for (uint32_t i = 0; i < os->nfolders; i++) {
        struct orset_key k = {0};
        if (os->folder[i]->home != home)
            continue;
        orset_key_num(&k, i);
        if (os->store.each(os->store.ctx, ORSET_T_MESSAGE, k.b, k.n, k.n, collect, &c) < 0)
            return os->broken ? ORSET_E_MEMORY : orset_storage_fail(os, "messages");
    }
    list_sort(l);
    return 0;
}

/* --- a mail
 * ---------------------------------------------------------------------------------------------- */

int orset_join_begin(struct orset *os, uint32_t folder, struct orset_join **j_r)
{
    struct folder *f = orset_folder_at(os, folder);
    int r = orset_need_transaction(os);
    if (r < 0)
        return r;
    if (!f || f->home != folder)
        return orset_fail(os, ORSET_E_ABSENT, "%s: no mailbox of its own",
                          orset_folder_label(os, folder));
    struct orset_join *j = orset_mem(os, NULL, sizeof *j);
    if (!j)
        return ORSET_E_MEMORY;
    memset(j, 0, sizeof *j);
    j->home = folder;
    if ((r = collect_all(os, folder, false, &j->unplaced)) < 0) {
        orset_join_free(os, j);
        return r;
    }
    *j_r = j;
    return 0;
}

void orset_join_free(struct orset *os, struct orset_join *j)
{
    if (!j)
        return;
    list_free(os, &j->unplaced);
    os->alloc.resize(os->alloc.ctx, j, 0);
}

static size_t first_of(const struct list *l, const uint8_t sha256[32])
{
    size_t lo = 0, hi = l->n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (memcmp(l->v[mid].sha256, sha256, 32) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* 1 and the message in m[0] when it is still there and unplaced. */
static int still_unplaced(struct orset *os, const struct candidate *c)
{
    int r = orset_message_load(os, c->folder, c->dot, &os->m[0]);
    return r <= 0 ? r : os->m[0].p.uid == 0;
}

int orset_join_add(struct orset *os, struct orset_join *j, uint32_t uid,
                   const struct orset_facts *facts, const struct orset_flags *flags,
                   struct orset_dot *dot_r)
{
    int r = orset_need_transaction(os);
    if (r < 0 || (r = orset_message_by_uid(os, j->home, uid, NULL)) < 0)
        return r;
    if (r == 0 && (r = orset_unplaced_guid(os, j->home, facts->guid)) < 0)
        return r;
    if (r > 0)
        return orset_local_add(os, j->home, uid, facts, flags, dot_r);
    for (size_t i = first_of(&j->unplaced, facts->sha256);
         i < j->unplaced.n && memcmp(j->unplaced.v[i].sha256, facts->sha256, 32) == 0; i++) {
        const struct candidate *c = &j->unplaced.v[i];
        if ((r = still_unplaced(os, c)) < 0)
            return r;
        if (r == 0)
            continue;
        if (dot_r)
            *dot_r = c->dot;
        if ((r = orset_alias_put(os, facts->guid, &os->m[0])) < 0)
            return r;
        r = orset_placed(os, c->folder, c->dot, uid, flags, facts->sha256);
        return r < 0 ? r : ORSET_KNOWN;
    }
    return orset_local_add(os, j->home, uid, facts, flags, dot_r);
}

/* --- both have dots
 * ---------------------------------------------------------------------------------------------- */

/* Mine gives way: removed as a message, its mail bound to theirs; what it was marked with is set
 * there. */
static int give_way(struct orset *os, uint32_t home, const struct candidate *mine,
                    const struct candidate *theirs)
{
    struct orset_flags seen, wanted, more;
    struct message *m = &os->m[0];
    int r = orset_message_load(os, mine->folder, mine->dot, m), had;
    if (r <= 0)
        return r < 0 ? r : orset_storage_fail(os, "a message vanished");
    uint32_t uid = m->p.uid;
    if ((r = orset_group_union(os, m, &wanted)) < 0 ||
        (had = orset_task_seen(os, home, uid, &seen)) < 0)
        return r < 0 ? r : had;
    if (!had)
        seen = wanted;
    if ((r = orset_emit_remove(os, orset_folder_at(os, mine->folder), &mine->dot, 1)) < 0 ||
        (r = orset_placed(os, theirs->folder, theirs->dot, uid, &seen, mine->sha256)) < 0 ||
        (r = orset_message_load(os, theirs->folder, theirs->dot, m)) < 0 ||
        (r = orset_alias_put(os, mine->guid, m)) < 0 || (r = orset_group_union(os, m, &seen)) < 0)
        return r;
    orset_flags_diff(&wanted, &seen, &more);
    if ((had = orset_task_seen(os, home, uid, &wanted)) < 0)
        return had;
    r = orset_local_flags(os, home, uid, had ? &wanted : &seen, &more);
    return r < 0 ? r : 0;
}

int orset_join_end(struct orset *os, struct orset_join *j, unsigned *united_r, unsigned *left_r)
{
    struct list mine = {0};
    size_t n = 0, a = 0, b = 0;
    int r = orset_need_transaction(os);
    *united_r = *left_r = 0;
    for (size_t i = 0; r >= 0 && i < j->unplaced.n; i++)
        if ((r = still_unplaced(os, &j->unplaced.v[i])) > 0)
            j->unplaced.v[n++] = j->unplaced.v[i];
    if (r >= 0)
        j->unplaced.n = n;
    if (r >= 0 && n > 0)
        r = collect_all(os, j->home, true, &mine);
    while (r >= 0 && a < mine.n && b < n) {
        const struct candidate *x = &mine.v[a], *y = &j->unplaced.v[b];
        int c = memcmp(x->sha256, y->sha256, 32);
        a += c <= 0;
        b += c >= 0;
        /* Of one GUID: a second copy, which is to be made again. An alias is of all copies of a
         * GUID: one of several does not give way alone. */
        int copies =
            c != 0 || memcmp(y->guid, x->guid, 16) == 0 ? 2 : orset_copies(os, x->guid, x->folder);
        if (copies < 0)
            r = copies;
        if (copies != 1)
            continue;
        if (memcmp(y->guid, x->guid, 16) > 0)
            ++*left_r;
        else if ((r = give_way(os, j->home, x, y)) >= 0)
            ++*united_r;
    }
    list_free(os, &mine);
    return r < 0 ? r : 0;
}
