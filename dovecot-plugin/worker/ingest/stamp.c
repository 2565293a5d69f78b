/* stamp - whether a mailbox may have changed, by its files alone. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/worker/ingest/pass.h"
#include "dovecot-plugin/worker/session/open.h"

#include <mail-storage-private.h>
#include <maildir-keywords.h>
#include <sys/stat.h>
#include <time.h>

/* What a sweep compares: sizes and times of the files that change when the mailbox does (F5);
 * not st_mtime, which comes back with a backup, as may the inode's number. 0: unknown, or so
 * young that another change may get the same time. */
uint64_t ingest_stamp(struct mailbox *box, uint64_t *files_r)
{
    static const char *const maildir_parts[] = {"/new", "/cur", NULL};
    const char *path;
    struct stat st;
    uint64_t w[10], files[8];
    unsigned n = 0, m = 0;
    time_t now = time(NULL);
    bool young = FALSE, written = FALSE;
    *files_r = 0;
    if (mailbox_get_path_to(box, MAILBOX_LIST_PATH_TYPE_INDEX, &path) <= 0 ||
        stat(t_strconcat(path, "/dovecot.index.log", NULL), &st) < 0)
        return 0;
    w[n++] = (uint64_t)st.st_ino;
    w[n++] = (uint64_t)st.st_size;
    w[n++] = (uint64_t)st.st_ctim.tv_sec;
    w[n++] = (uint64_t)st.st_ctim.tv_nsec;
    files[m++] = (uint64_t)st.st_ino;
    files[m++] = (uint64_t)st.st_size;
    files[m++] = (uint64_t)st.st_mtim.tv_sec;
    files[m++] = (uint64_t)st.st_mtim.tv_nsec;
    if (is_maildir(box)) {
        if (mailbox_get_path_to(box, MAILBOX_LIST_PATH_TYPE_MAILBOX, &path) <= 0)
            return 0;
        for (const char *const *p = maildir_parts; *p != NULL; p++) {
            if (stat(t_strconcat(path, *p, NULL), &st) < 0)
                return 0;
            young = young || st.st_ctime >= now - 1;
            written = written || st.st_mtime >= now - 1;
            w[n++] = (uint64_t)st.st_ctim.tv_sec;
            w[n++] = (uint64_t)st.st_ctim.tv_nsec;
            files[m++] = (uint64_t)st.st_mtim.tv_sec;
            files[m++] = (uint64_t)st.st_mtim.tv_nsec;
        }
        w[n++] = maildir_has(box, MAILDIR_KEYWORDS_NAME);
    }
    if (!written)
        *files_r = orset_hash_words(files, m).lo | 1;
    if (young)
        return 0;
    uint64_t hash = orset_hash_words(w, n).lo;
    return hash != 0 ? hash : 1;
}

bool ingest_is_current(struct session *s, uint32_t folder)
{
    const struct box *x = box_by_folder(s, folder);
    uint64_t stamp, files;
    if (x == NULL || x->gone)
        return TRUE;
    if (x->vname == NULL || x->at.stamp == 0)
        return FALSE;
    T_BEGIN
    {
        struct mailbox *box = session_mailbox(s, x->vname, 0);
        stamp = ingest_stamp(box, &files);
        mailbox_free(&box);
    }
    T_END;
    return stamp == x->at.stamp;
}
