/* merge - a giver's answer into this state: the rules of a state-based OR-Set with one vector
 * (Bieniusa et al. 2012, section 4), applied to each kind of dot.
 *
 *     only there, not covered here, not removed here   taken over
 *     only there, covered here                         removed here: stays away
 *     only here, covered there (or remembered there)   removed there: goes
 *     only here, not covered there                     stays
 *     both                                             stays; its flags by the same four lines
 *
 * What goes though this replica's vector does not cover it is remembered, because its op will
 * still come. Registers: the later stamp. */
#include "dovecot-plugin/orset/base/flags.h"
#include "dovecot-plugin/orset/base/keywords.h"
#include "dovecot-plugin/orset/base/origins.h"
#include "dovecot-plugin/orset/base/rows.h"
#include "dovecot-plugin/orset/base/vector.h"
#include "dovecot-plugin/orset/exchange/exchange_internal.h"
#include "dovecot-plugin/orset/ops/apply_op.h"
#include "dovecot-plugin/orset/ops/read_op.h"
#include "dovecot-plugin/orset/state/arrivals.h"
#include "dovecot-plugin/orset/state/binding.h"
#include "dovecot-plugin/orset/state/epoch.h"
#include "dovecot-plugin/orset/state/folder.h"
#include "dovecot-plugin/orset/state/group.h"
#include "dovecot-plugin/orset/state/message.h"
#include "dovecot-plugin/orset/state/message_set.h"
#include "dovecot-plugin/orset/state/pending_dots.h"
#include "dovecot-plugin/orset/state/quota.h"
#include "dovecot-plugin/orset/state/tasks.h"

#include <stdlib.h>
#include <string.h>

static int dot_compare(const void *a, const void *b)
{
    const struct orset_dot *x = a, *y = b;
    if (x->origin != y->origin)
        return x->origin < y->origin ? -1 : 1;
    return x->counter < y->counter ? -1 : x->counter > y->counter;
}

bool orset_gone(const struct orset_exchange *x, const struct peer *now, struct orset_dot d)
{
    return d.counter <= orset_peer_has(now, d.origin) ||
           (x->nkilled && bsearch(&d, x->killed, x->nkilled, sizeof d, dot_compare));
}

bool orset_orphan_gone(const struct orset_exchange *x, struct orset_dot flag)
{
    return orset_gone(x, &x->base, flag) &&
           !(x->norphans && bsearch(&flag, x->orphan, x->norphans, sizeof flag, dot_compare));
}

/* 1: the dot is new here and wanted. */
int orset_wanted(struct orset *os, struct orset_dot d)
{
    int killed = orset_covered(os, d) ? 1 : orset_pending_killed(os, d);
    return killed < 0 ? killed : !killed;
}

int orset_remember(struct orset *os, struct orset_dot d, uint16_t by)
{
    return orset_covered(os, d) ? 0 : orset_pending_kill(os, d, by);
}

/* A dot that need not be known to anybody by its vector; its origin must be. */
static int any_dot(struct orset *os, const struct peer *p, struct orset_reader *r,
                   struct orset_dot *d)
{
    uint64_t i = orset_key_read(r, UINT64_MAX);
    d->counter = orset_key_read(r, ORSET_COUNTER_MAX);
    if (r->bad || i >= p->n || d->counter == 0)
        return orset_fail(os, ORSET_E_MALFORMED, "a remembered dot that cannot be read");
    d->origin = p->map[i];
    return d->origin == os->self && orset_own_unknown(os, d->counter)
               ? orset_own_ahead(os, "a peer remembers", d->counter)
               : 0;
}

/* --- remembered rows
 * ---------------------------------------------------------------------------------------------- */

/* What is remembered names no folder. 1: the message in m. */
static int find_message(struct orset *os, struct orset_dot d, struct message *m)
{
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < os->nfolders; i++)
        r = os->folder[i]->messages ? orset_message_load(os, i, d, m) : 0;
    return r;
}

/* A flag on a message that the giver does not have yet. */
static int merge_orphan(struct orset *os, const struct peer *p, struct orset_dot target,
                        struct flagdot f)
{
    struct message *m = &os->m[1];
    struct orset_flags before, now;
    int r = orset_wanted(os, f.dot);
    if (r <= 0 || (r = find_message(os, target, m)) < 0)
        return r;
    if (r == 0) {
        r = orset_wanted(os, target);
        return r <= 0 ? r : orset_pending_flag(os, target, f, p->sender);
    }
    struct folder *in = orset_folder_at(os, m->p.folder);
    if ((r = orset_group_union(os, m, &before)) < 0)
        return r;
    orset_message_count(os, in, m, false);
    if ((r = orset_flagdot_put(os, m, f)) < 0)
        return r;
    orset_message_count(os, in, m, true);
    if ((r = orset_folder_touch(os, in)) < 0 || (r = orset_message_store(os, m)) < 0 ||
        (r = orset_arrived(os, in->index, f.dot)) < 0 || !m->p.uid)
        return r;
    r = orset_group_union(os, m, &now);
    return r < 0 ? r : orset_task_flags(os, in->home, m->p.uid, &before, &now, NULL);
}

/* The keeper's word on a message that the giver does not have yet. */
static int merge_agreed(struct orset *os, struct orset_dot target, const struct agreed *a)
{
    struct message *m = &os->m[1];
    int r = find_message(os, target, m);
    if (r < 0)
        return r;
    if (r == 0) {
        r = orset_wanted(os, target);
        return r <= 0 ? r : orset_pending_agreed(os, target, a);
    }
    struct folder *in = orset_folder_at(os, m->p.folder);
    struct orset_sum before = orset_message_sum(os, m);
    if (!orset_agree(os, m, a))
        return 0;
    orset_sum_sub(&in->sum, before);
    orset_sum_add(&in->sum, orset_message_sum(os, m));
    if ((r = orset_folder_touch(os, in)) < 0 || (r = orset_message_store(os, m)) < 0 || !m->p.uid)
        return r;
    return orset_note_mismatch(os, orset_folder_at(os, in->home), m, m->p.uid);
}

static int merge_ahead_row(struct orset *os, struct orset_exchange *x, struct peer *p,
                           struct orset_reader *key, struct orset_reader *value,
                           const uint16_t *flags, uint64_t nflags)
{
    uint64_t kind = orset_key_read(key, UINT64_MAX);
    struct orset_dot d;
    struct flagdot f;
    int r = any_dot(os, p, key, &d);
    if (r < 0)
        return r;
    if (kind == 1) {
        x->killed[x->nkilled++] = d;
        return orset_remember(os, d, p->sender);
    }
    if (kind == 2) {
        uint64_t flag = orset_key_read(key, UINT64_MAX);
        f.off = orset_key_read(key, UINT64_MAX) != 0;
        if ((r = any_dot(os, p, key, &f.dot)) < 0)
            return r;
        if (key->bad || flag >= ORSET_SYSTEM_FLAGS + nflags)
            return orset_fail(os, ORSET_E_MALFORMED, "a remembered flag that cannot be read");
        x->orphan[x->norphans++] = f.dot;
        f.flag = flag < ORSET_SYSTEM_FLAGS ? (uint16_t)flag : flags[flag - ORSET_SYSTEM_FLAGS];
        return merge_orphan(os, p, d, f);
    }
    struct agreed a;
    uint64_t by = orset_read_num(value, p->n - 1u);
    a.term = orset_read_num(value, ORSET_CLOCK_MAX);
    a.round = (uint32_t)orset_read_num(value, UINT32_MAX - 1);
    a.uid = (uint32_t)orset_read_num(value, ORSET_UID_MAX);
    if (kind != 3 || value->bad || a.round == 0 || a.uid == 0)
        return orset_fail(os, ORSET_E_MALFORMED, "a remembered UID that cannot be read");
    a.by = p->map[by];
    return merge_agreed(os, d, &a);
}

/* The hello's rows: keywords by number, then what the giver remembers. */
int orset_merge_hello_rows(struct orset *os, struct orset_exchange *x, struct op_run *in)
{
    struct orset_reader *r = &in->in;
    uint64_t nkeywords = orset_read_num(r, ORSET_KEYWORDS_MAX);
    uint16_t *flags = orset_mem(os, NULL, 2 * (nkeywords + 1));
    int e = flags ? 0 : ORSET_E_MEMORY;
    for (uint64_t i = 0; e == 0 && i < nkeywords; i++) {
        size_t len;
        const char *t = (const char *)orset_read_text(r, ORSET_KEYWORD_MAX, &len);
        int kw = r->bad || !orset_keyword_valid(t, len)
                     ? orset_fail(os, ORSET_E_MALFORMED, "a keyword that cannot be read")
                     : orset_bring_keyword(os, t, len, x->base.sender);
        flags[i] = (uint16_t)(kw + ORSET_SYSTEM_FLAGS);
        e = kw < 0 ? kw : 0;
    }
    uint64_t n = orset_read_num(r, UINT32_MAX);
    if (e == 0 && (r->bad || (uint64_t)(r->end - r->at) < n))
        e = orset_fail(os, ORSET_E_MALFORMED, "a hello that cannot be read");
    if (e == 0 && orset_quota_ahead(os, x->base.sender) + n > ORSET_PENDING_EXCHANGE_MAX)
        e = orset_fail(os, ORSET_E_LIMIT, "site %llu names more than %d numbers that are not here",
                       (unsigned long long)x->site, ORSET_PENDING_EXCHANGE_MAX);
    x->killed = e == 0 ? orset_mem(os, NULL, (n + 1) * sizeof *x->killed) : NULL;
    x->orphan = e == 0 && x->killed ? orset_mem(os, NULL, (n + 1) * sizeof *x->orphan) : NULL;
    if (e == 0 && !x->orphan)
        e = ORSET_E_MEMORY;
    for (uint64_t i = 0; e == 0 && i < n; i++) {
        size_t klen, vlen;
        const uint8_t *k = orset_read_text(r, ORSET_KEY_MAX, &klen);
        const uint8_t *v = orset_read_text(r, 100, &vlen);
        if (r->bad) {
            e = orset_fail(os, ORSET_E_MALFORMED, "a hello that cannot be read");
            break;
        }
        struct orset_reader key = orset_reader_of(k, klen), value = orset_reader_of(v, vlen);
        e = merge_ahead_row(os, x, &x->base, &key, &value, flags, nkeywords);
    }
    if (flags)
        os->alloc.resize(os->alloc.ctx, flags, 0);
    if (x->norphans)
        qsort(x->orphan, x->norphans, sizeof *x->orphan, dot_compare);
    if (x->nkilled)
        qsort(x->killed, x->nkilled, sizeof *x->killed, dot_compare);
    return e;
}

/* --- folder heads
 * ---------------------------------------------------------------------------------------------- */

int orset_read_stamp(struct orset *os, struct orset_reader *r, struct stamp *s)
{
    s->clock = orset_read_num(r, ORSET_CLOCK_MAX);
    s->site = orset_read_u64(r);
    s->epoch = orset_read_u64(r);
    if (r->bad)
        return orset_fail(os, ORSET_E_MALFORMED, "a stamp that cannot be read");
    if (s->clock == 0) /* no stamp, whatever else stands there */
        s->site = s->epoch = 0;
    int e = orset_see_clock(os, s->clock);
    if (e == 0 && s->clock > os->clock) {
        os->clock = s->clock;
        os->meta_dirty = true;
    }
    return e;
}

static int merge_presence(struct orset *os, struct orset_exchange *x, struct peer *p,
                          struct op_run *in, struct folder *f)
{
    uint64_t n = orset_read_num(&in->in, ORSET_ORIGINS_MAX);
    struct orset_dot *theirs = in->in.bad ? NULL : orset_mem(os, NULL, (n + 1) * sizeof *theirs);
    int r = theirs       ? 0
            : in->in.bad ? orset_fail(os, ORSET_E_MALFORMED, "a folder that cannot be read")
                         : ORSET_E_MEMORY;
    for (uint64_t i = 0; r == 0 && i < n; i++) {
        if ((r = orset_read_dot(in, &theirs[i])) < 0)
            break;
        int want = orset_has_presence(f, theirs[i]) ? 0 : orset_wanted(os, theirs[i]);
        r = want > 0 ? orset_presence_put(os, f, theirs[i]) : want;
    }
    for (unsigned i = f->npresence; r == 0 && i-- > 0;) {
        struct orset_dot d = f->presence[i];
        bool there = false;
        for (uint64_t j = 0; j < n; j++)
            there |= orset_same_dot(d, theirs[j]);
        if (there || !orset_gone(x, p, d))
            continue;
        r = orset_presence_kill(os, f, d);
        if (r == 0)
            r = orset_remember(os, d, p->sender);
    }
    if (theirs)
        os->alloc.resize(os->alloc.ctx, theirs, 0);
    return r;
}

int orset_merge_head(struct orset *os, struct orset_exchange *x, struct peer *p, struct op_run *in,
                     struct folder **f_r)
{
    struct folder *f = *f_r;
    struct stamp name, keeper;
    size_t len;
    int r = merge_presence(os, x, p, in, f);
    if (r < 0)
        return r;
    const uint8_t *text = orset_read_text(&in->in, ORSET_NAME_MAX, &len);
    if ((r = orset_read_stamp(os, &in->in, &name)) < 0)
        return r;
    const uint8_t *guid = orset_read_bytes(&in->in, 16);
    uint32_t uid_validity = (uint32_t)orset_read_num(&in->in, os->most_uid_validity);
    if ((r = orset_read_stamp(os, &in->in, &keeper)) < 0)
        return r;
    uint64_t site = orset_read_u64(&in->in), term = orset_read_num(&in->in, ORSET_CLOCK_MAX);
    uint32_t round = (uint32_t)orset_read_num(&in->in, UINT32_MAX - 1);
    if (in->in.bad || (name.clock && !orset_name_valid(text, len)))
        return orset_fail(os, ORSET_E_MALFORMED, "a folder that cannot be read");
    if (name.clock && f->name_stamp.clock == 0)
        memcpy(f->guid, guid, 16);
    if (f->index != ORSET_INBOX && name.clock &&
        (r = orset_folder_name(os, f, text, len, name)) < 0)
        return r;
    if (uid_validity > f->uid_validity) {
        f->uid_validity = uid_validity;
        if ((r = orset_folder_changed(os, f)) < 0)
            return r;
    }
    if (orset_stamp_order(keeper, f->keeper_stamp) > 0) {
        f->keeper_stamp = keeper;
        f->keeper = site;
        f->uid_told = false; /* whoever has mismatches tells the new one */
        f->uid_dirty = true;
    }
    if (term > f->round_term || (term == f->round_term && round > f->round)) {
        f->round_term = term;
        f->round = round;
    }
    return orset_folder_touch(os, f);
}

/* --- messages
 * -------------------------------------------------------------------------------------------------
 */

/* m: as the giver has it. Reads without judging whether it is wanted. */
static int read_message(struct op_run *in, struct message *m)
{
    struct orset *os = in->os;
    struct orset_facts *f = &m->p.facts;
    int r = orset_read_dot(in, &m->p.dot);
    if (r < 0)
        return r;
    const uint8_t *guid = orset_read_bytes(&in->in, 16), *sha = orset_read_bytes(&in->in, 32);
    f->received = (int64_t)orset_read_num(&in->in, ORSET_DATE_MAX);
    f->saved = (int64_t)orset_read_num(&in->in, ORSET_DATE_MAX);
    f->size = orset_read_num(&in->in, ORSET_SIZE_MAX);
    m->p.k = (uint32_t)orset_read_num(&in->in, ORSET_SAME_MESSAGE_MAX);
    m->p.claim = (uint32_t)orset_read_num(&in->in, UINT32_MAX);
    const uint8_t *text = orset_read_text(&in->in, ORSET_GUID_TEXT_MAX, &f->guid_text_len);
    m->round = (uint32_t)orset_read_num(&in->in, UINT32_MAX - 1);
    m->term = m->agreed = 0;
    if (m->round) {
        m->term = orset_read_num(&in->in, ORSET_CLOCK_MAX);
        m->agreed = (uint32_t)orset_read_num(&in->in, ORSET_UID_MAX);
        uint64_t by = orset_read_num(&in->in, in->nmap - 1u);
        m->agreed_by = in->in.bad ? 0 : in->map[by];
    }
    uint64_t n = orset_read_num(&in->in, ORSET_MESSAGE_FLAGDOTS_MAX);
    if (in->in.bad || m->p.k == 0 || (m->round && m->agreed == 0) ||
        !orset_guid_text_valid(text, f->guid_text_len))
        return orset_fail(os, ORSET_E_MALFORMED, "a message that cannot be read");
    memcpy(f->guid, guid, 16);
    memcpy(f->sha256, sha, 32);
    memcpy(m->guid_text, text, f->guid_text_len);
    f->guid_text = m->guid_text;
    m->nflags = 0;
    for (uint64_t i = 0; i < n; i++) {
        struct flagdot d;
        if ((r = orset_read_flag(in, &d.flag)) < 0)
            return r;
        uint8_t off = orset_read_u8(&in->in);
        d.off = off;
        if ((r = orset_read_dot(in, &d.dot)) < 0)
            return r;
        if (off > 1 || (off && d.flag != 2))
            return orset_fail(os, ORSET_E_MALFORMED, "a flag that cannot be read");
        if ((r = orset_flagdot_put(os, m, d)) < 0)
            return r;
    }
    return 0;
}

static bool has_flag(const struct message *m, const struct flagdot *f)
{
    for (unsigned i = 0; i < m->nflags; i++)
        if (m->flag[i].flag == f->flag && m->flag[i].off == f->off &&
            orset_same_dot(m->flag[i].dot, f->dot))
            return true;
    return false;
}

/* What stays of ours, then what comes of theirs. mine may hold flags remembered for the message. */
static int merge_flags(struct orset *os, struct orset_exchange *x, struct peer *p,
                       struct message *mine, const struct message *theirs)
{
    int r = 0;
    for (unsigned i = mine->nflags; r == 0 && i-- > 0;) {
        struct flagdot f = mine->flag[i];
        if (has_flag(theirs, &f) || !orset_gone(x, p, f.dot))
            continue;
        orset_flagdot_cut(mine, i);
        r = orset_remember(os, f.dot, p->sender);
    }
    for (unsigned i = 0; r == 0 && i < theirs->nflags; i++) {
        int want = has_flag(mine, &theirs->flag[i]) ? 0 : orset_wanted(os, theirs->flag[i].dot);
        r = want > 0 ? orset_flagdot_put(os, mine, theirs->flag[i]) : want;
    }
    return r;
}

static void add_sums(struct orset *os, struct orset_sum *s, const struct message *m)
{
    orset_sum_add(s, orset_message_sum(os, m));
    for (unsigned i = 0; i < m->nflags; i++)
        orset_sum_add(s, orset_flagdot_sum(os, m, &m->flag[i]));
}

/* Both have it: os->m[1] theirs. */
static int merge_both(struct orset *os, struct orset_exchange *x, struct peer *p, struct folder *f)
{
    struct message *mine = &os->m[0], *theirs = &os->m[1];
    struct orset_sum before = {0, 0}, after = {0, 0};
    struct orset_flags was, now;
    struct agreed a = {theirs->term, theirs->round, theirs->agreed, theirs->agreed_by};
    int r = orset_message_load(os, f->index, theirs->p.dot, mine);
    if (r <= 0)
        return r < 0 ? r : orset_storage_fail(os, "a message vanished");
    if (memcmp(mine->p.facts.guid, theirs->p.facts.guid, 16) != 0 ||
        memcmp(mine->p.facts.sha256, theirs->p.facts.sha256, 32) != 0 || mine->p.k != theirs->p.k)
        return mine->p.dot.origin == os->self
                   ? orset_own_ahead(os, "a peer has", mine->p.dot.counter)
                   : orset_fail(os, ORSET_E_FORKED, "number %llu of site %llu names two messages",
                                (unsigned long long)mine->p.dot.counter,
                                (unsigned long long)os->origin[mine->p.dot.origin].id.site);
    if ((r = orset_group_union(os, mine, &was)) < 0)
        return r;
    add_sums(os, &before, mine);
    if ((r = merge_flags(os, x, p, mine, theirs)) < 0)
        return r;
    for (unsigned i = 0; i < mine->nflags; i++)
        if ((r = orset_arrived(os, f->index, mine->flag[i].dot)) < 0)
            return r;
    bool agreed = a.round && orset_agree(os, mine, &a);
    os->place_changes += agreed && mine->p.uid == 0;
    add_sums(os, &after, mine);
    if (before.lo == after.lo && before.hi == after.hi)
        return 0;
    orset_sum_sub(&f->sum, before);
    orset_sum_add(&f->sum, after);
    if ((r = orset_folder_touch(os, f)) < 0 || (r = orset_message_store(os, mine)) < 0 ||
        mine->p.uid == 0)
        return r;
    struct folder *home = orset_folder_at(os, f->home);
    if ((r = orset_group_union(os, mine, &now)) < 0 ||
        (r = orset_task_flags(os, home->index, mine->p.uid, &was, &now, NULL)) < 0)
        return r;
    return agreed ? orset_note_mismatch(os, home, mine, mine->p.uid) : 0;
}

/* Only they have it: os->m[1]. */
static int merge_theirs(struct orset *os, struct orset_exchange *x, struct peer *p,
                        struct folder *f)
{
    struct message *m = &os->m[1], *kept = &os->m[0];
    int r = orset_wanted(os, m->p.dot);
    if (r <= 0)
        return r;
    kept->nflags = 0;
    kept->p.dot = m->p.dot;
    if ((r = orset_pending_take_flags(os, kept)) < 0 || (r = merge_flags(os, x, p, kept, m)) < 0)
        return r;
    m->nflags = 0;
    for (unsigned i = 0; i < kept->nflags; i++)
        if ((r = orset_flagdot_put(os, m, kept->flag[i])) < 0)
            return r;
    m->p.folder = f->index;
    if ((r = orset_pending_take_agreed(os, m)) < 0)
        return r;
    return orset_message_add(os, m, 0);
}

struct mine {
    struct orset *os;
    const struct prefixes *p;
    struct orset_dot *dot;
    size_t n, room;
};

static int collect_mine(void *arg, const uint8_t *key, size_t len, const uint8_t *v, size_t vlen)
{
    struct mine *m = arg;
    struct orset_reader k = orset_reader_of(key, len);
    (void)v;
    (void)vlen;
    orset_key_read_folder(m->os, &k);
    struct orset_dot d = orset_key_read_dot(m->os, &k);
    if (k.bad || k.at != k.end)
        return orset_corrupt(m->os, "a message's key");
    if (m->p && orset_range_at(m->p, orset_place(m->os, d)) == m->p->n)
        return 0;
    if (m->n == m->room) {
        size_t room = m->room ? m->room * 2 : 256;
        struct orset_dot *p = orset_mem(m->os, m->dot, room * sizeof *p);
        if (!p)
            return -1;
        m->dot = p;
        m->room = room;
    }
    m->dot[m->n++] = d;
    return 0;
}

/* Own dots of these ranges (NULL: all), sorted. */
static int collect(struct orset *os, const struct folder *f, const struct prefixes *p,
                   struct mine *m)
{
    struct orset_key k = {0};
    orset_key_num(&k, f->index);
    *m = (struct mine){.os = os, .p = p};
    int r = os->store.each(os->store.ctx, ORSET_T_MESSAGE, k.b, k.n, k.n, collect_mine, m);
    return r < 0 ? (os->broken ? ORSET_E_MEMORY : orset_storage_fail(os, "messages")) : 0;
}

/* Only this replica has it. If it stays, those of its flags go that were cleared at the giver
 * before the message came there. */
static int merge_mine(struct orset *os, struct orset_exchange *x, struct peer *p, struct folder *f,
                      struct orset_dot d)
{
    struct message *m = &os->m[1];
    struct orset_flags was, now;
    int r;
    if (orset_gone(x, p, d)) {
        r = orset_message_remove(os, f, d, false);
        return r < 0 ? r : orset_remember(os, d, p->sender);
    }
    if ((r = orset_message_load(os, f->index, d, m)) <= 0)
        return r;
    if ((r = orset_group_union(os, m, &was)) < 0)
        return r;
    bool cut = false;
    for (unsigned i = m->nflags; i-- > 0;) {
        struct flagdot g = m->flag[i];
        if (!orset_orphan_gone(x, g.dot))
            continue;
        orset_sum_sub(&f->sum, orset_flagdot_sum(os, m, &g));
        orset_flagdot_cut(m, i);
        cut = true;
        if ((r = orset_remember(os, g.dot, p->sender)) < 0)
            return r;
    }
    if (!cut)
        return 0;
    if ((r = orset_folder_touch(os, f)) < 0 || (r = orset_message_store(os, m)) < 0 ||
        m->p.uid == 0)
        return r;
    if ((r = orset_group_union(os, m, &now)) < 0)
        return r;
    return orset_task_flags(os, f->home, m->p.uid, &was, &now, NULL);
}

int orset_merge_messages(struct orset *os, struct orset_exchange *x, struct peer *p,
                         struct op_run *in, struct folder *f, const struct prefixes *ranges)
{
    uint64_t n = orset_read_num(&in->in, UINT32_MAX);
    struct mine mine;
    int r = collect(os, f, ranges, &mine);
    bool *met = r == 0 ? orset_mem(os, NULL, mine.n + 1) : NULL;
    if (r == 0 && !met)
        r = ORSET_E_MEMORY;
    if (r == 0)
        memset(met, 0, mine.n + 1);
    for (uint64_t i = 0; r == 0 && i < n; i++) {
        struct message *m = &os->m[1];
        if ((r = read_message(in, m)) < 0)
            break;
        if (orset_range_at(ranges, orset_place(os, m->p.dot)) == ranges->n) {
            r = orset_fail(os, ORSET_E_MALFORMED, "a message outside the ranges asked for");
            break;
        }
        struct orset_dot *at =
            mine.n ? bsearch(&m->p.dot, mine.dot, mine.n, sizeof *at, dot_compare) : NULL;
        if (at)
            met[at - mine.dot] = true;
        r = at ? merge_both(os, x, p, f) : merge_theirs(os, x, p, f);
    }
    for (size_t i = 0; r == 0 && i < mine.n; i++)
        if (!met[i])
            r = merge_mine(os, x, p, f, mine.dot[i]);
    if (met)
        os->alloc.resize(os->alloc.ctx, met, 0);
    if (mine.dot)
        os->alloc.resize(os->alloc.ctx, mine.dot, 0);
    return r;
}

/* The giver has never heard of the folder, or has nothing of it. */
int orset_merge_absent(struct orset *os, struct orset_exchange *x, struct peer *p, struct folder *f)
{
    struct mine mine;
    int r = collect(os, f, NULL, &mine);
    for (size_t i = 0; r == 0 && i < mine.n; i++)
        r = merge_mine(os, x, p, f, mine.dot[i]);
    for (unsigned i = f->npresence; r == 0 && i-- > 0;) {
        struct orset_dot d = f->presence[i];
        if (!orset_gone(x, p, d))
            continue;
        r = orset_presence_kill(os, f, d);
        if (r == 0)
            r = orset_remember(os, d, p->sender);
    }
    if (mine.dot)
        os->alloc.resize(os->alloc.ctx, mine.dot, 0);
    return r;
}
