/* apply_op - an op into the state. Each op is read twice: once dry, to check its grammar, its
 * bounds and what it may name; then for good. So a refused op has changed nothing. What the second
 * run could refuse the dry one has to: an op that fails half done spoils the batch, which would
 * come again and fail again.
 *
 * The grammar of each kind stands over its function; docs/replication-protocol.md has the whole
 * of it. */
#include "dovecot-plugin/orset/ops/apply_op.h"
#include "dovecot-plugin/orset/base/flags.h"
#include "dovecot-plugin/orset/base/origins.h"
#include "dovecot-plugin/orset/base/rows.h"
#include "dovecot-plugin/orset/ops/bounds.h"
#include "dovecot-plugin/orset/ops/apply_uids.h"
#include "dovecot-plugin/orset/ops/read_op.h"
#include "dovecot-plugin/orset/state/arrivals.h"
#include "dovecot-plugin/orset/state/folder.h"
#include "dovecot-plugin/orset/state/group.h"
#include "dovecot-plugin/orset/state/message.h"
#include "dovecot-plugin/orset/state/message_set.h"
#include "dovecot-plugin/orset/state/metadata.h"
#include "dovecot-plugin/orset/state/pending_dots.h"
#include "dovecot-plugin/orset/state/quota.h"
#include "dovecot-plugin/orset/state/tasks.h"

#include <string.h>

/* presence = n, dots replaced; a fresh one takes the op's next number (rule 6: so a folder that
 * was saved by an append does not vanish when that mail is expunged later). */
static int renew_presence(struct op_run *x, struct folder *f, bool renew)
{
    uint64_t n;
    int r = orset_read_count(x, ORSET_ORIGINS_MAX, &n);
    struct orset_dot fresh = {0, 0};
    if (r == 0 && renew)
        fresh = orset_take_number(x);
    bool killed = r == 0 && renew && !x->dry && orset_pending_killed(x->os, fresh) > 0;
    /* The fresh one first: the folder must not look gone in between. */
    if (r == 0 && renew && !x->dry && !killed)
        r = orset_presence_put(x->os, f, fresh);
    for (uint64_t i = 0; r == 0 && i < n; i++) {
        struct orset_dot d;
        if ((r = orset_read_dot(x, &d)) < 0 || x->dry)
            continue;
        if (f)
            r = orset_presence_kill(x->os, f, d);
        if (r == 0 && !orset_covered(x->os, d))
            r = orset_pending_kill(x->os, d, x->by);
    }
    return r;
}

static int read_facts(struct op_run *x, struct message *m)
{
    struct orset_facts *f = &m->p.facts;
    const uint8_t *guid = orset_read_bytes(&x->in, 16), *sha = orset_read_bytes(&x->in, 32);
    f->received = (int64_t)orset_read_num(&x->in, ORSET_DATE_MAX);
    f->saved = (int64_t)orset_read_num(&x->in, ORSET_DATE_MAX);
    f->size = orset_read_num(&x->in, ORSET_SIZE_MAX);
    m->p.k = (uint32_t)orset_read_num(&x->in, ORSET_SAME_MESSAGE_MAX);
    m->p.claim = (uint32_t)orset_read_num(&x->in, UINT32_MAX);
    const uint8_t *text = orset_read_text(&x->in, ORSET_GUID_TEXT_MAX, &f->guid_text_len);
    if (x->in.bad || m->p.k == 0 || !orset_guid_text_valid(text, f->guid_text_len))
        return orset_op_malformed(x, "a message whose facts cannot be read");
    memcpy(f->guid, guid, 16);
    memcpy(f->sha256, sha, 32);
    memcpy(m->guid_text, text, f->guid_text_len);
    f->guid_text = m->guid_text;
    return 0;
}

/* A dot that an exchange brought before its op: the facts must be the same, else two adds were
 * made under one number (F20). Its flags came with it; those that were removed since are named
 * by ops that still come. */
static int same_facts(struct op_run *x, const struct message *a, const struct message *b)
{
    struct message flagless = *a, other = *b;
    flagless.round = other.round = 0;
    struct orset_sum p = orset_message_sum(x->os, &flagless), q = orset_message_sum(x->os, &other);
    return p.lo == q.lo && p.hi == q.hi
               ? 0
               : orset_fail(x->os, ORSET_E_FORKED, "number %llu of site %llu names two messages",
                            (unsigned long long)x->first,
                            (unsigned long long)x->os->origin[x->by].id.site);
}

/* ADD = folder, facts, presence, n flags. Numbers: message, presence, one per flag.
 * Put unless a remove named it before it came (rule 3); its flags likewise. */
static int apply_add(struct op_run *x)
{
    struct orset *os = x->os;
    struct message *m = &os->m[1];
    struct folder *f;
    uint64_t nflags;
    int r = orset_read_folder_made(x, &f);
    if (r < 0 || (r = read_facts(x, m)) < 0)
        return r;
    m->p.dot = orset_take_number(x);
    m->p.folder = f ? f->index : 0;
    m->nflags = 0;
    m->term = m->round = m->agreed = 0;
    int there = x->dry && f ? orset_message_load(os, f->index, m->p.dot, &os->m[0]) : 0;
    if (there < 0 || (there > 0 && (r = same_facts(x, m, &os->m[0])) < 0))
        return there < 0 ? there : r;
    if (x->dry && f && !there && (r = orset_check_same(x, m)) < 0)
        return r;
    if ((r = renew_presence(x, f, true)) < 0 ||
        (r = orset_read_count(x, ORSET_MESSAGE_KEYWORDS_MAX + 5, &nflags)) < 0)
        return r;
    for (uint64_t i = 0; i < nflags; i++) {
        struct flagdot d = {.off = false};
        if ((r = orset_read_flag(x, &d.flag)) < 0)
            return r;
        d.dot = orset_take_number(x);
        int killed = x->dry ? 0 : orset_pending_killed(os, d.dot);
        if (killed < 0 || (!x->dry && !killed && (r = orset_flagdot_put(os, m, d)) < 0))
            return killed < 0 ? killed : r;
    }
    if (x->dry || (f && (r = orset_folder_given(os, f, m->p.claim, x->by)) < 0))
        return r;
    int killed = orset_pending_killed(os, m->p.dot);
    there = killed ? 0 : orset_message_load(os, m->p.folder, m->p.dot, &os->m[0]);
    if (killed || there)
        return killed < 0 ? killed : there < 0 ? there : 0;
    if ((r = orset_pending_take_flags(os, m)) < 0 || (r = orset_pending_take_agreed(os, m)) < 0)
        return r;
    return orset_message_add(os, m, x->local ? x->uid : 0);
}

/* REMOVE = folder, n dots. Exactly these go (rule 2); one not covered yet is remembered. A dot
 * can be present and not covered (an exchange brought it): then both. */
static int apply_remove(struct op_run *x)
{
    struct orset *os = x->os;
    struct folder *f;
    uint64_t n;
    int r = orset_read_folder(x, &f);
    if (r < 0 || (r = orset_read_count(x, ORSET_OP_DOTS_MAX, &n)) < 0)
        return r;
    orset_take_number(x);
    for (uint64_t i = 0; r == 0 && i < n; i++) {
        struct orset_dot d;
        if ((r = orset_read_dot(x, &d)) < 0 || x->dry)
            continue;
        if (f)
            r = orset_message_remove(os, f, d, x->local);
        if (r == 0 && !orset_covered(os, d))
            r = orset_pending_kill(os, d, x->by);
    }
    return r;
}

/* change = flag, what (0 only removes, 1 sets, 2 sets the disable of \Deleted), n flag dots
 * replaced */
static int apply_change(struct op_run *x, struct orset_dot target, struct message *m, bool remember)
{
    struct orset *os = x->os;
    struct folder *f = m ? orset_folder_at(os, m->p.folder) : NULL;
    struct flagdot fresh;
    uint64_t n;
    int r = orset_read_flag(x, &fresh.flag);
    if (r < 0)
        return r;
    uint8_t what = orset_read_u8(&x->in);
    if (x->in.bad || what > 2 || (what == 2 && fresh.flag != 2))
        return orset_op_malformed(x, "a flag change of an unknown form");
    fresh.off = what == 2;
    if (what)
        fresh.dot = orset_take_number(x);
    x->marks += what != 0;
    if ((r = orset_read_count(x, ORSET_ORIGINS_MAX, &n)) < 0)
        return r;
    for (uint64_t i = 0; r == 0 && i < n; i++) {
        struct orset_dot d;
        if ((r = orset_read_dot(x, &d)) < 0 || x->dry)
            continue;
        for (unsigned j = 0; m && j < m->nflags; j++)
            if (m->flag[j].dot.origin == d.origin && m->flag[j].dot.counter == d.counter) {
                orset_sum_sub(&f->sum, orset_flagdot_sum(os, m, &m->flag[j]));
                orset_flagdot_cut(m, j--);
            }
        if (remember)
            r = orset_pending_flag_kill(os, target, d);
        if (r == 0 && !orset_covered(os, d))
            r = orset_pending_kill(os, d, x->by);
    }
    if (r < 0 || x->dry || !what || (!m && !remember) ||
        (r = orset_pending_killed(os, fresh.dot)) != 0)
        return r < 0 ? r : 0;
    if (!m)
        return orset_pending_flag(os, target, fresh, x->by);
    /* Put drops an earlier dot of this origin by itself; the sum must know. */
    for (unsigned j = 0; j < m->nflags; j++)
        if (m->flag[j].flag == fresh.flag && m->flag[j].off == fresh.off &&
            m->flag[j].dot.origin == x->by) {
            if (m->flag[j].dot.counter >= fresh.dot.counter)
                return 0;
            orset_sum_sub(&f->sum, orset_flagdot_sum(os, m, &m->flag[j]));
            orset_flagdot_cut(m, j--);
        }
    orset_sum_add(&f->sum, orset_flagdot_sum(os, m, &fresh));
    r = orset_arrived(os, f->index, fresh.dot);
    return r < 0 ? r : orset_flagdot_put(os, m, fresh);
}

/* One target of FLAGS: dot, n changes. A target that is covered and absent was removed: its
 * flags are nothing. */
static int apply_target(struct op_run *x, struct folder *f)
{
    struct orset *os = x->os;
    struct message *m = &os->m[1];
    struct orset_dot target;
    struct orset_flags before, now;
    uint64_t n;
    int r = orset_read_dot(x, &target), there = 0;
    if (r < 0 || (r = orset_read_count(x, ORSET_MESSAGE_KEYWORDS_MAX * 3, &n)) < 0)
        return r;
    bool remember = false;
    if (!x->dry) {
        there = f ? orset_message_load(os, f->index, target, m) : 0;
        if (there < 0)
            return there;
        if (!there && !orset_covered(os, target)) {
            int killed = orset_pending_killed(os, target);
            if (killed < 0)
                return killed;
            remember = !killed;
        }
        if (there && !x->local && m->p.uid && (r = orset_group_union(os, m, &before)) < 0)
            return r;
    }
    x->marks = 0;
    for (uint64_t i = 0; i < n; i++)
        if ((r = apply_change(x, target, there ? m : NULL, remember)) < 0)
            return r;
    if (x->dry && x->marks && x->by != os->self)
        return orset_check_marks(x, f, target);
    if (!there)
        return 0;
    if ((r = orset_folder_touch(os, f)) < 0 || (r = orset_message_store(os, m)) < 0 || x->local ||
        !m->p.uid)
        return r;
    if ((r = orset_group_union(os, m, &now)) < 0)
        return r;
    return orset_task_flags(os, f->home, m->p.uid, &before, &now, NULL);
}

/* FLAGS = folder, n targets, each once, rising by (index, number). Numbers: one per flag set, at
 * least one. */
static int apply_flags(struct op_run *x)
{
    struct folder *f;
    uint64_t n, index = 0, number = 0;
    int r = orset_read_folder(x, &f);
    if (r < 0 || (r = orset_read_count(x, ORSET_SAME_MESSAGE_MAX, &n)) < 0)
        return r;
    for (uint64_t i = 0; r == 0 && i < n; i++) {
        struct orset_reader at = x->in;
        uint64_t this_index = orset_read_num(&at, ORSET_ORIGINS_MAX),
                 this_number = orset_read_num(&at, ORSET_COUNTER_MAX);
        if (this_index < index || (this_index == index && this_number <= number))
            return orset_op_malformed(x, "messages of a flag change out of order");
        index = this_index;
        number = this_number;
        r = apply_target(x, f);
    }
    if (r == 0 && x->next == x->first)
        orset_take_number(x);
    return r;
}

static int raise_uid_validity(struct op_run *x, struct folder *f, uint32_t value)
{
    if (value <= f->uid_validity)
        return 0;
    f->uid_validity = value;
    return orset_folder_changed(x->os, f);
}

/* FOLDER = name, clock, UIDVALIDITY, mailbox GUID. Its number is the folder's id and first
 * presence dot. */
static int apply_folder(struct op_run *x)
{
    const uint8_t *name;
    size_t len;
    struct stamp s;
    int r = orset_read_name(x, &name, &len);
    if (r < 0 || (r = orset_read_clock(x, &s)) < 0)
        return r;
    uint32_t uid_validity = (uint32_t)orset_read_num(&x->in, x->os->most_uid_validity);
    const uint8_t *guid = orset_read_bytes(&x->in, 16);
    struct orset_dot id = orset_take_number(x);
    if (x->in.bad)
        return orset_op_malformed(x, "a folder's UIDVALIDITY or GUID");
    x->folders += x->dry;
    if (x->dry)
        return 0;
    struct folder *f = orset_bring_folder(x->os, id, x->by);
    int killed = f ? orset_pending_killed(x->os, id) : ORSET_E_MEMORY;
    if (killed < 0)
        return x->os->broken ? ORSET_E_MEMORY : ORSET_E_LIMIT;
    memcpy(f->guid, guid, 16);
    if (!killed && (r = orset_presence_put(x->os, f, id)) < 0)
        return r;
    r = orset_folder_name(x->os, f, name, len, s);
    return r < 0 ? r : raise_uid_validity(x, f, uid_validity);
}

/* NAME = folder, name, clock, presence */
static int apply_name(struct op_run *x)
{
    struct folder *f;
    const uint8_t *name;
    size_t len;
    struct stamp s;
    int r = orset_read_folder_made(x, &f);
    if (r < 0 || (r = orset_read_name(x, &name, &len)) < 0 || (r = orset_read_clock(x, &s)) < 0 ||
        (r = renew_presence(x, f, true)) < 0 || x->dry)
        return r;
    if (f->index == ORSET_INBOX)
        return 0; /* it has no name to change */
    return orset_folder_name(x->os, f, name, len, s);
}

/* DELETE = folder, presence dots. Its messages were taken away by REMOVEs before. */
static int apply_delete(struct op_run *x)
{
    struct folder *f;
    int r = orset_read_folder(x, &f);
    orset_take_number(x);
    return r < 0 ? r : renew_presence(x, f, false);
}

/* SUBSCRIBE = name, on, n dots replaced. Enable wins, by name. */
static int apply_subscribe(struct op_run *x)
{
    const uint8_t *name;
    size_t len;
    uint64_t n;
    int r = orset_read_name(x, &name, &len);
    if (r < 0)
        return r;
    uint8_t on = orset_read_u8(&x->in);
    struct orset_dot add = orset_take_number(x), kill[ORSET_SUBSCRIPTION_DOTS];
    if ((r = orset_read_count(x, ORSET_SUBSCRIPTION_DOTS, &n)) < 0)
        return r;
    for (uint64_t i = 0; i < n; i++)
        if ((r = orset_read_dot(x, &kill[i])) < 0)
            return r;
    if (on > 1)
        return orset_op_malformed(x, "a subscription that is neither on nor off");
    if (x->dry)
        return on ? orset_check_subscribed(x, name, len, kill, n, add) : 0;
    for (uint64_t i = 0; i < n; i++)
        if (!orset_covered(x->os, kill[i]) && (r = orset_pending_kill(x->os, kill[i], x->by)) < 0)
            return r;
    int killed = orset_pending_killed(x->os, add);
    if (killed < 0)
        return killed;
    if (!on || killed)
        add.counter = 0;
    return orset_subscription_apply(x->os, name, len, kill, (unsigned)n, add, x->local);
}

/* ATTRIBUTE = 1 (server) | 0, folder; key, clock, 1, value | 0 (unset) */
static int apply_attribute(struct op_run *x)
{
    struct folder *f = NULL;
    size_t key_len, len = 0;
    struct stamp s;
    uint8_t server = orset_read_u8(&x->in);
    int r = server == 1   ? 0
            : server == 0 ? orset_read_folder_made(x, &f)
                          : orset_op_malformed(x, "an attribute of nothing");
    if (r < 0)
        return r;
    const uint8_t *key = orset_read_text(&x->in, ORSET_ATTRIBUTE_KEY_MAX, &key_len), *value = NULL;
    if (x->in.bad || key_len == 0)
        return orset_op_malformed(x, "an attribute key that cannot be read");
    if ((r = orset_read_clock(x, &s)) < 0)
        return r;
    uint8_t set = orset_read_u8(&x->in);
    if (set == 1)
        value = orset_read_text(&x->in, ORSET_ATTRIBUTE_MAX, &len);
    if (x->in.bad || set > 1)
        return orset_op_malformed(x, "an attribute value that cannot be read");
    orset_take_number(x);
    if (x->dry)
        return 0;
    return orset_attribute_apply(x->os, f ? f->index : ORSET_NO_FOLDER, key, key_len, value, len,
                                 set, s, x->local);
}

/* UID_VALIDITY = folder, value. A max register; values above what the caller allows are refused,
 * because a peer's 2^32 - 1 would be final (F23). */
static int apply_uid_validity(struct op_run *x)
{
    struct folder *f;
    int r = orset_read_folder_made(x, &f);
    if (r < 0)
        return r;
    uint32_t value = (uint32_t)orset_read_num(&x->in, x->os->most_uid_validity);
    orset_take_number(x);
    if (x->in.bad || value == 0)
        return orset_op_malformed(x, "a UIDVALIDITY of 0 or too far in the future");
    return x->dry ? 0 : raise_uid_validity(x, f, value);
}

/* KEEPER = folder, clock, site. A Lamport register. */
static int apply_keeper(struct op_run *x)
{
    struct folder *f;
    struct stamp s;
    int r = orset_read_folder_made(x, &f);
    if (r < 0 || (r = orset_read_clock(x, &s)) < 0)
        return r;
    uint64_t site = orset_read_u64(&x->in);
    orset_take_number(x);
    if (x->in.bad || site == 0)
        return orset_op_malformed(x, "a keeper that cannot be read");
    if (x->dry || orset_stamp_order(s, f->keeper_stamp) <= 0)
        return 0;
    f->keeper_stamp = s;
    f->keeper = site;
    /* Whoever has mismatches tells the new one. */
    f->uid_told = false;
    f->uid_dirty = true;
    return orset_folder_touch(x->os, f);
}

/* UIDS = folder, ...: apply_uids.c */
static int apply_uids(struct op_run *x)
{
    struct folder *f;
    int r = orset_read_folder_made(x, &f);
    orset_take_number(x);
    return r < 0 ? r : orset_uids_apply(x, f);
}

static int run(struct op_run *x)
{
    static int (*const kind[])(struct op_run *) = {
        NULL,         apply_add,    apply_remove,    apply_flags,     apply_folder,
        apply_name,   apply_delete, apply_subscribe, apply_attribute, apply_uid_validity,
        apply_keeper, apply_uids};
    uint8_t k = orset_read_u8(&x->in);
    x->next = x->first;
    if (x->in.bad || k == 0 || k >= sizeof kind / sizeof kind[0])
        return orset_fail(
            x->os, ORSET_E_KIND,
            "op %llu of site %llu is of kind %u; update this site before its stream goes on",
            (unsigned long long)x->first, (unsigned long long)x->os->origin[x->by].id.site, k);
    int r = kind[k](x);
    if (r == 0 && (x->in.bad || x->in.at != x->in.end))
        r = orset_op_malformed(x, "bytes behind the op's end");
    return r;
}

/* The running hash of an origin's ops (F20): two contents under one number show as soon as the next
 * op comes.
 */
uint64_t orset_chain_next(uint64_t chain, const uint8_t *op, size_t len)
{
    struct orset_sum s = orset_hash(op, len);
    uint64_t w[3] = {chain, s.lo, s.hi};
    uint64_t c = orset_hash_words(w, 3).lo;
    return c ? c : 1;
}

int orset_apply_op(struct orset *os, struct op_run *x, const uint8_t *op, size_t len)
{
    struct origin *o = &os->origin[x->by];
    x->os = os;
    x->in = orset_reader_of(op, len);
    x->dry = true;
    x->named = x->keywords = x->folders = 0;
    x->beyond = 0;
    if (len > ORSET_OP_MAX)
        return orset_op_malformed(x, "an op above the size bound");
    int r = run(x);
    if (r < 0)
        return r;
    uint64_t last = x->next - 1;
    if (last <= o->counter)
        return ORSET_KNOWN;
    if (x->first <= o->counter)
        return orset_fail(
            os, ORSET_E_FORKED,
            "op %llu to %llu of site %llu, but %llu is in the state: two ops share a number",
            (unsigned long long)x->first, (unsigned long long)last, (unsigned long long)o->id.site,
            (unsigned long long)o->counter);
    if (x->first != o->counter + 1)
        return orset_fail(
            os, ORSET_E_GAP,
            "op %llu of site %llu, but the next one is %llu: ask for the range, or exchange",
            (unsigned long long)x->first, (unsigned long long)o->id.site,
            (unsigned long long)o->counter + 1);
    if (last > ORSET_COUNTER_MAX)
        return orset_op_malformed(x, "a number above its bound");
    if (x->most && last > x->most)
        return orset_fail(os, ORSET_E_FORGED,
                          "op %llu of site %llu is above its sender's own vector",
                          (unsigned long long)last, (unsigned long long)o->id.site);
    if (x->beyond < 0)
        return x->beyond;
    if ((r = orset_quota_check(os, x->by, QUOTA_KEYWORDS, x->keywords)) < 0 ||
        (r = orset_quota_check(os, x->by, QUOTA_FOLDERS, x->folders)) < 0)
        return r;
    if (x->named > 0 && orset_quota_ahead(os, x->by) + x->named > ORSET_PENDING_MAX)
        return orset_fail(os, ORSET_E_EXCHANGE,
                          "site %llu named more than %d numbers that are not here: exchange first",
                          (unsigned long long)o->id.site, ORSET_PENDING_MAX);
    x->in = orset_reader_of(op, len);
    x->dry = false;
    if ((r = run(x)) < 0) {
        os->broken = true; /* half done */
        return r;
    }
    o = &os->origin[x->by];
    uint64_t from = o->counter;
    o->counter = last;
    o->chain = from == 0 || o->chain ? orset_chain_next(o->chain, op, len) : 0;
    o->dirty = true;
    return orset_pending_covered(os, x->by, from, last);
}
