/* pending_dots - what is remembered of dots that the vector does not cover yet (rule 3).
 *
 *     1, dot                          "a remove named it": when its add comes, it is dropped
 *     2, message dot, flag, flag dot  "this flag was set on a message that has not come": taken along when it comes
 *     3, message dot                  "the keeper gave it this UID"
 *
 * Rows go when their dot is covered, so the table is empty whenever all replicas have all ops.
 * Each row counts for the origin whose op named the dot; apply_op.c refuses an op that would bring
 * its origin above ORSET_PENDING_MAX, so one peer's nonsense cannot use up what others need. */
#include "dovecot-plugin/orset/state/pending_dots.h"
#include "dovecot-plugin/orset/base/flags.h"
#include "dovecot-plugin/orset/base/rows.h"
#include "dovecot-plugin/orset/state/message.h"

enum { KILL = 1, FLAG = 2, AGREED = 3 };

static void kill_key(struct orset_key *k, struct orset_dot d)
{
    k->n = 0;
    orset_key_num(k, KILL);
    orset_key_dot(k, d);
}

static void flag_key(struct orset_key *k, struct orset_dot target)
{
    k->n = 0;
    orset_key_num(k, FLAG);
    orset_key_dot(k, target);
}

static int put(struct orset *os, const struct orset_key *k, uint16_t by)
{
    struct orset_reader r;
    int got = orset_row_get(os, ORSET_T_AHEAD, k, &r);
    if (got)
        return got < 0 ? got : 0;
    os->row.len = 0;
    orset_buf_num(&os->row, by);
    os->remembered++;
    os->meta_dirty = true;
    os->origin[by].ahead++;
    os->origin[by].dirty = true;
    return orset_row_put(os, ORSET_T_AHEAD, k, &os->row);
}

static int drop(struct orset *os, const struct orset_key *k)
{
    struct orset_reader r;
    int got = orset_row_get(os, ORSET_T_AHEAD, k, &r);
    if (got <= 0)
        return got;
    uint64_t by = orset_read_num(&r, os->norigins - 1u);
    if (r.bad)
        return orset_corrupt(os, "a remembered dot's row");
    os->remembered--;
    os->meta_dirty = true;
    os->origin[by].ahead--;
    os->origin[by].dirty = true;
    return orset_row_del(os, ORSET_T_AHEAD, k);
}

/* The rest of the key: flag, off, dot. */
static bool read_flag(const struct orset *os, struct orset_reader *r, struct flagdot *f)
{
    uint64_t flag = orset_key_read(r, ORSET_KEYWORDS_MAX + ORSET_SYSTEM_FLAGS);
    f->off = orset_key_read(r, 1) != 0;
    f->dot = orset_key_read_dot(os, r);
    f->flag = (uint16_t)flag;
    return !r->bad && r->at == r->end && flag < ORSET_SYSTEM_FLAGS + (uint64_t)os->nkeywords;
}

/* One that a walk showed. Where the store does not find it then, the walk would show it for
 * ever. */
static int drop_shown(struct orset *os, const struct orset_key *k)
{
    struct orset_reader row;
    int got = orset_row_get(os, ORSET_T_AHEAD, k, &row);
    if (got <= 0)
        return got < 0 ? got : orset_corrupt(os, "a remembered dot's row is out of order");
    return drop(os, k);
}

bool orset_pending_row_is_true(const struct orset *os, const uint8_t *key, size_t len,
                               const uint8_t *v, size_t vlen)
{
    struct orset_reader k = orset_reader_of(key, len), r = orset_reader_of(v, vlen);
    struct flagdot f;
    uint64_t kind = orset_key_read(&k, AGREED);
    orset_key_read_dot(os, &k);
    orset_read_num(&r, os->norigins - 1u);
    if (kind == AGREED) {
        orset_read_num(&r, ORSET_CLOCK_MAX);
        r.bad |= orset_read_num(&r, UINT32_MAX) == 0;
        orset_read_num(&r, UINT32_MAX);
    }
    bool rest = kind == FLAG ? read_flag(os, &k, &f) : k.at == k.end;
    return kind != 0 && rest && !k.bad && !r.bad && r.at == r.end;
}

int orset_pending_killed(struct orset *os, struct orset_dot d)
{
    struct orset_key k;
    struct orset_reader r;
    if (os->remembered == 0)
        return 0;
    kill_key(&k, d);
    return orset_row_get(os, ORSET_T_AHEAD, &k, &r);
}

int orset_pending_flag(struct orset *os, struct orset_dot target, struct flagdot f, uint16_t by)
{
    struct orset_key k;
    flag_key(&k, target);
    orset_key_num(&k, f.flag);
    orset_key_num(&k, f.off);
    orset_key_dot(&k, f.dot);
    return put(os, &k, by);
}

/* Rows are read one at a time, because a row's removal ends an iteration. */
struct first {
    struct orset *os;
    struct orset_key key;
    struct orset_reader rest; /* behind the prefix, within key.b */
    struct orset_dot match;   /* counter 0: any */
    size_t prefix;
};

static int first_row(void *arg, const uint8_t *key, size_t key_len, const uint8_t *v, size_t len)
{
    struct first *f = arg;
    (void)v;
    (void)len;
    f->key.n = 0;
    orset_key_put(&f->key, key, key_len);
    f->rest = (struct orset_reader){f->key.b + f->prefix, f->key.b + key_len, false};
    struct orset_reader r = f->rest;
    struct flagdot found;
    if (!read_flag(f->os, &r, &found))
        return orset_corrupt(f->os, "a remembered flag's row");
    struct orset_dot d = found.dot;
    if (f->match.counter == 0)
        return 1;
    return d.origin == f->match.origin && d.counter == f->match.counter;
}

static int find_flag(struct orset *os, struct orset_dot target, struct orset_dot dot,
                     struct first *f)
{
    if (os->remembered == 0)
        return 0;
    flag_key(&f->key, target);
    f->os = os;
    f->prefix = f->key.n;
    f->match = dot;
    int r =
        os->store.each(os->store.ctx, ORSET_T_AHEAD, f->key.b, f->key.n, f->key.n, first_row, f);
    return r < 0 ? orset_storage_fail(os, "remembered flags") : r;
}

int orset_pending_flag_kill(struct orset *os, struct orset_dot target, struct orset_dot dot)
{
    struct first f;
    int r = find_flag(os, target, dot, &f);
    return r > 0 ? drop(os, &f.key) : r;
}

int orset_pending_take_flags(struct orset *os, struct message *m)
{
    struct first f;
    int r;
    while ((r = find_flag(os, m->p.dot, (struct orset_dot){0, 0}, &f)) > 0) {
        struct flagdot d;
        read_flag(os, &f.rest, &d);
        if ((r = orset_flagdot_put(os, m, d)) < 0 || (r = drop_shown(os, &f.key)) < 0)
            return r;
    }
    return r;
}

struct marks {
    struct orset *os;
    uint64_t site;
    size_t prefix;
    int n;
};

static int mark_row(void *arg, const uint8_t *key, size_t key_len, const uint8_t *v, size_t len)
{
    struct marks *c = arg;
    struct orset_reader r = {key + c->prefix, key + key_len, false};
    (void)v;
    (void)len;
    struct flagdot f;
    if (!read_flag(c->os, &r, &f))
        return orset_corrupt(c->os, "a remembered flag's row");
    c->n += c->os->origin[f.dot.origin].id.site == c->site;
    return 0;
}

int orset_pending_marks(struct orset *os, struct orset_dot target, uint64_t site)
{
    struct orset_key k;
    if (os->remembered == 0)
        return 0;
    flag_key(&k, target);
    struct marks c = {os, site, k.n, 0};
    int r = os->store.each(os->store.ctx, ORSET_T_AHEAD, k.b, k.n, k.n, mark_row, &c);
    return r < 0 ? orset_storage_fail(os, "remembered flags") : c.n;
}

static int drop_flags(struct orset *os, struct orset_dot target)
{
    struct first f;
    int r;
    while ((r = find_flag(os, target, (struct orset_dot){0, 0}, &f)) > 0)
        if ((r = drop_shown(os, &f.key)) < 0)
            return r;
    return r;
}

int orset_pending_kill(struct orset *os, struct orset_dot d, uint16_t by)
{
    struct orset_key k;
    kill_key(&k, d);
    int r = put(os, &k, by);
    if (r == 0)
        r = drop_flags(os, d);
    k.n = 0;
    orset_key_num(&k, AGREED);
    orset_key_dot(&k, d);
    return r < 0 || os->remembered == 0 ? r : drop(os, &k);
}

struct gone {
    struct orset *os;
    bool (*is_gone)(const void *arg, struct orset_dot flag);
    const void *arg;
    struct orset_key key;
};

static int gone_flag(void *arg, const uint8_t *key, size_t key_len, const uint8_t *v, size_t len)
{
    struct gone *g = arg;
    struct orset_reader r = orset_reader_of(key, key_len);
    (void)v;
    (void)len;
    struct flagdot f;
    orset_key_read(&r, AGREED);
    orset_key_read_dot(g->os, &r);
    if (!read_flag(g->os, &r, &f))
        return orset_corrupt(g->os, "a remembered flag's row");
    if (!g->is_gone(g->arg, f.dot))
        return 0;
    g->key.n = 0;
    orset_key_put(&g->key, key, key_len);
    return 1;
}

int orset_pending_drop_flags(struct orset *os,
                             bool (*is_gone)(const void *arg, struct orset_dot flag),
                             const void *arg)
{
    struct gone g = {.os = os, .is_gone = is_gone, .arg = arg};
    int r = os->remembered > 0;
    orset_key_num(&g.key, FLAG);
    size_t prefix = g.key.n;
    /* On from the row dropped last. */
    while (r > 0 && (r = os->store.each(os->store.ctx, ORSET_T_AHEAD, g.key.b, g.key.n, prefix,
                                        gone_flag, &g)) > 0)
        if ((r = drop_shown(os, &g.key)) == 0)
            r = 1;
    return r < 0 && !os->broken ? orset_storage_fail(os, "remembered flags") : r;
}

static void agreed_key(struct orset_key *k, struct orset_dot d)
{
    k->n = 0;
    orset_key_num(k, AGREED);
    orset_key_dot(k, d);
}

static int agreed_load(struct orset *os, const struct orset_key *k, struct message *m)
{
    struct orset_reader r;
    int got = orset_row_get(os, ORSET_T_AHEAD, k, &r);
    m->round = 0;
    if (got <= 0)
        return got;
    m->agreed_by = (uint16_t)orset_read_num(&r, os->norigins - 1u);
    m->term = orset_read_num(&r, ORSET_CLOCK_MAX);
    m->round = (uint32_t)orset_read_num(&r, UINT32_MAX);
    m->agreed = (uint32_t)orset_read_num(&r, UINT32_MAX);
    return r.bad || m->round == 0 ? orset_corrupt(os, "a remembered UID's row") : 1;
}

int orset_pending_agreed(struct orset *os, struct orset_dot d, const struct agreed *a)
{
    struct orset_key k;
    struct message m = {.round = 0};
    agreed_key(&k, d);
    int r = agreed_load(os, &k, &m);
    if (r < 0 || !orset_agree(os, &m, a))
        return r < 0 ? r : 0;
    if ((r = drop(os, &k)) < 0 || (r = put(os, &k, a->by)) < 0)
        return r;
    orset_buf_num(&os->row, m.term);
    orset_buf_num(&os->row, m.round);
    orset_buf_num(&os->row, m.agreed);
    return orset_row_put(os, ORSET_T_AHEAD, &k, &os->row);
}

int orset_pending_take_agreed(struct orset *os, struct message *m)
{
    struct orset_key k;
    struct message found = {.round = 0};
    if (os->remembered == 0)
        return 0;
    agreed_key(&k, m->p.dot);
    int r = agreed_load(os, &k, &found);
    if (r <= 0)
        return r;
    struct agreed a = {found.term, found.round, found.agreed, found.agreed_by};
    orset_agree(os, m, &a);
    return drop(os, &k);
}

static int agreed_by_row(void *arg, const uint8_t *key, size_t key_len, const uint8_t *v,
                         size_t len)
{
    struct first *f = arg;
    struct orset_reader r = orset_reader_of(v, len);
    f->key.n = 0;
    orset_key_put(&f->key, key, key_len);
    return orset_read_num(&r, UINT16_MAX) == f->match.origin;
}

int orset_pending_forget_agreed(struct orset *os, uint16_t by)
{
    struct first f = {.match = {by, 0}};
    struct orset_key k = {0};
    int r = os->remembered > 0;
    orset_key_num(&k, AGREED);
    while (r > 0 &&
           (r = os->store.each(os->store.ctx, ORSET_T_AHEAD, k.b, k.n, k.n, agreed_by_row, &f)) > 0)
        if ((r = drop_shown(os, &f.key)) == 0)
            r = 1;
    return r < 0 && !os->broken ? orset_storage_fail(os, "remembered UIDs") : r;
}

struct range {
    struct orset *os;
    struct orset_key key;
    uint16_t origin;
    uint64_t to;
};

static int in_range(void *arg, const uint8_t *key, size_t key_len, const uint8_t *v, size_t len)
{
    struct range *g = arg;
    struct orset_reader r = orset_reader_of(key, key_len);
    (void)v;
    (void)len;
    orset_key_read(&r, AGREED);
    struct orset_dot d = orset_key_read_dot(g->os, &r);
    if (r.bad)
        return orset_corrupt(g->os, "a remembered dot's row");
    if (d.origin != g->origin || d.counter > g->to)
        return 2;
    g->key.n = 0;
    orset_key_put(&g->key, key, key_len);
    return 1;
}

int orset_pending_covered(struct orset *os, uint16_t origin, uint64_t from, uint64_t to)
{
    if (os->remembered == 0)
        return 0;
    for (unsigned kind = KILL; kind <= AGREED; kind++) {
        int r = 1;
        while (r == 1) {
            struct range g = {.os = os, .origin = origin, .to = to};
            struct orset_key k = {0};
            orset_key_num(&k, kind);
            size_t prefix = k.n;
            orset_key_dot(&k, (struct orset_dot){origin, from + 1});
            r = os->store.each(os->store.ctx, ORSET_T_AHEAD, k.b, k.n, prefix, in_range, &g);
            if (r < 0)
                return orset_storage_fail(os, "remembered dots");
            if (r == 1 && drop_shown(os, &g.key) < 0)
                return ORSET_E_STORAGE;
        }
    }
    return 0;
}
