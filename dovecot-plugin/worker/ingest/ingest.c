/* ingest - what changed in the mailboxes becomes ops: the mailbox now against what was seen there
 * last (F4).
 *
 * A UID that is bound in the state and not in the mailbox is
 *     a removal     when a client asked for it in an unbroken log
 *     a removal     when only a sync of a Maildir noticed it, up to the brake; above it the UIDs are quarantined until an admin decides
 *     damage        when a dbox noticed it, when all mails went at once, or when the index is another one: the mail is placed
 *                   again from the peers, nothing is published (F1)
 *     our own move  when a RENUMBER row names it: it is bound again by its GUID
 *
 * Nothing is published before it is committed; cursors move in the commit that has the last op
 * read up to them. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/protocol/frame.h"
#include "dovecot-plugin/worker/bodies/body.h"
#include "dovecot-plugin/worker/ingest/ingest.h"
#include "dovecot-plugin/worker/ingest/pass.h"
#include "dovecot-plugin/worker/ingest/scan.h"
#include "dovecot-plugin/worker/logs/index_log_replay.h"
#include "dovecot-plugin/worker/logs/journal.h"
#include "dovecot-plugin/worker/logs/log.h"
#include "dovecot-plugin/worker/logs/verdict.h"
#include "dovecot-plugin/worker/metadata/metadata.h"
#include "dovecot-plugin/worker/session/crash.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/retry.h"
#include "dovecot-plugin/worker/session/rows.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <guid.h>
#include <mail-storage-private.h>

/* The mails of a folder that is shown in another one's mailbox leave its own, which is looked at
 * only for what clients did there meanwhile. One that is about to be adopted waits. */
static bool is_looked_at(struct session *s, struct box *x, const struct orset_folder *f)
{
    const struct box *home = box_by_folder(s, f->home);
    if (f->home == x->folder) {
        x->now.elsewhere = FALSE;
        return TRUE;
    }
    return x->all && x->now.elsewhere && f->live && home != NULL && !home->gone;
}

static int ingest_box(struct session *s, struct ingest *in, struct box *x, bool sweep)
{
    struct mailbox_scan l = {.s = s, .in = in, .x = x, .was = *x};
    struct orset_folder f;
    int r = 0;
    if (x->gone || x->now.leaving || x->pass.absent || x->vname == NULL ||
        orset_folder_get(s->os, x->folder, &f) < 0 || !is_looked_at(s, x, &f))
        return 0;
    T_BEGIN
    {
        l.box = session_mailbox(s, x->vname, 0);
        uint64_t files, stamp = ingest_stamp(l.box, &files);
        unsigned unread = array_count(&in->unread), looked = array_count(&in->scanned);
        if (!sweep || stamp == 0 || stamp != x->at.stamp || x->all || x->rewound ||
            x->at.indexid == 0) {
            r = scan_box(&l);
            unsigned n = array_count(&in->scanned);
            if (r == 0 && l.closed)
                r = unseen_closed(s, in, x, files);
            if (r == 0 && n > looked) {
                struct scanned_mailbox *last = array_idx_modifiable(&in->scanned, n - 1);
                last->cursor.stamp = l.again ? 0 : stamp;
                bool all = l.blind == 0 && array_count(&in->unread) == unread;
                last->files = all ? files : 0;
                r = unseen_scanned(s, in, &l.was, l.blind);
            }
        }
        mailbox_free(&l.box);
    }
    T_END;
    return r;
}

static void ingest_init(struct session *s, struct ingest *in)
{
    struct box *const *x;
    i_zero(in);
    in->first = TRUE;
    array_foreach (&s->boxes, x)
        in->first = in->first && (*x)->at.indexid == 0;
    i_array_init(&in->removals, 16);
    i_array_init(&in->scanned, 16);
    i_array_init(&in->outside, 4);
    i_array_init(&in->staying, 4);
    i_array_init(&in->unread, 4);
    i_array_init(&in->unseen, 1);
    i_array_init(&in->backups, 4);
}

void ingest_stays(struct ingest *in, const struct box *x)
{
    memcpy(array_append_space(&in->staying), x->guid, sizeof x->guid);
}

static void ingest_deinit(struct session *s, struct ingest *in)
{
    scan_modseqs_end(s);
    array_free(&in->removals);
    array_free(&in->scanned);
    char **name;
    array_foreach_modifiable (&in->outside, name)
        i_free(*name);
    array_free(&in->outside);
    array_free(&in->staying);
    array_free(&in->unread);
    array_free(&in->unseen);
    index_log_replay_forget(&in->backups);
}

/* Removals behind all adds, and with them, in one commit, the cursors. */
static int ingest_finish(struct session *s, struct ingest *in)
{
    const struct scanned_mailbox *l;
    crash_at("ingest-part"); /* the last one */
    if (mails_leave(s, in) < 0)
        return -1;
    scan_modseqs_end(s);
    array_foreach (&in->scanned, l) {
        /* what came into it is an op, though its cursor stays */
        if (unseen_looked(s, l->x, l->files) < 0)
            return -1;
        if (l->undone)
            continue;
        l->x->at = l->cursor;
        l->x->now.news_read = 0;
        i_zero(&l->x->now.reasserted);
        if (rows_put_box(s, l->x) < 0)
            return -1;
    }
    if (mailboxes_leave(s, in) < 0)
        return -1;
    crash_at("ingest-commit");
    if (session_commit(s) < 0)
        return -1;
    /* What tells of it is needed again. */
    if (!in->postponed && array_count(&in->staying) == 0)
        index_log_replay_remove(&in->backups);
    return in->intents ? journal_settle(s, &in->staying, in->names) : 0;
}

/* Which mailboxes the question is about. True when all of them are where they were. */
static bool take_hints(struct session *s, const struct frame_ingest *f)
{
    struct box *const *at, *x;
    bool known = f->n > 0;
    array_foreach (&s->boxes, at)
        (*at)->pass.hinted = f->n == 0;
    for (size_t i = 0; i < f->n; i++) {
        const char *vname = t_strndup(f->mailbox[i].name.p, f->mailbox[i].name.n);
        guid_128_t guid;
        bool named =
            guid_128_from_string(t_strndup(f->mailbox[i].guid.p, f->mailbox[i].guid.n), guid) == 0;
        struct box *there = named ? box_by_guid(s, guid) : NULL;
        known = known && there != NULL && there->vname != NULL && strcmp(there->vname, vname) == 0;
        for (x = there; x != NULL; x = x->next_guid)
            x->pass.hinted = TRUE;
        if ((x = box_by_vname(s, vname)) != NULL)
            x->pass.hinted = TRUE;
    }
    return known;
}

static bool any_leaving(struct session *s)
{
    struct box *const *x;
    array_foreach (&s->boxes, x) {
        if ((*x)->now.leaving)
            return TRUE;
    }
    return FALSE;
}

/* Those that the question is about, and those that have to be. Where a mailbox is gone, what was
 * moved out of it may be in any other one. */
static int scan_mailboxes(struct session *s, const struct frame_ingest *f, struct ingest *in)
{
    struct box *const *x;
    bool leaving = any_leaving(s);
    array_foreach (&s->boxes, x) {
        bool now = (*x)->pass.hinted || (*x)->all || (*x)->now.waits || (*x)->at.indexid == 0;
        if ((now || leaving) && ingest_box(s, in, *x, f->sweep || !now) < 0)
            return -1;
        (*x)->pass.hinted = FALSE;
    }
    return 0;
}

static int scan_tree(struct session *s, const struct frame_ingest *f, struct ingest *in,
                     bool scanned)
{
    int r;
    s->tree_changed = FALSE;
    if (mailbox_diff_ingest(s, in) < 0)
        return -1;
    if (!scanned)
        (void)take_hints(s, f); /* some have other names by now */
    if (scan_mailboxes(s, f, in) < 0 || (r = inbox_leave(s, in)) < 0)
        return -1;
    if (r > 0 && (mailbox_diff_ingest(s, in) < 0 || scan_mailboxes(s, f, in) < 0))
        return -1;
    if (s->tree_changed) { /* meanwhile */
        in->locked = s->scan_again = TRUE;
        (void)session_retry(s, "tree", "", 100);
    }
    return 0;
}

static int ingest_all(struct session *s, const struct frame_ingest *f, struct ingest *in)
{
    bool known = take_hints(s, f) && !any_leaving(s);
    s->tree_changed = s->scan_again = FALSE;
    s->scan_due = 0;
    if (known && scan_mailboxes(s, f, in) < 0)
        return -1;
    /* A hint about a mailbox that is gone; or mails went, perhaps into a mailbox that is not
     * replicated: those are found with the tree. */
    bool outside = array_count(&in->removals) > 0 && !s->no_outside;
    if ((!known || s->tree_changed || outside) && scan_tree(s, f, in, known) < 0)
        return -1;
    if (!known && scripts_ingest_all(s) < 0)
        return -1;
    if (s->rewound && f->n == 0 && !in->locked && rows_put_rewound(s, FALSE) < 0)
        return -1;
    return ingest_finish(s, in);
}

/* Not all are looked at: what was removed is said when they are. */
static int some_begin(struct session *s, struct ingest *in)
{
    if (session_begin(s) < 0)
        return -1;
    ingest_init(s, in);
    in->locked = TRUE;
    return 0;
}

static int some_finish(struct session *s, struct ingest *in, int r)
{
    if (r < 0 || (r = ingest_finish(s, in)) < 0)
        session_rollback(s);
    if (in->postponed) {
        s->scan_again = TRUE;
        /* what cannot be read will mostly be the same then */
        if (array_count(&in->unread) == 0)
            (void)session_retry(s, "removals", "", 1000);
        else
            session_want_tick(s, 60000);
    }
    ingest_deinit(s, in);
    return r;
}

/* What this program writes into a mailbox changes its files, too: the log says whether it is only
 * that. It is read from the last look on, so each NEWS_READ times a look is as cheap. */
#define NEWS_READ 32

bool ingest_has_news(struct session *s, uint32_t folder)
{
    struct box *x = box_by_folder(s, folder);
    struct log_scan log = {.verdict = LOG_SCAN_BROKEN};
    if (x == NULL || x->gone || ingest_is_current(s, folder))
        return FALSE;
    if (x->vname == NULL || x->all || x->writing.seq != 0 || ++x->now.news_read > NEWS_READ)
        return TRUE;
    T_BEGIN
    {
        struct mailbox *box = session_mailbox(s, x->vname, 0);
        if (session_open_mailbox(s, x, box) == 0 && log_scan(s, box, x, &log) < 0)
            log.verdict = LOG_SCAN_BROKEN;
        mailbox_free(&box);
    }
    T_END;
    return log.verdict != LOG_SCAN_UNBROKEN || log.lowest_modseq != 0;
}

int ingest_one(struct session *s, struct box *x)
{
    struct ingest in;
    return some_begin(s, &in) < 0 ? -1 : some_finish(s, &in, ingest_box(s, &in, x, FALSE));
}

int ingest_left(struct session *s, struct box *x)
{
    if (!ingest_has_news(s, x->folder))
        return 0;
    x->all = TRUE;
    session_want_tick(s, 1); /* what was done to mails that are in the other one by now */
    return ingest_one(s, x);
}

int ingest_folders(struct session *s, const ARRAY_TYPE(uint32_t) * folders)
{
    struct ingest in;
    const uint32_t *folder;
    int r = 0;
    if (some_begin(s, &in) < 0) /* it may read the boxes' rows again */
        return -1;
    array_foreach (folders, folder) {
        struct box *x = box_by_folder(s, *folder);
        if (r == 0 && x != NULL)
            r = ingest_box(s, &in, x, FALSE);
    }
    return some_finish(s, &in, r);
}

/* One that is shown in another one's mailbox is gone: a client may have deleted it. */
static bool misses_elsewhere(struct session *s)
{
    struct box *const *x;
    array_foreach (&s->boxes, x) {
        if ((*x)->now.elsewhere && (*x)->now.waits && !(*x)->gone)
            return s->tree_changed;
    }
    return FALSE;
}

int ingest_marked(struct session *s, send_fn *send)
{
    static const struct frame_ingest all = {.n = 0};
    struct ingest in;
    struct box *const *x;
    unsigned n = 0;
    int r = 0;
    array_foreach (&s->boxes, x)
        n += (*x)->all && !(*x)->gone;
    if (n == 0)
        return 0;
    if (some_begin(s, &in) < 0)
        return -1;
    s->tree_changed = FALSE;
    array_foreach (&s->boxes, x) {
        if (r == 0 && (*x)->all)
            r = ingest_box(s, &in, *x, FALSE);
    }
    r = some_finish(s, &in, r);
    return r == 0 && misses_elsewhere(s) ? ingest(s, &all, FALSE, send) : r;
}

int ingest(struct session *s, const struct frame_ingest *f, bool joined, send_fn *send)
{
    struct ingest in;
    i_assert(!is_joining(s) && s->batch_bodies == NULL);
    s->uncounted = TRUE;
    if (session_begin(s) < 0)
        return -1;
    if (joined && rows_put_join(s) < 0) {
        session_rollback(s);
        return -1;
    }
    ingest_init(s, &in);
    in.send = send;
    s->batch_bodies = batch_bodies_create();
    int r = ingest_all(s, f, &in);
    if (r < 0)
        session_rollback(s);
    if (r == 0)
        r = ingest_send(s, &in);
    ingest_deinit(s, &in);
    batch_bodies_free(&s->batch_bodies);
    if (r == 0 && f->n == 0 && !s->read) {
        s->read = TRUE;
        s->read_upto = orset_vector_get(s->os, orset_self(s->os));
    }
    return r;
}
