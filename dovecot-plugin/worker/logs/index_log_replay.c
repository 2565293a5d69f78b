/* index_log_replay - what clients did by the index logs that a rebuild replaced
 * (dovecot-plugin/indexlog/index_log_backup.h).
 *
 * A UID in them is this mailbox's only if they go on from what was read last: a mailbox may have
 * been restored from a backup in between, and then its UIDs are other mails'. So one of them
 * must be the very file in which reading stopped, and have the record there, and what counts
 * stands behind it, there and in those that came later, the one that is there now among them if
 * none is missing in between. Where two say that they are the same one of the sequence, none is
 * believed. What cannot be read is no evidence of anything. Whatever was the reason for
 * comparing the whole mailbox: they are all gone afterwards. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/indexlog/index_log_backup.h"
#include "dovecot-plugin/indexlog/log_file.h"
#include "dovecot-plugin/worker/logs/index_log_replay.h"
#include "dovecot-plugin/worker/logs/log.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <mail-index-private.h>
#include <mail-storage-private.h>
#include <mail-transaction-log-private.h>
#include <seq-range-array.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

ARRAY_DEFINE_TYPE(log_file, struct log_file);

static void take(ARRAY_TYPE(seq_range) * to, const struct log_file *f)
{
    if ((f->hdr.type & MAIL_TRANSACTION_TYPE_MASK) == MAIL_TRANSACTION_EXPUNGE_GUID) {
        const struct mail_transaction_expunge_guid *rec = (const void *)f->data;
        for (size_t n = f->hdr.size / sizeof *rec; n > 0; n--, rec++)
            seq_range_array_add(to, rec->uid);
    } else {
        const struct mail_transaction_expunge *rec = (const void *)f->data;
        for (size_t n = f->hdr.size / sizeof *rec; n > 0; n--, rec++)
            if (rec->uid1 > 0 && rec->uid1 <= rec->uid2)
                seq_range_array_add_range(to, rec->uid1, rec->uid2);
    }
}

/* found: what the cursor says was read is behind already. */
static bool take_behind(struct session *s, struct index_log_replay *to, struct log_file *f,
                        const struct cursor *at, bool found)
{
    while (log_file_next(f)) {
        if (found && log_file_requests(f))
            take(&to->requested, f);
        else if (found)
            log_flag_changes(s, &f->hdr, f->data, &to->flag_changes);
        found = found || (f->modseq == at->modseq && f->before != f->modseq &&
                          log_record_hash(&f->hdr, f->data) == at->hash);
    }
    return found;
}

static int by_sequence(const struct log_file *a, const struct log_file *b)
{
    return a->head.file_seq < b->head.file_seq ? -1 : a->head.file_seq > b->head.file_seq;
}

/* Each begins with the modseq at which the one before ended, the log that is there now, too:
 * numbers alone come again after a backup was restored. */
static void take_chain(struct session *s, struct index_log_replay *said,
                       ARRAY_TYPE(log_file) * logs, const struct cursor *at,
                       const struct log_scan *scan)
{
    struct index_log_replay found;
    struct log_file *f;
    uint32_t last = 0, before = 0;
    uint64_t end = 0;
    bool twice = FALSE, gap = FALSE;
    t_array_init(&found.requested, 8);
    t_array_init(&found.flag_changes, 8);
    array_sort(logs, by_sequence);
    array_foreach_modifiable (logs, f) {
        if (f->head.indexid != at->indexid || f->head.file_seq >= scan->first)
            continue;
        twice = twice || f->head.file_seq == before;
        before = f->head.file_seq;
        gap = gap || (last != 0 && (f->head.file_seq != last + 1 || f->head.initial_modseq != end));
        if (take_behind(s, &found, f, at, last != 0))
            last = f->head.file_seq;
        end = f->modseq;
    }
    if (twice)
        return;
    seq_range_array_merge(&said->requested, &found.requested);
    array_append_array(&said->flag_changes, &found.flag_changes);
    said->goes_on = !gap && last != 0 && last + 1 == scan->first && end == scan->first_modseq;
}

void index_log_replay_read(struct session *s, struct mailbox *box, const struct cursor *at,
                           const struct log_scan *scan, struct index_log_replay *said,
                           ARRAY_TYPE(backup_path) * read)
{
    ARRAY_TYPE(log_file) logs;
    struct log_file *f;
    struct dirent *e;
    const char *dir;
    DIR *d = mailbox_get_path_to(box, MAILBOX_LIST_PATH_TYPE_INDEX, &dir) > 0 ? opendir(dir) : NULL;
    t_array_init(&logs, 4);
    while (d != NULL && (e = readdir(d)) != NULL) {
        if (!str_begins_with(e->d_name, INDEX_LOG_BACKUP_PREFIX))
            continue;
        struct log_file one;
        char *path = i_strconcat(dir, "/", e->d_name, NULL);
        array_push_back(read, &path);
        if (at == NULL)
            continue;
        if (log_file_open(&one, path) == 0) {
            if (at->log_id == 0 || one.head.file_seq != at->file_seq ||
                log_identity(AT_FDCWD, path) == at->log_id)
                array_push_back(&logs, &one);
            else
                log_file_close(&one); /* a copy from a backup */
        } else
            session_note(s, NOTE_WARNING, "%s: cannot be read: %m", path);
    }
    if (d != NULL)
        closedir(d);
    if (array_count(&logs) > 0)
        take_chain(s, said, &logs, at, scan);
    array_foreach_modifiable (&logs, f)
        log_file_close(f);
}

void index_log_replay_pass(ARRAY_TYPE(backup_path) * from, ARRAY_TYPE(backup_path) * to)
{
    array_append_array(to, from);
    array_clear(from);
}

static void end_paths(ARRAY_TYPE(backup_path) * read)
{
    char **path;
    array_foreach_modifiable (read, path)
        i_free(*path);
    array_clear(read);
}

void index_log_replay_remove(ARRAY_TYPE(backup_path) * read)
{
    char *const *path;
    array_foreach (read, path)
        (void)unlink(*path);
    end_paths(read);
}

void index_log_replay_forget(ARRAY_TYPE(backup_path) * read)
{
    end_paths(read);
    array_free(read);
}
