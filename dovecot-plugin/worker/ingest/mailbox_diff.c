/* mailbox_diff - which mailboxes there are, against those that were there: creates, renames,
 * deletes (F10, F22, F25).
 *
 * A mailbox is known by its GUID. One that is gone was deleted when the plugin wrote an intent
 * for it (journal.c), else it is damage and is made again. One with another GUID under a known
 * name whose mailbox is gone is that mailbox, damaged. A second one with the same GUID is a copy
 * (copies.c). */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/worker/ingest/mailbox_diff.h"
#include "dovecot-plugin/worker/ingest/pass.h"
#include "dovecot-plugin/worker/ingest/reading.h"
#include "dovecot-plugin/worker/ingest/scan.h"
#include "dovecot-plugin/worker/logs/journal.h"
#include "dovecot-plugin/worker/logs/journal_said.h"
#include "dovecot-plugin/worker/session/lived.h"
#include "dovecot-plugin/worker/metadata/metadata.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/modseq_floor.h"
#include "dovecot-plugin/worker/session/names.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/retry.h"
#include "dovecot-plugin/worker/session/rows.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <buffer.h>
#include <guid.h>
#include <mail-storage-private.h>
#include <seq-range-array.h>

/* --- what it means ---------------------------------------------------------------------------- */

static int core(struct session *s, int r, const char *vname)
{
    if (r != ORSET_E_LIMIT)
        return r < 0 ? session_core_failed(s, vname) : 0;
    session_note(s, NOTE_WARNING, "%s is not replicated: %s", vname, orset_error_text(s->os));
    return 0;
}

/* The mailbox may have other contents under the old UIDs: all of it is compared, what is missing
 * is damage. */
static int bind_box(struct session *s, struct box *x, const struct found_mailbox *f)
{
    x->now.lost = x->gone || (!guid_128_is_empty(x->guid) && !guid_128_equals(x->guid, f->guid));
    if (x->now.lost && modseq_floor_keep(s, x) < 0)
        return -1;
    box_set_guid(s, x, f->guid);
    box_set_vname(s, x, f->vname);
    i_free(x->moving);
    x->gone = x->deleting = FALSE;
    box_unread(x);
    x->all = TRUE;
    return rows_put_box(s, x);
}

static void say_outside(struct tree *t, const char *vname)
{
    char *name = i_strdup(vname);
    array_push_back(&t->in->outside, &name);
}

static int create_folder(struct tree *t, const struct found_mailbox *f)
{
    struct session *s = t->s;
    buffer_t *name = t_buffer_create(128);
    uint32_t folder = ORSET_INBOX;
    /* Another site may have it, too, and its clients know that one's UIDVALIDITY. */
    if (f->unused && peers_may_know_older(s)) {
        wait_for_peers(s);
        return 0;
    }
    if (!vname_is_inbox(s, f->vname)) {
        int r = name_of_vname(s, f->vname, name)
                    ? orset_local_create(s->os, name->data, name->used, f->uid_validity, f->guid,
                                         &folder)
                    : ORSET_E_LIMIT;
        if (r == ORSET_E_LIMIT)
            say_outside(t, f->vname);
        if (r < 0)
            return core(s, r, f->vname);
    }
    struct box *x = box_by_folder(s, folder);
    return bind_box(s, x != NULL ? x : box_add(s, folder), f);
}

static int all_missing(struct session *s, struct box *x)
{
    ARRAY_TYPE(seq_range) uids;
    struct seq_range_iter iter;
    uint32_t uid;
    t_array_init(&uids, 16);
    if (scan_bound_uids(s, x->folder, &uids) < 0)
        return -1;
    seq_range_array_iter_init(&iter, &uids);
    for (unsigned i = 0; seq_range_array_iter_nth(&iter, i, &uid); i++)
        if (orset_local_missing(s->os, x->folder, uid) < 0)
            return session_core_failed(s, x->vname);
    return 0;
}

/* From the state, by folders.c. */
static int make_again(struct session *s, struct box *x)
{
    x->pass.absent = x->now.waits = FALSE;
    x->gone = TRUE;
    if (modseq_floor_keep(s, x) < 0)
        return -1;
    box_set_guid(s, x, NULL);
    box_unread(x);
    return rows_put_box(s, x);
}

/* It may have been looked at just before it went. */
static void not_looked(struct tree *t, const struct box *x)
{
    for (unsigned i = array_count(&t->in->scanned); i-- > 0;) {
        const struct scanned_mailbox *scanned = array_idx(&t->in->scanned, i);
        if (scanned->x == x)
            array_delete(&t->in->scanned, i, 1);
    }
}

/* 1; 0: the name is beyond a bound, and nothing was done; -1 */
static int renamed(struct session *s, struct box *x, const char *vname)
{
    buffer_t *name = t_buffer_create(128);
    bool ours = x->moving != NULL && strcmp(x->moving, vname) == 0;
    int r = ours ? 0
            : name_of_vname(s, vname, name)
                ? orset_local_rename(s->os, x->folder, name->data, name->used)
                : ORSET_E_LIMIT;
    if (r < 0)
        return r == ORSET_E_LIMIT ? 0 : session_core_failed(s, vname);
    box_set_vname(s, x, vname);
    i_free(x->moving);
    return rows_put_box(s, x) < 0 ? -1 : 1;
}

/* Its mailbox has a name that is not replicated: it is none of the folder's any more. That is made
 * again, as it is at the other sites; by who made one of its name since, too. */
static int goes_beyond(struct tree *t, struct box *x, struct found_mailbox *f)
{
    session_note(t->s, NOTE_WARNING,
                 "%s was renamed to a name that is not replicated: it stays as it is at the "
                 "other sites, and is made again",
                 x->vname);
    not_looked(t, x);
    if (all_missing(t->s, x) < 0)
        return -1;
    i_free(x->moving);
    x->deleting = x->beyond = FALSE;
    x->estranged = TRUE;
    if (make_again(t->s, x) < 0)
        return -1;
    x->pass.absent = TRUE;
    f->x = NULL;
    return 0;
}

/* What is in it is known; its mails leave behind all adds (removals_last.c). called: by who
 * deleted it; NULL: by nobody. */
static void leaves(struct box *x, const char *called)
{
    i_free(x->called);
    x->called = i_strdup(called);
    x->now.leaving = x->now.waits = TRUE;
    x->pass.absent = FALSE;
}

/* RENAME INBOX x: its id is a constant, so this is a create of x and a move of what was seen in
 * INBOX (F25), and not held there. Until its mails have left, both rows have the mailbox' GUID,
 * which tells of it. */
static int inbox_renamed(struct tree *t, struct box *x, const struct found_mailbox *f)
{
    if (x->next_guid == NULL) {
        session_note(t->s, NOTE_INFO, "INBOX was renamed to %s: its mails move there", f->vname);
        if (quarantine_end(t->s, x, orset_local_missing) < 0 || create_folder(t, f) < 0)
            return -1;
        if (x->next_guid == NULL)
            /* that one is not replicated: the peers keep what they have, and it comes into the
             * new INBOX, too */
            return 0;
    }
    leaves(x, NULL);
    return 0;
}

static int match_known(struct tree *t)
{
    struct session *s = t->s;
    struct found_mailbox *f;
    array_foreach_modifiable (&t->found, f) {
        struct box *x = f->x;
        if (x == NULL || !x->pass.found)
            continue;
        x->pass.found = FALSE; /* under a second name it is no other one */
        if (x->folder == ORSET_INBOX && !vname_is_inbox(s, f->vname)) {
            if (inbox_renamed(t, x, f) < 0)
                return -1;
            if ((x = x->next_guid) == NULL)
                continue;
        }
        int r = strcmp(x->vname, f->vname) != 0 ? renamed(s, x, f->vname) : 1;
        if (r < 0 || (r == 0 && goes_beyond(t, x, f) < 0))
            return -1;
        if (r == 0)
            continue;
        if (x->deleting || x->moving != NULL) {
            /* It was about to be; if the state still wants it, it will be. */
            x->deleting = FALSE;
            i_free(x->moving);
            if (rows_put_box(s, x) < 0)
                return -1;
        }
    }
    return 0;
}

static bool take_absent(struct box *x)
{
    bool was = x->pass.absent;
    x->pass.absent = FALSE;
    return was;
}

/* A row whose mailbox this one is, though it has another GUID. */
static struct box *damaged_as(struct tree *t, const struct found_mailbox *f)
{
    struct session *s = t->s;
    buffer_t *name = t_buffer_create(128);
    struct box *x = NULL;
    if (vname_is_inbox(s, f->vname)) {
        x = box_by_folder(s, ORSET_INBOX);
    } else {
        for (struct box *at = box_first_of_vname(s, f->vname); at != NULL; at = at->next_vname)
            x = at->pass.absent ? at : x;
        if (x == NULL && name_of_vname(s, f->vname, name)) {
            uint32_t folder = orset_folder_by_name(s->os, (const char *)name->data, name->used);
            /* Came from a peer, or is being made by this program; or was made by both. */
            if (folder != ORSET_NO_FOLDER && (x = box_by_folder(s, folder)) == NULL)
                return box_add(s, folder);
        }
    }
    return x != NULL && take_absent(x) ? x : NULL;
}

static bool inbox_leaves(struct session *s)
{
    const struct box *x = box_by_folder(s, ORSET_INBOX);
    return x != NULL && x->now.leaving;
}

static int match_new(struct tree *t)
{
    struct session *s = t->s;
    struct found_mailbox *f;
    array_foreach_modifiable (&t->found, f) {
        if (f->x != NULL || f->unreadable)
            continue;
        if (f->copy) {
            say_outside(t, f->vname);
            continue;
        }
        if (vname_is_inbox(s, f->vname) && inbox_leaves(s)) {
            t->in->inbox = TRUE;
            continue;
        }
        struct box *x = damaged_as(t, f);
        if (x != NULL && x->vname != NULL && !x->gone && !guid_128_is_empty(x->guid))
            session_note(
                s, NOTE_WARNING,
                "%s: its mailbox is another one (GUID %s): what is missing in it is damage",
                f->vname, guid_128_to_string(f->guid));
        if ((x != NULL ? bind_box(s, x, f) : create_folder(t, f)) < 0)
            return -1;
    }
    return 0;
}

/* What the state calls the folder while its mails leave, where another one has its name by now:
 * as folders.c's make_room(). False: nothing. */
static bool name_aside(struct session *s, const struct box *x, buffer_t *name)
{
    return name_of_vname(
        s, t_strdup_printf("%s-dovelane-%s", x->vname, t_strndup(guid_128_to_string(x->guid), 8)),
        name);
}

/* The new one must not be shown in the mailbox of the one that is not there any more. */
static int make_room(struct tree *t, struct box *x)
{
    buffer_t *name = t_buffer_create(128);
    const struct found_mailbox *f;
    array_foreach (&t->found, f) {
        if (strcmp(f->vname, x->vname) == 0 && name_aside(t->s, x, name))
            return core(t->s, orset_local_rename(t->s->os, x->folder, name->data, name->used),
                        x->vname);
    }
    return 0;
}

/* What lives on, by mails that came at another site, has its name. */
static int take_name_back(struct session *s, struct box *x, const struct orset_folder *f)
{
    buffer_t *aside = t_buffer_create(128), *name = t_buffer_create(128);
    if (!name_aside(s, x, aside) || f->name_len != aside->used ||
        memcmp(f->name, aside->data, aside->used) != 0 || !name_of_vname(s, x->vname, name))
        return 0;
    return core(s, orset_local_rename(s->os, x->folder, name->data, name->used), x->vname);
}

enum fate {
    FATE_DEAD,  /* in the state, too */
    FATE_MOVED, /* shown in another one's mailbox by now */
    FATE_LIVE
};

static enum fate fate_of(struct session *s, const struct box *x, struct orset_folder *f)
{
    if (orset_folder_get(s->os, x->folder, f) < 0 || !f->live)
        return FATE_DEAD;
    return f->home != x->folder ? FATE_MOVED : FATE_LIVE;
}

static bool is_shown(void *arg, uint32_t folder)
{
    const struct box *x = box_by_folder(arg, folder);
    return x != NULL && !x->gone && !x->now.leaving;
}

/* What he saw by that name may just have been on its way from one mailbox to another one. */
static int say_left_deleted(struct session *s, const struct box *x)
{
    buffer_t *name = t_buffer_create(128);
    if (x->called == NULL || !name_of_vname(s, x->called, name))
        return 0;
    int r = orset_local_delete_left(s->os, name->data, name->used, is_shown, s);
    if (r == ORSET_OK)
        session_explain(s, "%s: deleted with mails that waited to be placed in it", x->called);
    return core(s, r, x->called);
}

static int say_seen_deleted(struct session *s, struct box *x, enum fate fate,
                            const struct orset_folder *f)
{
    /* What the user had before another site's folder of that name was known here; of the other
     * one he has seen nothing. */
    if (fate == FATE_MOVED)
        return core(s, orset_local_delete_moved(s->os, x->folder), x->vname);
    if (fate == FATE_LIVE && x->adopted != 0)
        return core(s, orset_local_delete_moved(s->os, x->adopted - 1), x->vname);
    if (fate == FATE_LIVE && take_name_back(s, x, f) < 0)
        return -1;
    return fate == FATE_LIVE ? core(s, orset_local_delete(s->os, x->folder), x->vname) : 0;
}

int box_say_deleted(struct session *s, struct box *x)
{
    struct orset_folder f;
    enum fate fate = fate_of(s, x, &f);
    if (say_seen_deleted(s, x, fate, &f) < 0 || say_left_deleted(s, x) < 0)
        return -1;
    if (fate == FATE_LIVE && x->adopted != 0)
        return make_again(s, x);
    box_forget(s, x);
    return 0;
}

/* It may have been renamed since the last scan, and lives on by what another site put into it. */
static int last_name(struct tree *t, struct box *x)
{
    struct session *s = t->s;
    const char *vname = journal_last_name(t->journal, x->guid);
    if (vname == NULL || strcmp(vname, x->vname) == 0 || vname_is_inbox(s, vname) ||
        mail_namespace_find(s->user->namespaces, vname) !=
            mail_namespace_find(s->user->namespaces, x->vname))
        return 0;
    return renamed(s, x, vname) < 0 ? -1 : 0;
}

/* Mails that came and went since the last scan have had UIDs, too, and clients know them: where it
 * lives on, and where another one comes with its name and UIDVALIDITY. The journal is its user's:
 * what is far above is not believed. */
static int last_uid_next(struct tree *t, const struct box *x, const struct orset_folder *f)
{
    uint32_t said = journal_last_uid_next(t->journal, x->guid);
    if (said <= f->uid_next || said > ORSET_UID_MAX || said - f->uid_next > ORSET_UID_JUMP)
        return 0;
    return core(t->s, orset_local_uid_next(t->s->os, x->folder, said), x->vname);
}

/* Clients know its UIDs. The state may never have heard of it, or its folder may live on with
 * another UIDVALIDITY, by a mailbox that was made since. */
static int note_lived(void *arg, const struct deletion *d)
{
    struct session *s = arg;
    buffer_t *name = t_buffer_create(128);
    if (d->vname == NULL || d->uid_validity == 0 || d->uid_next <= 1 ||
        d->uid_next > ORSET_UID_JUMP || !name_of_vname(s, d->vname, name))
        return 0;
    return lived_add(s, name->data, name->used, d->uid_validity, d->uid_next);
}

/* Deleted by a user, by this program, or lost. */
static int judge_deleted(struct tree *t)
{
    struct session *s = t->s;
    ARRAY(struct box *) boxes; /* some are forgotten by the way */
    struct box *const *xp;
    if (journal_each_deleted(t->journal, note_lived, s) < 0)
        return -1;
    t_array_init(&boxes, 16);
    array_append_array(&boxes, &s->boxes);
    array_foreach (&boxes, xp) {
        struct box *x = *xp;
        struct orset_folder f;
        if (!x->pass.absent || x->gone || guid_128_is_empty(x->guid))
            continue;
        enum fate fate = fate_of(s, x, &f);
        bool deleted = journal_deleted(t->journal, x->guid);
        if (x->folder == ORSET_INBOX) {
            if (x->next_guid != NULL || deleted)
                leaves(x, NULL); /* it was renamed, and then deleted under that name */
        } else if (x->deleting || (fate != FATE_LIVE && !deleted)) {
            if (fate == FATE_DEAD && last_uid_next(t, x, &f) < 0)
                return -1;
            not_looked(t, x);
            box_forget(s, x);
        } else if (deleted) {
            leaves(x, journal_last_name(t->journal, x->guid));
            if (fate != FATE_MOVED && last_uid_next(t, x, &f) < 0)
                return -1;
            if (fate == FATE_LIVE && x->adopted == 0 &&
                (last_name(t, x) < 0 || make_room(t, x) < 0))
                return -1;
        }
    }
    return 0;
}

/* What cannot be read, and may be one that is missed, renamed; NULL: nothing. -1 */
static int any_nameless(struct tree *t, const char **vname_r)
{
    const struct found_mailbox *f;
    *vname_r = NULL;
    array_foreach (&t->found, f) {
        int was = f->unreadable && f->x == NULL ? unreadable_was(t->s, f->vname) : 1;
        if (was <= 0) {
            *vname_r = f->vname;
            return was;
        }
    }
    return 0;
}

static int keep_nameless(struct tree *t)
{
    ARRAY_TYPE(const_string) names;
    const struct found_mailbox *f;
    t_array_init(&names, 8);
    array_foreach (&t->found, f) {
        if (f->lasting && f->x == NULL)
            array_push_back(&names, &f->vname);
    }
    return unreadable_keep(t->s, array_count(&names) == 0 ? NULL : array_front(&names),
                           array_count(&names));
}

static int judge_lost(struct tree *t)
{
    struct session *s = t->s;
    struct box *const *xp;
    const char *nameless;
    bool missed = FALSE;
    if (any_nameless(t, &nameless) < 0)
        return -1;
    array_foreach (&s->boxes, xp) {
        struct box *x = *xp;
        if (!x->pass.absent || x->gone)
            continue;
        missed = TRUE;
        if (nameless != NULL && !guid_128_is_empty(x->guid)) {
            if (!t->in->locked)
                session_note(s, NOTE_WARNING,
                             "%s is gone though nobody deleted it, and is not made again while %s "
                             "cannot be read, which it may be, "
                             "renamed: make that readable for the user, or move it away",
                             x->vname, nameless);
            s->scan_again = TRUE;
            /* a lock goes; what else keeps it from being read will mostly be the same then */
            if (t->in->locked)
                (void)session_retry(s, "missed", x->vname, 1000);
            else
                session_want_tick(s, 60000);
            continue;
        }
        if (!guid_128_is_empty(x->guid))
            session_note(s, NOTE_WARNING, "%s is gone though nobody deleted it: it is made again",
                         x->vname);
        if (all_missing(s, x) < 0 || make_again(s, x) < 0)
            return -1;
    }
    return missed ? 0 : keep_nameless(t);
}

/* --- and what it was before ------------------------------------------------------------------- */

/* locked: the lists are. */
static int find(struct tree *t, bool locked)
{
    struct session *s = t->s;
    struct found_mailbox *f;
    struct box *const *x;
    array_clear(&t->found);
    if (mailboxes_find(t) < 0)
        return -1;
    mailboxes_find_unlisted(t);
    if (journal_read(t->journal) < 0)
        return -1;
    t->copies = copies_mark(t);
    if (t->copies && locked)
        copies_part(t);
    array_foreach (&s->boxes, x)
        (*x)->pass.found = (*x)->now.leaving = FALSE;
    array_foreach_modifiable (&t->found, f) {
        f->x = f->unreadable ? box_by_vname(s, f->vname) : f->copy ? NULL : box_by_guid(s, f->guid);
        if (f->x != NULL)
            f->x->pass.found = TRUE;
        if (f->x != NULL && f->x->next_guid != NULL && !vname_is_inbox(s, f->vname))
            f->x->next_guid->pass.found = TRUE; /* INBOX was renamed to it */
        /* A deleted one may have had the name before: its line is needed when this one can be
         * read. */
        if (f->unreadable && f->x != NULL && journal_deleted(t->journal, f->x->guid))
            ingest_stays(t->in, f->x);
    }
    array_foreach (&s->boxes, x)
        (*x)->pass.absent = !(*x)->pass.found;
    return 0;
}

/* Mailboxes that are not there; of them, such as no client's deletion explains. */
static void count_missing(struct tree *t, unsigned *missing_r, unsigned *unexplained_r)
{
    struct box *const *xp;
    *missing_r = *unexplained_r = 0;
    array_foreach (&t->s->boxes, xp) {
        const struct box *x = *xp;
        if (x->pass.found || x->gone || guid_128_is_empty(x->guid))
            continue;
        ++*missing_r;
        *unexplained_r += !journal_deleted(t->journal, x->guid);
    }
}

/* One that was renamed while the list was read is found under both names, or under neither, and
 * a Maildir's children are renamed one by one: before any is missed, nobody may rename or
 * delete. Not at first, and not while clients delete one mailbox after the other: they would
 * wait for each scan, and who wants to miss a deleted one wrongly has to rename it in both
 * readings. */
static int find_all(struct tree *t)
{
    unsigned missing, unexplained;
    if (journal_take(t->s, &t->journal, &t->in->intents) < 0 || find(t, FALSE) < 0)
        return -1;
    count_missing(t, &missing, &unexplained);
    if (missing > 0 && find(t, FALSE) < 0)
        return -1;
    count_missing(t, &missing, &unexplained);
    if (unexplained == 0 && !t->copies)
        return 0;
    if (session_lock_lists(t->s) < 0)
        return -1;
    int r = find(t, TRUE);
    session_unlock_lists(t->s);
    return r;
}

/* Whatever it is that could not be read may be one. */
static bool no_outside(const struct tree *t)
{
    const struct found_mailbox *f;
    array_foreach (&t->found, f) {
        if (f->unreadable)
            return FALSE;
    }
    return array_count(&t->in->outside) == 0;
}

static int conclude(struct tree *t)
{
    t->s->no_outside = FALSE;
    if (find_all(t) < 0)
        return -1;
    if (unseen_judge(t) < 0)
        return -1;
    return judge_deleted(t) < 0 || match_known(t) < 0 || match_new(t) < 0 ? -1 : judge_lost(t);
}

int mailbox_diff_ingest(struct session *s, struct ingest *in)
{
    struct tree t = {.s = s, .in = in};
    t_array_init(&t.found, 16);
    int r = conclude(&t);
    s->no_outside = r == 0 && no_outside(&t);
    r = r < 0 ? -1 : subscriptions_ingest(s, t.journal, &in->names);
    journal_free(&t.journal);
    return r;
}
