/* intent - writes a line before each such change, and one behind it that takes it back. */
#include "dovecot-plugin/compat.h"

#include "dovecot-plugin/plugin/intent.h"
#include "dovecot-plugin/protocol/delivery_id.h"
#include "dovecot-plugin/protocol/line.h"

#include <errno.h>
#include <fcntl.h>
#include <mail-storage-private.h>
#include <mailbox-list-private.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define INTENT_DIR "dovelane"
#define INTENT_FILE "intents"
/* The reader holds its lock for a rename() only. */
#define LOCK_TRIES 100
#define LOCK_PAUSE_US 1000

static struct mailbox_list *journal_list(struct mailbox_list *list)
{
    struct mail_namespace *ns = list->ns;

    if (ns->type != MAIL_NAMESPACE_TYPE_PRIVATE)
        return list;
    for (ns = ns->user->namespaces; ns != NULL; ns = ns->next) {
        if ((ns->flags & NAMESPACE_FLAG_INBOX_USER) != 0)
            return ns->list;
    }
    return list;
}

/* Whose subscriptions the mailbox's name is among: where its namespace has none, a parent's. */
static struct mailbox_list *subscriptions_list(struct mailbox *box)
{
    struct mail_namespace *ns = box->list->ns;

    if ((ns->flags & NAMESPACE_FLAG_SUBSCRIPTIONS) == 0)
        ns = mail_namespace_find_subscribable(ns->user->namespaces, box->vname);
    return ns == NULL ? box->list : ns->list;
}

/* Makes the journal, with the permissions of the mail directory. Its descriptor, or -1. */
static int journal_create(struct mailbox_list *list, const char *dir, const char *path)
{
    struct mailbox_permissions perm;
    mode_t old_mask;
    int fd;

    if (mailbox_list_mkdir_root(list, dir, MAILBOX_LIST_PATH_TYPE_CONTROL) < 0)
        return -1;
    mailbox_list_get_root_permissions(list, &perm);
    old_mask = umask(0);
    fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW,
              perm.file_create_mode);
    umask(old_mask);
    if (fd != -1 && perm.file_create_gid != (gid_t)-1 &&
        fchown(fd, (uid_t)-1, perm.file_create_gid) < 0) {
        /* Then it stays with our own group: it is the owner that must read it. */
    }
    return fd;
}

/* True when the reader has taken the file away since it was opened. */
static bool taken_away(int fd, const char *path)
{
    struct stat opened, named;

    return fstat(fd, &opened) == 0 && (stat(path, &named) < 0 || opened.st_ino != named.st_ino ||
                                       opened.st_dev != named.st_dev);
}

/* The journal, open for appending and locked, or -1 and errno. */
static int journal_open(struct mailbox_list *list, const char **path_r)
{
    const char *root, *dir;

    if (!mailbox_list_get_root_path(list, MAILBOX_LIST_PATH_TYPE_CONTROL, &root)) {
        errno = ENOENT;
        return -1;
    }
    dir = t_strdup_printf("%s/%s", root, INTENT_DIR);
    *path_r = t_strdup_printf("%s/%s", dir, INTENT_FILE);
    for (int i = 0; i < LOCK_TRIES; i++) {
        int fd = open(*path_r, O_WRONLY | O_APPEND | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);

        if (fd == -1 && errno == ENOENT)
            fd = journal_create(list, dir, *path_r);
        if (fd == -1)
            return -1;
        if (flock(fd, LOCK_SH | LOCK_NB) == 0 && !taken_away(fd, *path_r))
            return fd;
        i_close_fd(&fd);
        usleep(LOCK_PAUSE_US);
    }
    errno = EAGAIN;
    return -1;
}

/* What a folder is called that somebody else owns is known to him, not to us. */
static bool is_owners_name(const struct mailbox *box, enum line_intent what)
{
    return what != LINE_INTENT_DELETE || box->list->ns->type != MAIL_NAMESPACE_TYPE_SHARED;
}

static bool write_text(const struct intent *intent, enum line_intent what, const char *text)
{
    char line[LINE_INTENT_MAX];
    size_t size = line_intent(line, what, intent->guid, text);

    if (size != 0)
        return write(intent->fd, line, size) == (ssize_t)size;
    errno = ENAMETOOLONG;
    return FALSE;
}

static bool write_line(const struct intent *intent, enum line_intent what)
{
    return write_text(intent, what, is_owners_name(intent->box, what) ? intent->box->vname : "");
}

static void begin(struct intent *intent_r, struct mailbox *box, struct mailbox_list *list,
                  const char *guid, enum line_intent what, const char *else_what)
{
    intent_r->box = box;
    intent_r->guid = guid;
    intent_r->path = "";
    intent_r->fd = journal_open(journal_list(list), &intent_r->path);
    if (intent_r->fd != -1 && write_line(intent_r, what))
        return;
    e_warning(box->event,
              "dovelane: cannot write to the journal of intents %s (%m): the replicator will take "
              "this for damage and %s",
              intent_r->path, else_what);
    if (intent_r->fd != -1)
        i_close_fd(&intent_r->fd);
}

void intent_begin(struct intent *intent_r, struct mailbox *box, const char *guid)
{
    begin(intent_r, box, box->list, guid, LINE_INTENT_DELETE, "bring the folder back");
}

void intent_end(struct intent *intent, bool done, uint32_t uid_next, uint32_t uid_validity)
{
    bool written = TRUE;

    if (intent->fd == -1)
        return;
    if (!done)
        written = write_line(intent, LINE_INTENT_VOID);
    else if (intent->guid != NULL && uid_next > 1)
        written = write_text(intent, LINE_INTENT_UID_NEXT,
                             t_strdup_printf("%u %u", uid_next, uid_validity));
    if (!written)
        e_warning(intent->box->event, "dovelane: write(%s): %m", intent->path);
    i_close_fd(&intent->fd);
}

void intent_subscription_begin(struct intent *intent_r, struct mailbox *box, bool set)
{
    begin(intent_r, box, subscriptions_list(box), NULL,
          set ? LINE_INTENT_SUBSCRIBE : LINE_INTENT_UNSUBSCRIBE,
          "undo it, where the name was subscribed before");
}

void intent_subscription_end(struct intent *intent)
{
    if (intent->fd != -1)
        i_close_fd(&intent->fd);
}

/* --- deliveries that saved nothing ------------------------------------------------------------ */

static bool append_discarded(struct mailbox_list *list, const char *dir, const char *guid)
{
    const char *path = t_strconcat(dir, "/" DELIVERY_DISCARDED, NULL);
    const char *line = t_strconcat(guid, "\n", NULL);
    struct stat st;
    int fd = open(path, O_WRONLY | O_APPEND | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);

    if (fd == -1 && errno == ENOENT)
        fd = journal_create(list, dir, path);
    if (fd == -1)
        return FALSE;
    bool written = write(fd, line, strlen(line)) == (ssize_t)strlen(line);
    if (written && fstat(fd, &st) == 0 && st.st_size >= DELIVERY_DISCARDED_MOST)
        written = rename(path, t_strconcat(dir, "/" DELIVERY_DISCARDED_OLD, NULL)) == 0;
    i_close_fd(&fd);
    return written;
}

void intent_note_discarded(struct mail_user *user, const char *guid)
{
    struct mail_namespace *ns = mail_namespace_find_inbox(user->namespaces);
    const char *root;

    if (!mailbox_list_get_root_path(ns->list, MAILBOX_LIST_PATH_TYPE_CONTROL, &root))
        return;
    const char *dir = t_strdup_printf("%s/%s", root, INTENT_DIR);
    if (!append_discarded(ns->list, dir, guid))
        e_warning(user->event,
                  "dovelane: cannot write to %s/" DELIVERY_DISCARDED " (%m): a relay that asks for "
                  "this delivery, which saved nothing, makes it once more",
                  dir);
}
