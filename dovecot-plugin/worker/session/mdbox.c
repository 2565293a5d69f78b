/* mdbox - what an mdbox does by itself when its map is lost.
 *
 * The mails of all mailboxes lie together in the files m.*, and only the map (dovecot.map.index)
 * knows where. Without it the first save finds a file that nobody knows, and Dovecot rebuilds the
 * storage in the middle of whatever is done: each mail that no mailbox names goes back, under a new
 * UID, into the mailbox it was first saved to. What was missed before that and is fetched back
 * would be there twice. So the rebuild comes first here, before anything is missed or placed; and
 * it brings back what was delivered and not replicated yet.
 *
 * It brings back, too, what was expunged and not purged since. Those are known by rows: which
 * GUID went from which folder, on somebody's word, in the last days. Only such a mail is
 * expunged again. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/indexlog/index_log_backup.h"
#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/mdbox.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/retry.h"
#include "dovecot-plugin/worker/session/rows.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <mail-index-private.h>
#include <mail-storage-private.h>
#include <mail-transaction-log-private.h>
#include <mdbox-map-private.h>
#include <mdbox-storage.h>
#include <seq-range-array.h>

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#define KEEP_SECS (30 * 86400) /* a purge, which is to run daily, has been over them by then */
#define DROP_EVERY_SECS 3600
#define DROP_AT_ONCE 1000
#define SAVE_WAIT_FIRST 250   /* milliseconds: a save is short; doubling to 30 times as much */
#define SAVE_TOLD_AFTER 10000 /* milliseconds that a save lasts before the log tells of it */
#define SAVE_OTHER 60000      /* milliseconds that nobody looked: the next wait is another one */
#define MEND_WAIT_FIRST 1000  /* milliseconds after a rebuild that failed, doubling */
#define MEND_WAIT_LAST 300000

bool mdbox_is(const struct mailbox *box)
{
    return strcmp(box->storage->name, MDBOX_STORAGE_NAME) == 0;
}

/* --- the map ---------------------------------------------------------------------------------- */

static struct mdbox_storage *storage_of(struct mail_storage *storage)
{
    return MDBOX_STORAGE(storage);
}

static int later(struct session *s, unsigned wait)
{
    s->scan_again = TRUE;
    session_want_tick(s, wait);
    return -1;
}

/* A rebuild holds the lists' lock and reads all mails: where it fails it is not asked for again
 * by each mailbox. */
static int failed(struct session *s)
{
    s->mend_wait = s->mend_wait == 0 ? MEND_WAIT_FIRST : I_MIN(s->mend_wait * 2, MEND_WAIT_LAST);
    s->mend_after = clock_msecs() + s->mend_wait;
    return later(s, s->mend_wait);
}

static bool is_unlinked(const struct mdbox_map *map)
{
    struct stat st;
    return map->view != NULL && map->index->log->head != NULL &&
           fstat(map->index->log->head->fd, &st) == 0 && st.st_nlink == 0;
}

/* What the library has open was removed: it would write to files that nobody else sees. Not:
 * rotated twice since it was read. */
static bool is_removed(struct mdbox_map *map)
{
    return is_unlinked(map) &&
           (index_is_another(map->index) || mail_index_refresh(map->index) < 0 || is_unlinked(map));
}

bool mdbox_map_is_removed(struct session *s)
{
    for (struct mail_namespace *ns = s->user->namespaces; ns != NULL; ns = ns->next) {
        if (ns->storage != NULL && strcmp(ns->storage->name, MDBOX_STORAGE_NAME) == 0 &&
            session_has_namespace(s, ns) && is_removed(storage_of(ns->storage)->map))
            return TRUE;
    }
    return FALSE;
}

/* A file, and how many of its bytes are mails that the map knows: expunged ones, too, until a purge
 * writes the file anew. */
struct known_file {
    uint32_t id;
    uint64_t size;
};
ARRAY_DEFINE_TYPE(known_file, struct known_file);

/* More than a file has in front of its first mail, and less than a mail takes. */
#define FILE_HEADER_MOST 64

static int by_id(const struct known_file *a, const struct known_file *b)
{
    return a->id < b->id ? -1 : a->id > b->id;
}

/* Sorted, each file once. */
static void sum_up(ARRAY_TYPE(known_file) * files)
{
    unsigned n, kept = 0;
    array_sort(files, by_id);
    struct known_file *f = array_get_modifiable(files, &n);
    for (unsigned i = 0; i < n; i++) {
        if (kept > 0 && f[kept - 1].id == f[i].id)
            f[kept - 1].size += f[i].size;
        else
            f[kept++] = f[i];
    }
    array_delete(files, kept, n - kept);
}

static int known_files(struct mdbox_map *map, ARRAY_TYPE(known_file) * files)
{
    for (uint32_t seq = 1; seq <= mdbox_map_get_messages_count(map); seq++) {
        struct mdbox_map_mail_index_record rec;
        uint16_t refcount;
        if (mdbox_map_lookup_seq_full(map, seq, &rec, &refcount) < 0)
            return -1;
        struct known_file f = {rec.file_id, rec.size};
        array_push_back(files, &f);
    }
    sum_up(files);
    return 0;
}

/* Another process has it locked: it appends a mail, of which the map is told last. */
static bool is_locked(int dir, const char *name)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int fd = openat(dir, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd == -1)
        return FALSE;
    bool locked = (fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK) ||
                  (flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK);
    i_close_fd(&fd);
    return locked;
}

/* A hash of the files that it does not know, or not all mails of; 0: there are none. The latter are
 * there after a backup of map and indexes was put back, and the files were not. saves_r: one to
 * which a mail is being appended, or NULL. */
static uint64_t unknown_files(const struct mdbox_storage *storage, ARRAY_TYPE(known_file) * known,
                              const char **saves_r)
{
    DIR *dir = opendir(storage->storage_dir);
    struct dirent *d;
    uint64_t hash = 0;
    struct known_file at = {0};
    while (dir != NULL && (d = readdir(dir)) != NULL) {
        struct stat st;
        if (!str_begins_with(d->d_name, MDBOX_MAIL_FILE_PREFIX) ||
            str_to_uint32(d->d_name + strlen(MDBOX_MAIL_FILE_PREFIX), &at.id) < 0)
            continue;
        bool there = fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0;
        uint64_t w[2] = {at.id, there ? (uint64_t)st.st_size : 0};
        const struct known_file *f = array_bsearch(known, &at, by_id);
        if (f != NULL && w[1] <= f->size + FILE_HEADER_MOST)
            continue;
        if (is_locked(dirfd(dir), d->d_name))
            *saves_r = t_strdup(d->d_name);
        else
            hash += orset_hash_words(w, 2).lo | 1;
    }
    if (dir != NULL)
        (void)closedir(dir);
    return hash;
}

/* Under the map's lock, so that no other one's rebuild is half done, and no save ends. 1: there
 * are mails that the map does not know, or it cannot be read. Files that a rebuild could not
 * take (an empty one, after a power loss) stay: those are known by their hash. */
static int has_unknown_mails(struct mdbox_storage *storage, uint64_t taken, uint64_t *hash_r,
                             const char **saves_r)
{
    struct mdbox_map_atomic_context *atomic = mdbox_map_atomic_begin(storage->map);
    ARRAY_TYPE(known_file) known;
    i_array_init(&known, 1024);
    int r = mdbox_map_atomic_lock(atomic, "dovelane looks for unknown files");
    if (r == 0 && (r = mdbox_map_refresh(storage->map)) == 0) {
        bool read = known_files(storage->map, &known) == 0;
        *saves_r = NULL;
        *hash_r = unknown_files(storage, &known, saves_r);
        r = !read || compat_mdbox_is_corrupted(storage) || mdbox_map_is_fscked(storage->map) ||
            (*hash_r != 0 && *hash_r != taken);
    }
    array_free(&known);
    mdbox_map_atomic_set_success(atomic);
    if (mdbox_map_atomic_finish(&atomic) < 0)
        r = -1;
    return r;
}

/* The row: the map's index id, and the hash of what the last rebuild left. */
#define ROW_LEN (sizeof(uint32_t) + sizeof(uint64_t))

static int get_row(struct session *s, const struct mdbox_storage *storage, uint32_t *id_r,
                   uint64_t *left_r)
{
    const uint8_t *value;
    size_t len;
    *id_r = 0;
    *left_r = 0;
    int r = rows_get(s, ROW_MAP, storage->storage_dir, strlen(storage->storage_dir), &value, &len);
    if (r <= 0 || len != ROW_LEN)
        return I_MIN(r, 0);
    memcpy(id_r, value, sizeof *id_r);
    memcpy(left_r, value + sizeof *id_r, sizeof *left_r);
    return 1;
}

static int put_row(struct session *s, const struct mdbox_storage *storage, uint64_t left)
{
    uint8_t value[ROW_LEN];
    uint32_t id = storage->map->index->indexid;
    memcpy(value, &id, sizeof id);
    memcpy(value + sizeof id, &left, sizeof left);
    return rows_put(s, ROW_MAP, storage->storage_dir, strlen(storage->storage_dir), value,
                    sizeof value);
}

/* The map's index is the one that this state knows. 0: another one, or one that was repaired:
 * Dovecot 2.3 leaves that mark when a sync finds it and rebuilds, and then each further sync
 * rebuilds again, and forgets the expunges that it was to carry out. */
static int is_known(struct session *s, struct mdbox_storage *storage, uint64_t *left_r)
{
    uint32_t id;
    *left_r = 0;
    if (mdbox_map_open_or_create(storage->map) < 0 || mdbox_map_refresh(storage->map) < 0)
        return -1;
    int r = get_row(s, storage, &id, left_r);
    return r <= 0 ? r : id == storage->map->index->indexid && !mdbox_map_is_fscked(storage->map);
}

/* A rebuild begins with a repair of the map, and takes the mark of it away only when it stood
 * there before: the next sync would take it for damage, rebuild again, and forget its expunges. */
static int unmark(struct mdbox_map *map)
{
    struct mdbox_map_atomic_context *atomic = mdbox_map_atomic_begin(map);
    int r = mdbox_map_atomic_lock(atomic, "dovelane rebuilt it");
    if (r == 0)
        mdbox_map_atomic_unset_fscked(atomic);
    mdbox_map_atomic_set_success(atomic);
    return mdbox_map_atomic_finish(&atomic) < 0 ? -1 : r;
}

/* All mailboxes were reset. Under the lists' lock: one that is not whole is opened by nobody
 * else (open.c), and its mails would go to INBOX. */
static int rebuild(struct session *s, struct mailbox *box)
{
    struct mdbox_storage *storage = storage_of(box->storage);
    struct box *const *x;
    if (session_lock_lists(s) < 0)
        return -1;
    index_log_backup(box);
    compat_mdbox_forget_corrupted(storage); /* else the close would rebuild it, too */
    mailbox_close(box);
    int r = compat_mdbox_rebuild(storage);
    session_unlock_lists(s);
    (void)mail_index_reset_fscked(storage->map->index);
    if (r >= 0)
        r = unmark(storage->map);
    array_foreach (&s->boxes, x) {
        (*x)->all = (*x)->now.rebuilt = TRUE;
        (*x)->now.scanned = FALSE;
    }
    return r;
}

/* A rebuild would take the mail that is being saved for another one. It would be there twice. So
 * all waits, as long as that takes: the lock goes with the process. */
static int wait_for_save(struct session *s, const struct mdbox_storage *storage, const char *file)
{
    uint64_t now = clock_msecs();
    if (s->saves_since == 0 || now - s->saves_last > SAVE_OTHER) {
        s->saves_since = now;
        s->saves_told = FALSE;
    }
    s->saves_last = now;
    if (now - s->saves_since >= SAVE_TOLD_AFTER && !s->saves_told) {
        s->saves_told = TRUE;
        session_note(s, NOTE_WARNING,
                     "%s/%s: a process has it locked, and saves a mail into it. The first look at "
                     "this user's mailboxes has waited for that for %u s, and goes on waiting. If "
                     "it hangs, end it: fuser -v %s/%s names it",
                     storage->storage_dir, file, (unsigned)((now - s->saves_since) / 1000),
                     storage->storage_dir, file);
    }
    s->scan_again = TRUE;
    (void)session_retry(s, "saves", storage->storage_dir, SAVE_WAIT_FIRST);
    return -1;
}

static void saves_ended(struct session *s, const struct mdbox_storage *storage)
{
    if (s->saves_told)
        session_note(s, NOTE_INFO, "%s: nobody saves into it any more, after %u s: looking",
                     storage->storage_dir, (unsigned)((clock_msecs() - s->saves_since) / 1000));
    s->saves_since = 0;
    s->saves_told = FALSE;
}

int mdbox_mend(struct session *s, struct mailbox *box, bool other)
{
    struct mdbox_storage *storage = storage_of(box->storage);
    uint64_t left, now = 0, msecs = clock_msecs();
    const char *saves = NULL;
    if (is_removed(storage->map))
        return later(s, 1000);
    if (s->mend_wait != 0 && msecs < s->mend_after)
        return later(s, (unsigned)(s->mend_after - msecs));
    /* An index id is the second in which the index was made. A map may have its predecessor's, but
     * its mailboxes were lost with it then. Not by the way, because a mailbox is new: a delivery
     * that was killed leaves a file that the map does not know, and after a rebuild nothing tells
     * what clients did since the last scan. */
    int r = is_known(s, storage, &left), rebuilt = 0;
    if (r > 0 && !other)
        return 0;
    if (r >= 0)
        r = has_unknown_mails(storage, left, &now, &saves);
    if (r >= 0 && saves != NULL)
        return wait_for_save(s, storage, saves);
    if (r >= 0)
        saves_ended(s, storage);
    if (r > 0) {
        session_note(s, NOTE_WARNING,
                     "%s: its map was repaired, or does not know all of its mails: rebuilding it",
                     storage->storage_dir);
        rebuilt = 1;
        r = rebuild(s, box);
        if (r >= 0)
            r = I_MIN(has_unknown_mails(storage, 0, &now, &saves), 0);
    }
    if (r < 0) {
        session_note(s, NOTE_WARNING, "%s: its map cannot be read or rebuilt, and all waits: %s",
                     storage->storage_dir, mailbox_get_last_internal_error(box, NULL));
        return failed(s);
    }
    s->mend_wait = 0;
    r = put_row(s, storage, now);
    return r < 0 ? -1 : rebuilt;
}

bool mdbox_is_other(struct session *s, const struct box *x, struct mailbox *box)
{
    struct mail_transaction_log_file *first = box->view->index->log->files;
    const struct mail_index_header *hdr = mail_index_get_header(box->view);
    struct mdbox_storage *storage = storage_of(box->storage);
    uint64_t left;
    return is_removed(storage->map) || is_known(s, storage, &left) <= 0 ||
           x->at.indexid != hdr->indexid ||
           (first->hdr.prev_file_seq == 0 && first->hdr.file_seq > x->now.log_seq);
}

/* --- mails that were expunged ----------------------------------------------------------------- */

struct old_rows {
    struct orset_key key[DROP_AT_ONCE];
    unsigned n;
    time_t before;
};

static int old_row(void *arg, const uint8_t *key, size_t len, const uint8_t *value,
                   size_t value_len)
{
    struct old_rows *old = arg;
    struct orset_reader r = {key + 1, key + len, FALSE};
    (void)value;
    (void)value_len;
    if ((time_t)orset_key_read(&r, INT64_MAX) >= old->before || old->n == DROP_AT_ONCE)
        return 1; /* they stand in the order of their times */
    old->key[old->n].n = 0;
    orset_key_put(&old->key[old->n++], key + 1, len - 1);
    return 0;
}

static int drop_old(struct session *s, time_t now)
{
    if (now >= s->expunged_dropped && now - s->expunged_dropped < DROP_EVERY_SECS)
        return 0;
    struct old_rows *old = i_new(struct old_rows, 1);
    old->before = now - KEEP_SECS;
    int r = rows_each(s, ROW_EXPUNGED, old_row, old) < 0 ? -1 : 0;
    for (unsigned i = 0; i < old->n && r == 0; i++)
        r = rows_del(s, ROW_EXPUNGED, old->key[i].b, old->key[i].n);
    if (old->n < DROP_AT_ONCE)
        s->expunged_dropped = now;
    i_free(old);
    return r;
}

int mdbox_expunged(struct session *s, uint32_t folder, const uint8_t guid[16])
{
    struct orset_key *k = t_new(struct orset_key, 1);
    time_t now = time(NULL);
    orset_key_num(k, (uint64_t)now);
    orset_key_num(k, folder);
    orset_key_put(k, guid, 16);
    return drop_old(s, now) < 0 ? -1 : rows_put(s, ROW_EXPUNGED, k->b, k->n, "", 0);
}

struct collecting {
    ARRAY_TYPE(expunged_guid) * guids;
    uint32_t folder;
};

static int collect(void *arg, const uint8_t *key, size_t len, const uint8_t *value,
                   size_t value_len)
{
    struct collecting *c = arg;
    struct orset_reader r = {key + 1, key + len, FALSE};
    (void)value;
    (void)value_len;
    (void)orset_key_read(&r, INT64_MAX);
    uint32_t folder = (uint32_t)orset_key_read(&r, UINT32_MAX);
    const uint8_t *guid = orset_read_bytes(&r, 16);
    if (guid != NULL && folder == c->folder) {
        struct expunged_guid one;
        memcpy(one.guid, guid, sizeof one.guid);
        array_push_back(c->guids, &one);
    }
    return 0;
}

static int by_guid(const struct expunged_guid *a, const struct expunged_guid *b)
{
    return memcmp(a->guid, b->guid, sizeof a->guid);
}

/* Mails that are to go by the state's word: it may have happened without a row, where this
 * program was killed before it said so. */
static int collect_doomed(struct session *s, uint32_t folder, ARRAY_TYPE(expunged_guid) * guids)
{
    struct orset_task *t = i_new(struct orset_task, 1);
    struct expunged_guid one;
    int r;
    t->at[0] = ORSET_TASK_REMOVE;
    t->at_len = 1;
    while ((r = orset_task_next(s->os, t)) > 0 && t->kind == ORSET_TASK_REMOVE) {
        if (t->folder == folder && orset_task_doomed_guid(s->os, folder, t->uid, one.guid) > 0)
            array_push_back(guids, &one);
    }
    i_free(t);
    return r < 0 ? session_core_failed(s, "todo") : 0;
}

int mdbox_expunged_load(struct session *s, uint32_t folder, ARRAY_TYPE(expunged_guid) * guids)
{
    struct collecting c = {guids, folder};
    if (rows_each(s, ROW_EXPUNGED, collect, &c) < 0 || collect_doomed(s, folder, guids) < 0)
        return -1;
    array_sort(guids, by_guid);
    return 0;
}

bool mdbox_is_back(struct mail *mail, const uint8_t guid[16], ARRAY_TYPE(expunged_guid) * guids)
{
    struct expunged_guid one;
    const char *refcount;
    memcpy(one.guid, guid, sizeof one.guid);
    return array_bsearch(guids, &one, by_guid) != NULL &&
           mail_get_special(mail, MAIL_FETCH_REFCOUNT, &refcount) == 0 &&
           strcmp(refcount, "1") == 0;
}
