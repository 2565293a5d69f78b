/* folders - the mailboxes as the state wants them: created, renamed, deleted (F22 to F26).
 *
 * Before a mailbox is touched its row says what is about to happen, so that the next ingest does
 * not take this program's work for a user's: vname and GUID before a create, moving before a
 * rename, deleting before a delete. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/orset/state/mailbox_tree.h"
#include "dovecot-plugin/worker/apply/apply.h"
#include "dovecot-plugin/worker/apply/rename.h"
#include "dovecot-plugin/worker/metadata/metadata.h"
#include "dovecot-plugin/worker/session/crash.h"
#include "dovecot-plugin/worker/session/lived.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/names.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/retry.h"
#include "dovecot-plugin/worker/session/rows.h"
#include "dovecot-plugin/worker/session/session.h"
#include "dovecot-plugin/worker/session/validity.h"

#include <array.h>
#include <guid.h>
#include <mail-index-private.h>
#include <mail-storage-private.h>
#include <mailbox-list-index-sync.h>
#include <mailbox-list-index.h>
#include <seq-range-array.h>
#include <str.h>

#define NAMES_AGAIN 60000 /* milliseconds until what could not be shown is tried again */

struct wanted {
    uint32_t folder;
    const char *vname; /* where it is to be shown; NULL: nowhere here */
    const char *name;
    size_t len;
};
ARRAY_DEFINE_TYPE(wanted, struct wanted);
ARRAY_DEFINE_TYPE(boxes, struct box *);

/* Whoever makes or deletes a mailbox, or looks for one that is not there, has the list's index
 * read all names: once for each of a thousand. Meanwhile it is not read, and once when all is
 * done (list_indexes_catch_up). NULL: nothing to wake. */
static struct mailbox_list_index *list_index_rest(struct mailbox_list *list)
{
    struct mailbox_list_index *index = INDEX_LIST_CONTEXT(list);
    if (index == NULL || !index->has_backing_store || index->syncing)
        return NULL;
    index->syncing = TRUE;
    return index;
}

static void list_index_wake(struct mailbox_list_index *index)
{
    if (index != NULL)
        index->syncing = FALSE;
}

/* Reading the names makes it, under the list's lock. */
static bool is_without_inbox(struct session *s, const struct mail_namespace *ns)
{
    const struct box *x = box_by_folder(s, ORSET_INBOX);
    return (ns->flags & NAMESPACE_FLAG_INBOX_USER) != 0 &&
           (x == NULL || x->gone || guid_128_is_empty(x->guid));
}

/* Under the index's lock: a client's process that read the names before the last change would
 * else say that all are read. No other lock is held, nor taken then: a CREATE has the list's
 * first and the index's second, who reads and makes an INBOX has them the other way round, and
 * the kernel lets one of the two die. Where it is not read, it is marked as old. */
static void list_indexes_catch_up(struct session *s)
{
    for (struct mail_namespace *ns = s->user->namespaces; s->reshaped && ns != NULL;
         ns = ns->next) {
        struct mailbox_list_index *index =
            session_has_namespace(s, ns) ? INDEX_LIST_CONTEXT(ns->list) : NULL;
        if (index != NULL && index->has_backing_store && !is_without_inbox(s, ns))
            (void)mailbox_list_index_sync(ns->list, TRUE); /* it logs what fails */
    }
    s->reshaped = FALSE;
}

static int put_box(struct session *s, struct box *x)
{
    if (session_begin(s) < 0)
        return -1;
    if (rows_put_box(s, x) < 0) {
        session_rollback(s);
        return -1;
    }
    return session_commit(s);
}

static int folder_done(struct session *s, uint32_t folder, bool created)
{
    if (session_begin(s) < 0)
        return -1;
    if ((created && rights_restore(s, folder) < 0) || orset_done_folder(s->os, folder) < 0) {
        session_core_failed(s, "folder");
        session_rollback(s);
        return -1;
    }
    return session_commit(s);
}

/* --- create ----------------------------------------------------------------------------------- */

/* Asked of itself: in the list index a Maildir that was deleted lives on while it has children. */
static bool is_there(struct session *s, const char *vname)
{
    struct mailbox *box = session_mailbox(s, vname, 0);
    struct mailbox_list_index *index = list_index_rest(box->list);
    bool is = session_open_refreshed(box) == 0 || box->mailbox_deleted;
    list_index_wake(index);
    mailbox_free(&box);
    return is;
}

static bool create_mailbox(struct session *s, struct mailbox *box,
                           const struct mailbox_update *update)
{
    session_mark_list(box->list);
    struct mailbox_list_index *index = list_index_rest(box->list);
    crash_while_creating(box);
    bool created = mailbox_create(box, update, FALSE) == 0;
    list_index_wake(index);
    if (created)
        /* somebody may have read the names in between, and then taken the mark away */
        session_mark_list(box->list);
    s->reshaped = s->reshaped || created;
    return created;
}

/* Whoever opens a dbox mailbox between two steps of its making gives it a UIDVALIDITY of his
 * own. Where another cannot be set, his is told as ever. (A Maildir's is set by its making in
 * any case.) */
static void renumber_empty(struct mailbox *box, const struct mailbox_update *update)
{
    if (update->uid_validity != 0 && !is_maildir(box))
        (void)validity_set(box, update->uid_validity, update->min_next_uid);
}

/* Behind the UIDs that clients know by the folder's name and UIDVALIDITY; 0: they know none. One of
 * that name that is gone may have had the same UIDVALIDITY, where it was made by a client here, and
 * this one by another's while the sites were apart. */
static int behind_others(struct session *s, const struct orset_folder *f, uint32_t *uid_next_r)
{
    uint32_t lived, uid_next = I_MAX(f->uid_next, orset_namesakes_uid_next(s->os, f->index));
    if (lived_uid_next(s, f->name, f->name_len, f->uid_validity, &lived) < 0)
        return -1;
    uid_next = I_MAX(uid_next, lived);
    *uid_next_r = uid_next > 1 ? uid_next : 0;
    return 0;
}

static int create(struct session *s, struct box *x, const struct orset_folder *f, const char *vname)
{
    struct mailbox_update update;
    struct mailbox_metadata metadata;
    int r = 0;
    if (f->index != ORSET_INBOX && is_there(s, vname)) {
        /* Somebody made it since the last scan, or a deletion was cut short: the next scan binds
         * it. */
        s->scan_again = TRUE;
        (void)session_retry(s, "bind", vname, 1000);
        return 0;
    }
    struct mailbox *box = session_mailbox(s, vname, 0);
    i_zero(&update);
    memcpy(update.mailbox_guid, f->guid, sizeof update.mailbox_guid);
    bool taken = box_by_guid(s, update.mailbox_guid) != NULL || (x != NULL && x->estranged);
    if (guid_128_is_empty(update.mailbox_guid) || taken)
        guid_128_generate(update.mailbox_guid);
    update.uid_validity = f->uid_validity;
    if (behind_others(s, f, &update.min_next_uid) < 0) {
        mailbox_free(&box);
        return -1;
    }
    if (x == NULL)
        x = box_add(s, f->index);
    box_set_guid(s, x, update.mailbox_guid);
    box_set_vname(s, x, vname);
    box_unread(x);
    x->gone = FALSE;
    x->all = TRUE;
    if (put_box(s, x) < 0)
        r = -1;
    crash_at("create");
    if (r == 0)
        validity_count(box->list, f->uid_validity);
    bool created = r == 0 && create_mailbox(s, box, &update);
    if (r == 0 && !created && mailbox_get_last_mail_error(box) != MAIL_ERROR_EXISTS) {
        session_note(s, NOTE_WARNING, "%s: cannot be created and waits: %s", vname,
                     mailbox_get_last_internal_error(box, NULL));
        x->gone = TRUE;
        r = put_box(s, x);
    } else if (r == 0 && session_open_refreshed(box) == 0 &&
               mailbox_get_metadata(box, MAILBOX_METADATA_GUID, &metadata) == 0) {
        /* An INBOX that was there already may be one that was lost (docs/replicator/limits.md,
         * "What cannot be otherwise"). */
        if (created || f->index != ORSET_INBOX)
            renumber_empty(box, &update);
        box_set_guid(s, x, metadata.guid);
        if ((r = put_box(s, x)) == 0)
            r = folder_done(s, f->index, created);
    }
    mailbox_free(&box);
    return r;
}

/* --- one folder ------------------------------------------------------------------------------- */

static int raise_uid_validity(struct session *s, struct box *x, const struct orset_folder *f)
{
    struct mailbox_update update;
    /* its log is to be read first */
    if (x->at.uid_validity == 0 || f->uid_validity <= x->at.uid_validity || x->adopted != 0)
        return 0;
    i_zero(&update);
    if (lived_raised(s, x, f) < 0 || behind_others(s, f, &update.min_next_uid) < 0)
        return -1;
    struct mailbox *box = session_mailbox(s, x->vname, 0);
    update.uid_validity = f->uid_validity;
    validity_count(box->list, f->uid_validity);
    session_note(s, NOTE_INFO, "%s: UIDVALIDITY %u becomes %u, as on the other sites", x->vname,
                 x->at.uid_validity, f->uid_validity);
    int r = 0;
    if (mailbox_update(box, &update) < 0) {
        session_note(s, NOTE_WARNING, "%s: %s", x->vname,
                     mailbox_get_last_internal_error(box, NULL));
    } else {
        /* A Maildir's index is made anew by this, without the keywords that only it had (F29). */
        if (is_maildir(box))
            i_zero(&x->at);
        x->at.uid_validity = f->uid_validity;
        x->all = TRUE;
        r = put_box(s, x);
    }
    mailbox_free(&box);
    return r;
}

/* Who has the name that x should have goes aside; its own turn comes (a swap of names), or its
 * deletion. */
static int make_room(struct session *s, const char *vname)
{
    struct box *other = box_by_vname(s, vname);
    return other == NULL || other->gone ? 1 : rename_aside(s, other);
}

static bool is_pending(const ARRAY_TYPE(seq_range) * pending, uint32_t folder)
{
    return seq_range_exists(pending, folder + 1);
}

static bool is_misplaced(const struct box *x, const struct wanted *w)
{
    return w->folder != ORSET_INBOX && w->vname != NULL && x->vname != NULL &&
           strcmp(x->vname, w->vname) != 0;
}

static int shape(struct session *s, const struct wanted *w, const ARRAY_TYPE(seq_range) * pending)
{
    struct box *x = box_by_folder(s, w->folder);
    struct orset_folder f;
    int r;
    if (orset_folder_get(s->os, w->folder, &f) < 0)
        return session_core_failed(s, "folder");
    if (x != NULL && x->now.leaving)
        return 0;
    /* One made now would be the youngest, and its UIDVALIDITY everybody's, also where mail has
     * been for long. A client or a delivery makes its own. Where there is mail, the UIDVALIDITY
     * of its site's was refused. */
    if (x == NULL && w->folder == ORSET_INBOX && f.uid_validity == 0 &&
        (s->join.phase == JOIN_ALONE || f.messages == 0))
        return 0;
    if (x != NULL && !x->gone && !x->astray && !is_misplaced(x, w) &&
        !is_pending(pending, w->folder))
        return raise_uid_validity(s, x, &f);
    if (w->vname == NULL) {
        session_note(
            s, NOTE_WARNING, "folder %s is not shown and waits: %s", name_text(w->name, w->len),
            vname_as_is(s, w->name, w->len) == NULL ? "its namespace is not here"
                                                    : "the storage can hold no form of its name");
        return 0;
    }
    if (x == NULL || x->gone) {
        if (w->folder != ORSET_INBOX && (r = make_room(s, w->vname)) <= 0)
            return r;
        return create(s, x, &f, w->vname);
    }
    if (is_misplaced(x, w) &&
        ((r = make_room(s, w->vname)) <= 0 || (r = rename_box(s, x, w->vname)) <= 0))
        return r;
    if (x->astray) {
        x->astray = FALSE;
        if (put_box(s, x) < 0)
            return -1;
    }
    if (raise_uid_validity(s, x, &f) < 0)
        return -1;
    return is_pending(pending, w->folder) ? folder_done(s, w->folder, FALSE) : 0;
}

/* --- all of them ------------------------------------------------------------------------------ */

static int pending_folders(struct session *s, ARRAY_TYPE(seq_range) * pending)
{
    struct orset_task *t = i_new(struct orset_task, 1);
    int r;
    while ((r = orset_task_next(s->os, t)) > 0 && t->kind == ORSET_TASK_FOLDER)
        seq_range_array_add(pending, t->folder + 1);
    i_free(t);
    return r < 0 ? session_core_failed(s, "todo") : 0;
}

/* Rows of folders that went before they were made here, or are shown in another id's mailbox:
 * there is nothing to do for them. A folder that comes back, or is shown by itself again, has a
 * row again. */
static int drop_pending(struct session *s, const ARRAY_TYPE(seq_range) * pending)
{
    struct seq_range_iter iter;
    uint32_t n;
    unsigned dropped = 0;
    seq_range_array_iter_init(&iter, pending);
    for (unsigned i = 0; seq_range_array_iter_nth(&iter, i, &n); i++) {
        struct orset_folder f;
        if (n - 1 == ORSET_INBOX || orset_folder_get(s->os, n - 1, &f) < 0 ||
            (f.live && f.home == n - 1) || box_by_folder(s, n - 1) != NULL)
            continue;
        if (dropped++ == 0 && session_begin(s) < 0)
            return -1;
        if (orset_done_folder(s->os, n - 1) < 0) {
            session_core_failed(s, "folder");
            session_rollback(s);
            return -1;
        }
    }
    return dropped > 0 ? session_commit(s) : 0;
}

struct collect {
    struct session *s;
    ARRAY_TYPE(wanted) list;
};

/* What a mailbox is called already, the layout can hold. */
static const char *shown_name(struct session *s, const struct wanted *w)
{
    const struct box *x = box_by_folder(s, w->folder);
    const char *as_is = x == NULL || x->gone ? NULL : vname_as_is(s, w->name, w->len);
    return as_is != NULL && null_strcmp(as_is, x->vname) == 0 ? as_is
                                                              : vname_of_name(s, w->name, w->len);
}

static int collect_wanted(void *arg, const struct orset_mailbox *m)
{
    struct collect *c = arg;
    struct wanted w = {m->folder, "INBOX", NULL, m->name_len};
    if (m->folder == ORSET_NO_FOLDER) /* a parent without a folder is there when its child is */
        return 0;
    if (m->name != NULL) {
        w.name = p_memdup(pool_datastack_create(), m->name, m->name_len);
        w.vname = shown_name(c->s, &w);
    }
    array_push_back(&c->list, &w);
    return 0;
}

/* --- where they are to be --------------------------------------------------------------------- */

static int shape_all(struct session *s, const ARRAY_TYPE(wanted) * list,
                     const ARRAY_TYPE(seq_range) * pending)
{
    const struct wanted *w;
    array_foreach (list, w) {
        if (shape(s, w, pending) < 0)
            return -1;
    }
    return 0;
}

/* The mailboxes that are not where they are to be shown. */
static void find_misplaced(struct session *s, const ARRAY_TYPE(wanted) * list,
                           ARRAY_TYPE(boxes) * boxes)
{
    const struct wanted *w;
    array_clear(boxes);
    array_foreach (list, w) {
        struct box *x = box_by_folder(s, w->folder);
        if (x != NULL && !x->gone && !x->now.leaving && is_misplaced(x, w))
            array_push_back(boxes, &x);
    }
}

static int deepest_first(struct box *const *a, struct box *const *b)
{
    size_t x = strlen((*a)->vname), y = strlen((*b)->vname);
    return x > y ? -1 : x < y;
}

/* Those, and all that is below them, go aside: from there each goes to its place with nothing
 * below it, and displaces none. */
static int all_aside(struct session *s, const ARRAY_TYPE(boxes) * misplaced)
{
    ARRAY_TYPE(boxes) boxes;
    struct box *const *x, *const *y;
    t_array_init(&boxes, 16);
    array_foreach (&s->boxes, x) {
        bool goes = FALSE;
        if ((*x)->gone || (*x)->vname == NULL)
            continue;
        array_foreach (misplaced, y)
            goes = goes || *x == *y || is_below(s, (*x)->vname, (*y)->vname);
        if (goes)
            array_push_back(&boxes, x);
    }
    array_sort(&boxes, deepest_first);
    array_foreach (&boxes, x) {
        if (rename_aside(s, *x) < 0)
            return -1;
    }
    return 0;
}

/* Each mailbox in turn, parents before their children. One that moves takes its children along, of
 * which some were in their place: so once more, as long as fewer are misplaced each time. */
static int arrange(struct session *s, const ARRAY_TYPE(wanted) * list,
                   const ARRAY_TYPE(seq_range) * pending)
{
    ARRAY_TYPE(boxes) misplaced;
    unsigned before = UINT_MAX, renames;
    t_array_init(&misplaced, 16);
    for (;;) {
        renames = s->renames;
        if (shape_all(s, list, pending) < 0)
            return -1;
        find_misplaced(s, list, &misplaced);
        unsigned left = array_count(&misplaced);
        if (left == 0 || s->renames == renames)
            return 0; /* those that are left wait */
        if (left >= before)
            break;
        before = left;
    }
    return all_aside(s, &misplaced) < 0 ? -1 : shape_all(s, list, pending);
}

/* Folders that are not shown here, or not by their name. */
static unsigned count_names_waiting(struct session *s, const ARRAY_TYPE(wanted) * list)
{
    const struct wanted *w;
    unsigned n = 0;
    array_foreach (list, w) {
        const struct box *x = box_by_folder(s, w->folder);
        if (w->folder != ORSET_INBOX && (x == NULL || !x->now.leaving))
            n += x == NULL || x->gone || w->vname == NULL || is_misplaced(x, w);
    }
    return n;
}

/* The mailbox of an id that is now shown in another id's mailbox becomes that one's, if that has
 * none: its mails stay where they are and are bound anew by GUID. What clients did in it since
 * it was read last stands in its log behind the cursor, which goes along (ingest.c). */
static int adopt_one(struct session *s, struct box *x, struct box *home, uint32_t folder)
{
    if (session_begin(s) < 0)
        return -1;
    session_note(s, NOTE_INFO, "%s: made here and elsewhere: one mailbox from now on", x->vname);
    if (home == NULL)
        home = box_add(s, folder);
    box_set_guid(s, home, x->guid);
    box_set_vname(s, home, x->vname);
    home->astray = x->astray;
    home->rewound = home->rewound || x->rewound;
    home->restored = x->restored;
    home->gone = home->now.scanned = FALSE;
    home->at = x->at;
    home->adopted = x->at.indexid == 0 ? 0 : x->adopted != 0 ? x->adopted : x->folder + 1;
    home->all = TRUE;
    box_forget(s, x);
    if (rows_put_box(s, home) < 0) {
        session_rollback(s);
        return -1;
    }
    if (session_commit(s) < 0)
        return -1;
    crash_at("adopt");
    return 0;
}

static int adopt(struct session *s)
{
    ARRAY(struct box *) boxes;
    struct box *const *xp;
    t_array_init(&boxes, 16);
    array_append_array(&boxes, &s->boxes);
    array_foreach (&boxes, xp) {
        struct box *x = *xp, *home;
        struct orset_folder f;
        if (orset_folder_get(s->os, x->folder, &f) < 0 || f.home == x->folder)
            continue;
        home = box_by_folder(s, f.home);
        if (x->gone || x->now.leaving || x->vname == NULL || !f.live)
            continue;
        if (home != NULL && !home->gone) {
            /* What clients did in it since it was read last is told before its mails are placed
             * in the other one (scan_elsewhere.c). */
            x->all = x->all || !x->now.elsewhere;
            x->now.elsewhere = TRUE;
            continue;
        }
        if (adopt_one(s, x, home, f.home) < 0)
            return -1;
    }
    return 0;
}

/* A mailbox that was bound to a folder with a later UIDVALIDITY: no row says so, its own was not
 * known then. */
bool tree_is_behind(struct session *s)
{
    struct box *const *x;
    struct orset_folder f;
    array_foreach (&s->boxes, x) {
        if ((*x)->at.uid_validity != 0 && !(*x)->gone &&
            orset_folder_get(s->os, (*x)->folder, &f) == 0 &&
            f.uid_validity > (*x)->at.uid_validity && f.home == (*x)->folder && f.live)
            return TRUE;
    }
    return FALSE;
}

static bool anything(struct session *s, const ARRAY_TYPE(seq_range) * pending)
{
    struct box *const *x;
    array_foreach (&s->boxes, x) {
        if ((*x)->gone || (*x)->astray)
            return TRUE;
    }
    return array_count(pending) > 0 || box_by_folder(s, ORSET_INBOX) == NULL ||
           s->names_waiting > 0 || s->tree_changes != orset_tree_changes(s->os) + 1 ||
           tree_is_behind(s);
}

/* Where folders changed, or some are not where they are to be. */
static int apply_all(struct session *s, const ARRAY_TYPE(seq_range) * pending)
{
    struct collect c = {.s = s};
    uint64_t changes = orset_tree_changes(s->os) + 1;
    t_array_init(&c.list, 16);
    if (orset_tree(s->os, collect_wanted, &c) < 0)
        return session_core_failed(s, "tree");
    if (arrange(s, &c.list, pending) < 0)
        return -1;
    s->names_waiting = count_names_waiting(s, &c.list);
    if (s->names_waiting > 0)
        session_want_tick(s, NAMES_AGAIN);
    s->tree_changes = changes;
    return drop_pending(s, pending);
}

int tree_apply(struct session *s)
{
    ARRAY_TYPE(seq_range) pending;
    int r = 0;
    T_BEGIN
    {
        t_array_init(&pending, 8);
        if (adopt(s) < 0 || pending_folders(s, &pending) < 0)
            r = -1;
        else if (anything(s, &pending))
            r = apply_all(s, &pending);
    }
    T_END;
    list_indexes_catch_up(s);
    return r;
}

/* --- delete ----------------------------------------------------------------------------------- */

/* A mail may have come and gone since the last scan. 0: it cannot be opened */
static uint32_t uid_next_of(struct session *s, const struct box *x)
{
    struct mailbox_status status = {.uidnext = 0};
    struct mailbox *box = session_mailbox(s, x->vname, 0);
    if (session_open_refreshed(box) == 0)
        (void)mailbox_get_status(box, STATUS_UIDNEXT, &status);
    mailbox_free(&box);
    return status.uidnext;
}

/* A mailbox that still has mail has some that the state does not know: that is ingested, and the
 * folder lives on. */
static bool delete_locked(struct session *s, struct box *x, uint32_t *uid_next_r)
{
    /* One that is not there may have another name by now, and its mails would look like new ones
     * when its row is gone: a scan of all of them finds out. */
    if (!nobody_moved(s, x))
        return FALSE;
    *uid_next_r = uid_next_of(s, x);
    struct mailbox *box = session_mailbox(s, x->vname, 0);
    crash_while_deleting(box);
    struct mailbox_list_index *index = list_index_rest(box->list);
    bool done =
        mailbox_delete_empty(box) == 0 || mailbox_get_last_mail_error(box) == MAIL_ERROR_NOTFOUND;
    list_index_wake(index);
    s->reshaped = TRUE;
    if (!done)
        session_note(s, NOTE_INFO, "%s: not deleted: %s", x->vname,
                     mailbox_get_last_internal_error(box, NULL));
    mailbox_free(&box);
    return done;
}

static int deleted(struct session *s, struct box *x, bool done, uint32_t uid_next)
{
    uint32_t folder = x->folder;
    if (!done) {
        x->deleting = FALSE;
        x->all = s->scan_again = TRUE;
        (void)session_retry(s, "delete", x->vname, 100);
        return put_box(s, x);
    }
    crash_at("delete");
    if (session_begin(s) < 0)
        return -1;
    box_forget(s, x);
    (void)orset_local_uid_next(s->os, folder, uid_next);
    (void)orset_done_folder(s->os, folder);
    return session_commit(s);
}

static int delete_box(struct session *s, struct box *x)
{
    bool done = FALSE;
    uint32_t uid_next = 0;
    x->deleting = TRUE;
    if (put_box(s, x) < 0)
        return -1;
    int r = session_lock_lists(s);
    if (r == 0) {
        done = delete_locked(s, x, &uid_next);
        session_unlock_lists(s);
    }
    return deleted(s, x, done, uid_next) < 0 ? -1 : r;
}

/* Its log, which goes with it, tells still what clients did to mails that left it. */
static bool waits_for_look(const struct box *x, const struct orset_folder *f)
{
    return x->now.elsewhere && f->live && (x->all || x->now.waits);
}

/* It was not adopted, or somebody else has its name by now: whose mailbox that is a scan of all
 * of them finds out. */
static bool is_unclear(struct session *s, const struct box *x, const struct orset_folder *f)
{
    const struct box *home = box_by_folder(s, f->home),
                     *other = x->vname != NULL ? box_first_of_vname(s, x->vname) : NULL;
    bool unclear = f->live && f->home != x->folder && (home == NULL || home->gone);
    for (; other != NULL; other = other->next_vname)
        unclear = unclear || (other != x && !other->gone && !other->now.leaving);
    if (unclear) {
        s->scan_again = TRUE;
        (void)session_retry(s, "whose", x->vname != NULL ? x->vname : "", 100);
    }
    return unclear;
}

int tree_apply_deletions(struct session *s)
{
    ARRAY(struct box *) boxes;
    struct box *const *xp;
    int r = 0;
    T_BEGIN
    {
        t_array_init(&boxes, 16);
        array_append_array(&boxes, &s->boxes);
        array_foreach (&boxes, xp) {
            struct box *x = *xp;
            struct orset_folder f;
            if (r < 0 || x->folder == ORSET_INBOX || x->now.leaving ||
                orset_folder_get(s->os, x->folder, &f) < 0 || (f.live && f.home == x->folder))
                continue;
            if (x->gone || x->vname == NULL) {
                if ((r = session_begin(s)) == 0) {
                    box_forget(s, x);
                    r = session_commit(s);
                }
            } else if (!waits_for_look(x, &f) && !is_unclear(s, x, &f)) {
                r = delete_box(s, x);
            }
        }
    }
    T_END;
    list_indexes_catch_up(s);
    return r;
}
