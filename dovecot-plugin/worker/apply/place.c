/* place - mails that the state has and a mailbox has not: saved from a local copy of the same
 * GUID, from the body that came with the op, or from the spool; else the body is asked for. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/protocol/parcel.h"
#include "dovecot-plugin/worker/apply/apply.h"
#include "dovecot-plugin/worker/apply/place.h"
#include "dovecot-plugin/worker/apply/write_intent.h"
#include "dovecot-plugin/worker/bodies/ahead.h"
#include "dovecot-plugin/worker/bodies/body.h"
#include "dovecot-plugin/worker/bodies/body_requests.h"
#include "dovecot-plugin/worker/bodies/patience.h"
#include "dovecot-plugin/worker/bodies/plan.h"
#include "dovecot-plugin/worker/logs/log.h"
#include "dovecot-plugin/worker/session/crash.h"
#include "dovecot-plugin/worker/session/flags.h"
#include "dovecot-plugin/worker/session/lasting.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/mdbox.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/rows.h"
#include "dovecot-plugin/worker/session/sdbox.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <istream.h>
#include <mail-storage-private.h>
#include <maildir-keywords.h>
#include <maildir-uidlist.h>
#include <sort.h>

#include <time.h>

#define FAR (2 * PARCEL_WANTS_MAX) /* what is asked for lies within so many of the plan */
#define AT_ONCE PARCEL_MAILS_MAX   /* mails in one transaction: all that a batch brings */

/* The state has it of an exchange that has not ended: the answers come by a hash, not by UID. */
static bool is_told_in_part(const struct session *s, const struct orset_task *t)
{
    return t->message.dot.counter > orset_vector_get(s->os, t->message.dot.origin);
}

/* --- one mailbox's run ------------------------------------------------------------------------ */

/* By which an admin's trace knows where a mail is. */
static void log_placed(const struct placing *p, const struct place_item *item)
{
    struct session *s = p->s;
    const struct orset_message *m = &item->task.message;
    if (!s->group->log_placed)
        return;
    struct orset_origin origin = orset_origin_get(s->os, m->dot.origin);
    session_report(s, "%s: UID %u: placed, msgid=%s, size=%llu, of site %llu", p->x->vname,
                   item->uid, item->message_id == NULL ? "<>" : item->message_id,
                   (unsigned long long)m->facts.size, (unsigned long long)origin.site);
}

static int place_done(struct placing *p)
{
    struct session *s = p->s;
    bool first = FALSE;
    int e = 0;
    if (session_begin(s) < 0)
        return -1;
    for (unsigned i = 0; i < p->n && e >= 0; i++) {
        const struct place_item *item = &p->item[i];
        if (!item->saved || item->uid == 0)
            continue;
        place_saved(s, &item->task);
        first = first || (item->at == p->mailbox->at && !is_told_in_part(s, &item->task));
        session_explain(s, "%s: UID %u: a mail of another site, saved with %s", p->x->vname,
                        item->uid, flags_text(s, &item->seen));
        e = orset_done_place(s->os, item->task.message.folder, item->task.message.dot, item->uid,
                             &item->seen);
    }
    if (e < 0)
        session_core_failed(s, p->x->vname);
    if (e < 0 || (first && patience_renew(s, p->folder) < 0) || write_intent_end(s, p->x) < 0) {
        session_rollback(s);
        return -1;
    }
    if (session_commit(s) < 0)
        return -1;
    for (unsigned i = 0; i < p->n; i++) {
        if (!p->item[i].saved)
            continue;
        if (p->item[i].spooled) /* or another one of the same bytes waits for its turn */
            spool_drop(s, p->item[i].task.message.facts.sha256);
        if (p->item[i].uid == 0)
            continue;
        log_placed(p, &p->item[i]);
        s->placed++;
        s->placed_bytes += p->item[i].task.message.facts.size;
        plan_done(s, p->item[i].at);
    }
    return 0;
}

/* Claims first, rising: a mail without one takes what is left behind them. */
static int by_claim(const struct place_item *a, const struct place_item *b)
{
    uint32_t x = a->task.uid != 0 ? a->task.uid : UINT32_MAX,
             y = b->task.uid != 0 ? b->task.uid : UINT32_MAX;
    if (x != y)
        return x < y ? -1 : 1;
    return a->task.message.claim < b->task.message.claim
               ? -1
               : a->task.message.claim > b->task.message.claim;
}

/* Than the one that was scanned. */
static bool is_other_dbox(const struct placing *p)
{
    bool mdbox = mdbox_is(p->box);
    if (!mdbox && !sdbox_is(p->box))
        return FALSE;
    return !log_is_known(p->box, &p->x->at) || (mdbox && mdbox_is_other(p->s, p->x, p->box));
}

/* A mail that was looked at since, and waits, comes behind them. */
static int save_those_before(struct placing *p)
{
    bool blocked = p->blocked;
    p->blocked = FALSE;
    int r = place_save(p);
    p->blocked = p->blocked || blocked;
    return r;
}

static int open_and_save(struct placing *p)
{
    struct mailbox_status status;
    int r = 0;
    p->box = session_mailbox(p->s, p->x->vname, 0);
    if (session_open_mailbox(p->s, p->x, p->box) < 0 || mailbox_sync(p->box, 0) < 0 ||
        mailbox_get_status(p->box, STATUS_UIDNEXT, &status) < 0 ||
        (p->f.peer_modseq != 0 && session_enable_modseq(p->box) < 0)) {
        if (!session_box_is_locked(p->s, p->box))
            lasting_note(p->s, LASTING_CLOSED, p->x->vname, "%s cannot be read and waits: %s",
                         p->x->vname, mailbox_get_last_internal_error(p->box, NULL));
        place_failed(p);
    } else if (is_other_dbox(p)) {
        /* What a rebuild put back, or puts back, would be there twice. */
        p->x->now.scanned = FALSE;
        if (p->relooked)
            place_failed(p);
        p->again = !p->relooked;
        p->relooked = TRUE;
    } else if (p->x->saver != 0 || write_intent_unfinished(p->s, p->x) ||
               rows_say_saving(p->s, p->box, p->x) < 0) {
        place_failed(p); /* it could not be looked at; what is there of these mails is not known */
        p->s->cut_short = p->s->cut_short || p->x->saver != 0;
    } else {
        p->uid_next = status.uidnext;
        p->has_uidlist = maildir_has(p->box, MAILDIR_UIDLIST_NAME);
        p->has_keywords = maildir_has(p->box, MAILDIR_KEYWORDS_NAME);
        crash_at("saving");
        i_qsort(p->item, p->n, sizeof *p->item, by_claim);
        p->x->now.scanned = FALSE;
        if (save_those_before(p) == 0 && p->nsaved > 0) {
            crash_at("place");
            r = place_done(p);
        }
        p->x->now.scanned = r == 0 && !p->x->pass.failed;
    }
    mailbox_free(&p->box);
    return r;
}

static int place_run(struct placing *p)
{
    int r = 0;
    p->x = box_of_folder(p->s, p->folder);
    if (p->x != NULL && !p->x->now.scanned && p->x->pass.failed) {
        ; /* what it has is not known, and will not be by looking at once again */
    } else if (p->n > 0 && p->x != NULL && !p->x->gone && !p->x->now.scanned) {
        /* Perhaps saved by a run that was killed before the state knew: those are found by their
         * GUID first (F13). */
        p->again = TRUE;
        r = p->scan(p->s, p->x);
        if (!p->x->now.scanned)
            place_failed(p);
    } else if (p->n > 0 && p->x != NULL && !p->x->gone && p->x->vname != NULL &&
               orset_folder_get(p->s->os, p->folder, &p->f) == 0) {
        T_BEGIN
        {
            r = open_and_save(p);
        }
        T_END;
    }
    p->n = p->nsaved = 0;
    p_clear(p->pool);
    return r;
}

static void keep_item(struct placing *p, const struct orset_task *t)
{
    if (p->n == p->room) {
        unsigned room = p->room == 0 ? 16 : p->room * 2;
        p->item = i_realloc(p->item, p->room * sizeof *p->item, room * sizeof *p->item);
        p->room = room;
    }
    struct place_item *item = &p->item[p->n++];
    struct orset_facts *facts = &item->task.message.facts;
    i_zero(item);
    memcpy(&item->task, t, offsetof(struct orset_task, at) + t->at_len);
    item->at = p->at;
    item->waits = p->blocked;
    p->folder = t->folder;
    /* Points into the core until its next call. */
    if (facts->guid_text_len > 0)
        facts->guid_text = p_strndup(p->pool, facts->guid_text, facts->guid_text_len);
}

static void add_row(struct placing *p, const struct orset_task *t, int *r)
{
    const struct orset_facts *facts = &t->message.facts;
    if ((p->n > 0 && t->folder != p->folder) || p->n == AT_ONCE) {
        /* It points into the core, which the run calls. */
        char *guid =
            facts->guid_text_len > 0 ? i_strndup(facts->guid_text, facts->guid_text_len) : NULL;
        struct orset_task copy;
        memcpy(&copy, t, offsetof(struct orset_task, at) + t->at_len);
        copy.message.facts.guid_text = guid;
        *r = place_run(p);
        keep_item(p, &copy);
        i_free(guid);
        return;
    }
    keep_item(p, t);
}

static void placing_begin(struct placing *p, struct session *s, uint64_t ask, scan_fn *scan)
{
    struct box *const *x;
    i_zero(p);
    p->s = s;
    p->scan = scan;
    array_foreach (&s->boxes, x)
        (*x)->pass.failed = FALSE;
    p->wants = body_requests_begin(s, ask);
    p->pool = pool_alloconly_create("placing", 1024);
}

static void placing_end(struct placing *p)
{
    body_requests_end(&p->wants);
    p->s->unplaced = plan_left(p->s);
    if (p->failed)
        session_want_tick(p->s, 5000);
    pool_unref(&p->pool);
    i_free(p->item);
}

/* The answer with its body may still come, or its body is here and it is not its turn: what its
 * message says need not be read. */
static bool nothing_to_do(struct placing *p, struct plan_item *item, time_t now)
{
    if (p->blocked && item->bodies)
        return TRUE;
    if (item->until <= (uint32_t)now)
        return FALSE;
    item->given_up = item->given_up || p->mailbox->impatient;
    if (!item->given_up)
        body_request_awaited(p->wants);
    p->blocked = p->blocked || !item->given_up;
    return TRUE;
}

static bool is_here(struct placing *p, const struct orset_task *t)
{
    const uint8_t *sha256 = t->message.facts.sha256;
    return t->source_uid != 0 || (p->s->bodies != NULL && bodies_has(p->s->bodies, sha256)) ||
           spool_has(p->s, sha256);
}

/* Mails of lower UID may be unknown: it waits for the exchange's end, as for a body. */
static bool waits_for_exchange(const struct placing *p, const struct orset_task *t)
{
    return is_told_in_part(p->s, t) && !p->mailbox->impatient && !plan_item(p->s, p->at)->given_up;
}

/* It would leave a hole below it, which may be the place of a mail that its giver had. */
static bool waits_for_others(const struct placing *p, const struct orset_task *t)
{
    struct orset_folder f;
    uint32_t before = p->n > 0 ? p->item[p->n - 1].task.uid : 0;
    return !p->mailbox->impatient && orset_folder_get(p->s->os, t->folder, &f) == 0 &&
           t->uid > I_MAX(f.uid_next, before + 1) && ahead_waits(p->s, t->message.dot);
}

/* One mail's turn, but for those who are here only because something arrived: what has not
 * arrived is not asked for again. */
static int place_next(struct placing *p, struct orset_task *t, unsigned at, bool arrived)
{
    struct plan_item *item = plan_item(p->s, at);
    int r = 0;
    t->at_len = item->row_len;
    memcpy(t->at, item->row, item->row_len);
    int got = orset_task_get(p->s->os, t);
    p->at = at;
    if (got < 0)
        r = session_core_failed(p->s, "todo");
    else if (got == 0)
        plan_done(p->s, at);
    else if (waits_for_exchange(p, t)) {
        r = place_run(p); /* those before it need not wait */
        p->blocked = p->stopped = TRUE;
    } else if (arrived && !is_here(p, t))
        p->blocked = p->blocked || !item->given_up;
    else if (p->blocked || waits_for_others(p, t)) {
        p->blocked = TRUE;
        place_later(p, t, at);
    } else
        add_row(p, t, &r);
    return r;
}

/* All that came with the parcel in work is saved or kept. */
static bool all_arrived(struct placing *p, int *r)
{
    unsigned n = bodies_count(p->s->bodies);
    if (p->handed + p->n >= n && p->n > 0)
        *r = place_run(p);
    return p->handed >= n;
}

/* Mails that are to come from a mailbox which could not be looked at: what clients did there is
 * told first (scan_elsewhere.c). It may have been deleted, and its mails with it. */
static bool waits_for_look(struct session *s, uint32_t folder)
{
    struct box *const *x;
    struct orset_folder f;
    array_foreach (&s->boxes, x) {
        if ((*x)->now.elsewhere && (*x)->now.waits && !(*x)->gone &&
            orset_folder_get(s->os, (*x)->folder, &f) == 0 && f.home == folder)
            return TRUE;
    }
    return FALSE;
}

/* arrived: no further than what came with the parcel in work. */
static int place_mailbox(struct placing *p, struct orset_task *t, struct plan_mailbox *m,
                         bool arrived)
{
    struct session *s = p->s;
    const struct box *x = box_of_folder(s, m->folder);
    time_t now = time(NULL);
    int r = 0;
    p->blocked = p->stopped = FALSE;
    p->mailbox = m;
    m->impatient = patience_is_over(s, m->folder);
    while (m->at < m->end && plan_item(s, m->at)->row_len == 0)
        m->at++;
    if (x == NULL || x->gone || x->vname == NULL || waits_for_look(s, m->folder))
        return 0;
    for (unsigned i = m->at; i < m->end && !(p->blocked && body_requests_full(p->wants)); i++) {
        struct plan_item *item = plan_item(s, i);
        if (arrived && (i - m->at >= FAR || all_arrived(p, &r)))
            break;
        if (r == 0 && item->row_len > 0 && !nothing_to_do(p, item, now))
            r = place_next(p, t, i, arrived);
        if (r < 0 || p->stopped)
            break;
    }
    r = r == 0 ? place_run(p) : r;
    if (p->stopped)
        session_want_tick(s, 10000); /* the exchange's end does not wait for it */
    return r == 0 && p->blocked ? patience_begin(s, m->folder) : r;
}

static int place(struct session *s, uint64_t ask, scan_fn *scan, bool arrived, bool silent)
{
    struct orset_task *t = i_new(struct orset_task, 1);
    struct placing p;
    unsigned n;
    int r = 0;
    placing_begin(&p, s, ask, scan);
    if (silent)
        body_requests_silent(p.wants);
    do {
        p.again = FALSE;
        p.handed = 0;
        if ((r = plan_refresh(s)) < 0)
            break;
        struct plan_mailbox *m = plan_mailboxes(s, &n);
        for (unsigned i = 0; i < n && r == 0; i++)
            r = place_mailbox(&p, t, &m[i], arrived);
    } while (r == 0 && p.again);
    placing_end(&p);
    i_free(t);
    return r;
}

int place_arrived(struct session *s, uint64_t ask, scan_fn *scan)
{
    return place(s, ask, scan, TRUE, FALSE);
}

int place_expect(struct session *s, scan_fn *scan)
{
    return place(s, 0, scan, FALSE, TRUE);
}

int place_apply(struct session *s, uint64_t ask, scan_fn *scan)
{
    s->arrived = 0;
    int r = place(s, ask, scan, FALSE, FALSE);
    s->uncounted = s->uncounted && r < 0;
    return r;
}
