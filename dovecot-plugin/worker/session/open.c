/* open - mailboxes, which clients make, rename and delete at the same time.
 *
 * Dovecot does all of that under the lock of the mailbox list. Who opens a mailbox that is being
 * made makes it himself, and the CREATE that is under way is answered ALREADYEXISTS; the library
 * opens some unasked, when it brings its list index up to date. So none is opened here that is
 * not whole, but under that lock. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/worker/session/flags.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <guid.h>
#include <hostpid.h>
#include <mail-index-alloc-cache.h>
#include <mail-index-private.h>
#include <mail-storage-hooks.h>
#include <mail-storage-private.h>
#include <mail-transaction-log-private.h>
#include <mailbox-list-index.h>
#include <mailbox-list-private.h>
#include <maildir-storage.h>
#include <maildir-uidlist.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#if __has_include(<acl-plugin.h>)
#include <acl-plugin.h>
#define HAS_ACL 1
#else
#define HAS_ACL 0
#endif

/* for a Maildir's uidlist: longer than Dovecot needs to see that a lock's process is gone */
#define LOCK_WAIT_SECS 3
#define LOCKED_AGAIN 1000 /* milliseconds until a mailbox that was locked is tried again */
/* the same, where it is being deleted: a hint follows that, or its process was killed */
#define DELETED_AGAIN 2000

struct opened {
    union mailbox_module_context module_ctx;
    /* of an open Maildir, the directory of its dovecot-uidlist: wherever it is by now; else -1 */
    int control_fd;
};

static MODULE_CONTEXT_DEFINE_INIT(open_module, &mail_storage_module_register);

/* A dbox mailbox is made in steps: its directory, an empty index log, a record in it of when
 * temporary files were looked for, and at last its UIDVALIDITY. Whoever opens it before writes
 * that himself. */
static bool has_index(struct mailbox *box)
{
    static const char *const later[] = {"dovecot.index", "dovecot.index.log.2", NULL};
    const char *path;
    struct stat st;
    bool made = FALSE;
    if (mailbox_get_path_to(box, MAILBOX_LIST_PATH_TYPE_INDEX, &path) <= 0)
        return FALSE;
    for (const char *const *name = later; *name != NULL; name++)
        if (stat(t_strdup_printf("%s/%s", path, *name), &st) == 0)
            return TRUE;
    if (stat(t_strconcat(path, "/dovecot.index.log", NULL), &st) < 0 ||
        st.st_size <= (off_t)sizeof(struct mail_transaction_log_header))
        return FALSE;
    struct mail_index *index = mail_index_alloc(box->event, path, "dovecot.index");
    if (mail_index_open(index, MAIL_INDEX_OPEN_FLAG_READONLY) > 0) {
        struct mail_index_view *view = mail_index_view_open(index);
        made = mail_index_get_header(view)->uid_validity != 0;
        mail_index_view_close(&view);
        mail_index_close(index);
    }
    mail_index_free(&index);
    return made;
}

bool is_maildir(const struct mailbox *box)
{
    return strcmp(box->storage->name, "maildir") == 0;
}

bool maildir_has(struct mailbox *box, const char *name)
{
    const char *path;
    return is_maildir(box) && mailbox_get_path_to(box, MAILBOX_LIST_PATH_TYPE_CONTROL, &path) > 0 &&
           access(t_strdup_printf("%s/%s", path, name), F_OK) == 0;
}

static bool is_whole(struct mailbox *box)
{
    const char *path;
    struct stat st;
    if (!is_maildir(box))
        return has_index(box);
    return mailbox_get_path_to(box, MAILBOX_LIST_PATH_TYPE_MAILBOX, &path) > 0 &&
           stat(t_strconcat(path, "/tmp", NULL), &st) == 0;
}

/* --- a Maildir's uidlist lock ----------------------------------------------------------------- */

/* It holds "pid:host". Dovecot takes it away at once when that process is gone; when it names
 * none, being left by a process that was killed before it wrote that, after two minutes. */
static bool holder_is_gone(const char *path)
{
    char text[256];
    pid_t pid;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ssize_t n = fd == -1 ? 0 : read(fd, text, sizeof text - 1);
    i_close_fd(&fd);
    text[I_MAX(n, 0)] = '\0';
    char *host = strchr(text, ':');
    if (host == NULL)
        return FALSE;
    *host++ = '\0';
    return strcmp(host, my_hostname) == 0 && str_to_pid(text, &pid) == 0 && pid > 0 &&
           kill(pid, 0) < 0 && errno == ESRCH;
}

/* Held for longer than a change of the list takes, and Dovecot would wait for it. */
static bool is_locked(struct mailbox *box)
{
    const char *path;
    struct stat st;
    if (mailbox_get_path_to(box, MAILBOX_LIST_PATH_TYPE_CONTROL, &path) <= 0)
        return FALSE;
    path = t_strconcat(path, "/" MAILDIR_UIDLIST_NAME ".lock", NULL);
    if (lstat(path, &st) < 0)
        return FALSE;
    time_t age = time(NULL) - st.st_ctime;
    return age >= LOCK_WAIT_SECS && age <= MAILDIR_UIDLIST_LOCK_STALE_TIMEOUT &&
           !holder_is_gone(path);
}

/* Who waits here for a lock that was left, for two minutes, is a worker that other users do not
 * have. The index's own locks are the kernel's, nobody leaves them; their limit stays the
 * user's. */
static int open_maildir(struct mailbox *box, int (*open_box)(struct mailbox *))
{
    struct mail_storage *storage = box->storage;
    const struct mail_storage_settings *own = storage->set;
    if (is_locked(box)) {
        mail_storage_set_error(storage, MAIL_ERROR_TEMP, MAIL_ERRSTR_LOCK_TIMEOUT);
        return -1;
    }
    struct mail_storage_settings hasty = *own;
    if (hasty.mail_max_lock_timeout == 0 || hasty.mail_max_lock_timeout > LOCK_WAIT_SECS)
        hasty.mail_max_lock_timeout = LOCK_WAIT_SECS;
    storage->set = &hasty;
    int r = open_box(box);
    storage->set = own;
    if (box->index != NULL)
        mail_index_set_lock_method(box->index, own->parsed_lock_method,
                                   mail_storage_get_lock_timeout(storage, UINT_MAX));
    return r;
}

/* --- a lock that went along with a renamed mailbox -------------------------------------------- */

static void know_directory(struct mailbox *box, struct opened *o)
{
    const char *path;
    i_close_fd(&o->control_fd);
    if (mailbox_get_path_to(box, MAILBOX_LIST_PATH_TYPE_CONTROL, &path) > 0)
        o->control_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static bool is_own_lock(int dir_fd, const char *name)
{
    char text[256];
    int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ssize_t n = fd == -1 ? 0 : read(fd, text, sizeof text - 1);
    i_close_fd(&fd);
    text[I_MAX(n, 0)] = '\0';
    return strcmp(text, t_strdup_printf("%s:%s", my_pid, my_hostname)) == 0;
}

/* A client renamed the mailbox while this process held the lock of its dovecot-uidlist: it lies in
 * the new place, where nobody lets it go, and this process lives. Clients would wait for it. */
static void let_go_of_moved_lock(const char *path, int dir_fd)
{
    static const char name[] = MAILDIR_UIDLIST_NAME ".lock";
    struct stat here, there;
    if (fstat(dir_fd, &here) < 0 ||
        (stat(path, &there) == 0 && here.st_ino == there.st_ino && here.st_dev == there.st_dev))
        return;
    if (is_own_lock(dir_fd, name) && unlinkat(dir_fd, name, 0) < 0 && errno != ENOENT)
        i_error("unlink(%s/%s), which is elsewhere by now: %m", path, name);
}

static void close_maildir(struct mailbox *box)
{
    struct opened *o = MODULE_CONTEXT_REQUIRE(box, open_module);
    const char *path;
    T_BEGIN
    {
        bool known = o->control_fd != -1 &&
                     mailbox_get_path_to(box, MAILBOX_LIST_PATH_TYPE_CONTROL, &path) > 0;
        if (known)
            path = t_strdup(path);
        o->module_ctx.super.close(box);
        if (known)
            let_go_of_moved_lock(path, o->control_fd);
        i_close_fd(&o->control_fd);
    }
    T_END;
}

bool session_box_is_locked(struct session *s, struct mailbox *box)
{
    enum mail_error error;
    if (strcmp(mailbox_get_last_error(box, &error), MAIL_ERRSTR_LOCK_TIMEOUT) != 0)
        return FALSE;
    s->scan_again = TRUE;
    session_want_tick(s, LOCKED_AGAIN);
    return TRUE;
}

bool session_box_is_going(struct session *s, const struct mailbox *box)
{
    if (!box->mailbox_deleted)
        return FALSE;
    s->scan_again = TRUE;
    session_want_tick(s, DELETED_AGAIN);
    return TRUE;
}

bool session_sync_whole(struct session *s, struct mailbox *box)
{
    if (!is_maildir(box))
        return TRUE;
    struct maildir_uidlist *list = ((struct maildir_mailbox *)box)->uidlist;
    int r = maildir_uidlist_lock(list);
    if (r > 0) {
        enum mailbox_flags flags = box->flags;
        /* said to the sync, which expects no lock of its caller's otherwise */
        box->flags |= MAILBOX_FLAG_KEEP_LOCKED;
        r = mailbox_sync(box, MAILBOX_SYNC_FLAG_FULL_READ) < 0 ? -1 : 1;
        box->flags = flags;
        maildir_uidlist_unlock(list);
    }
    if (r <= 0) {
        s->scan_again = TRUE;
        session_want_tick(s, LOCKED_AGAIN);
    }
    return r > 0;
}

/* A log with the same number, or an earlier one, that is another file: the one in memory was
 * removed, and somebody made it anew. (A log that was rotated has a higher number.) */
static bool log_is_another(const struct mail_transaction_log_file *known, int fd, uint32_t file_seq)
{
    struct stat now, st;
    return known != NULL && known->fd != -1 && file_seq <= known->hdr.file_seq &&
           fstat(fd, &now) == 0 && fstat(known->fd, &st) == 0 &&
           (now.st_ino != st.st_ino || now.st_dev != st.st_dev);
}

bool index_is_another(const struct mail_index *index)
{
    struct mail_transaction_log_header head;
    if (index->open_count == 0 || index->indexid == 0 || MAIL_INDEX_IS_IN_MEMORY(index))
        return FALSE;
    int fd = open(t_strconcat(index->filepath, ".log", NULL), O_RDONLY | O_CLOEXEC);
    ssize_t n = fd == -1 ? 0 : read(fd, &head, sizeof head);
    /* the id is the second in which an index was made: two may share it */
    bool another =
        n == (ssize_t)sizeof head && head.indexid != 0 &&
        (head.indexid != index->indexid || log_is_another(index->log->head, fd, head.file_seq));
    i_close_fd(&fd);
    return another;
}

bool session_list_is_another(struct session *s)
{
    for (struct mail_namespace *ns = s->user->namespaces; ns != NULL; ns = ns->next) {
        const struct mailbox_list_index *index = INDEX_LIST_CONTEXT(ns->list);
        if (session_has_namespace(s, ns) && index != NULL && index->index != NULL &&
            index_is_another(index->index))
            return TRUE;
    }
    return FALSE;
}

/* The library keeps the index of a mailbox that was open in memory. It is brought up to date before
 * anybody looks into it: what was expunged since then would otherwise have all of its records
 * copied, as those of a view that has not seen that yet. Where another one is in its place, it is
 * forgotten. */
static void refresh_kept(struct mailbox *box)
{
    const char *path;
    if (mailbox_get_path_to(box, MAILBOX_LIST_PATH_TYPE_INDEX, &path) <= 0)
        return;
    struct mail_index *index = mail_index_alloc_cache_find(path);
    if (index == NULL || index->open_count == 0 || null_strcmp(index->dir, path) != 0)
        return;
    if (index_is_another(index))
        mail_index_alloc_cache_destroy_unrefed();
    else
        (void)mail_index_refresh(index); /* what fails fails again when the mailbox is open */
}

static int open_whole(struct mailbox *box)
{
    struct opened *o = MODULE_CONTEXT_REQUIRE(box, open_module);
    if (box->list->lock_refcount == 0 && !is_whole(box)) {
        mail_storage_set_error(box->storage, MAIL_ERROR_INUSE, "it is not there, or being made");
        return -1;
    }
    refresh_kept(box);
    if (!is_maildir(box))
        return o->module_ctx.super.open(box);
    know_directory(box, o);
    return open_maildir(box, o->module_ctx.super.open);
}

static void mailbox_allocated(struct mailbox *box)
{
    struct mailbox_vfuncs *v = box->vlast;
    if (!storage_known(box->storage))
        return;
    struct opened *o = p_new(box->pool, struct opened, 1);
    o->module_ctx.super = *v;
    box->vlast = &o->module_ctx.super;
    o->control_fd = -1;
    v->open = open_whole;
    if (is_maildir(box))
        v->close = close_maildir;
    MODULE_CONTEXT_SET(box, open_module, o);
}

static struct mail_storage_hooks hooks = {.mailbox_allocated = mailbox_allocated};

void open_init(void)
{
    mail_storage_hooks_add_internal(&hooks);
}

void open_deinit(void)
{
    mail_storage_hooks_remove_internal(&hooks);
}

/* --- the lists' lock -------------------------------------------------------------------------- */

/* A client that makes a mailbox has an empty directory first, and holds this lock. Whoever lists
 * the mailboxes meanwhile must not remove it: the CREATE would be answered NO. So this program
 * does under the lock only. */
static void drop_empty(struct session *s, bool drop)
{
    struct mailbox_list *const *list;
    array_foreach (&s->dropping, list)
        compat_list_drop_empty(*list, drop);
}

#if HAS_ACL
/* of the plugin, if the user has it: it is not linked */
static struct acl_storage_module *acl_module;
#endif

void session_lists_init(struct session *s)
{
#if HAS_ACL
    acl_module = dlsym(RTLD_DEFAULT, "acl_storage_module");
#endif
    i_array_init(&s->dropping, 4);
    for (struct mail_namespace *ns = s->user->namespaces; ns != NULL; ns = ns->next)
        if (compat_list_drops_empty(ns->list))
            array_push_back(&s->dropping, &ns->list);
    drop_empty(s, FALSE);
}

void session_lists_deinit(struct session *s)
{
    array_free(&s->dropping);
}

void session_unlock_lists(struct session *s)
{
    drop_empty(s, FALSE);
    for (struct mail_namespace *ns = s->user->namespaces; ns != NULL; ns = ns->next)
        if (ns->list->lock_refcount > 0 && session_has_namespace(s, ns))
            mailbox_list_unlock(ns->list);
}

int session_lock_lists(struct session *s)
{
    for (struct mail_namespace *ns = s->user->namespaces; ns != NULL; ns = ns->next)
        if (session_has_namespace(s, ns) && mailbox_list_lock(ns->list) < 0) {
            session_fail(s, "namespace %s: %s", compat_namespace_name(ns),
                         mailbox_list_get_last_internal_error(ns->list, NULL));
            session_unlock_lists(s);
            return -1;
        }
    drop_empty(s, TRUE);
    return 0;
}

/* --- opening ---------------------------------------------------------------------------------- */

void session_mark_list(struct mailbox_list *list)
{
    struct mailbox_list_index *index = INDEX_LIST_CONTEXT(list);
    if (index == NULL || !index->has_backing_store)
        return;
    if (mailbox_list_index_index_open(list) < 0)
        return; /* it logged why */
    /* somebody may have read the names since it was marked */
    (void)mail_index_refresh(index->index);
    mailbox_list_index_refresh_later(list);
    /* a CREATE sees that it is marked, and writes nothing */
    (void)mail_index_refresh(index->index);
}

/* A user may take his own rights to a mailbox away, and gives them back. Not by
 * MAILBOX_FLAG_IGNORE_ACLS: the mailbox would have no rights then that could be replicated (for
 * those, there is user->dsyncing). */
static void let_in(struct mailbox *box)
{
#if HAS_ACL
    struct acl_mailbox *acl = acl_module == NULL ? NULL : MODULE_CONTEXT(box, *acl_module);
    if (acl != NULL)
        acl->skip_acl_checks = TRUE;
#else
    (void)box;
#endif
}

/* Dovecot makes a mailbox with `auto` when somebody opens it. One that this program made so
 * would be younger than the other sites' ones, and its UIDVALIDITY be theirs. */
static void never_make(struct mailbox *box)
{
    if (box->set == NULL)
        return;
    struct mailbox_settings *set = p_new(box->pool, struct mailbox_settings, 1);
    *set = *box->set; /* 2.4: its pool's reference goes along, and is let go with the mailbox */
    set->autocreate = MAILBOX_SET_AUTO_NO;
    box->set = set;
}

struct mailbox *session_mailbox(struct session *s, const char *vname, enum mailbox_flags flags)
{
    struct mail_namespace *ns = mail_namespace_find(s->user->namespaces, vname);
    struct mailbox *box = mailbox_alloc(ns->list, vname, flags);
    let_in(box);
    never_make(box);
    return box;
}

int session_open_refreshed(struct mailbox *box)
{
    let_in(box); /* its creation has ended that */
    int r = mailbox_open(box);
    if (r < 0 && mailbox_get_last_mail_error(box) == MAIL_ERROR_INUSE) {
        session_mark_list(box->list);
        if (mailbox_list_lock(box->list) < 0) {
            mail_storage_copy_list_error(box->storage, box->list);
            return -1;
        }
        r = mailbox_open(box);
        mailbox_list_unlock(box->list);
    }
    if (r < 0)
        return -1;
    if (mail_index_refresh(box->index) < 0) {
        mailbox_set_index_error(box);
        return -1;
    }
    if (!mail_index_is_deleted(box->index))
        return 0;
    mailbox_set_deleted(box);
    return -1;
}

bool session_is_box(struct session *s, const struct box *x, struct mailbox *box)
{
    struct mailbox_metadata now;
    if (guid_128_is_empty(x->guid))
        return TRUE;
    if (mailbox_get_metadata(box, MAILBOX_METADATA_GUID, &now) < 0)
        return FALSE;
    if (guid_128_equals(now.guid, x->guid))
        return TRUE;
    mail_storage_set_error(box->storage, MAIL_ERROR_NOTFOUND, "another mailbox is there by now");
    s->tree_changed = s->scan_again = TRUE;
    session_want_tick(s, 100);
    return FALSE;
}

bool session_index_is_lost(struct session *s, const struct box *x, struct mailbox *box)
{
    const char *path;
    struct stat st;
    if (x->now.log_seq == 0 || mailbox_get_path_to(box, MAILBOX_LIST_PATH_TYPE_INDEX, &path) <= 0 ||
        stat(t_strconcat(path, "/dovecot.index.log", NULL), &st) == 0 || errno != ENOENT)
        return FALSE;
    /* It went with its mailbox: deleted, or renamed. */
    if (mailbox_get_path_to(box, MAILBOX_LIST_PATH_TYPE_MAILBOX, &path) <= 0 || stat(path, &st) < 0)
        return FALSE;
    s->index_lost = s->scan_again = TRUE;
    session_want_tick(s, 100);
    return TRUE;
}

int session_open_mailbox(struct session *s, const struct box *x, struct mailbox *box)
{
    struct mail_index_view_sync_rec rec;
    bool delayed;
    if (session_open_refreshed(box) < 0) {
        (void)session_box_is_locked(s, box);
        return -1;
    }
    struct mail_index_view_sync_ctx *sync =
        mail_index_view_sync_begin(box->view, MAIL_INDEX_VIEW_SYNC_FLAG_FIX_INCONSISTENT);
    while (mail_index_view_sync_next(sync, &rec))
        ;
    if (mail_index_view_sync_commit(&sync, &delayed) < 0) {
        mailbox_set_index_error(box);
        return -1;
    }
    /* The index was made by this open, and has no UIDVALIDITY before a sync. */
    if (mail_index_get_header(box->view)->uid_validity == 0 && mailbox_sync(box, 0) < 0)
        return -1;
    if (is_maildir(box))
        flags_name_letters(box);
    return session_is_box(s, x, box) ? 0 : -1;
}

void session_read_end(struct mailbox_transaction_context **trans)
{
    mailbox_transaction_rollback(trans);
}

int session_enable_modseq(struct mailbox *box)
{
    /* The library keeps an index for a while, and may remember of the one before a reset that it
     * had modseqs. */
    compat_index_forget_modseqs(box->index);
    return mailbox_enable(box, MAILBOX_FEATURE_CONDSTORE);
}
