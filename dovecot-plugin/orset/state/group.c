/* group - the message that several dots make (rule 4): all live dots of one (folder, GUID, k).
 *
 * ORSET_T_GUID finds the dots of a (folder, GUID) by the GUID's first bytes; a row's value is its
 * k, so that the dots of one copy are found without a look at the messages of the others. A row
 * without a value is of an older program: its message says which k it has.
 *
 * The rows of the (folder, GUID) asked for last are kept in memory, in the order of their k.
 * Else a change of each of n copies of one mail would read n rows n times. */
#include "dovecot-plugin/orset/state/folder.h"
#include "dovecot-plugin/orset/state/group.h"
#include "dovecot-plugin/orset/base/flags.h"
#include "dovecot-plugin/orset/base/origins.h"
#include "dovecot-plugin/orset/base/rows.h"
#include "dovecot-plugin/orset/state/message.h"

#include <stdlib.h>
#include <string.h>

void orset_guid_key(struct orset_key *k, const uint8_t guid[16], uint32_t folder)
{
    k->n = 0;
    orset_key_put(k, guid, ORSET_GUID_PREFIX);
    orset_key_num(k, folder);
}

/* --- the dots of a GUID in a folder
 * ---------------------------------------------------------------------------------------------- */

static int by_k(const void *a, const void *b)
{
    const struct copy *x = a, *y = b;
    if (x->k != y->k)
        return x->k < y->k ? -1 : 1;
    if (x->dot.origin != y->dot.origin)
        return x->dot.origin < y->dot.origin ? -1 : 1;
    return x->dot.counter < y->dot.counter ? -1 : x->dot.counter > y->dot.counter;
}

static bool make_room(struct orset *os, struct copies *c)
{
    if (c->n < c->room)
        return true;
    unsigned room = c->room ? c->room * 2 : 16;
    struct copy *p = orset_mem(os, c->v, room * sizeof *p);
    if (!p)
        return false;
    c->v = p;
    c->room = room;
    return true;
}

struct collect {
    struct orset *os;
    size_t prefix;
};

static int collect_copy(void *arg, const uint8_t *key, size_t len, const uint8_t *v, size_t vlen)
{
    struct collect *c = arg;
    struct copies *to = &c->os->copies;
    struct orset_reader r = {key + c->prefix, key + len, false}, doomed = r,
                        value = orset_reader_of(v, vlen);
    if (orset_key_read(&doomed, UINT16_MAX) == ORSET_DOOMED_ORIGIN)
        return 0;
    struct copy one = {.dot = orset_key_read_dot(c->os, &r)};
    if (vlen)
        one.k = (uint32_t)orset_read_num(&value, ORSET_SAME_MESSAGE_MAX);
    if (r.bad || r.at != r.end || value.bad || value.at != value.end)
        return orset_corrupt(c->os, "a GUID's row");
    if (!make_room(c->os, to))
        return -1;
    to->v[to->n++] = one;
    return 0;
}

/* What an older program wrote. */
static int ask_messages(struct orset *os, struct copies *c, uint32_t folder)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < c->n; i++) {
        int r = c->v[i].k ? 1 : orset_message_load(os, folder, c->v[i].dot, &os->m[2]);
        if (r < 0)
            return r;
        if (r == 0)
            continue;
        if (!c->v[i].k)
            c->v[i].k = os->m[2].p.k;
        c->v[kept++] = c->v[i];
    }
    c->n = kept;
    return 0;
}

static bool is_of(const struct copies *c, const uint8_t guid[16], uint32_t folder)
{
    return c->good && c->folder == folder && memcmp(c->prefix, guid, ORSET_GUID_PREFIX) == 0;
}

int orset_copies(struct orset *os, const uint8_t guid[16], uint32_t folder)
{
    struct copies *c = &os->copies;
    struct orset_key k;
    if (is_of(c, guid, folder))
        return (int)c->n;
    orset_guid_key(&k, guid, folder);
    struct collect to = {os, k.n};
    c->good = false;
    c->n = 0;
    c->folder = folder;
    memcpy(c->prefix, guid, ORSET_GUID_PREFIX);
    int r = os->store.each(os->store.ctx, ORSET_T_GUID, k.b, k.n, k.n, collect_copy, &to);
    if (r < 0)
        return os->broken ? ORSET_E_MEMORY : orset_storage_fail(os, "GUIDs");
    if ((r = ask_messages(os, c, folder)) < 0)
        return r;
    if (c->n)
        qsort(c->v, c->n, sizeof *c->v, by_k);
    c->good = true;
    return (int)c->n;
}

/* Where that one stands, or would stand. */
static unsigned place_of(const struct copies *c, const struct copy *one)
{
    unsigned lo = 0, hi = c->n;
    while (lo < hi) {
        unsigned mid = (lo + hi) / 2;
        if (by_k(&c->v[mid], one) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

int orset_copies_of(struct orset *os, const uint8_t guid[16], uint32_t folder, uint32_t k,
                    const struct copy **first)
{
    int n = orset_copies(os, guid, folder), m = 0;
    if (n <= 0)
        return n;
    const struct copy from = {.k = k};
    int at = (int)place_of(&os->copies, &from);
    *first = os->copies.v + at;
    while (at + m < n && os->copies.v[at + m].k == k)
        m++;
    return m;
}

int orset_copy_put(struct orset *os, const struct message *m)
{
    struct copies *c = &os->copies;
    struct copy one = {m->p.k, m->p.dot};
    struct orset_key k;
    orset_guid_key(&k, m->p.facts.guid, m->p.folder);
    orset_key_dot(&k, m->p.dot);
    os->row.len = 0;
    orset_buf_num(&os->row, m->p.k);
    int r = orset_row_put(os, ORSET_T_GUID, &k, &os->row);
    if (r < 0 || !is_of(c, m->p.facts.guid, m->p.folder))
        return r;
    unsigned at = place_of(c, &one);
    if (at < c->n && by_k(&c->v[at], &one) == 0)
        return 0;
    if (!make_room(os, c))
        return ORSET_E_MEMORY;
    memmove(&c->v[at + 1], &c->v[at], (c->n - at) * sizeof *c->v);
    c->v[at] = one;
    c->n++;
    return 0;
}

int orset_copy_del(struct orset *os, const struct message *m)
{
    struct copies *c = &os->copies;
    const struct copy one = {m->p.k, m->p.dot};
    struct orset_key k;
    orset_guid_key(&k, m->p.facts.guid, m->p.folder);
    orset_key_dot(&k, m->p.dot);
    int r = orset_row_del(os, ORSET_T_GUID, &k);
    if (r < 0 || !is_of(c, m->p.facts.guid, m->p.folder))
        return r;
    unsigned at = place_of(c, &one);
    if (at < c->n && by_k(&c->v[at], &one) == 0) {
        memmove(&c->v[at], &c->v[at + 1], (c->n - at - 1) * sizeof *c->v);
        c->n--;
    }
    return 0;
}

static int is_live(void *arg, const uint8_t *key, size_t len, const uint8_t *v, size_t vlen)
{
    struct orset_reader r = {key + ORSET_GUID_PREFIX, key + len, false};
    (void)arg;
    (void)v;
    (void)vlen;
    orset_key_read(&r, UINT32_MAX); /* the folder */
    return orset_key_read(&r, UINT16_MAX) != ORSET_DOOMED_ORIGIN;
}

int orset_guid_lives(struct orset *os, const uint8_t guid[16])
{
    int r = os->store.each(os->store.ctx, ORSET_T_GUID, guid, ORSET_GUID_PREFIX, ORSET_GUID_PREFIX,
                           is_live, NULL);
    return r < 0 ? orset_storage_fail(os, "GUIDs") : r;
}

/* --- the dots of one message
 * ---------------------------------------------------------------------------------------------- */

int orset_group_load(struct orset *os, const struct message *m)
{
    const struct copy *c;
    if (!m->siblings) {
        os->group[0] = m->p.dot;
        return 1;
    }
    uint8_t guid[16];
    uint32_t folder = m->p.folder;
    memcpy(guid, m->p.facts.guid, 16);
    int n = orset_copies_of(os, guid, folder, m->p.k, &c), kept = 0;
    for (int i = 0; i < n; i++) {
        struct message *o = &os->m[2];
        struct orset_dot d = c[i].dot;
        int got = orset_message_load(os, folder, d, o);
        if (got < 0)
            return got;
        if (!got || memcmp(o->p.facts.guid, guid, 16) != 0)
            continue;
        if (kept == ORSET_SAME_MESSAGE_MAX)
            return orset_fail(os, ORSET_E_LIMIT, "more than %d dots of one message in %s",
                              ORSET_SAME_MESSAGE_MAX, orset_folder_label(os, folder));
        os->group[kept++] = d;
    }
    if (n >= 0 && kept == 0)
        return orset_corrupt(os, "a message without its GUID's row");
    return n < 0 ? n : kept;
}

/* s: what is set on the dots of the message; no: what is cleared so that it beats a setting. */
static int group_flags(struct orset *os, const struct message *m, struct orset_flags *s,
                       struct orset_flags *no)
{
    memset(s, 0, sizeof *s);
    memset(no, 0, sizeof *no);
    if (!m->siblings) {
        orset_flags_of(m, s, no);
        return 0;
    }
    int n = orset_group_load(os, m);
    if (n < 0)
        return n;
    for (int i = 0; i < n; i++) {
        int r = orset_message_load(os, m->p.folder, os->group[i], &os->m[2]);
        if (r < 0)
            return r;
        orset_flags_of(&os->m[2], s, no);
    }
    return 0;
}

int orset_group_union(struct orset *os, const struct message *m, struct orset_flags *s)
{
    struct orset_flags no;
    int r = group_flags(os, m, s, &no);
    /* Disable wins for \Deleted: an undelete must beat a concurrent delete, or the next EXPUNGE
     * destroys the mail. */
    s->system &= (uint8_t)~no.system;
    return r;
}

int orset_group_rescued(struct orset *os, const struct message *m)
{
    struct orset_flags s, no;
    int r = group_flags(os, m, &s, &no);
    return r < 0 ? r : (no.system & ORSET_DELETED) != 0;
}

int orset_group_speaker(struct orset *os, const struct message *m, struct orset_dot *dot,
                        uint8_t *body_r)
{
    uint8_t body[32];
    memcpy(body, m->p.facts.sha256, 32);
    *dot = m->p.dot;
    int n = m->siblings ? orset_group_load(os, m) : 0;
    for (int i = 0; i < n; i++) {
        struct message *o = &os->m[2];
        int r = orset_message_load(os, m->p.folder, os->group[i], o);
        if (r <= 0)
            return r < 0 ? r : orset_corrupt(os, "a GUID's row without its message");
        int c = memcmp(o->p.facts.sha256, body, 32);
        if (c > 0 || (c == 0 && orset_dot_order(os, o->p.dot, *dot) >= 0))
            continue;
        memcpy(body, o->p.facts.sha256, 32);
        *dot = o->p.dot;
    }
    if (body_r)
        memcpy(body_r, body, 32);
    return n < 0 ? n : 0;
}

/* The keeper's last word on any live dot (1); without one, the claim of the smallest dot (0). A
 * function of the live dots alone. */
int orset_group_agreed(struct orset *os, const struct message *m, uint32_t *uid_r)
{
    *uid_r = m->round ? m->agreed : m->p.claim;
    if (!m->siblings)
        return m->round != 0;
    struct orset_dot best = m->p.dot;
    uint64_t term = m->term;
    uint32_t round = m->round;
    uint16_t by = m->agreed_by;
    int n = orset_group_load(os, m);
    for (int i = 0; i < n; i++) {
        struct message *o = &os->m[2];
        int r = orset_message_load(os, m->p.folder, os->group[i], o);
        if (r < 0)
            return r;
        int c = o->term != term     ? (o->term > term ? 1 : -1)
                : o->round != round ? (o->round > round ? 1 : -1)
                                    : 0;
        if (c == 0 && round)
            c = orset_dot_order(os, (struct orset_dot){o->agreed_by, 0}, (struct orset_dot){by, 0});
        bool later = c > 0, same = c == 0;
        if (later || (same && orset_dot_order(os, o->p.dot, best) < 0)) {
            best = o->p.dot;
            term = o->term;
            round = o->round;
            by = o->agreed_by;
            *uid_r = o->round ? o->agreed : o->p.claim;
        }
    }
    return n < 0 ? n : round != 0;
}
