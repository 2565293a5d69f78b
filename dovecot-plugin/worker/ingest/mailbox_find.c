/* mailbox_find - which mailboxes there are. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/worker/ingest/mailbox_diff.h"
#include "dovecot-plugin/worker/ingest/pass.h"
#include "dovecot-plugin/worker/ingest/reading.h"
#include "dovecot-plugin/worker/logs/journal.h"
#include "dovecot-plugin/worker/session/lasting.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <guid.h>
#include <mail-storage-private.h>
#include <mailbox-list-iter.h>
#include <mailbox-list-private.h>

#include <sys/stat.h>

/* Whoever was deleting it was killed between marking its index and removing it: nobody can open
 * it, and Dovecot itself lets it be seen again after a while. Nobody was told that it is gone;
 * what this program was about to delete, it deletes anew. Who deletes without the plugin, or
 * could not write his line, has the lists' lock. */
static bool undelete(struct session *s, struct mailbox **box, const char *vname)
{
    if (!(*box)->mailbox_deleted || journal_in_use(s) || session_lock_lists(s) < 0)
        return FALSE;
    mailbox_free(box);
    *box = session_mailbox(s, vname, 0);
    bool undone = mailbox_mark_index_deleted(*box, FALSE) == 0;
    session_unlock_lists(s);
    if (!undone)
        return FALSE;
    mailbox_free(box);
    *box = session_mailbox(s, vname, 0);
    session_note(s, NOTE_INFO, "%s: its deletion was cut short: it is there as before", vname);
    return TRUE;
}

static bool open_found(struct session *s, struct mailbox **box, const char *vname)
{
    return session_open_refreshed(*box) == 0 ||
           (undelete(s, box, vname) && session_open_refreshed(*box) == 0);
}

/* It never had a mail. A Maildir's index does not know those that came since its last sync. */
static bool is_unused(struct session *s, struct mailbox *box, uint32_t uidnext)
{
    struct mailbox_status status = {.uidnext = uidnext};
    if (uidnext <= 1 && is_maildir(box) && peers_may_know_older(s) && mailbox_sync(box, 0) == 0)
        mailbox_get_open_status(box, STATUS_UIDNEXT, &status);
    return status.uidnext <= 1;
}

static void add_found(struct tree *t, const char *vname)
{
    struct found_mailbox f = {.vname = t_strdup(vname)};
    struct mailbox_metadata metadata;
    struct mailbox_status status;
    struct mailbox *box = session_mailbox(t->s, vname, 0);
    enum mail_error error;
    const struct box *x = box_by_vname(t->s, vname);
    uint64_t files,
        stamp = x == NULL || x->gone || x->at.stamp == 0 ? 0 : ingest_stamp(box, &files);
    /* where there is a stamp, there is a log */
    if (x != NULL && stamp == 0 && session_index_is_lost(t->s, x, box)) {
        f.unreadable = t->in->locked = TRUE;
        array_push_back(&t->found, &f);
    } else if (stamp != 0 && stamp == x->at.stamp) {
        memcpy(f.guid, x->guid, sizeof f.guid); /* nothing was written to it since it was read */
        f.uid_validity = x->at.uid_validity;
        array_push_back(&t->found, &f);
    } else if (
        open_found(
            t->s, &box,
            vname) && /* else the list index would be asked, which opens whatever else is new */
        mailbox_get_metadata(box, MAILBOX_METADATA_GUID, &metadata) == 0 &&
        mailbox_get_status(box, STATUS_UIDVALIDITY | STATUS_UIDNEXT, &status) == 0 &&
        (status.uidvalidity != 0 ||
         (mailbox_sync(box, 0) == 0 &&
          mailbox_get_status(box, STATUS_UIDVALIDITY | STATUS_UIDNEXT, &status) == 0))) {
        memcpy(f.guid, metadata.guid, sizeof f.guid);
        f.uid_validity = status.uidvalidity;
        f.unused = is_unused(t->s, box, status.uidnext);
        array_push_back(&t->found, &f);
    } else {
        const char *text = mailbox_get_last_internal_error(box, &error);
        bool going = session_box_is_going(t->s, box);
        if (going || error != MAIL_ERROR_NOTFOUND) {
            if (!going && session_box_is_locked(t->s, box))
                t->in->locked = TRUE;
            else if (!going) {
                lasting_note(t->s, LASTING_CLOSED, vname, "%s cannot be read and waits: %s", vname,
                             text);
                f.lasting = TRUE;
            }
            f.unreadable = TRUE;
            array_push_back(&t->found, &f);
        }
    }
    if (!f.unreadable)
        lasting_over(t->s, LASTING_CLOSED, vname);
    mailbox_free(&box);
}

static bool is_symlink(struct mailbox_list *list, const char *name)
{
    const char *path;
    struct stat st;
    return mailbox_list_get_path(list, name, MAILBOX_LIST_PATH_TYPE_DIR, &path) > 0 &&
           lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
}

/* Another name of a mailbox, or of one of its parents. The iteration could leave these out
 * itself, and would fail for each mailbox that somebody deletes meanwhile. */
static bool is_alias(struct mailbox_list *list, const char *vname)
{
    const char *name = mailbox_list_get_storage_name(list, vname), *end = name;
    char sep = mailbox_list_get_hierarchy_sep(list);
    bool alias = FALSE;
    while (!alias && end != NULL && *end != '\0') {
        end = strchr(end + 1, sep);
        const char *part = end == NULL ? name : t_strdup_until(name, end);
        /* that one's directory may be the root, which is often a link */
        alias = strcmp(part, "INBOX") != 0 && is_symlink(list, part);
    }
    return alias;
}

/* By its path, whether or not it can be opened. 1; 0: it is not there, and none can be; -1: the file
 * system does not tell (errno). */
static int stat_mailbox(struct session *s, const char *vname, const char **path_r)
{
    struct mail_namespace *ns = mail_namespace_find(s->user->namespaces, vname);
    const char *name = mailbox_list_get_storage_name(ns->list, vname), *why;
    struct stat st;
    if (!session_has_namespace(s, ns) || !mailbox_list_is_valid_name(ns->list, name, &why) ||
        is_alias(ns->list, vname) ||
        mailbox_list_get_path(ns->list, name, MAILBOX_LIST_PATH_TYPE_MAILBOX, path_r) <= 0)
        return 0;
    /* With LAYOUT=fs, a Maildir that was deleted keeps its directory while it has children. */
    if (strcmp(mail_namespace_get_default_storage(ns)->name, "maildir") == 0)
        *path_r = t_strconcat(*path_r, "/cur", NULL);
    return stat(*path_r, &st) == 0 ? 1 : is_not_there(errno) ? 0 : -1;
}

static void add_closed(struct tree *t, const char *vname, const char *path)
{
    struct found_mailbox f = {.vname = t_strdup(vname), .unreadable = TRUE, .lasting = TRUE};
    lasting_note(t->s, LASTING_CLOSED, vname, "%s cannot be read and waits: stat(%s): %m", vname,
                 path);
    array_push_back(&t->found, &f);
}

/* One error and nothing is concluded: a list that was not read to its end lacks mailboxes that
 * are there. */
int mailboxes_find(struct tree *t)
{
    int r = 0;
    for (struct mail_namespace *ns = t->s->user->namespaces; ns != NULL && r == 0; ns = ns->next) {
        const struct mailbox_info *info;
        const char *path;
        if (!session_has_namespace(t->s, ns))
            continue;
        /* The list index is not asked: it opens each mailbox that it does not know yet. */
        struct mailbox_list_iterate_context *iter = mailbox_list_iter_init(
            ns->list, "*", MAILBOX_LIST_ITER_RAW_LIST | MAILBOX_LIST_ITER_NO_AUTO_BOXES);
        while ((info = mailbox_list_iter_next(iter)) != NULL)
            if (is_alias(ns->list, info->vname))
                continue;
            else if ((info->flags & (MAILBOX_NOSELECT | MAILBOX_NONEXISTENT)) == 0)
                add_found(t, info->vname);
            else if (stat_mailbox(t->s, info->vname, &path) < 0)
                /* one whose directory the user may not enter is listed as if it were none */
                add_closed(t, info->vname, path);
        if (mailbox_list_iter_deinit(&iter) < 0)
            r = session_fail(t->s, "namespace %s cannot be listed: %s", compat_namespace_name(ns),
                             mailbox_list_get_last_internal_error(ns->list, NULL));
    }
    return r;
}

/* Dovecot's list leaves out, and reports no error, a mailbox whose directory it may not enter, and
 * all that is in a directory that it may not read. So each known mailbox that is not in the list is
 * asked for by its name. It is missed only where the file system says that nothing is there. */
static void add_unlisted(struct tree *t, const char *vname)
{
    const char *path;
    int r = stat_mailbox(t->s, vname, &path);
    if (r > 0)
        add_found(t, vname);
    else if (r < 0)
        add_closed(t, vname, path);
}

static void mark_rows_of(struct session *s, const char *vname)
{
    for (struct box *x = box_first_of_vname(s, vname); x != NULL; x = x->next_vname)
        x->pass.found = TRUE;
}

void mailboxes_find_unlisted(struct tree *t)
{
    const struct found_mailbox *f;
    struct box *const *xp;
    array_foreach (&t->s->boxes, xp)
        (*xp)->pass.found = FALSE;
    array_foreach (&t->found, f)
        mark_rows_of(t->s, f->vname);
    array_foreach (&t->s->boxes, xp) {
        const struct box *x = *xp;
        if (x->pass.found || x->gone || x->vname == NULL || guid_128_is_empty(x->guid))
            continue;
        add_unlisted(t, x->vname);
        mark_rows_of(t->s, x->vname);
    }
}
