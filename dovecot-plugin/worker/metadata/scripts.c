/* scripts - Sieve scripts and which one is active, attributes of the INBOX: its log tells of
 * those that Pigeonhole changes, but an editor and a backup change them, too, and they go with a
 * home that is lost. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/worker/metadata/attributes.h"
#include "dovecot-plugin/worker/metadata/metadata.h"
#include "dovecot-plugin/worker/session/files.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/rows.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <buffer.h>
#include <istream.h>
#include <mail-storage-private.h>
#include <path-util.h>

#include <dirent.h>
#include <sys/stat.h>
#include <time.h>

static bool is_script_file(const char *key)
{
    return str_begins_with(key, SIEVE_PREFIX "files/");
}

/* The directory of the scripts, from one that is open: no setting needs to be understood. NULL:
 * they are in no directory. */
static const char *sieve_directory(struct mailbox *box, const char *key)
{
    struct mail_attribute_value v;
    const char *path = NULL, *end;
    if (mailbox_attribute_get_stream(box, MAIL_ATTRIBUTE_TYPE_PRIVATE, key, &v) <= 0 ||
        v.value_stream == NULL)
        return NULL;
    int fd = i_stream_get_fd(v.value_stream);
    if (fd != -1 && t_readlink(t_strdup_printf("/proc/self/fd/%d", fd), &path, &end) < 0)
        path = NULL;
    i_stream_unref(&v.value_stream);
    return path != NULL && *path == '/' && (end = strrchr(path, '/')) != path
               ? t_strdup_until(path, end)
               : NULL;
}

int scripts_remember_directory(struct session *s, struct mailbox *box, const char *key)
{
    const char *path = is_script_file(key + 1) ? sieve_directory(box, key + 1) : NULL;
    buffer_t *row = t_buffer_create(256);
    const uint8_t *v;
    size_t len;
    if (path == NULL)
        return 0;
    struct file_id id = file_id(path);
    buffer_append(row, &id, sizeof id);
    buffer_append(row, path, strlen(path));
    int r = rows_get(s, ROW_SIEVE, "", 0, &v, &len);
    if (r < 0 || (r > 0 && len == row->used && memcmp(v, row->data, len) == 0))
        return r < 0 ? -1 : 0;
    return rows_put(s, ROW_SIEVE, "", 0, row->data, row->used);
}

/* Where the last script was seen. 1; 0: not known */
static int known_sieve_directory(struct session *s, struct file_id *id, const char **path)
{
    const uint8_t *v;
    size_t len;
    int r = rows_get(s, ROW_SIEVE, "", 0, &v, &len);
    if (r <= 0 || len <= sizeof *id)
        return I_MIN(r, 0);
    memcpy(id, v, sizeof *id);
    *path = t_strndup(v + sizeof *id, len - sizeof *id);
    return id->ino != 0;
}

/* The very directory that had the scripts is there, can be read, and has none: a user deleted
 * the last one. */
static int sieve_is_emptied(struct session *s, bool *emptied)
{
    struct file_id id;
    const char *path;
    const struct dirent *entry;
    bool any = FALSE;
    *emptied = FALSE;
    int r = known_sieve_directory(s, &id, &path);
    DIR *dir = r > 0 ? opendir(path) : NULL;
    if (dir == NULL)
        return I_MIN(r, 0);
    errno = 0;
    while ((entry = readdir(dir)) != NULL)
        if (strlen(entry->d_name) > 6 &&
            strcmp(entry->d_name + strlen(entry->d_name) - 6, ".sieve") == 0)
            any = TRUE; /* one that cannot be read, or came meanwhile */
    *emptied = errno == 0 && !any;
    (void)closedir(dir);
    return 0;
}

/* A script as it was before, in a file that was written before it became another one. 1; 0; -1 */
static int is_old_script(struct session *s, struct mailbox *box, const char *key)
{
    buffer_t *value = t_buffer_create(1024);
    struct attribute_seen seen;
    time_t written;
    int r = is_script_file(key + 1) ? attribute_read(box, key, value, &written) : 0;
    if (r <= 0 || written == 0)
        return 0;
    r = attribute_seen_load(s, ORSET_INBOX, key, strlen(key), &seen);
    return r <= 0 ? r
                  : written < seen.since && attribute_hash(value) != seen.hash &&
                        attribute_is_former(&seen, attribute_hash(value));
}

/* That a backup was restored is told by the scripts' directory, which is another one, or by the
 * times of their files. */
static int sieve_is_other(struct session *s, struct mailbox *box, ARRAY_TYPE(const_string) * there,
                          bool *other)
{
    struct file_id id;
    const char *path, *const *key;
    int r = known_sieve_directory(s, &id, &path);
    *other = r > 0 && !same_file(&id, path);
    array_foreach (there, key) {
        if (r >= 0 && !*other) {
            T_BEGIN
            {
                r = is_old_script(s, box, *key);
            }
            T_END;
            *other = r > 0;
        }
    }
    return I_MIN(r, 0);
}

bool scripts_active_waits(struct mailbox *box, const char *key, const uint8_t *value, size_t len)
{
    static const char active[] = SIEVE_PREFIX "default";
    buffer_t *script = t_buffer_create(1024);
    return strcmp(key + 1, active) == 0 && len > 1 && *value == 'L' &&
           attribute_read(
               box,
               t_strdup_printf("%c" SIEVE_PREFIX "files/%s", *key, t_strndup(value + 1, len - 1)),
               script, NULL) == 0;
}

static int sieve_lost(struct session *s, const ARRAY_TYPE(const_string) * gone)
{
    const char *const *key;
    session_note(s, NOTE_WARNING,
                 "the directory of the Sieve scripts is lost, or an old one: %u that were there "
                 "are put there again",
                 array_count(gone));
    array_foreach (gone, key) {
        if (attribute_lost(s, ORSET_INBOX, *key) < 0)
            return -1;
    }
    return 0;
}

/* A home that is being removed goes file by file: what is gone without a word of the log is
 * judged when no more went for a while, when the directory of a lost home is gone, too. 1: not
 * yet; 0; -1 */
static int scripts_wait(struct session *s, unsigned n)
{
    struct orset_buf b = {.alloc = session_alloc()};
    const uint8_t *v;
    size_t len;
    time_t now = time(NULL), since = now;
    unsigned had = 0;
    int r = rows_get(s, ROW_SIEVE, "-", 1, &v, &len);
    if (r > 0) {
        struct orset_reader in = orset_reader_of(v, len);
        had = (unsigned)orset_read_num(&in, UINT_MAX);
        since = (time_t)orset_read_num(&in, INT64_MAX);
    }
    if (r < 0 || (n == 0 && had == 0))
        return I_MIN(r, 0);
    bool judged = n == had && now >= since && now - since > (time_t)(s->group->brake_wait / 1000);
    if (n > 0 && !judged) {
        s->scan_again = TRUE;
        session_want_tick(s, 1000);
    }
    if (n == had && !judged && now >= since) /* else the clock was set back */
        return 1;
    orset_buf_num(&b, judged ? 0 : n);
    orset_buf_num(&b, (uint64_t)now);
    r = b.failed ? session_fail(s, "out of memory") : rows_put(s, ROW_SIEVE, "-", 1, b.data, b.len);
    orset_buf_free(&b);
    return r < 0 ? -1 : n > 0 && !judged;
}

static bool is_among_keys(const ARRAY_TYPE(const_string) * keys, const char *wanted)
{
    const char *const *key;
    array_foreach (keys, key) {
        if (strcmp(*key, wanted) == 0)
            return TRUE;
    }
    return FALSE;
}

/* One that is gone was deleted, if another is still there, or the directory is the one that it
 * was in; in another directory it is damage (F1). left: scripts that are there. unset: those of
 * which the log says so. */
static int sieve_gone(struct session *s, struct mailbox *box, const ARRAY_TYPE(const_string) * gone,
                      const ARRAY_TYPE(const_string) * unset, unsigned left, bool other)
{
    const char *const *key;
    unsigned unsaid = 0;
    bool emptied = TRUE;
    if (!other && array_count(gone) > 0 && left == 0 && sieve_is_emptied(s, &emptied) < 0)
        return -1;
    array_foreach (gone, key)
        unsaid += !is_among_keys(unset, *key);
    int waits = scripts_wait(s, other || !emptied ? 0 : unsaid);
    if (waits < 0 || array_count(gone) == 0)
        return waits < 0 ? -1 : 0;
    if (other)
        return sieve_lost(s, gone);
    array_foreach (gone, key) {
        if (emptied && (waits == 0 || is_among_keys(unset, *key)) &&
            attribute_ingest(s, box, ORSET_INBOX, *key, ATTRIBUTES_BY_USER, TRUE) < 0)
            return -1;
    }
    return 0;
}

/* Pigeonhole lists none for as long as a session goes on whose directory was removed; one that
 * is opened then makes it. */
static int scripts_cannot_be_listed(struct session *s)
{
    struct file_id id;
    const char *path;
    int r = s->scripts_listed ? known_sieve_directory(s, &id, &path) : 0;
    if (r > 0 && !same_file(&id, path)) {
        s->scripts_lost = s->scan_again = TRUE;
        session_want_tick(s, 100);
    }
    return I_MIN(r, 0);
}

int scripts_ingest(struct session *s, struct mailbox *box, const ARRAY_TYPE(const_string) * unset)
{
    struct attributes_known known;
    ARRAY_TYPE(const_string) there, gone;
    buffer_t *value = t_buffer_create(256);
    const char *const *key;
    unsigned left = 0;
    bool other;
    t_array_init(&there, 8);
    t_array_init(&gone, 8);
    if (attribute_keys(box, 0, "", TRUE, &there) < 0)
        return scripts_cannot_be_listed(s);
    s->scripts_listed = TRUE;
    if (attributes_known(s, ORSET_INBOX, "p" SIEVE_PREFIX, &known) < 0 ||
        sieve_is_other(s, box, &there, &other) < 0)
        return -1;
    array_foreach (&known.list, key) {
        if (attribute_read(box, *key, value, NULL) == 0)
            array_push_back(&gone, key);
    }
    array_foreach (&there, key) {
        /* which one is active is told by a link elsewhere, which says nothing of the directory */
        left += is_script_file(*key + 1);
        if (attribute_ingest(s, box, ORSET_INBOX, *key,
                             other ? ATTRIBUTES_UNSAID : ATTRIBUTES_BY_USER, FALSE) < 0)
            return -1;
    }
    if (sieve_gone(s, box, &gone, unset, left, other) < 0)
        return -1;
    array_foreach (&there, key) {
        if (scripts_remember_directory(s, box, *key) < 0)
            return -1;
    }
    return 0;
}

int scripts_ingest_all(struct session *s)
{
    struct box *x = box_by_folder(s, ORSET_INBOX);
    ARRAY_TYPE(const_string) unset;
    int r = 0;
    t_array_init(&unset, 1);
    if (x == NULL || x->gone || x->now.leaving || x->vname == NULL)
        return 0;
    struct mailbox *box = session_mailbox(s, x->vname, 0);
    if (session_open_mailbox(s, x, box) == 0)
        r = scripts_ingest(s, box, &unset);
    mailbox_free(&box);
    return r;
}
