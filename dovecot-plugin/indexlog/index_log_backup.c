/* index_log_backup - links the log beside itself before a rebuild removes it. */
#include "dovecot-plugin/compat.h"

#include "dovecot-plugin/indexlog/index_log_backup.h"
#include "dovecot-plugin/indexlog/log_file.h"

#include <dirent.h>
#include <errno.h>
#include <mail-storage-private.h>
#include <mailbox-list-iter.h>
#include <mailbox-list-private.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A client's request or change is in it. */
static bool says_something(const char *log)
{
    struct log_file f;
    bool found = FALSE;

    if (log_file_open(&f, log) < 0)
        return errno != ENOENT; /* a link needs no right to read */
    while (!found && log_file_next(&f))
        found = log_file_speaks(&f);
    log_file_close(&f);
    return found;
}

static void keep_file(struct mailbox *box, const char *dir, const char *log)
{
    struct stat st, there;
    const char *backups;

    if (lstat(log, &st) < 0)
        return;
    backups =
        t_strdup_printf("%s/" INDEX_LOG_BACKUP_PREFIX "%llu", dir, (unsigned long long)st.st_ino);
    /* The name is the file's as long as it has it, but for a copy that came with a restored
     * backup. */
    if (lstat(backups, &there) == 0 && (there.st_ino != st.st_ino || there.st_dev != st.st_dev))
        i_unlink(backups);
    if (link(log, backups) < 0 && errno != EEXIST)
        e_warning(box->event,
                  "dovelane: link(%s, %s): %m: mails that were expunged and that the replicator "
                  "has not heard of yet come back "
                  "from the other sites",
                  log, backups);
}

/* dir: where a mailbox has its index. A log that was rotated meanwhile is half of what was not
 * read. */
static void keep(struct mailbox *box, const char *dir, bool always)
{
    const char *log = t_strconcat(dir, "/" MAIL_INDEX_PREFIX ".log", NULL),
               *before = t_strconcat(log, ".2", NULL);

    if (always || says_something(log) || says_something(before)) {
        keep_file(box, dir, before);
        keep_file(box, dir, log);
    }
}

static void keep_all(struct mailbox *box, bool always)
{
    struct mailbox_list_iterate_context *iter;
    const struct mailbox_info *info;

    iter = mailbox_list_iter_init(box->list, "*",
                                  MAILBOX_LIST_ITER_RAW_LIST | MAILBOX_LIST_ITER_NO_AUTO_BOXES |
                                      MAILBOX_LIST_ITER_RETURN_NO_FLAGS);
    while ((info = mailbox_list_iter_next(iter)) != NULL) {
        T_BEGIN
        {
            const char *dir;

            if (mailbox_list_get_path(box->list,
                                      mailbox_list_get_storage_name(box->list, info->vname),
                                      MAILBOX_LIST_PATH_TYPE_INDEX, &dir) > 0)
                keep(box, dir, always);
        }
        T_END;
    }
    if (mailbox_list_iter_deinit(&iter) < 0)
        e_warning(box->event,
                  "dovelane: cannot list the mailboxes that are rebuilt with %s: what was expunged "
                  "in them may come back",
                  box->vname);
}

/* A rebuild of an mdbox with many mailboxes, asked for of one after the other, replaces all logs
 * as many times. */
static bool is_first(struct mailbox *box)
{
    static char *storage;
    const char *dir;

    if (!mailbox_list_get_root_path(box->list, MAILBOX_LIST_PATH_TYPE_DIR, &dir) ||
        (storage != NULL && strcmp(storage, dir) == 0))
        return FALSE;
    free(storage);
    storage = strdup(dir);
    return TRUE;
}

void index_log_backup(struct mailbox *box)
{
    const char *dir;

    if (strcmp(box->storage->name, "mdbox") == 0)
        keep_all(box, is_first(box));
    else if (strcmp(box->storage->name, "sdbox") == 0 &&
             mailbox_get_path_to(box, MAILBOX_LIST_PATH_TYPE_INDEX, &dir) > 0)
        keep(box, dir, TRUE);
}
