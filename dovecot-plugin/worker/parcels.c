/* parcels - what a peer sent: ops, the questions and answers of an exchange, bodies. Only its own
 * ops count in its lane (F43). */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/orset/exchange/exchange.h"
#include "dovecot-plugin/orset/ops/op_batch.h"
#include "dovecot-plugin/orset/ops/uid.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/protocol/frame.h"
#include "dovecot-plugin/protocol/parcel.h"
#include "dovecot-plugin/worker/apply/apply.h"
#include "dovecot-plugin/worker/apply/modseq_repair.h"
#include "dovecot-plugin/worker/bodies/ahead.h"
#include "dovecot-plugin/worker/bodies/body.h"
#include "dovecot-plugin/worker/bodies/body_requests.h"
#include "dovecot-plugin/worker/bodies/fetch.h"
#include "dovecot-plugin/worker/bodies/give.h"
#include "dovecot-plugin/worker/bodies/patience.h"
#include "dovecot-plugin/worker/bodies/plan.h"
#include "dovecot-plugin/worker/bodies/stubs.h"
#include "dovecot-plugin/worker/exchange/exchange.h"
#include "dovecot-plugin/worker/ingest/ingest.h"
#include "dovecot-plugin/worker/ingest/reading.h"
#include "dovecot-plugin/worker/kept/kept.h"
#include "dovecot-plugin/worker/session/crash.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/retired.h"
#include "dovecot-plugin/worker/session/rows.h"
#include "dovecot-plugin/worker/session/session.h"
#include "dovecot-plugin/worker/worker.h"

#include <array.h>

#include <time.h>

/* parcels that lay in a lane while others came another way speak of fewer numbers too, but not
 * for so long */
#define LOST_SECS 60

/* --- confirmed -------------------------------------------------------------------------------- */

static int heard(struct session *s, struct peer *p, const struct orset_batch_result *r)
{
    bool was = p->behind;
    p->behind = r->behind;
    /* Ops that come again show that the site has not heard that they came. */
    p->owed = p->owed || r->ops > 0 || r->lost;
    if (r->confirmed <= p->confirmed && was == p->behind)
        return 0;
    if (r->confirmed > p->confirmed) {
        p->confirmed = r->confirmed;
        p->sent = I_MAX(p->sent, p->confirmed);
        p->forgotten = FALSE;
        if (peer_drop_confirmed(s) < 0)
            return -1;
    }
    return rows_put_peer(s, p);
}

/* --- BATCH ------------------------------------------------------------------------------------ */

/* Why a stream stands still, for the log; and what becomes of the parcel. */
static enum frame_result batch_refused(struct session *s, struct peer *p, int e, const char *text)
{
    unsigned long long site = p->site;
    switch (e) {
    case ORSET_E_GAP:
        session_note(s, NOTE_INFO, "ops of site %llu are missing: %s", site, text);
        p->owed = TRUE; /* what it is told of this state's vector lets it send them again */
        return FRAME_OK;
    case ORSET_E_EXCHANGE:
        session_note(s, NOTE_INFO, "site %llu: %s: exchanging", site, text);
        return peer_ask(s, p->site) < 0 ? FRAME_TEMPORARY : FRAME_OK;
    case ORSET_E_FORGED:
    case ORSET_E_FORKED:
        session_note(s, NOTE_ERROR, "ALARM: site %llu: %s", site, text);
        return FRAME_REFUSED;
    default:
        session_note(s, NOTE_ERROR, "site %llu: %s: its ops are not taken from here on", site,
                     text);
        return FRAME_REFUSED;
    }
}

static enum frame_result rolled_back(struct session *s, uint64_t site)
{
    session_rollback(s);
    if (session_new_epoch(
            s, "a peer has more of this site's ops than this state: it is an old copy") < 0)
        return FRAME_TEMPORARY;
    return peer_ask(s, site) < 0 ? FRAME_TEMPORARY : FRAME_OK;
}

static bool fatal(int e)
{
    return e == ORSET_E_MEMORY || e == ORSET_E_STORAGE;
}

static bool is_shown_elsewhere(struct session *s, const struct box *x)
{
    struct orset_folder f;
    return !x->gone && orset_folder_get(s->os, x->folder, &f) == 0 && f.live && f.home != x->folder;
}

static unsigned count_elsewhere(struct session *s)
{
    struct box *const *x;
    unsigned n = 0;
    array_foreach (&s->boxes, x)
        n += is_shown_elsewhere(s, *x);
    return n;
}

static void note_changed(void *arg, uint32_t home, uint32_t uid)
{
    const struct changed_mail m = {home, uid};
    ARRAY_TYPE(changed_mail) *changed = arg;
    array_push_back(changed, &m);
}

/* Which look at the mailboxes comes before the batch is taken. NULL: none. */
static const struct frame_ingest *look_before(struct session *s, unsigned elsewhere,
                                              const ARRAY_TYPE(changed_mail) * joined)
{
    static const struct frame_ingest all = {.n = 0}, those_that_changed = {.n = 0, .sweep = TRUE};
    const struct changed_mail *m;
    uint32_t current = ORSET_NO_FOLDER;
    if (count_elsewhere(s) > elsewhere)
        return &all;
    array_foreach (joined, m) {
        if (m->folder != current && !ingest_is_current(s, m->folder))
            return &those_that_changed;
        current = m->folder;
    }
    return NULL;
}

/* Mailboxes in which the batch changes flags, and in which clients did something since they were
 * looked at. */
static void find_news(struct session *s, const ARRAY_TYPE(changed_mail) * changed,
                      ARRAY_TYPE(uint32_t) * folders)
{
    const struct changed_mail *m;
    ARRAY_TYPE(seq_range) asked;
    t_array_init(&asked, 4);
    array_foreach (changed, m) {
        /* one that is to be removed is bound no more */
        if (seq_range_exists(&asked, m->folder + 1) ||
            orset_message_by_uid(s->os, m->folder, m->uid, NULL) <= 0)
            continue;
        seq_range_array_add(&asked, m->folder + 1);
        if (ingest_has_news(s, m->folder))
            array_push_back(folders, &m->folder);
    }
}

/* 1: what clients did is an op now, and the batch, which was taken back, is to be applied again; 0:
 * nothing was looked at; -1 */
static int look_first(struct session *s, unsigned elsewhere,
                      const ARRAY_TYPE(changed_mail) * changed,
                      const ARRAY_TYPE(changed_mail) * joined)
{
    const struct frame_ingest *look = look_before(s, elsewhere, joined);
    ARRAY_TYPE(uint32_t) folders;
    t_array_init(&folders, 4);
    if (look == NULL)
        find_news(s, changed, &folders);
    if (look == NULL && array_count(&folders) == 0)
        return 0;
    session_rollback(s);
    int r = look != NULL ? round_ingest(s, look) : ingest_folders(s, &folders);
    return r < 0 || session_begin(s) < 0 ? -1 : 1;
}

static int apply_noting_joined(struct session *s, struct peer *p, struct text batch,
                               struct orset_batch_result *r, ARRAY_TYPE(changed_mail) * changed,
                               ARRAY_TYPE(changed_mail) * joined)
{
    array_clear(changed);
    array_clear(joined);
    orset_on_joined(s->os, note_changed, joined);
    int e = orset_batch_apply(s->os, p->site, batch.p, batch.n, r);
    orset_on_joined(s->os, NULL, NULL);
    return e;
}

/* What clients did here becomes ops first
 * - where a mailbox is to be shown in another one from now on, since two sites made folders of one
 *   name: its mails are bound anew after that;
 * - where a mail that a mailbox has turns out to be another site's, too. A removal that is found
 *   later names all dots that the state has then. It would take a copy that its client had not
 *   seen;
 * - where a mail gets flags. A change of flags that is found later names all dots, too: it would
 *   overrule another site's, of which its client had not heard. */
static int apply_batch(struct session *s, struct peer *p, struct text batch,
                       struct orset_batch_result *r, ARRAY_TYPE(changed_mail) * changed)
{
    ARRAY_TYPE(changed_mail) joined;
    unsigned elsewhere = count_elsewhere(s);
    int looked = 0;
    i_array_init(&joined, 16);
    orset_uid_hold(s->os, is_joining(s));
    int e = apply_noting_joined(s, p, batch, r, changed, &joined);
    if (e >= 0 && !is_joining(s)) {
        T_BEGIN
        {
            looked = orset_homes(s->os) < 0 ? -1 : look_first(s, elsewhere, changed, &joined);
        }
        T_END;
    }
    if (looked > 0) {
        crash_at("unite");
        e = apply_noting_joined(s, p, batch, r, changed, &joined);
    } else if (looked < 0) {
        e = ORSET_E_STORAGE;
    }
    array_free(&joined);
    return e;
}

/* A backup site keeps what is removed, and says by whom. In a transaction. */
static int note_removers(struct session *s, const struct peer *p,
                         const ARRAY_TYPE(changed_mail) * changed)
{
    const struct changed_mail *m;
    if (!s->group->backup)
        return 0;
    array_foreach (changed, m) {
        if (kept_removed_by(s, p->site, m->folder, m->uid) < 0)
            return -1;
    }
    return 0;
}

/* With what it changes, of which modseqs are to tell. */
static int apply_and_note(struct session *s, struct peer *p, struct text batch,
                          struct orset_batch_result *r)
{
    ARRAY_TYPE(changed_mail) changed;
    i_array_init(&changed, 64);
    orset_on_changed(s->os, note_changed, &changed);
    int e = apply_batch(s, p, batch, r, &changed);
    orset_on_changed(s->os, NULL, NULL);
    if (!fatal(e) && !orset_must_roll_back(s->os) &&
        (modseq_repair_note(s, &changed) < 0 || note_removers(s, p, &changed) < 0))
        e = ORSET_E_STORAGE;
    array_free(&changed);
    return e;
}

static enum frame_result take_batch(struct session *s, struct peer *p, struct text batch)
{
    struct orset_batch_result r;
    if (session_begin(s) < 0)
        return FRAME_TEMPORARY;
    int e = apply_and_note(s, p, batch, &r);
    if (e == ORSET_E_ROLLED_BACK)
        return rolled_back(s, p->site);
    const char *text = t_strdup(orset_error_text(s->os));
    /* It can never be taken: that it comes again and again must not hold up what else this user
     * has to do. */
    if (e < 0 && !fatal(e) && orset_must_roll_back(s->os)) {
        session_rollback(s);
        return batch_refused(s, p, e, text);
    }
    if (fatal(e) || heard(s, p, &r) < 0) {
        session_core_failed(s, "batch");
        session_rollback(s);
        return FRAME_TEMPORARY;
    }
    crash_at("batch");
    if (session_commit(s) < 0)
        return FRAME_TEMPORARY;
    ahead_heard(p, (struct orset_dot){r.origin, r.had}, r.lacks, r.nlacks);
    if (!r.lost)
        p->lost_since = 0;
    else if (p->lost_since == 0)
        p->lost_since = time(NULL);
    else if (time(NULL) - p->lost_since >= LOST_SECS)
        session_note(
            s, NOTE_ERROR,
            "ALARM: site %llu gives itself fewer numbers than are here: an old copy, or forged",
            (unsigned long long)p->site);
    return e < 0 ? batch_refused(s, p, e, text) : FRAME_OK;
}

static enum frame_result batch_parcel(struct session *s, struct peer *p, struct text body)
{
    struct text batch;
    size_t n;
    struct orset_reader mails;
    struct parcel_mail m;
    if (parcel_batch(body, &batch, &n, &mails) < 0) {
        session_note(s, NOTE_ERROR, "site %llu sent a malformed batch",
                     (unsigned long long)p->site);
        return FRAME_REFUSED;
    }
    i_assert(s->bodies == NULL);
    s->bodies = bodies_create(stubs_site_is_whole(s, p->site));
    while (parcel_next_mail(&mails, &m))
        bodies_put(s->bodies, m.sha256, m.mail, FALSE);
    enum frame_result result = take_batch(s, p, batch);
    if (result != FRAME_TEMPORARY && round_apply(s, p->site) < 0)
        result = FRAME_TEMPORARY;
    bodies_free(&s->bodies);
    return result;
}

/* --- exchanges -------------------------------------------------------------------------------- */

/* --- exchanges: answers ----------------------------------------------------------------------- */

static enum frame_result question_parcel(struct session *s, struct peer *p, struct text body)
{
    struct orset_buf answer = {.alloc = session_alloc()};
    if (session_begin(s) < 0)
        return FRAME_TEMPORARY;
    bool reading = is_joining(s) && !p->told_reading;
    p->told_reading = p->told_reading || reading;
    if (reading && rows_put_peer(s, p) < 0) {
        session_rollback(s);
        return FRAME_TEMPORARY;
    }
    int e = orset_answer(s->os, p->site, body.p, body.n, &answer);
    if (e == ORSET_E_ROLLED_BACK) {
        orset_buf_free(&answer);
        return rolled_back(s, p->site);
    }
    if (e < 0) {
        session_note(s, e == ORSET_E_ABSENT ? NOTE_INFO : NOTE_ERROR, "a question of site %llu: %s",
                     (unsigned long long)p->site, orset_error_text(s->os));
        session_rollback(s);
    } else if (session_commit(s) == 0) {
        session_send(s, p->site, is_joining(s) ? PARCEL_ANSWER_READING : PARCEL_ANSWER, TRUE,
                     answer.data, answer.len);
    }
    orset_buf_free(&answer);
    return fatal(e) ? FRAME_TEMPORARY : e < 0 && e != ORSET_E_ABSENT ? FRAME_REFUSED : FRAME_OK;
}

static int put_answered(struct session *s, struct peer *p, bool first)
{
    if (session_begin(s) < 0)
        return -1;
    if (rows_put_peer(s, p) < 0 || rows_put_join(s) < 0 || (first && uidnext_ask_begin(s, p) < 0)) {
        session_rollback(s);
        return -1;
    }
    return session_commit(s);
}

/* An exchange came to its end: a new state has heard what there is when all have answered,
 * whenever that was. Main asks those who have not (SHIP EXCHANGE). What it said nothing of until
 * then is looked at at once. */
static enum frame_result exchanged(struct session *s, struct peer *p)
{
    const struct frame_ingest all = {.n = 0};
    bool all_answered = TRUE, waits = s->join.phase != JOINED, first = !p->answered;
    peer_drop_exchange(s, p);
    plan_overdue(s);
    p->behind = FALSE;
    p->answered = TRUE;
    for (unsigned i = 0; i < s->npeers; i++)
        all_answered = all_answered && s->peer[i].answered;
    bool ends = all_answered && waits;
    if (s->join.phase == JOIN_ALONE && all_answered)
        s->join.phase = JOINED;
    if (waits && put_answered(s, p, first) < 0)
        return FRAME_TEMPORARY;
    if (is_joining(s) && !all_answered)
        return FRAME_OK;
    return (ends ? round_ingest(s, &all) : round_apply(s, p->site)) < 0 ? FRAME_TEMPORARY
                                                                        : FRAME_OK;
}

/* As orset_take(), and a backup site notes whose state removes mails. */
static int take_answer(struct session *s, struct peer *p, struct text body, struct orset_buf *q)
{
    ARRAY_TYPE(changed_mail) changed;
    i_array_init(&changed, 64);
    if (s->group->backup)
        orset_on_changed(s->os, note_changed, &changed);
    int e = orset_take(s->os, p->exchange, body.p, body.n, q);
    orset_on_changed(s->os, NULL, NULL);
    if (e >= 0 && note_removers(s, p, &changed) < 0)
        e = ORSET_E_STORAGE;
    array_free(&changed);
    return e;
}

static enum frame_result answer_parcel(struct session *s, struct peer *p, struct text body)
{
    struct orset_buf q = {.alloc = session_alloc()};
    enum frame_result result = FRAME_OK;
    /* To a question of before a restart. Where all waits for an exchange, a site that answers is
     * asked anew at once. */
    if (p->exchange == NULL)
        return is_joining(s) && !peer_has_answered(s, p) && peer_ask(s, p->site) < 0
                   ? FRAME_TEMPORARY
                   : FRAME_OK;
    if (orset_is_stale(p->exchange, body.p, body.n))
        return FRAME_OK;
    /* It may bring other sites' copies of mails that are here, as apply_batch() has it. */
    if (round_look(s) < 0)
        return FRAME_TEMPORARY;
    if (p->exchange == NULL)
        return FRAME_OK;
    if (session_begin(s) < 0)
        return FRAME_TEMPORARY;
    int e = take_answer(s, p, body, &q);
    if (e == ORSET_E_ROLLED_BACK) {
        orset_buf_free(&q);
        return rolled_back(s, p->site);
    }
    if (e < 0) {
        session_note(s, NOTE_WARNING, "exchange with site %llu given up: %s",
                     (unsigned long long)p->site, orset_error_text(s->os));
        session_rollback(s);
        peer_drop_exchange(s, p);
        result = fatal(e) ? FRAME_TEMPORARY : FRAME_REFUSED;
    } else if (session_commit(s) < 0) {
        peer_drop_exchange(s, p);
        result = FRAME_TEMPORARY;
    } else if (e == ORSET_KNOWN) {
        p->owed = TRUE;
        result = exchanged(s, p);
    } else {
        peer_asked(s, p);
        session_send(s, p->site, PARCEL_QUESTION, TRUE, q.data, q.len);
        if (patience_forget(s) < 0) /* it goes on, and mails wait for its end */
            result = FRAME_TEMPORARY;
    }
    orset_buf_free(&q);
    return result;
}

/* --- bodies ----------------------------------------------------------------------------------- */

#define PLACE_EVERY 100 /* bodies: one mailbox transaction for as many */

/* What is asked for is known to the session that asked, and with more users than workers each
 * answer meets another one. */
static int expect(struct session *s)
{
    if (s->expecting || is_joining(s) || s->cut_short)
        return 0;
    s->expecting = TRUE;
    return array_count(&s->wanted) > 0 ? 0 : place_expect(s, ingest_one);
}

/* Bodies go into the spool, and from there into mailboxes when some have come: only those that
 * were asked for, and only of the size and the hash that the op said. */
static enum frame_result body_parcel(struct session *s, struct peer *p, struct text body)
{
    struct parcel_body b;
    uint64_t next;
    int r = 1;
    if (parcel_body(body, &b) < 0)
        return FRAME_REFUSED;
    fetch_part(s, p, &b);
    if (expect(s) < 0)
        return FRAME_TEMPORARY;
    struct body_request *w = body_request_find(s, b.sha256);
    if (w == NULL || (b.size != 0 && b.size != w->size))
        return FRAME_OK;
    uint64_t had = spool_size(s, b.sha256);
    if (b.size != 0 && (r = spool_put(s, &b, &next)) < 0)
        return FRAME_TEMPORARY;
    if (b.size != 0 && stubs_site_is_whole(s, p->site))
        spool_is_whole_elsewhere(s, b.sha256);
    if (b.size != 0 && next >= had + PARCEL_PART_MAX && patience_grown(s, w->item) < 0)
        return FRAME_TEMPORARY;
    /* size 0: not held there. Asked for again at once, the same site would send the same bytes,
     * for ever. */
    if (b.size == 0 || (r > 0 && !spool_is(s, b.sha256))) {
        body_request_missed(s, w, p);
        if (s->arrived > 0)
            session_want_tick(s, 1000);
        /* At once: the next session would not know it. */
        return body_request_is_vain(s, w) && round_apply(s, p->site) < 0 ? FRAME_TEMPORARY
                                                                         : FRAME_OK;
    }
    plan_look_again(s, w->item);
    if (r > 0)
        array_delete(&s->wanted, array_ptr_to_idx(&s->wanted, w), 1);
    s->arrived++;
    /* A part: the rest is asked for where this one came from, when all came that was asked for. */
    if (r == 0 && next >= w->offset && next < w->until) {
        w->asked = time(NULL);
        w->missed = FALSE;
        session_want_tick(s, 10000);
        return FRAME_OK;
    }
    if (r == 0 || (s->arrived > 0 && array_count(&s->wanted) == 0) || s->arrived >= PLACE_EVERY)
        return round_apply(s, p->site) < 0 ? FRAME_TEMPORARY : FRAME_OK;
    session_want_tick(s, 1000);
    return FRAME_OK;
}

static void fetch_mails(struct session *s, struct peer *p, struct orset_reader mails)
{
    struct parcel_mail m;
    while (stubs_are_here(s) && parcel_next_mail(&mails, &m))
        fetch_mail(s, p, &m);
}

/* Whole bodies are placed as they come: only those that were asked for, and only of the size and
 * the hash that the op said. When half of what can be asked for at once has come, or all of it,
 * more is asked for and all else is done. */
static enum frame_result bodies_parcel(struct session *s, struct peer *p, struct text body)
{
    struct parcel_mail m;
    struct orset_reader mails;
    size_t n;
    bool all = FALSE;
    if (parcel_bodies(body, &n, &mails) < 0)
        return FRAME_REFUSED;
    fetch_mails(s, p, mails);
    if (is_joining(s))
        return FRAME_OK; /* what the mailboxes have is not known yet: asked for again */
    if (expect(s) < 0)
        return FRAME_TEMPORARY;
    i_assert(s->bodies == NULL);
    s->bodies = bodies_create(stubs_site_is_whole(s, p->site));
    while (parcel_next_mail(&mails, &m)) {
        struct body_request *w = body_request_find(s, m.sha256);
        if (w == NULL || m.mail.n != w->size)
            continue;
        if (!body_is(s, m.sha256, m.mail)) {
            body_request_missed(s, w, p);
            continue;
        }
        bodies_put(s->bodies, m.sha256, m.mail, TRUE);
        plan_look_again(s, w->item);
        all = all || w->item == 0;
        array_delete(&s->wanted, array_ptr_to_idx(&s->wanted, w), 1);
    }
    int r = 0;
    if (bodies_count(s->bodies) > 0 && !all)
        r = place_arrived(s, p->site, ingest_one);
    else if (all)
        r = round_apply(s, p->site);
    bodies_free(&s->bodies);
    session_want_tick(s, 1000);
    if (r == 0 && !all && array_count(&s->wanted) <= PARCEL_WANTS_MAX / 2)
        r = round_apply(s, p->site);
    return r < 0 ? FRAME_TEMPORARY : FRAME_OK;
}

static enum frame_result reading(struct session *s, struct peer *p, struct text body)
{
    const struct frame_ingest all = {.n = 0};
    bool over;
    enum frame_result result = reading_parcel(s, p, body, &over);
    return over && round_ingest(s, &all) < 0 ? FRAME_TEMPORARY : result;
}

static enum frame_result raises(struct session *s, struct peer *p, const struct frame_parcel *f)
{
    enum frame_result result = modseq_repair_parcel(s, p, f);
    return result == FRAME_OK && round_apply(s, 0) < 0 ? FRAME_TEMPORARY : result;
}

/* What was begun is found out before anything new comes: a mail that was saved and is not bound
 * yet looks like a user's new one when its message is gone. -1 also while a Maildir's lock keeps
 * it from being found out. */
static int end_cut_short(struct session *s)
{
    const struct frame_ingest all = {.n = 0};
    struct box *const *x;
    if (is_joining(s))
        return 0;
    if (s->cut_short) {
        s->cut_short = FALSE;
        if (round_ingest(s, &all) < 0)
            return -1;
    }
    array_foreach (&s->boxes, x) {
        int r = (*x)->now.waits && !(*x)->gone ? renumber_unfinished(s, (*x)->folder) : 0;
        if (r > 0)
            return session_fail(s,
                                "%s: its dovecot-uidlist is locked, and what was begun there may "
                                "have to be ended before a peer says more",
                                (*x)->vname);
        if (r < 0)
            return -1;
    }
    return 0;
}

/* --- all kinds -------------------------------------------------------------------------------- */

static enum frame_result parcel(struct session *s, const struct frame_parcel *f)
{
    struct peer *p = session_peer(s, f->site);
    if (p == NULL) {
        session_fail(s, "site %llu is not in the group", (unsigned long long)f->site);
        return FRAME_REFUSED;
    }
    if (retired_parcel(s, f))
        return FRAME_REFUSED;
    bool answer = parcel_is_answer(f->kind);
    s->uncounted = s->uncounted || f->kind == PARCEL_BATCH || answer;
    if ((f->kind == PARCEL_BATCH || answer || f->kind == PARCEL_BODIES) && end_cut_short(s) < 0)
        return FRAME_TEMPORARY;
    switch (f->kind) {
    case PARCEL_BATCH: return batch_parcel(s, p, f->body);
    case PARCEL_QUESTION: return question_parcel(s, p, f->body);
    case PARCEL_ANSWER: return answer_parcel(s, p, f->body);
    case PARCEL_WANT: return give_parcel(s, p->site, f->body);
    case PARCEL_BODY: return body_parcel(s, p, f->body);
    case PARCEL_BODIES: return bodies_parcel(s, p, f->body);
    case PARCEL_UID_DIRTY:
    case PARCEL_UID_ASK:
    case PARCEL_UID_ANSWER: return uid_rounds_parcel(s, f, round_settled);
    case PARCEL_ANSWER_READING:
        return peer_is_reading(s, p) < 0 ? FRAME_TEMPORARY : answer_parcel(s, p, f->body);
    case PARCEL_READING: return reading(s, p, f->body);
    case PARCEL_RAISE:
    case PARCEL_RAISED: return raises(s, p, f);
    case PARCEL_ASK_DISK: return on_disk_asked(s, p->site, f->body);
    default:
        session_fail(s, "site %llu sent a parcel of unknown kind %u", (unsigned long long)f->site,
                     f->kind);
        return FRAME_REFUSED;
    }
}

enum frame_result parcel_take(struct session *s, const struct frame_parcel *f)
{
    enum frame_result result = parcel(s, f);
    return result == FRAME_OK && patience_spoken(s) < 0 ? FRAME_TEMPORARY : result;
}
