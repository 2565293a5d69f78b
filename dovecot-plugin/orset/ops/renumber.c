/* renumber - a new epoch: every trace of the old one's doubtful numbers (epoch.c) gets numbers of
 * the new one.
 *
 * Worked on is the state, not the outgoing rows: those may be gone, and what an op did that was
 * undone since needs no number. Removes need none either: the vector covers what they took away, an
 * exchange tells it.
 *
 *     message, flag, presence, subscription dots    a number each
 *     folder ids                                    a number; the folder's index, mails and UIDs stay
 *     registers                                     a stamp later than any seen
 *     the keeper's UIDs given by the old epoch      forgotten: peers tell the true ones, else a new round does
 *
 * A folder in which another origin has a mail was known to that origin and keeps its id: the
 * mail's folder is a fact of it, and must not move. A mark that another origin set on a
 * renumbered message is set anew by this one, because its old dot is covered everywhere and
 * would count as removed on the new. */
#include "dovecot-plugin/orset/ops/renumber.h"
#include "dovecot-plugin/orset/base/flags.h"
#include "dovecot-plugin/orset/base/origins.h"
#include "dovecot-plugin/orset/base/rows.h"
#include "dovecot-plugin/orset/state/binding.h"
#include "dovecot-plugin/orset/state/folder.h"
#include "dovecot-plugin/orset/state/message.h"
#include "dovecot-plugin/orset/state/message_set.h"
#include "dovecot-plugin/orset/state/pending_dots.h"
#include "dovecot-plugin/orset/state/tasks.h"

bool orset_renumber_dot(struct renumber *n, struct orset_dot *d)
{
    struct origin *me = &n->os->origin[n->os->self];
    if (d->origin != n->old || d->counter <= n->keep)
        return false;
    *d = (struct orset_dot){n->os->self, ++me->counter};
    me->dirty = true;
    return true;
}

bool orset_restamp(struct renumber *n, struct stamp *s)
{
    const struct orset_origin *old = &n->os->origin[n->old].id;
    if (s->clock <= n->clock || s->site != old->site || s->epoch != old->epoch)
        return false;
    *s = orset_next_stamp(n->os);
    n->os->clock = s->clock;
    n->os->meta_dirty = true;
    return true;
}

/* --- messages
 * ---------------------------------------------------------------------------------------------- */

struct affected {
    struct renumber *n;
    bool known; /* a mail of another origin is in the folder */
    struct orset_dot *dot;
    size_t count, room;
};

static bool is_foreign(const struct renumber *n, struct orset_dot d)
{
    return d.origin != n->old && d.origin != n->os->self;
}

static int collect(void *arg, const uint8_t *key, size_t len, const uint8_t *v, size_t vlen)
{
    struct affected *a = arg;
    struct orset *os = a->n->os;
    struct orset_reader k = orset_reader_of(key, len), r = orset_reader_of(v, vlen);
    struct message *m = &os->m[0];
    if (!orset_message_key_read(os, &k, m))
        return orset_corrupt(os, "a message's key");
    struct orset_dot d = m->p.dot;
    if (orset_message_parse(os, &r, m) < 0)
        return -1;
    a->known |= is_foreign(a->n, d);
    bool hit = d.origin == a->n->old && d.counter > a->n->keep;
    hit |= m->round && m->agreed_by == a->n->old;
    for (unsigned i = 0; i < m->nflags; i++)
        hit |= m->flag[i].dot.origin == a->n->old && m->flag[i].dot.counter > a->n->keep;
    if (!hit)
        return 0;
    if (a->count == a->room) {
        size_t room = a->room ? a->room * 2 : 64;
        struct orset_dot *p = orset_mem(os, a->dot, room * sizeof *p);
        if (!p)
            return -1;
        a->dot = p;
        a->room = room;
    }
    a->dot[a->count++] = d;
    return 0;
}

/* One dot of this origin for each mark, whoever set it. */
static void mark_anew(struct renumber *n, struct message *m)
{
    struct origin *me = &n->os->origin[n->os->self];
    for (unsigned i = 0; i < m->nflags; i++) {
        m->flag[i].dot = (struct orset_dot){n->os->self, ++me->counter};
        for (unsigned j = i + 1; j < m->nflags;)
            if (m->flag[j].flag == m->flag[i].flag && m->flag[j].off == m->flag[i].off)
                orset_flagdot_cut(m, j);
            else
                j++;
    }
}

static int renumber_message(struct renumber *n, struct folder *f, struct orset_dot d)
{
    struct orset *os = n->os;
    struct message *m = &os->m[1];
    struct orset_dot fresh = d;
    int r = orset_message_load(os, f->index, d, m);
    if (r <= 0)
        return r < 0 ? r : orset_storage_fail(os, "a message vanished");
    orset_message_count(os, f, m, false);
    bool moved = orset_renumber_dot(n, &fresh),
         forgot = m->round && (moved || m->agreed_by == n->old);
    for (unsigned i = 0; i < m->nflags; i++)
        orset_renumber_dot(n, &m->flag[i].dot);
    if (moved)
        mark_anew(n, m);
    if (forgot)
        m->term = m->round = m->agreed = 0;
    r = moved ? orset_message_redot(os, f, m, fresh) : orset_message_store(os, m);
    orset_message_count(os, f, m, true);
    if (r < 0 || !forgot || m->p.uid == 0)
        return r;
    r = orset_task_uid(os, ORSET_TASK_RENUMBER, f->home, m->p.uid, NULL);
    return r < 0 ? r : orset_note_mismatch(os, orset_folder_at(os, f->home), m, m->p.uid);
}

static int renumber_messages(struct renumber *n, struct folder *f, bool *known)
{
    struct orset *os = n->os;
    struct affected a = {.n = n};
    struct orset_key k = {0};
    orset_key_num(&k, f->index);
    int r = os->store.each(os->store.ctx, ORSET_T_MESSAGE, k.b, k.n, k.n, collect, &a);
    if (r < 0)
        r = os->broken ? ORSET_E_STORAGE : orset_storage_fail(os, "messages");
    for (size_t i = 0; r >= 0 && i < a.count; i++)
        r = renumber_message(n, f, a.dot[i]);
    if (a.dot)
        os->alloc.resize(os->alloc.ctx, a.dot, 0);
    *known = a.known;
    return r < 0 ? r : 0;
}

static int renumber_folder(struct renumber *n, struct folder *f)
{
    struct orset *os = n->os;
    struct orset_dot id = f->id;
    bool known;
    int r = renumber_messages(n, f, &known);
    if (r < 0)
        return r;
    for (unsigned i = 0; i < f->npresence; i++) {
        known |= is_foreign(n, f->presence[i]);
        orset_renumber_dot(n, &f->presence[i]);
    }
    if (!known && id.origin != ORSET_INBOX_ORIGIN && orset_renumber_dot(n, &id)) {
        orset_folder_reidentify(os, f, id);
        os->tree_dirty = true;
        os->tree_changes++;
    }
    orset_restamp(n, &f->name_stamp);
    if (orset_restamp(n, &f->keeper_stamp))
        f->uid_told = f->uid_dirty = true;
    return orset_folder_touch(os, f);
}

int orset_renumber(struct renumber *n)
{
    struct orset *os = n->os;
    int r = orset_pending_forget_agreed(os, n->old);
    /* Flags can stand on any message, so all are looked at; it happens once in the life of a
     * backup. */
    for (uint32_t i = 0; r >= 0 && i < os->nfolders; i++)
        r = renumber_folder(n, os->folder[i]);
    return r;
}
