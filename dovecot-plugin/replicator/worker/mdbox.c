/* mdbox - what an mdbox does by itself when its map is lost.
 *
 * The mails of all mailboxes lie together in the files m.*, and only the map (dovecot.map.index) knows where. Without it the first save
 * finds a file that nobody knows, and Dovecot rebuilds the storage in the middle of whatever is done: each mail that no mailbox names goes
 * back, under a new UID, into the mailbox it was first saved to. What was missed before that and is fetched back would be there twice. So
 * the rebuild comes first here, before anything is missed or placed; and it brings back what was delivered and not replicated yet.
 *
 * It brings back, too, what was expunged and not purged since. Those are known by rows: which GUID went from which folder, on somebody's
 * word, in the last days. Only such a mail is expunged again. */
#include "worker.h"

#include <mail-index-private.h>
#include <mail-storage-private.h>
#include <mail-transaction-log-private.h>
#include <mdbox-map-private.h>
#include <mdbox-storage.h>

#include <dirent.h>
#include <sys/stat.h>
#include <time.h>

#define KEEP_SECS (30 * 86400) /* a purge, which is to run daily, has been over them by then */
#define DROP_EVERY_SECS 3600
#define DROP_AT_ONCE 1000

bool mdbox_is(const struct mailbox *box)
{
    return strcmp(box->storage->name, MDBOX_STORAGE_NAME) == 0;
}

/* --- the map -------------------------------------------------------------------------------------------------------- */

static struct mdbox_storage *storage_of(struct mail_storage *storage)
{
    return MDBOX_STORAGE(storage);
}

static int later(struct session *s)
{
    s->look_again = TRUE;
    session_want_tick(s, 1000);
    return -1;
}

/* What the library has open was removed: it would write to files that nobody else sees. */
static bool is_removed(const struct mdbox_map *map)
{
    struct stat st;
    return map->view != NULL && map->index->log->head != NULL && fstat(map->index->log->head->fd, &st) == 0 && st.st_nlink == 0;
}

bool mdbox_map_is_removed(struct session *s)
{
    for (struct mail_namespace *ns = s->user->namespaces; ns != NULL; ns = ns->next) {
        if (ns->storage != NULL && strcmp(ns->storage->name, MDBOX_STORAGE_NAME) == 0 && session_has_namespace(s, ns) &&
            is_removed(storage_of(ns->storage)->map))
            return TRUE;
    }
    return FALSE;
}

static int known_files(struct mdbox_map *map, ARRAY_TYPE(seq_range) *files)
{
    for (uint32_t seq = 1; seq <= mdbox_map_get_messages_count(map); seq++) {
        struct mdbox_map_mail_index_record rec;
        uint16_t refcount;
        if (mdbox_map_lookup_seq_full(map, seq, &rec, &refcount) < 0)
            return -1;
        seq_range_array_add(files, rec.file_id);
    }
    return 0;
}

static bool has_unknown_file(const struct mdbox_storage *storage, const ARRAY_TYPE(seq_range) *known)
{
    DIR *dir = opendir(storage->storage_dir);
    struct dirent *d;
    bool found = FALSE;
    uint32_t id;
    while (dir != NULL && !found && (d = readdir(dir)) != NULL)
        found = str_begins_with(d->d_name, MDBOX_MAIL_FILE_PREFIX) && str_to_uint32(d->d_name + strlen(MDBOX_MAIL_FILE_PREFIX), &id) == 0 &&
                !seq_range_exists(known, id);
    if (dir != NULL)
        (void)closedir(dir);
    return found;
}

/* 1: there are mails that the map does not know, or it cannot be read. Under the map's lock, so that neither a save nor another one's
 * rebuild is half done. */
static int has_unknown_mails(struct mdbox_storage *storage)
{
    struct mdbox_map_atomic_context *atomic = mdbox_map_atomic_begin(storage->map);
    ARRAY_TYPE(seq_range) known;
    t_array_init(&known, 16);
    int r = mdbox_map_atomic_lock(atomic, "dovelane looks for unknown files");
    if (r == 0 && (r = mdbox_map_refresh(storage->map)) == 0)
        r = compat_mdbox_is_corrupted(storage) || mdbox_map_is_fscked(storage->map) || known_files(storage->map, &known) < 0 ||
            has_unknown_file(storage, &known);
    mdbox_map_atomic_set_success(atomic);
    if (mdbox_map_atomic_finish(&atomic) < 0)
        r = -1;
    return r;
}

/* The map's index is the one that this state knows. 0: another one, or one that was repaired: Dovecot 2.3 leaves that mark when a sync finds it
 * and rebuilds, and then each further sync rebuilds again, and forgets the expunges that it was to carry out. */
static int is_known(struct session *s, struct mdbox_storage *storage)
{
    const uint8_t *value;
    size_t len;
    if (mdbox_map_open_or_create(storage->map) < 0 || mdbox_map_refresh(storage->map) < 0)
        return -1;
    uint32_t id = storage->map->index->indexid;
    int r = rows_get(s, ROW_MAP, storage->storage_dir, strlen(storage->storage_dir), &value, &len);
    return r <= 0 ? r : len == sizeof id && memcmp(value, &id, len) == 0 && !mdbox_map_is_fscked(storage->map);
}

/* All mailboxes were reset. Under the lists' lock: one that is not whole is opened by nobody else (open.c), and its mails would go to INBOX. */
static int rebuild(struct session *s, struct mailbox *box)
{
    struct mdbox_storage *storage = storage_of(box->storage);
    struct box *const *x;
    if (session_lock_lists(s) < 0)
        return -1;
    compat_mdbox_forget_corrupted(storage); /* else the close would rebuild it, too */
    mailbox_close(box);
    int r = compat_mdbox_rebuild(storage);
    session_unlock_lists(s);
    /* The rebuild repairs the map, which the next refresh would take for damage that asks for a rebuild. */
    (void)mail_index_reset_fscked(storage->map->index);
    array_foreach(&s->boxes, x)
    {
        (*x)->all = TRUE;
        (*x)->looked = FALSE;
    }
    return r;
}

int mdbox_mend(struct session *s, const struct box *x, struct mailbox *box)
{
    struct mdbox_storage *storage = storage_of(box->storage);
    if (is_removed(storage->map))
        return later(s);
    /* An index id is the second in which the index was made: a map may have its predecessor's, but its mailboxes were lost with it then. */
    bool other = x->at.indexid != mail_index_get_header(box->view)->indexid;
    int r = is_known(s, storage), rebuilt = 0;
    if (r > 0 && !other)
        return 0;
    if (r >= 0 && (r = has_unknown_mails(storage)) > 0) {
        session_note(s, NOTE_WARNING, "%s: its map was repaired, or does not know all of its mails: rebuilding it", storage->storage_dir);
        rebuilt = 1;
        r = rebuild(s, box);
    }
    if (r < 0) {
        session_note(s, NOTE_WARNING, "%s: its map cannot be read or rebuilt, and all waits: %s", storage->storage_dir,
                     mailbox_get_last_internal_error(box, NULL));
        return later(s);
    }
    uint32_t id = storage->map->index->indexid;
    r = rows_put(s, ROW_MAP, storage->storage_dir, strlen(storage->storage_dir), &id, sizeof id);
    return r < 0 ? -1 : rebuilt;
}

bool mdbox_is_other(struct session *s, const struct box *x, struct mailbox *box)
{
    struct mail_transaction_log_file *first = box->view->index->log->files;
    const struct mail_index_header *hdr = mail_index_get_header(box->view);
    struct mdbox_storage *storage = storage_of(box->storage);
    return is_removed(storage->map) || is_known(s, storage) <= 0 || x->at.indexid != hdr->indexid ||
           (first->hdr.prev_file_seq == 0 && first->hdr.file_seq > x->log_seq);
}

/* --- mails that were expunged --------------------------------------------------------------------------------------- */

struct old_rows {
    struct orset_key key[DROP_AT_ONCE];
    unsigned n;
    time_t before;
};

static int old_row(void *arg, const uint8_t *key, size_t len, const uint8_t *value, size_t value_len)
{
    struct old_rows *old = arg;
    struct orset_reader r = {key + 1, key + len, FALSE};
    (void)value;
    (void)value_len;
    if ((time_t)orset_key_read(&r) >= old->before || old->n == DROP_AT_ONCE)
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
    ARRAY_TYPE(expunged_guid) *guids;
    uint32_t folder;
};

static int collect(void *arg, const uint8_t *key, size_t len, const uint8_t *value, size_t value_len)
{
    struct collecting *c = arg;
    struct orset_reader r = {key + 1, key + len, FALSE};
    (void)value;
    (void)value_len;
    (void)orset_key_read(&r);
    uint32_t folder = (uint32_t)orset_key_read(&r);
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

int mdbox_expunged_load(struct session *s, uint32_t folder, ARRAY_TYPE(expunged_guid) *guids)
{
    struct collecting c = {guids, folder};
    if (rows_each(s, ROW_EXPUNGED, collect, &c) < 0)
        return -1;
    array_sort(guids, by_guid);
    return 0;
}

bool mdbox_is_back(struct mail *mail, const uint8_t guid[16], ARRAY_TYPE(expunged_guid) *guids)
{
    struct expunged_guid one;
    const char *refcount;
    memcpy(one.guid, guid, sizeof one.guid);
    return array_bsearch(guids, &one, by_guid) != NULL && mail_get_special(mail, MAIL_FETCH_REFCOUNT, &refcount) == 0 &&
           strcmp(refcount, "1") == 0;
}
