/* modseq_repair - a client may have any site's HIGHESTMODSEQ, and come to any other one (F33).
 *
 * The rule: for each change of a mail there is a value, and each site has the change, under a
 * modseq of at least that value, at the moment when its HIGHESTMODSEQ reaches it. So who was told
 * that HIGHESTMODSEQ, or more, was told the change; who has less is told it everywhere.
 *
 * Where HIGHESTMODSEQ here is below the modseqs that the change has at its origin, its mails get
 * the origin's, and all is done. Where it is not (a conflict: both sites changed something), they
 * get one above all that this site has heard of, and the others are told to raise them as far
 * (RAISE). Who cannot, since his HIGHESTMODSEQ is there already, raises them further, and tells.
 * tests/model/modseqs.py walks through that.
 *
 * An expunge has no modseq, but a place in the log: its record is written once more. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/orset/ops/op_batch.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/protocol/parcel.h"
#include "dovecot-plugin/worker/apply/modseq_repair.h"
#include "dovecot-plugin/worker/apply/modseq_row.h"
#include "dovecot-plugin/worker/apply/modseq_write.h"
#include "dovecot-plugin/worker/session/crash.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/modseq_floor.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/rows.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <mail-index-modseq.h>
#include <mail-storage-private.h>
#include <mail-transaction-log-private.h>
#include <seq-range-array.h>

#include <time.h>

/* Between two RAISEs of a mailbox: while clients work at both sites, each is mostly too late. */
#define PAUSE_MSECS 300
#define UNREADABLE_MSECS 10000
#define GAP_MOST 4096
/* A RAISE that is not confirmed is sent again, then after twice as long, up to 64 minutes. */
#define AGAIN_SECS 30
#define AGAIN_DOUBLED 7

/* --- what is to be done ----------------------------------------------------------------------- */

static int by_mail(const struct changed_mail *a, const struct changed_mail *b)
{
    if (a->folder != b->folder)
        return a->folder < b->folder ? -1 : 1;
    return a->uid < b->uid ? -1 : a->uid > b->uid;
}

static int note_folder(struct session *s, uint32_t folder, const ARRAY_TYPE(seq_range) * uids)
{
    struct modseq_row row;
    struct orset_folder f;
    if (modseq_row_get(s, folder, &row) < 0)
        return -1;
    if (orset_folder_get(s->os, folder, &f) < 0)
        return 0;
    if (array_is_empty(&row.changed)) {
        row.lo = f.batch_lo;
        row.hi = f.batch_hi;
        row.before = 0;
        row.conflict = FALSE;
    } else {
        row.lo = I_MIN(row.lo, f.batch_lo);
        row.hi = I_MAX(row.hi, f.batch_hi);
    }
    seq_range_array_merge(&row.changed, uids);
    s->modseq_repairs = MODSEQ_REPAIRS_SOON;
    return modseq_row_put(s, folder, &row);
}

int modseq_repair_note(struct session *s, ARRAY_TYPE(changed_mail) * list)
{
    ARRAY_TYPE(seq_range) uids;
    unsigned n;
    int r = 0;
    i_array_init(&uids, 16);
    array_sort(list, by_mail);
    const struct changed_mail *t = array_get(list, &n);
    for (unsigned i = 0; i < n && r == 0; i++) {
        seq_range_array_add(&uids, t[i].uid);
        if (i + 1 < n && t[i + 1].folder == t[i].folder)
            continue;
        T_BEGIN
        {
            r = note_folder(s, t[i].folder, &uids);
        }
        T_END;
        array_clear(&uids);
    }
    array_free(&uids);
    return r;
}

/* --- what was written ------------------------------------------------------------------------- */

uint64_t modseq_repair_begin(struct mailbox *box)
{
    (void)session_enable_modseq(box);
    (void)mail_index_refresh(box->index);
    return I_MAX(box->index->log->head->sync_highest_modseq, 1);
}

/* Nobody else changed the mailbox between the look at HIGHESTMODSEQ and the transaction: one of
 * its mails has the next modseq, or the expunge is all that there was. */
static bool is_next(struct mailbox *box, const ARRAY_TYPE(seq_range) * uids, uint64_t before)
{
    struct seq_range_iter iter;
    uint32_t uid, seq;
    bool next = FALSE, any = FALSE;
    (void)mail_index_refresh(box->index);
    struct mail_index_view *view = mail_index_view_open(box->index);
    seq_range_array_iter_init(&iter, uids);
    for (unsigned i = 0; !next && seq_range_array_iter_nth(&iter, i, &uid); i++) {
        bool there = mail_index_lookup_seq(view, uid, &seq);
        any = any || there;
        next = there && mail_index_modseq_lookup(view, seq) == before + 1;
    }
    mail_index_view_close(&view);
    return any ? next : box->index->log->head->sync_highest_modseq <= before + 1;
}

static bool has_all(const ARRAY_TYPE(seq_range) * uids, const ARRAY_TYPE(seq_range) * some)
{
    const struct seq_range *range;
    array_foreach (some, range) {
        for (uint32_t uid = range->seq1; uid <= range->seq2; uid++)
            if (!seq_range_exists(uids, uid))
                return FALSE;
    }
    return TRUE;
}

int modseq_repair_written(struct session *s, const struct box *x, struct mailbox *box,
                          const ARRAY_TYPE(seq_range) * uids, uint64_t before)
{
    struct modseq_row row;
    if (array_is_empty(uids))
        return 0;
    if (modseq_row_get(s, x->folder, &row) < 0)
        return -1;
    if (array_is_empty(&row.changed))
        row.lo = row.hi = row.before = row.conflict = 0;
    if (!has_all(&row.changed, uids))
        row.lo = 0; /* no batch told of them: an exchange did */
    seq_range_array_merge(&row.changed, uids);
    row.conflict = row.conflict || before >= row.lo || !is_next(box, uids, before);
    if (row.before == 0)
        row.before = before;
    s->modseq_repairs = MODSEQ_REPAIRS_SOON;
    return modseq_row_put(s, x->folder, &row);
}

/* Its own, or a peer's. Of two, the lower one decides whether it is too late, and none is raised
 * less. */
static int note_raise(struct session *s, uint32_t folder, const ARRAY_TYPE(seq_range) * uids,
                      uint64_t lo, uint64_t value)
{
    struct modseq_row row;
    if (modseq_row_get(s, folder, &row) < 0)
        return -1;
    row.raise_lo = array_is_empty(&row.raised) ? lo : I_MIN(row.raise_lo, lo);
    row.raise = array_is_empty(&row.raised) ? value : I_MAX(row.raise, value);
    seq_range_array_merge(&row.raised, uids);
    s->modseq_repairs = MODSEQ_REPAIRS_SOON;
    return modseq_row_put(s, folder, &row);
}

static int note_range(struct session *s, uint32_t folder, uint32_t uid1, uint32_t uid2,
                      uint64_t value)
{
    ARRAY_TYPE(seq_range) uids;
    t_array_init(&uids, 1);
    seq_range_array_add_range(&uids, uid1, uid2);
    return note_raise(s, folder, &uids, value, value);
}

int modseq_repair_anew(struct session *s, const struct box *x, uint64_t floor)
{
    session_explain(s, "%s: modseqs go on at %llu, above those that clients know", x->vname,
                    (unsigned long long)floor);
    return note_range(s, x->folder, 1, ORSET_UID_MAX, floor);
}

/* HIGHESTMODSEQ is there already: a conflict, so that all go above whatever was told. */
int modseq_repair_given(struct session *s, uint32_t folder, uint32_t uid1, uint32_t uid2,
                        uint64_t highest)
{
    return uid1 > uid2 ? 0 : note_range(s, folder, uid1, uid2, highest);
}

/* --- settling --------------------------------------------------------------------------------- */

struct settling {
    struct session *s;
    uint32_t folder;
    struct box *x;
    struct mailbox *box;
    struct modseq_row row;
    uint64_t floor;
    uint64_t highest;       /* HIGHESTMODSEQ when it was done */
    uint64_t raises;        /* to what, and the others are to; 0: it does not */
    bool later, unreadable; /* later: it is still to be done */
};

static unsigned rank(const struct session *s)
{
    unsigned n = 0;
    for (unsigned i = 0; i < s->group->nsites; i++)
        n += s->group->site[i] < s->group->self;
    return n;
}

/* What has that modseq already was raised as far, or changed since. */
static void drop_raised(struct settling *t, struct mail_index_view *view)
{
    struct modseq_row *row = &t->row;
    ARRAY_TYPE(seq_range) gone, found;
    t_array_init(&gone, 8);
    t_array_init(&found, 8);
    modseq_split(view, &row->raised, row->raise, &found, &gone);
    array_clear(&row->raised);
    if (!array_is_empty(&gone)) {
        ARRAY_TYPE(seq_range) known;
        t_array_init(&known, 8);
        if (modseq_expunged_since(t->box, row->raise, &known))
            seq_range_array_remove_seq_range(&gone, &known);
        else
            array_clear(&gone); /* so old that all that is gone is told */
    }
    seq_range_array_merge(&row->raised, &found);
    seq_range_array_merge(&row->raised, &gone);
}

/* The floor is where this site's own index was before. */
static uint64_t believed(const struct settling *t, uint64_t now, uint64_t modseq)
{
    return modseq <= I_MAX(now, t->floor) + MODSEQ_AHEAD_MOST ? modseq : 0;
}

/* What it was told by others than itself. While the new index has not gone on above the old one,
 * whoever knows of a modseq may be a client of the old one. */
static bool meets_new_index(const struct settling *t, uint64_t now)
{
    const struct modseq_row *row = &t->row;
    bool by_peers =
        !array_is_empty(&row->raised) && (row->raise_lo != t->floor || row->raise != t->floor);
    return now < t->floor && (by_peers || !array_is_empty(&row->changed));
}

static bool is_conflict(const struct settling *t, struct mail_index_view *view, uint64_t now)
{
    const struct modseq_row *row = &t->row;
    if (meets_new_index(t, now))
        return TRUE;
    if (!array_is_empty(&row->raised) && now >= row->raise_lo)
        return TRUE;
    if (array_is_empty(&row->changed))
        return FALSE;
    if (row->conflict || row->lo == 0 || believed(t, now, row->hi) == 0)
        return TRUE;
    if (row->before == 0)
        return now >= row->lo;
    return modseq_any_below(view, &row->changed, row->before + 1) ||
           (now >= row->lo && row->lo != row->before + 1) ||
           (now >= row->hi && row->hi != row->before + 1);
}

/* True: it raised some a moment ago. */
static bool is_too_soon(const struct settling *t)
{
    uint64_t last = t->x->now.raised_at;
    return last != 0 && clock_msecs() - last < PAUSE_MSECS;
}

/* All of it, above whatever this site has heard of. */
static bool raise_all(struct settling *t, struct mail_index_view *view, uint64_t now)
{
    struct modseq_row *row = &t->row;
    struct orset_folder f;
    bool late = !array_is_empty(&row->raised) && now >= row->raise_lo;
    uint64_t value = I_MAX(I_MAX(now, believed(t, now, row->hi)), I_MAX(row->raise, t->floor));
    if (orset_folder_get(t->s->os, t->folder, &f) == 0)
        value = I_MAX(value, believed(t, now, f.peer_modseq));
    row->gap = late ? I_MIN(row->gap * 2 + 1, GAP_MOST) : row->gap;
    value += 1 + rank(t->s) + row->gap;
    if (value > ORSET_RAISE_MAX) {
        session_note(t->s, NOTE_WARNING,
                     "%s: HIGHESTMODSEQ is %llu, further than sites raise each other: clients that "
                     "change sites may miss changes of %u mails",
                     t->x->vname, (unsigned long long)now,
                     seq_range_count(&row->changed) + seq_range_count(&row->raised));
        return TRUE;
    }
    if (!modseq_write(t->box, view, now, &row->changed, value, &row->raised, value))
        return FALSE;
    t->raises = value;
    return TRUE;
}

static bool settle_locked(struct settling *t)
{
    struct modseq_row *row = &t->row;
    uint64_t now = t->box->index->log->head->sync_highest_modseq;
    if (mail_index_refresh(t->box->index) < 0)
        return FALSE;
    struct mail_index_view *view = mail_index_view_open(t->box->index);
    bool done = mail_index_map_get_modseq_header(view->map) != NULL;
    if (believed(t, now, row->raise) == 0)
        array_clear(&row->raised);
    /* Below the floor a mail's modseq does not say that it was raised as far. */
    if (done && !array_is_empty(&row->raised) && row->raise_lo >= t->floor)
        drop_raised(t, view);
    if (done && is_conflict(t, view, now)) {
        done = !is_too_soon(t) && raise_all(t, view, now);
    } else if (done) {
        /* Written under a modseq that is the origin's already: nothing is to be done. */
        bool changed = !array_is_empty(&row->changed) && now < row->hi;
        done = modseq_write(t->box, view, now, changed ? &row->changed : NULL, row->hi,
                            &row->raised, row->raise);
    }
    mail_index_view_close(&view);
    return done;
}

/* The log is locked: nobody changes the mailbox between the look at HIGHESTMODSEQ and what is
 * written. */
static bool settle_box(struct settling *t)
{
    struct mail_transaction_log *log;
    uint32_t seq;
    uoff_t offset;
    t->unreadable = session_open_mailbox(t->s, t->x, t->box) < 0 ||
                    session_enable_modseq(t->box) < 0 || mailbox_sync(t->box, 0) < 0;
    if (t->unreadable)
        return FALSE;
    log = t->box->index->log;
    t->unreadable = mail_transaction_log_sync_lock(log, "dovelane modseqs", &seq, &offset) < 0;
    if (t->unreadable)
        return FALSE;
    bool done = settle_locked(t);
    mail_transaction_log_sync_unlock(log, "dovelane modseqs");
    (void)mail_index_refresh(t->box->index);
    t->highest = log->head->sync_highest_modseq;
    return done;
}

/* Who has not answered yet gets all at once: what he was told before is too late, too, when his
 * HIGHESTMODSEQ is there. */
static void owe(struct modseq_row *row, uint64_t site, uint64_t value)
{
    unsigned i = 0;
    while (i < row->nowing && row->owing[i].site != site)
        i++;
    struct raise_owed *o = &row->owing[i];
    if (i == row->nowing) {
        i_assert(row->nowing < FRAME_SITES_MAX);
        row->nowing++;
        o->site = site;
        o->lo = value;
        t_array_init(&o->uids, 8);
    }
    o->value = value;
    seq_range_array_merge(&o->uids, &row->changed);
    seq_range_array_merge(&o->uids, &row->raised);
}

static void settled(struct settling *t)
{
    struct modseq_row *row = &t->row;
    struct session *s = t->s;
    if (t->raises != 0) {
        session_explain(s, "%s: %u mails get modseq %llu here, and are to get it everywhere",
                        t->x->vname, seq_range_count(&row->changed) + seq_range_count(&row->raised),
                        (unsigned long long)t->raises);
        for (unsigned i = 0; i < s->npeers; i++)
            owe(row, s->peer[i].site, t->raises);
        row->tells = 0;
        row->told_at = 0;
        t->x->now.raised_at = clock_msecs();
    }
    array_clear(&row->changed);
    array_clear(&row->raised);
    row->lo = row->hi = row->before = row->raise = row->raise_lo = 0;
    row->conflict = FALSE;
}

static int settle(struct settling *t)
{
    t->x = box_of_folder(t->s, t->folder);
    if (t->x == NULL || t->x->gone || t->x->vname == NULL) {
        /* What is made there again begins above what clients know. */
        t->row.nowing = 0;
        if (modseq_floor_heard(t->s, t->folder, I_MAX(t->row.raise, t->row.hi)) < 0)
            return -1;
    } else {
        if (!t->x->now.waits) {
            t->box = session_mailbox(t->s, t->x->vname, 0);
            t->later = !settle_box(t);
            mailbox_free(&t->box);
        } else {
            t->later = t->unreadable = TRUE;
        }
        if (t->later)
            return 0;
        if (modseq_floor_written(t->s, t->x, t->highest) < 0)
            return -1;
    }
    crash_at("modseqs");
    settled(t);
    return 0;
}

/* --- telling ---------------------------------------------------------------------------------- */

static void put_folder(struct session *s, uint32_t folder, struct orset_buf *b)
{
    struct orset_folder f;
    i_zero(&f);
    (void)orset_folder_get(s->os, folder, &f);
    orset_buf_u64(b, f.id_origin.site);
    orset_buf_u64(b, f.id_origin.epoch);
    orset_buf_num(b, f.id_counter);
}

static uint32_t read_folder(struct session *s, struct orset_reader *in)
{
    uint64_t site = orset_read_u64(in), epoch = orset_read_u64(in),
             number = orset_read_num(in, ORSET_COUNTER_MAX);
    struct orset_folder f;
    for (uint32_t i = 0; !in->bad && i < orset_folders(s->os); i++)
        if (orset_folder_get(s->os, i, &f) == 0 && f.id_origin.site == site &&
            f.id_origin.epoch == epoch && f.id_counter == number)
            return f.home;
    return ORSET_NO_FOLDER;
}

/* Seconds until what is owed is told again; 0: it is due, also when the clock was set back. */
static unsigned wait_of(const struct modseq_row *row)
{
    time_t now = time(NULL), wait = (time_t)AGAIN_SECS << row->tells;
    return row->told_at > now || now - row->told_at >= wait
               ? 0
               : (unsigned)(wait - (now - row->told_at));
}

static void tell_one(struct session *s, uint32_t folder, const struct raise_owed *o)
{
    struct orset_buf b = {.alloc = session_alloc()};
    const struct seq_range *range;
    put_folder(s, folder, &b);
    orset_buf_num(&b, o->value);
    orset_buf_num(&b, o->lo);
    orset_buf_num(&b, array_count(&o->uids));
    array_foreach (&o->uids, range) {
        orset_buf_num(&b, range->seq1);
        orset_buf_num(&b, range->seq2);
    }
    if (!b.failed)
        session_send(s, o->site, PARCEL_RAISE, FALSE, b.data, b.len);
    orset_buf_free(&b);
}

static bool is_peer(const struct session *s, uint64_t site)
{
    for (unsigned i = 0; i < s->npeers; i++)
        if (s->peer[i].site == site)
            return TRUE;
    return FALSE;
}

static void drop_owing(struct modseq_row *row, unsigned i)
{
    row->owing[i] = row->owing[--row->nowing];
    if (row->nowing == 0)
        row->gap = 0;
}

static int repair(struct session *s, uint32_t folder)
{
    struct settling t = {.s = s, .folder = folder};
    if (session_begin(s) < 0)
        return -1;
    int r = modseq_row_get(s, folder, &t.row);
    bool waits = r == 0 && (!array_is_empty(&t.row.changed) || !array_is_empty(&t.row.raised));
    for (unsigned i = t.row.nowing; i-- > 0;)
        if (!is_peer(s, t.row.owing[i].site))
            drop_owing(&t.row, i);
    if (waits && (r = modseq_floor_get(s, folder, &t.floor)) == 0)
        r = settle(&t);
    bool due = r == 0 && t.row.nowing > 0 && wait_of(&t.row) == 0;
    if (due) {
        t.row.tells = t.row.told_at == 0 ? 0 : I_MIN(t.row.tells + 1, AGAIN_DOUBLED);
        t.row.told_at = time(NULL);
    }
    if (r == 0 && modseq_row_put(s, folder, &t.row) < 0)
        r = -1;
    if (r < 0) {
        session_rollback(s);
        return -1;
    }
    if (session_commit(s) < 0)
        return -1;
    if (t.later && s->modseq_repairs != MODSEQ_REPAIRS_SOON)
        s->modseq_repairs = t.unreadable ? MODSEQ_REPAIRS_LATE : MODSEQ_REPAIRS_SOON;
    if (t.row.nowing > 0) {
        unsigned wait = wait_of(&t.row);
        s->raise_wait = s->raises_owed ? I_MIN(s->raise_wait, wait) : wait;
        s->raises_owed = TRUE;
    }
    for (unsigned i = 0; due && i < t.row.nowing; i++)
        tell_one(s, folder, &t.row.owing[i]);
    return 0;
}

int modseq_repair_apply(struct session *s)
{
    if (s->modseq_repairs == NO_MODSEQ_REPAIRS && !s->raises_owed)
        return 0;
    s->modseq_repairs = NO_MODSEQ_REPAIRS;
    s->raises_owed = FALSE;
    if (modseq_rows(s, repair) == 0)
        return 0;
    s->modseq_repairs = MODSEQ_REPAIRS_SOON;
    return -1;
}

void modseq_repair_wanted(struct session *s)
{
    if (s->modseq_repairs != NO_MODSEQ_REPAIRS)
        session_want_tick(s, s->modseq_repairs == MODSEQ_REPAIRS_SOON ? PAUSE_MSECS
                                                                      : UNREADABLE_MSECS);
    if (s->raises_owed)
        session_want_tick(s, I_MAX(s->raise_wait, 1) * 1000);
}

/* --- what is told ----------------------------------------------------------------------------- */

/* In order, as they are told: else each of them could cost a move of all behind it. */
static void read_uids(struct orset_reader *in, ARRAY_TYPE(seq_range) * uids)
{
    uint32_t last = 0;
    for (uint64_t n = orset_read_num(in, UINT32_MAX); n > 0 && !in->bad; n--) {
        uint32_t from = (uint32_t)orset_read_num(in, UINT32_MAX),
                 to = (uint32_t)orset_read_num(in, UINT32_MAX);
        in->bad = in->bad || from <= last || from > to;
        last = to;
        if (!in->bad)
            seq_range_array_add_range(uids, from, to);
    }
    in->bad = in->bad || in->at != in->end;
}

/* It is this site's to do, and to tell, from here on. */
static int take_raise(struct session *s, uint32_t folder, const ARRAY_TYPE(seq_range) * uids,
                      uint64_t lo, uint64_t value)
{
    if (session_begin(s) < 0)
        return -1;
    if (note_raise(s, folder, uids, lo, value) < 0) {
        session_rollback(s);
        return -1;
    }
    return session_commit(s);
}

/* What no site asks for, or too far for one step. */
static bool is_too_far(struct session *s, const struct peer *p, uint32_t folder, uint64_t value)
{
    struct box *x = box_of_folder(s, folder);
    uint64_t floor = 0, most = ORSET_RAISE_MAX;
    if (x != NULL && !x->gone && modseq_floor_get(s, folder, &floor) == 0)
        most = I_MIN(most, I_MAX(x->at.modseq, floor) + MODSEQ_AHEAD_MOST);
    if (value <= most)
        return FALSE;
    session_fail(s, "%s: site %llu asks for modseq %llu: more than %llu is not believed",
                 x != NULL && x->vname != NULL ? x->vname : "a folder", (unsigned long long)p->site,
                 (unsigned long long)value, (unsigned long long)most);
    return TRUE;
}

static enum frame_result raise_parcel(struct session *s, const struct peer *p, struct text body)
{
    struct orset_reader in = orset_reader_of(body.p, body.n);
    ARRAY_TYPE(seq_range) uids;
    t_array_init(&uids, 16);
    uint32_t folder = read_folder(s, &in);
    uint64_t value = orset_read_num(&in, ORSET_MODSEQ_MAX);
    size_t head = (size_t)(in.at - body.p); /* which RAISED repeats */
    uint64_t lo = orset_read_num(&in, ORSET_MODSEQ_MAX);
    read_uids(&in, &uids);
    if (in.bad || lo == 0 || lo > value)
        return FRAME_REFUSED;
    if (folder != ORSET_NO_FOLDER && is_too_far(s, p, folder, value))
        return FRAME_REFUSED;
    if (folder != ORSET_NO_FOLDER && take_raise(s, folder, &uids, lo, value) < 0)
        return FRAME_TEMPORARY;
    session_send(s, p->site, PARCEL_RAISED, FALSE, body.p, head);
    return FRAME_OK;
}

static enum frame_result raised_parcel(struct session *s, const struct peer *p, struct text body)
{
    struct orset_reader in = orset_reader_of(body.p, body.n);
    uint32_t folder = read_folder(s, &in);
    uint64_t value = orset_read_num(&in, ORSET_MODSEQ_MAX);
    struct modseq_row row;
    if (in.bad || in.at != in.end)
        return FRAME_REFUSED;
    if (folder == ORSET_NO_FOLDER)
        return FRAME_OK;
    if (session_begin(s) < 0)
        return FRAME_TEMPORARY;
    int r = modseq_row_get(s, folder, &row);
    for (unsigned i = row.nowing; r == 0 && i-- > 0;)
        if (row.owing[i].site == p->site && row.owing[i].value == value)
            drop_owing(&row, i);
    if (r < 0 || modseq_row_put(s, folder, &row) < 0) {
        session_rollback(s);
        return FRAME_TEMPORARY;
    }
    return session_commit(s) < 0 ? FRAME_TEMPORARY : FRAME_OK;
}

enum frame_result modseq_repair_parcel(struct session *s, const struct peer *p,
                                       const struct frame_parcel *f)
{
    enum frame_result r;
    T_BEGIN
    {
        r = f->kind == PARCEL_RAISE ? raise_parcel(s, p, f->body) : raised_parcel(s, p, f->body);
    }
    T_END;
    return r;
}
