/* boxes - which mailboxes there are, against those that were there: creates, renames, deletes (F10, F22, F25).
 *
 * A mailbox is known by its GUID. One that is gone was deleted when the plugin wrote an intent for it, else it is damage and is
 * made again. One with another GUID under a known name whose mailbox is gone is that mailbox, damaged. */
#include "worker.h"

#include <mailbox-list-iter.h>
#include <mail-storage-private.h>
#include <str.h>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#define INTENTS_MAX (64 * 1048576) /* bytes of one journal: half a million deletions */

struct found {
    const char *vname;
    guid_128_t guid;
    uint32_t uid_validity;
    bool unreadable; /* there, but what it is cannot be known now: nothing is concluded */
    struct box *x;
};

struct intent {
    guid_128_t guid;
};

struct tree {
    struct session *s;
    ARRAY(struct found) found;
    ARRAY_TYPE(const_string) journals; /* directories of the plugin's journals of deletions */
    string_t *intents;                 /* their text */
    ARRAY(struct intent) deletions;    /* what they say was deleted, by GUID */
    bool taken;        /* some of it was taken away */
};

/* --- what is there -------------------------------------------------------------------------------------------------- */

/* Whoever was deleting it was killed between marking its index and removing it: nobody can open it, and Dovecot itself lets it be seen
 * again after a while. Nobody was told that it is gone; what this program was about to delete, it deletes anew. */
static bool undelete(struct session *s, struct mailbox **box, const char *vname)
{
    if (!(*box)->mailbox_deleted || session_deleting(s))
        return FALSE;
    mailbox_free(box);
    *box = session_mailbox(s, vname, 0);
    if (mailbox_mark_index_deleted(*box, FALSE) < 0)
        return FALSE;
    mailbox_free(box);
    *box = session_mailbox(s, vname, 0);
    session_note(s, NOTE_INFO, "%s: its deletion was cut short: it is there as before", vname);
    return TRUE;
}

static bool open_found(struct session *s, struct mailbox **box, const char *vname)
{
    return session_open_refreshed(*box) == 0 || (undelete(s, box, vname) && session_open_refreshed(*box) == 0);
}

static void add_found(struct tree *t, const char *vname)
{
    struct found f = {.vname = t_strdup(vname)};
    struct mailbox_metadata metadata;
    struct mailbox_status status;
    struct mailbox *box = session_mailbox(t->s, vname, 0);
    enum mail_error error;
    const struct box *x = box_by_vname(t->s, vname);
    uint64_t stamp = x == NULL || x->gone || x->at.stamp == 0 ? 0 : ingest_stamp(box);
    if (x != NULL && stamp == 0 && session_index_is_lost(t->s, x, box)) { /* where there is a stamp, there is a log */
        f.unreadable = TRUE;
        array_push_back(&t->found, &f);
    } else if (stamp != 0 && stamp == x->at.stamp) {
        memcpy(f.guid, x->guid, sizeof f.guid); /* nothing was written to it since it was read */
        f.uid_validity = x->at.uid_validity;
        array_push_back(&t->found, &f);
    } else if (open_found(t->s, &box, vname) && /* else the list index would be asked, which opens whatever else is new */
               mailbox_get_metadata(box, MAILBOX_METADATA_GUID, &metadata) == 0 &&
               mailbox_get_status(box, STATUS_UIDVALIDITY, &status) == 0 &&
               (status.uidvalidity != 0 || (mailbox_sync(box, 0) == 0 && mailbox_get_status(box, STATUS_UIDVALIDITY, &status) == 0))) {
        memcpy(f.guid, metadata.guid, sizeof f.guid);
        f.uid_validity = status.uidvalidity;
        array_push_back(&t->found, &f);
    } else {
        const char *text = mailbox_get_last_internal_error(box, &error);
        if (error != MAIL_ERROR_NOTFOUND) {
            if (!session_box_is_locked(t->s, box))
                session_note(t->s, NOTE_WARNING, "%s cannot be read and waits: %s", vname, text);
            f.unreadable = TRUE;
            array_push_back(&t->found, &f);
        }
    }
    mailbox_free(&box);
}

/* One error and nothing is concluded: a list that was not read to its end lacks mailboxes that are there. */
static int find_mailboxes(struct tree *t)
{
    int r = 0;
    for (struct mail_namespace *ns = t->s->user->namespaces; ns != NULL && r == 0; ns = ns->next) {
        const struct mailbox_info *info;
        if (!session_has_namespace(t->s, ns))
            continue;
        /* The list index is not asked: it opens each mailbox that it does not know yet. */
        struct mailbox_list_iterate_context *iter = mailbox_list_iter_init(
            ns->list, "*", MAILBOX_LIST_ITER_RAW_LIST | MAILBOX_LIST_ITER_SKIP_ALIASES | MAILBOX_LIST_ITER_NO_AUTO_BOXES);
        while ((info = mailbox_list_iter_next(iter)) != NULL)
            if ((info->flags & (MAILBOX_NOSELECT | MAILBOX_NONEXISTENT)) == 0)
                add_found(t, info->vname);
        if (mailbox_list_iter_deinit(&iter) < 0)
            r = session_fail(t->s, "namespace %s cannot be listed: %s", compat_namespace_name(ns),
                             mailbox_list_get_last_internal_error(ns->list, NULL));
    }
    return r;
}

static const char *intents_path(const char *dir, bool work)
{
    return t_strconcat(dir, work ? "/intents.work" : "/intents", NULL);
}

/* Where the plugin writes them: with the user's INBOX, and of each public namespace that is kept here in that one's own control
 * root, since who deletes there may not reach this user's. */
static void find_journals(struct tree *t)
{
    const char *root, *dir = t->s->dir;
    t_array_init(&t->journals, 2);
    array_push_back(&t->journals, &dir);
    for (struct mail_namespace *ns = t->s->user->namespaces; ns != NULL; ns = ns->next) {
        if (ns->type != MAIL_NAMESPACE_TYPE_PUBLIC || !session_has_namespace(t->s, ns) ||
            !mailbox_list_get_root_path(ns->list, MAILBOX_LIST_PATH_TYPE_CONTROL, &root))
            continue;
        dir = t_strconcat(root, "/dovelane", NULL);
        if (strcmp(dir, t->s->dir) != 0)
            array_push_back(&t->journals, &dir);
    }
}

/* The directory is the user's own, and may hold a FIFO or a sparse file of terabytes. */
static int read_text(struct session *s, const char *path, string_t *text)
{
    size_t limit = str_len(text) + INTENTS_MAX;
    int fd = session_open_file(s, path);
    ssize_t n = 1;
    if (fd == -1)
        return errno == ENOENT ? 0 : session_fail(s, "open(%s): %m", path);
    while (str_len(text) < limit && n > 0) {
        n = read(fd, buffer_append_space_unsafe(text, 65536), 65536);
        str_truncate(text, str_len(text) - 65536 + (n > 0 ? (size_t)n : 0));
    }
    int r = n < 0 ? session_fail(s, "read(%s): %m", path) : 0;
    if (n > 0)
        session_note(s, NOTE_WARNING, "%s has more than %d MiB: what was deleted behind that is taken for damage", path,
                     INTENTS_MAX / 1048576);
    i_close_fd(&fd);
    return r;
}

/* What the plugin wrote before folders were deleted, taken away to be removed when all of it is committed; what a crash left is
 * taken first. Not while a deletion is under way, which the plugin's lock tells: the folder may still be there then, and the
 * intent would be dropped as void. */
static int take_journal(struct tree *t, const char *dir)
{
    struct session *s = t->s;
    const char *path = intents_path(dir, FALSE), *work = intents_path(dir, TRUE);
    if (access(work, F_OK) < 0) {
        int fd = session_open_file(s, path);
        if (fd < 0)
            return errno == ENOENT ? 0 : session_fail(s, "open(%s): %m", path);
        int r = flock(fd, LOCK_EX | LOCK_NB) < 0 ? 0 : rename(path, work);
        i_close_fd(&fd);
        if (r < 0)
            return session_fail(s, "rename(%s): %m", work);
    }
    if (read_text(s, work, t->intents) < 0)
        return -1;
    t->taken = t->taken || str_len(t->intents) > 0;
    return 0;
}

static int take_intents(struct tree *t)
{
    const char *const *dir;
    t->intents = str_new(default_pool, 256);
    find_journals(t);
    array_foreach(&t->journals, dir)
    {
        if (take_journal(t, *dir) < 0)
            return -1;
    }
    return 0;
}

/* And what it wrote since, before a folder that was not listed any more went: evidence now, and still there next time. */
static int look_at_intents(struct tree *t)
{
    const char *const *dir;
    array_foreach(&t->journals, dir)
    {
        if (read_text(t->s, intents_path(*dir, FALSE), t->intents) < 0)
            return -1;
    }
    return 0;
}

static int by_guid(const struct intent *a, const struct intent *b)
{
    return memcmp(a->guid, b->guid, sizeof a->guid);
}

/* "D", the GUID, the name. After a power loss zeros may stand before a line. */
static void parse_intents(struct tree *t)
{
    const char *at = str_c(t->intents), *end = at + str_len(t->intents), *lf;
    array_clear(&t->deletions);
    for (; (lf = memchr(at, '\n', (size_t)(end - at))) != NULL; at = lf + 1) {
        const char *zero = memrchr(at, '\0', (size_t)(lf - at)), *line = zero == NULL ? at : zero + 1;
        char hex[33] = "";
        struct intent i;
        if (lf - line < 35 || line[0] != 'D' || line[1] != '\t' || line[34] != '\t')
            continue;
        memcpy(hex, line + 2, 32);
        if (guid_128_from_string(hex, i.guid) == 0)
            array_push_back(&t->deletions, &i);
    }
    array_sort(&t->deletions, by_guid);
}

static bool has_intent(struct tree *t, const guid_128_t guid)
{
    struct intent wanted;
    memcpy(wanted.guid, guid, sizeof wanted.guid);
    return array_bsearch(&t->deletions, &wanted, by_guid) != NULL;
}

/* --- what it means -------------------------------------------------------------------------------------------------- */

static int core(struct session *s, int r, const char *vname)
{
    if (r != ORSET_E_LIMIT)
        return r < 0 ? session_core_failed(s, vname) : 0;
    session_note(s, NOTE_WARNING, "%s is not replicated: %s", vname, orset_error_text(s->os));
    return 0;
}

/* The mailbox may have other contents under the old UIDs: all of it is compared, what is missing is damage. */
static int bind_box(struct session *s, struct box *x, const struct found *f)
{
    x->lost = x->gone || (!guid_128_is_empty(x->guid) && !guid_128_equals(x->guid, f->guid));
    box_set_guid(s, x, f->guid);
    box_set_vname(s, x, f->vname);
    i_free(x->moving);
    x->gone = x->deleting = FALSE;
    box_unread(x);
    x->all = TRUE;
    return rows_put_box(s, x);
}

static int create_folder(struct session *s, const struct found *f)
{
    buffer_t *name = t_buffer_create(128);
    uint32_t folder = ORSET_INBOX;
    if (!vname_is_inbox(s, f->vname)) {
        int r = name_of_vname(s, f->vname, name)
                    ? orset_local_create(s->os, name->data, name->used, f->uid_validity, f->guid, &folder)
                    : ORSET_E_LIMIT;
        if (r < 0)
            return core(s, r, f->vname);
    }
    struct box *x = box_by_folder(s, folder);
    return bind_box(s, x != NULL ? x : box_add(s, folder), f);
}

static int renamed(struct session *s, struct box *x, const struct found *f)
{
    buffer_t *name = t_buffer_create(128);
    bool ours = x->moving != NULL && strcmp(x->moving, f->vname) == 0;
    if (!ours && name_of_vname(s, f->vname, name) &&
        core(s, orset_local_rename(s->os, x->folder, name->data, name->used), f->vname) < 0)
        return -1;
    box_set_vname(s, x, f->vname);
    i_free(x->moving);
    return rows_put_box(s, x);
}

struct placed {
    ARRAY(uint32_t) uids;
};

static int collect_placed(void *arg, const struct orset_message *m, const struct orset_flags *own)
{
    struct placed *p = arg;
    (void)own;
    if (m->uid != 0)
        array_push_back(&p->uids, &m->uid);
    return 0;
}

/* fn: orset_local_missing or orset_local_expunge, for each mail the mailbox had. */
static int all_mails(struct session *s, struct box *x, int (*fn)(struct orset *, uint32_t, uint32_t))
{
    struct placed p;
    const uint32_t *uid;
    t_array_init(&p.uids, 64);
    for (uint32_t i = 0; i < orset_folders(s->os); i++) {
        struct orset_folder f;
        if (orset_folder_get(s->os, i, &f) == 0 && f.home == x->folder && orset_each_message(s->os, i, collect_placed, &p) < 0)
            return session_core_failed(s, x->vname);
    }
    array_foreach(&p.uids, uid)
    {
        if (fn(s->os, x->folder, *uid) < 0)
            return session_core_failed(s, x->vname);
    }
    return 0;
}

/* RENAME INBOX x: its id is a constant, so this is a create of x and a move of what was seen in INBOX (F25). */
static int inbox_renamed(struct tree *t, struct box *x, struct found *f)
{
    struct session *s = t->s;
    session_note(s, NOTE_INFO, "INBOX was renamed to %s: its mails move there", f->vname);
    if (create_folder(s, f) < 0 || all_mails(s, x, orset_local_expunge) < 0)
        return -1;
    box_set_guid(s, x, NULL);
    box_unread(x);
    x->absent = TRUE;
    return rows_put_box(s, x);
}

static int match_known(struct tree *t)
{
    struct session *s = t->s;
    struct found *f;
    struct box *const *xp;
    array_foreach(&s->boxes, xp) (*xp)->absent = !(*xp)->found;
    array_foreach_modifiable(&t->found, f)
    {
        struct box *x = f->x;
        if (x == NULL || !x->found)
            continue;
        x->found = FALSE; /* under a second name it is no other one */
        if (x->folder == ORSET_INBOX && !vname_is_inbox(s, f->vname)) {
            if (inbox_renamed(t, x, f) < 0)
                return -1;
        } else if (strcmp(x->vname, f->vname) != 0 && renamed(s, x, f) < 0) {
            return -1;
        }
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
    bool was = x->absent;
    x->absent = FALSE;
    return was;
}

/* A row whose mailbox this one is, though it has another GUID. */
static struct box *damaged_as(struct tree *t, const struct found *f)
{
    struct session *s = t->s;
    buffer_t *name = t_buffer_create(128);
    struct box *x = NULL;
    if (vname_is_inbox(s, f->vname)) {
        x = box_by_folder(s, ORSET_INBOX);
    } else {
        for (struct box *at = box_first_of_vname(s, f->vname); at != NULL; at = at->next_vname)
            x = at->absent ? at : x;
        if (x == NULL && name_of_vname(s, f->vname, name)) {
            uint32_t folder = orset_folder_by_name(s->os, (const char *)name->data, name->used);
            /* Came from a peer, or is being made by this program; or was made by both. */
            if (folder != ORSET_NO_FOLDER && (x = box_by_folder(s, folder)) == NULL)
                return box_add(s, folder);
        }
    }
    return x != NULL && take_absent(x) ? x : NULL;
}

static int match_new(struct tree *t)
{
    struct session *s = t->s;
    struct found *f;
    array_foreach_modifiable(&t->found, f)
    {
        if (f->x != NULL || f->unreadable)
            continue;
        struct box *x = damaged_as(t, f);
        if (x != NULL && x->vname != NULL && !x->gone && !guid_128_is_empty(x->guid))
            session_note(s, NOTE_WARNING, "%s: its mailbox is another one (GUID %s): what is missing in it is damage", f->vname,
                         guid_128_to_string(f->guid));
        if ((x != NULL ? bind_box(s, x, f) : create_folder(s, f)) < 0)
            return -1;
    }
    return 0;
}

static int make_again(struct session *s, struct box *x)
{
    x->absent = FALSE;
    x->gone = TRUE;
    box_set_guid(s, x, NULL);
    box_unread(x);
    return rows_put_box(s, x);
}

/* Deleted by a user, by this program, or lost. */
static int judge_deleted(struct tree *t)
{
    struct session *s = t->s;
    ARRAY(struct box *) boxes; /* some are forgotten by the way */
    struct box *const *xp;
    t_array_init(&boxes, 16);
    array_append_array(&boxes, &s->boxes);
    array_foreach(&boxes, xp)
    {
        struct box *x = *xp;
        struct orset_folder f;
        if (!x->absent || x->gone || guid_128_is_empty(x->guid))
            continue;
        bool known = orset_folder_get(s->os, x->folder, &f) == 0, moved = known && f.live && f.home != x->folder;
        bool dead = !known || !f.live || moved;
        if (x->folder == ORSET_INBOX || (!x->deleting && !dead && !has_intent(t, x->guid)))
            continue;
        /* What the user had before another site's folder of that name was known here; of the other one he has seen nothing. */
        if (!x->deleting && moved && has_intent(t, x->guid) && core(s, orset_local_delete_moved(s->os, x->folder), x->vname) < 0)
            return -1;
        if (!x->deleting && !dead && x->adopted != 0) {
            if (core(s, orset_local_delete_moved(s->os, x->adopted - 1), x->vname) < 0 || make_again(s, x) < 0)
                return -1;
            continue;
        }
        if (!x->deleting && !dead && core(s, orset_local_delete(s->os, x->folder), x->vname) < 0)
            return -1;
        box_forget(s, x);
    }
    return 0;
}

static int judge_lost(struct tree *t)
{
    struct session *s = t->s;
    struct box *const *xp;
    array_foreach(&s->boxes, xp)
    {
        struct box *x = *xp;
        if (!x->absent || x->gone)
            continue;
        if (!guid_128_is_empty(x->guid))
            session_note(s, NOTE_WARNING, "%s is gone though nobody deleted it: it is made again", x->vname);
        if (all_mails(s, x, orset_local_missing) < 0)
            return -1;
        if (make_again(s, x) < 0)
            return -1;
    }
    return 0;
}

static int find(struct tree *t)
{
    struct session *s = t->s;
    struct found *f;
    struct box *const *x;
    array_clear(&t->found);
    if (find_mailboxes(t) < 0 || look_at_intents(t) < 0)
        return -1;
    parse_intents(t);
    array_foreach(&s->boxes, x) (*x)->found = FALSE;
    array_foreach_modifiable(&t->found, f)
    {
        f->x = f->unreadable ? box_by_vname(s, f->vname) : box_by_guid(s, f->guid);
        if (f->x != NULL)
            f->x->found = TRUE;
    }
    return 0;
}

static bool any_missing(struct session *s)
{
    struct box *const *x;
    array_foreach(&s->boxes, x)
    {
        if (!(*x)->found && !(*x)->gone && !guid_128_is_empty((*x)->guid))
            return TRUE;
    }
    return FALSE;
}

/* One that was renamed while the list was read is found under both names, or under neither, and a Maildir's children are renamed one by
 * one: before any is missed, nobody may rename or delete. Not at first: clients would wait for each look. */
static int find_all(struct tree *t)
{
    if (take_intents(t) < 0 || find(t) < 0)
        return -1;
    if (!any_missing(t->s))
        return 0;
    if (session_lock_lists(t->s) < 0)
        return -1;
    int r = find(t);
    session_unlock_lists(t->s);
    return r;
}

static int conclude(struct tree *t)
{
    if (find_all(t) < 0)
        return -1;
    return match_known(t) < 0 || judge_deleted(t) < 0 || match_new(t) < 0 ? -1 : judge_lost(t);
}

int boxes_ingest(struct session *s)
{
    struct tree t = {.s = s};
    const char *const *dir;
    t_array_init(&t.found, 16);
    i_array_init(&t.deletions, 64);
    int r = conclude(&t);
    str_free(&t.intents);
    array_free(&t.deletions);
    if (r < 0 || !t.taken)
        return r;
    crash_at("intents");
    /* Nothing else tells of a deletion: after a power loss a state without it would have the folder made again. */
    if (session_commit(s) < 0 || (state_sqlite_checkpoint(s->db) < 0 && session_fail(s, "state: %s", state_sqlite_error(s->db)) < 0) ||
        session_begin(s) < 0)
        return -1;
    array_foreach(&t.journals, dir) (void)unlink(intents_path(*dir, TRUE));
    return 0;
}
