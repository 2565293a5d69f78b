/* sdbox - mails of an sdbox that its index does not list.
 *
 * Each mail is a file of its own, u.UID. Where the index files are lost, Dovecot makes empty ones
 * and shows no mail, until a save finds that its file exists, or an admin runs `doveadm
 * force-resync`. What was missed and fetched back by then would be there twice; and a mail that
 * was delivered and not replicated yet would not be seen. So the rebuild comes first here, before
 * anything is missed or placed. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/worker/session/sdbox.h"
#include "dovecot-plugin/worker/session/session.h"

#include <mail-index.h>
#include <mail-storage-private.h>
#include <sdbox-file.h>
#include <sdbox-storage.h>

#include <dirent.h>

#define AGAIN 60000 /* milliseconds after a rebuild that failed: it reads all mails */

bool sdbox_is(const struct mailbox *box)
{
    return strcmp(box->storage->name, SDBOX_STORAGE_NAME) == 0;
}

static bool has_unlisted(struct mailbox *box, enum mailbox_list_path_type type)
{
    const char *path;
    struct dirent *d;
    uint32_t uid, seq;
    bool found = FALSE;
    if (mailbox_get_path_to(box, type, &path) <= 0)
        return FALSE;
    DIR *dir = opendir(path);
    while (dir != NULL && !found && (d = readdir(dir)) != NULL)
        found = str_begins_with(d->d_name, SDBOX_MAIL_FILE_PREFIX) &&
                str_to_uint32(d->d_name + strlen(SDBOX_MAIL_FILE_PREFIX), &uid) == 0 && uid != 0 &&
                !mail_index_lookup_seq(box->view, uid, &seq);
    if (dir != NULL)
        (void)closedir(dir);
    return found;
}

int sdbox_mend(struct session *s, struct mailbox *box)
{
    if (!has_unlisted(box, MAILBOX_LIST_PATH_TYPE_MAILBOX) &&
        !has_unlisted(box, MAILBOX_LIST_PATH_TYPE_ALT_MAILBOX))
        return 0;
    session_note(s, NOTE_WARNING, "%s: its index does not list all of its mails: rebuilding it",
                 box->vname);
    if (mailbox_sync(box, MAILBOX_SYNC_FLAG_FORCE_RESYNC) == 0) {
        mailbox_close(box);
        return 1;
    }
    session_note(s, NOTE_WARNING, "%s: its index cannot be rebuilt, and its mails wait: %s",
                 box->vname, mailbox_get_last_internal_error(box, NULL));
    s->scan_again = TRUE;
    session_want_tick(s, AGAIN);
    return -1;
}
