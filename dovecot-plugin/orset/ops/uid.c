/* uid - the keeper's rounds: which UID each message is to have, and who has heard of it. */
#include "dovecot-plugin/orset/ops/uid.h"
#include "dovecot-plugin/orset/base/origins.h"
#include "dovecot-plugin/orset/base/rows.h"
#include "dovecot-plugin/orset/ops/emit.h"
#include "dovecot-plugin/orset/ops/apply_op.h"
#include "dovecot-plugin/orset/state/folder.h"
#include "dovecot-plugin/orset/state/group.h"
#include "dovecot-plugin/orset/state/message.h"
#include "dovecot-plugin/orset/state/tasks.h"

#include <stdlib.h>

#define GAP_MAX 4096

uint64_t orset_keeper(const struct orset *os, uint32_t folder, const uint64_t *sites, size_t n)
{
    const struct folder *f = orset_folder_at(os, folder);
    uint64_t low = n ? sites[0] : 0;
    for (size_t i = 1; i < n; i++)
        low = sites[i] < low ? sites[i] : low;
    return f && f->keeper ? f->keeper : low;
}

int orset_local_keeper(struct orset *os, uint32_t folder, uint64_t site)
{
    struct folder *f = orset_folder_at(os, folder);
    int r = orset_need_transaction(os);
    if (r < 0)
        return r;
    if (!f || site == 0)
        return orset_fail(os, ORSET_E_ABSENT, "keeper of folder %u: no such folder or site",
                          folder);
    if (f->keeper == site)
        return ORSET_KNOWN;
    orset_op_begin(os, OP_KEEPER);
    orset_folder_id_write(&os->op, f);
    orset_buf_num(&os->op, orset_next_stamp(os).clock);
    orset_buf_u64(&os->op, site);
    return orset_emit(os, 0);
}

/* --- mismatches
 * ---------------------------------------------------------------------------------------------- */

struct uids {
    struct orset *os;
    uint32_t *uid;
    size_t n, room;
    bool failed;
};

static int collect_uid(void *arg, const uint8_t *key, size_t len, const uint8_t *v, size_t vlen)
{
    struct uids *u = arg;
    struct orset_reader r = orset_reader_of(key, len);
    (void)v;
    (void)vlen;
    orset_key_read(&r, ORSET_TASK_MISMATCH);
    orset_key_read(&r, UINT32_MAX);
    uint32_t uid = (uint32_t)orset_key_read(&r, UINT32_MAX);
    if (r.bad || r.at != r.end)
        return orset_corrupt(u->os, "a UID that is not the agreed one");
    if (u->n == ORSET_ROUND_MAX)
        return 1;
    if (u->n == u->room) {
        size_t room = u->room ? u->room * 2 : 64;
        uint32_t *p = orset_mem(u->os, u->uid, room * sizeof *p);
        if (!p) {
            u->failed = true;
            return -1;
        }
        u->uid = p;
        u->room = room;
    }
    u->uid[u->n++] = uid;
    return 0;
}

static int mismatches(struct orset *os, uint32_t home, struct uids *u)
{
    struct orset_key k = {0};
    orset_key_num(&k, ORSET_TASK_MISMATCH);
    orset_key_num(&k, home);
    *u = (struct uids){.os = os};
    int r = os->store.each(os->store.ctx, ORSET_T_TASK, k.b, k.n, k.n, collect_uid, u);
    return r < 0 ? (u->failed ? ORSET_E_MEMORY : orset_storage_fail(os, "mismatches")) : 0;
}

static void uids_free(struct uids *u)
{
    if (u->uid)
        u->os->alloc.resize(u->os->alloc.ctx, u->uid, 0);
}

int orset_uid_mismatches(struct orset *os, uint32_t folder)
{
    struct uids u;
    int r = mismatches(os, folder, &u);
    uids_free(&u);
    return r < 0 ? r : (int)u.n;
}

/* A mismatch that a RENUMBER row will end needs no round. */
bool orset_uid_dirty(struct orset *os, uint32_t folder, bool keeper)
{
    const struct folder *f = orset_folder_at(os, folder);
    struct uids u;
    bool dirty = f && keeper && f->uid_told;
    if (!f || dirty || !f->uid_dirty)
        return dirty;
    if (mismatches(os, folder, &u) < 0)
        dirty = true; /* not known: a round too many does no harm */
    for (size_t i = 0; i < u.n && !dirty; i++) {
        struct orset_reader r;
        dirty = orset_task_uid_row(os, ORSET_TASK_RENUMBER, folder, u.uid[i], &r) == 0;
    }
    uids_free(&u);
    return dirty;
}

int orset_uid_mark_dirty(struct orset *os, uint32_t folder)
{
    struct folder *f = orset_folder_at(os, folder);
    int r = orset_need_transaction(os);
    if (r < 0 || !f || f->uid_told)
        return r;
    f->uid_told = true;
    return orset_folder_touch(os, f);
}

/* --- ask and answer
 * -------------------------------------------------------------------------------------------------
 *
 * Both travel outside the op stream, so origins stand in full: site, epoch.
 *     ask    = folder id (site, epoch, counter; 0, 0, 0: INBOX), term, round
 *     answer = the ask, UIDNEXT, n, { dot (site, epoch, counter) } */

static void write_dot(const struct orset *os, struct orset_buf *b, struct orset_dot d)
{
    bool inbox = d.origin == ORSET_INBOX_ORIGIN;
    orset_buf_u64(b, inbox ? 0 : os->origin[d.origin].id.site);
    orset_buf_u64(b, inbox ? 0 : os->origin[d.origin].id.epoch);
    orset_buf_num(b, d.counter);
}

/* 1: known here; 0: well formed, its origin is not known here. */
static int parse_dot(struct orset *os, struct orset_reader *r, struct orset_dot *d)
{
    struct orset_origin o;
    o.site = orset_read_u64(r);
    o.epoch = orset_read_u64(r);
    d->counter = orset_read_num(r, ORSET_COUNTER_MAX);
    if (r->bad)
        return orset_fail(os, ORSET_E_MALFORMED, "a dot of a UID round cannot be read");
    if (o.site == 0 && o.epoch == 0 && d->counter == 0) {
        d->origin = ORSET_INBOX_ORIGIN;
        return 1;
    }
    int i = orset_find_origin(os, o);
    d->origin = (uint16_t)(i < 0 ? 0 : i);
    return i >= 0;
}

static void write_ask(const struct orset *os, struct orset_buf *b, const struct folder *f)
{
    orset_buf_u8(b, ORSET_WIRE_VERSION);
    write_dot(os, b, f->id);
    orset_buf_num(b, f->keeper_stamp.clock);
    orset_buf_num(b, f->ask);
}

int orset_uid_ask(struct orset *os, uint32_t folder, struct orset_buf *ask)
{
    struct folder *f = orset_folder_at(os, folder);
    int r = orset_need_transaction(os);
    if (r < 0)
        return r;
    if (!f)
        return orset_fail(os, ORSET_E_ABSENT, "a UID round of folder %u: there is no such folder",
                          folder);
    /* Cleared at the question, not at the answer: what is told during the round needs another
     * one. */
    f->uid_told = false;
    if (f->round_term != f->keeper_stamp.clock) {
        f->round_term = f->keeper_stamp.clock;
        f->round = 0;
    }
    f->ask = (f->ask > f->round ? f->ask : f->round) + 1;
    write_ask(os, ask, f);
    if (ask->failed)
        return orset_fail(os, ORSET_E_MEMORY, "no memory for a UID round");
    return orset_folder_touch(os, f);
}

static int write_answer(struct orset *os, const struct folder *f, const uint8_t *ask, size_t len,
                        struct orset_buf *b)
{
    struct uids u;
    int r = mismatches(os, f->index, &u);
    orset_buf_put(b, ask, len);
    orset_buf_num(b, f->uid_next);
    orset_buf_num(b, u.n);
    for (size_t i = 0; r >= 0 && i < u.n; i++) {
        r = orset_message_by_uid(os, f->index, u.uid[i], NULL);
        if (r > 0)
            write_dot(os, b, os->m[0].p.dot);
        else if (r == 0)
            r = orset_corrupt(os, "a UID that is not the agreed one is no message's");
    }
    uids_free(&u);
    return r < 0 ? r : b->failed ? orset_fail(os, ORSET_E_MEMORY, "no memory for a UID round") : 0;
}

static int parse_ask(struct orset *os, struct orset_reader *r, struct folder **f, uint64_t *term,
                     uint32_t *round)
{
    struct orset_dot id;
    if (orset_read_u8(r) != ORSET_WIRE_VERSION)
        return orset_fail(os, ORSET_E_KIND, "a UID round of an unknown version");
    int known = parse_dot(os, r, &id);
    *term = orset_read_num(r, ORSET_CLOCK_MAX);
    *round = (uint32_t)orset_read_num(r, UINT32_MAX - 1);
    if (r->bad)
        return orset_fail(os, ORSET_E_MALFORMED, "a UID round cannot be read");
    *f = known > 0 ? orset_folder_find(os, id) : NULL;
    return *f ? 0
              : orset_fail(os, ORSET_E_ABSENT,
                           "a UID round of a folder that is not known here yet");
}

int orset_uid_answer(struct orset *os, const uint8_t *ask, size_t len, struct orset_buf *answer)
{
    struct orset_reader r = orset_reader_of(ask, len);
    struct folder *f;
    uint64_t term = 0;
    uint32_t round = 0;
    int e = parse_ask(os, &r, &f, &term, &round);
    if (e < 0)
        return e;
    if (r.at != r.end)
        return orset_fail(os, ORSET_E_MALFORMED, "bytes behind a UID round's question");
    return write_answer(os, f, ask, len, answer);
}

/* --- UIDNEXT alone
 * ---------------------------------------------------------------------------------------------- */

int orset_uid_next_ask(struct orset *os, uint32_t folder, struct orset_buf *ask)
{
    const struct folder *f = orset_folder_at(os, folder);
    if (!f)
        return orset_fail(os, ORSET_E_ABSENT, "UIDNEXT of folder %u: there is no such folder",
                          folder);
    orset_buf_u8(ask, ORSET_WIRE_VERSION);
    write_dot(os, ask, f->id);
    orset_buf_num(ask, 0);
    orset_buf_num(ask, 0);
    return ask->failed ? orset_fail(os, ORSET_E_MEMORY, "no memory for a question") : 0;
}

int orset_uid_next_read(struct orset *os, const uint8_t *answer, size_t len, uint32_t *folder_r,
                        uint32_t *uid_next_r)
{
    struct orset_reader r = orset_reader_of(answer, len);
    struct folder *f = NULL;
    uint64_t term = 0;
    uint32_t round = 0;
    if (parse_ask(os, &r, &f, &term, &round) < 0 || term != 0 || round != 0)
        return 0;
    *folder_r = f->index;
    *uid_next_r = (uint32_t)orset_read_num(&r, ORSET_UID_MAX);
    return !r.bad;
}

int orset_uid_next_given(struct orset *os, uint32_t folder, uint64_t site, uint32_t uid_next)
{
    struct folder *f;
    int r, by = -1;
    if (!(f = orset_need_folder(os, folder, &r)))
        return r;
    for (uint16_t i = 0; i < os->norigins; i++)
        by = os->origin[i].id.site == site ? i : by;
    return by < 0 || uid_next < 2 ? 0 : orset_folder_given(os, f, uid_next - 1, (uint16_t)by);
}

/* --- settle
 * -------------------------------------------------------------------------------------------------
 */

struct item {
    uint32_t folder, order; /* agreed or claimed UID */
    struct orset_dot dot;   /* smallest of its message */
    bool from_last;         /* the last round's value did not hold at some site */
    uint64_t term;          /* the latest under which one of its dots was given a UID */
    uint32_t round;
    const struct orset *os;
};

struct items {
    struct item *v;
    size_t n, room;
    uint32_t base, own; /* own: the UIDNEXT here */
};

static int by_order(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    if (x->order != y->order)
        return x->order < y->order ? -1 : 1;
    return orset_dot_order(x->os, x->dot, y->dot);
}

/* A dot that has not come to the keeper yet is left out; its site stays dirty, and says so
 * again. */
static int take_item(struct orset *os, struct folder *home, struct orset_dot d, struct items *t)
{
    for (uint32_t i = 0; i < os->nfolders; i++) {
        if (os->folder[i]->home != home->index)
            continue;
        struct message *m = &os->m[0];
        uint32_t agreed;
        int r = orset_message_load(os, i, d, m);
        if (r < 0)
            return r;
        if (r == 0)
            continue;
        if ((r = orset_group_agreed(os, m, &agreed)) < 0)
            return r;
        int n = orset_group_load(os, m);
        uint64_t term = m->term;
        uint32_t round = m->round;
        for (int j = 0; j < n; j++) {
            const struct message *o = &os->m[2];
            if ((r = orset_message_load(os, i, os->group[j], &os->m[2])) <= 0)
                return r < 0 ? r : orset_corrupt(os, "a GUID's row without its message");
            if (o->term > term || (o->term == term && o->round > round)) {
                term = o->term;
                round = o->round;
            }
            if (orset_dot_order(os, os->group[j], d) < 0)
                d = os->group[j];
        }
        if (t->n == t->room) {
            size_t room = t->room ? t->room * 2 : 64;
            struct item *p = orset_mem(os, t->v, room * sizeof *p);
            if (!p)
                return ORSET_E_MEMORY;
            t->v = p;
            t->room = room;
        }
        bool last = m->round && m->round == home->round && m->term == home->round_term;
        t->v[t->n++] = (struct item){i, agreed, d, last, term, round, os};
        return n < 0 ? n : 0;
    }
    return 0;
}

static int take_answer(struct orset *os, struct folder *home, const uint8_t *bytes, size_t len,
                       struct items *t)
{
    struct orset_reader r = orset_reader_of(bytes, len);
    struct folder *f;
    uint64_t term = 0;
    uint32_t round = 0;
    int e = parse_ask(os, &r, &f, &term, &round);
    if (e < 0)
        return e;
    uint32_t uid_next = (uint32_t)orset_read_num(&r, ORSET_UID_MAX);
    uint64_t n = orset_read_num(&r, ORSET_ROUND_MAX);
    if (r.bad || f != home || term != home->keeper_stamp.clock || round != home->ask)
        return orset_fail(os, ORSET_E_MALFORMED,
                          "an answer to another UID round than %u of term %llu", home->ask,
                          (unsigned long long)home->keeper_stamp.clock);
    /* One site's UIDNEXT far above all others would use up the UIDs (F32). */
    if (t->own == 0)
        t->own = uid_next;
    if (uid_next > t->own && uid_next - t->own > ORSET_UID_JUMP)
        return orset_fail(os, ORSET_E_MALFORMED, "an answer with UIDNEXT %u, but it is %u here",
                          uid_next, t->own);
    if (uid_next > t->own && uid_next - t->own > ORSET_UID_STEP) {
        uid_next = t->own + ORSET_UID_STEP;
        home->stepped = true;
    }
    t->base = uid_next > t->base ? uid_next : t->base;
    for (uint64_t i = 0; i < n; i++) {
        struct orset_dot d;
        if ((e = parse_dot(os, &r, &d)) < 0)
            return e;
        if (e > 0 && d.origin != ORSET_INBOX_ORIGIN && (e = take_item(os, home, d, t)) < 0)
            return e;
        if (e == 0 && d.origin == ORSET_INBOX_ORIGIN)
            return orset_fail(os, ORSET_E_MALFORMED, "a message without a dot");
    }
    return r.at == r.end ? 0 : orset_fail(os, ORSET_E_MALFORMED, "bytes behind an answer's end");
}

/* UIDS = folder, term, round, base, n, { folder of the dots, m, dots }: the i-th gets base + i. */
static int emit_uids(struct orset *os, struct folder *home, struct items *t)
{
    struct orset_buf *b = &os->op;
    size_t n = 0;
    qsort(t->v, t->n, sizeof *t->v, by_order);
    for (size_t i = 0; i < t->n; i++)
        if (n == 0 || t->v[n - 1].folder != t->v[i].folder ||
            t->v[n - 1].dot.origin != t->v[i].dot.origin ||
            t->v[n - 1].dot.counter != t->v[i].dot.counter)
            t->v[n++] = t->v[i];
    if (n > ORSET_ROUND_MAX)
        n = ORSET_ROUND_MAX;
    /* A mail that was shown in another mailbox before (two ids, one name) has that one's term:
     * this round comes after it. */
    uint64_t term = home->keeper_stamp.clock;
    uint32_t round = home->ask;
    for (size_t i = 0; i < n; i++)
        if (t->v[i].term > term || (t->v[i].term == term && t->v[i].round >= round)) {
            term = t->v[i].term;
            round = t->v[i].round + 1;
        }
    if (round >= UINT32_MAX - 2) { /* a peer's nonsense must not be final */
        term++;
        round = 1;
    }
    orset_op_begin(os, OP_UIDS);
    orset_folder_id_write(b, home);
    orset_buf_num(b, term);
    orset_buf_num(b, round);
    orset_buf_num(b, t->base);
    orset_buf_num(b, n);
    for (size_t i = 0; i < n; i++) {
        int got = orset_message_load(os, t->v[i].folder, t->v[i].dot, &os->m[0]);
        int dots = got > 0 ? orset_group_load(os, &os->m[0]) : got;
        if (dots <= 0)
            return dots < 0 ? dots : orset_storage_fail(os, "a message vanished");
        orset_folder_id_write(b, orset_folder_at(os, t->v[i].folder));
        orset_buf_num(b, (uint64_t)dots);
        for (int j = 0; j < dots; j++)
            orset_dot_write(b, os->group[j]);
    }
    return orset_emit(os, 0);
}

int orset_uid_settle(struct orset *os, uint32_t folder, const struct orset_answer *a, size_t n)
{
    struct folder *f = orset_folder_at(os, folder);
    struct items t = {0};
    struct orset_buf ask = {.alloc = &os->alloc}, own = {.alloc = &os->alloc};
    int r = orset_need_transaction(os);
    if (r < 0)
        return r;
    if (!f)
        return orset_fail(os, ORSET_E_ABSENT, "a UID round of folder %u: there is no such folder",
                          folder);
    f->stepped = false;
    write_ask(os, &ask, f);
    if (ask.failed || (r = write_answer(os, f, ask.data, ask.len, &own)) < 0)
        r = r < 0 ? r : orset_fail(os, ORSET_E_MEMORY, "no memory for a UID round");
    if (r == 0)
        r = take_answer(os, f, own.data, own.len, &t);
    for (size_t i = 0; r == 0 && i < n; i++)
        r = take_answer(os, f, a[i].bytes, a[i].len, &t);
    bool failed_before = false;
    for (size_t i = 0; i < t.n; i++)
        failed_before |= t.v[i].from_last;
    if (r == 0 && t.n > 0) {
        f->gap = !failed_before ? 0 : f->gap == 0 ? 4 : f->gap * 2 < GAP_MAX ? f->gap * 2 : GAP_MAX;
        t.base += f->gap;
        if ((uint64_t)t.base + t.n > ORSET_UID_MAX)
            r = orset_fail(os, ORSET_E_LIMIT, "UIDs of %s are used up at %u: raise its UIDVALIDITY",
                           orset_folder_label(os, folder), t.base);
        else
            r = emit_uids(os, f, &t);
    } else if (r == 0) {
        r = ORSET_KNOWN;
    }
    if (t.v)
        os->alloc.resize(os->alloc.ctx, t.v, 0);
    orset_buf_free(&ask);
    orset_buf_free(&own);
    return r < 0 ? r : orset_folder_touch(os, f) < 0 ? ORSET_E_MEMORY : r;
}

bool orset_uid_stepped(const struct orset *os, uint32_t folder)
{
    const struct folder *f = orset_folder_at(os, folder);
    return f && f->stepped;
}

/* --- following it later
 * -------------------------------------------------------------------------------------------------
 */

void orset_uid_hold(struct orset *os, bool holds)
{
    os->holds_rounds = holds;
}

struct late {
    uint32_t uid, to;
};

static int by_target(const void *a, const void *b)
{
    const struct late *x = a, *y = b;
    return x->to < y->to ? -1 : x->to > y->to;
}

/* 1: a round settled its UID, and the mailbox can still give it. */
static int find_late(struct orset *os, const struct folder *home, uint32_t uid, struct late *late)
{
    struct orset_reader row;
    int r = orset_task_uid_row(os, ORSET_TASK_RENUMBER, home->index, uid, &row);
    if (r != 0)
        return r < 0 ? r : 0;
    if ((r = orset_message_by_uid(os, home->index, uid, NULL)) <= 0)
        return r < 0 ? r : orset_corrupt(os, "a UID that is not the agreed one is no message's");
    *late = (struct late){.uid = uid};
    if ((r = orset_group_agreed(os, &os->m[0], &late->to)) <= 0)
        return r;
    return late->to >= home->uid_next && late->to - home->uid_next <= ORSET_UID_JUMP;
}

static int follow(struct orset *os, struct folder *home, struct late *v, size_t n)
{
    int r = ORSET_KNOWN;
    qsort(v, n, sizeof *v, by_target);
    for (size_t i = 0; i < n; i++) {
        bool clash = (i > 0 && v[i - 1].to == v[i].to) || (i + 1 < n && v[i + 1].to == v[i].to);
        if (clash) /* of two keepers: the next round ends it */
            continue;
        if ((r = orset_task_renumber(os, home->index, v[i].uid, v[i].to)) < 0)
            return r;
        home->uid_next = v[i].to + 1;
        r = ORSET_OK;
    }
    return r == ORSET_OK && orset_folder_touch(os, home) < 0 ? ORSET_E_MEMORY : r;
}

int orset_uid_follow(struct orset *os, uint32_t folder)
{
    struct folder *f = orset_folder_at(os, folder);
    struct uids u;
    size_t n = 0;
    int r = orset_need_transaction(os);
    if (r < 0 || !f || !f->uid_dirty || os->holds_rounds)
        return r < 0 ? r : ORSET_KNOWN;
    r = mismatches(os, folder, &u);
    struct late *late = r < 0 || u.n == 0 ? NULL : orset_mem(os, NULL, u.n * sizeof *late);
    if (r == 0 && u.n > 0 && !late)
        r = ORSET_E_MEMORY;
    for (size_t i = 0; r >= 0 && i < u.n; i++)
        if ((r = find_late(os, f, u.uid[i], &late[n])) > 0)
            n++;
    if (r >= 0)
        r = n == 0 ? ORSET_KNOWN : follow(os, f, late, n);
    if (late)
        os->alloc.resize(os->alloc.ctx, late, 0);
    uids_free(&u);
    return r;
}
