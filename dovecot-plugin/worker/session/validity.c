/* validity - the UIDVALIDITY of mailboxes.
 *
 * Dovecot gives each new mailbox of a list the next number of a counter, the name of an empty
 * file (dovecot-uidvalidity.%08x), and does not count what somebody else chose. A client could
 * make a mailbox then, under a name that another site's had had, and get that one's UIDVALIDITY.
 *
 * A mailbox that never had a mail may have another UIDVALIDITY: no UID of it is anybody's, so a
 * lower one harms nobody. The lock that who saves a mail takes is held meanwhile. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/session.h"
#include "dovecot-plugin/worker/session/validity.h"

#include <mail-index-private.h>
#include <mail-storage-private.h>
#include <mailbox-uidvalidity.h>
#include <maildir-storage.h>
#include <maildir-uidlist.h>
#include <write-full.h>

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define COUNTER_TRIES 5 /* others count, too */

/* --- the counter ------------------------------------------------------------------------------ */

static const char *counter_path(struct mailbox_list *list)
{
    const char *root;
    return mailbox_list_get_root_path(list, MAILBOX_LIST_PATH_TYPE_CONTROL, &root)
               ? t_strconcat(root, "/" MAILDIR_UIDVALIDITY_FNAME, NULL)
               : NULL;
}

/* Of an empty file, or of what the other file says. 0: it is no number */
static uint32_t counter_of(const char *hex)
{
    uint32_t n;
    return strlen(hex) == 8 && str_to_uint32_hex(hex, &n) == 0 ? n : 0;
}

/* What is said may be behind, by a process that was slow to write it, and is only a hint. */
static uint32_t counter_said(const char *path)
{
    char hex[9] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd == -1)
        return 0;
    ssize_t n = read(fd, hex, 8);
    i_close_fd(&fd);
    return n == 8 ? counter_of(hex) : 0;
}

/* The last one; those that are lower go, as they do when Dovecot comes by. 0: there is none */
static uint32_t counter_find(const char *path)
{
    const char *name = strrchr(path, '/') + 1, *dir = t_strdup_until(path, name);
    size_t len = strlen(name);
    uint32_t most = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        if (strncmp(e->d_name, name, len) != 0 || e->d_name[len] != '.')
            continue;
        uint32_t n = counter_of(e->d_name + len + 1), less = I_MIN(n, most);
        if (less != 0 && less != I_MAX(n, most))
            (void)unlink(t_strdup_printf("%s.%08x", path, less));
        most = I_MAX(n, most);
    }
    if (d != NULL)
        (void)closedir(d);
    return most;
}

static bool counter_move(const char *path, uint32_t from, uint32_t to)
{
    char hex[9];
    if (from == 0 ||
        rename(t_strdup_printf("%s.%08x", path, from), t_strdup_printf("%s.%08x", path, to)) < 0)
        return FALSE;
    /* Where this fails, whoever counts next looks for the file. */
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    (void)snprintf(hex, sizeof hex, "%08x", to);
    if (fd != -1 && pwrite_full(fd, hex, 8, 0) < 0)
        (void)unlink(path);
    i_close_fd(&fd);
    return TRUE;
}

static void count(struct mailbox_list *list, uint32_t uid_validity, bool make)
{
    const char *path = counter_path(list);
    uint32_t at = path == NULL ? 0 : counter_said(path);
    for (unsigned i = 0; path != NULL && i < COUNTER_TRIES; i++) {
        if (at >= uid_validity || counter_move(path, at, uid_validity))
            return;
        at = counter_find(path);
        if (at == 0 && !make)
            return;
        if (at == 0)
            at = mailbox_uidvalidity_next(list, path); /* it begins */
    }
}

void validity_count(struct mailbox_list *list, uint32_t uid_validity)
{
    T_BEGIN
    {
        count(list, uid_validity, TRUE);
    }
    T_END;
}

void validity_count_all(struct session *s)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < orset_folders(s->os); i++) {
        struct orset_folder f;
        if (orset_folder_get(s->os, i, &f) == 0)
            most = I_MAX(most, f.uid_validity);
    }
    for (struct mail_namespace *ns = s->user->namespaces; ns != NULL; ns = ns->next) {
        T_BEGIN
        {
            if (session_has_namespace(s, ns))
                count(ns->list, most, FALSE);
        }
        T_END;
    }
}

/* --- of a mailbox without a mail -------------------------------------------------------------- */

static bool index_set(struct mailbox *box, uint32_t uid_validity, uint32_t uid_next)
{
    struct mail_index_sync_ctx *sync;
    struct mail_index_view *view;
    struct mail_index_transaction *trans;
    if (mail_index_sync_begin(box->index, &sync, &view, &trans, 0) <= 0)
        return FALSE;
    const struct mail_index_header *hdr = mail_index_get_header(view);
    if (hdr->uid_validity == uid_validity || hdr->next_uid > 1) {
        mail_index_sync_rollback(&sync);
        return FALSE;
    }
    mail_index_update_header(trans, offsetof(struct mail_index_header, uid_validity), &uid_validity,
                             sizeof uid_validity, TRUE);
    if (uid_next > 1)
        mail_index_update_header(trans, offsetof(struct mail_index_header, next_uid), &uid_next,
                                 sizeof uid_next, TRUE);
    return mail_index_sync_commit(&sync) >= 0;
}

/* A Maildir's stands in its list of UIDs, and in the index again: there a sync puts it only when
 * something else has changed, too. */
static bool maildir_set(struct mailbox *box, uint32_t uid_validity)
{
    struct maildir_uidlist *list = ((struct maildir_mailbox *)box)->uidlist;
    if (maildir_uidlist_lock(list) <= 0)
        return FALSE;
    bool set = maildir_uidlist_refresh(list) >= 0 && maildir_uidlist_get_next_uid(list) <= 1;
    if (set) {
        maildir_uidlist_set_uid_validity(list, uid_validity);
        set = maildir_uidlist_update(list) >= 0 && index_set(box, uid_validity, 0);
    }
    maildir_uidlist_unlock(list);
    return set;
}

bool validity_set(struct mailbox *box, uint32_t uid_validity, uint32_t uid_next)
{
    validity_count(box->list, uid_validity);
    return is_maildir(box) ? maildir_set(box, uid_validity)
                           : index_set(box, uid_validity, uid_next);
}
