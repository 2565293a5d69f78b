/* named - what is kept by name: subscriptions, and attributes (METADATA, ACLs and whatever Dovecot's plugins show as such).
 *
 * What was seen last is a row here, since the core keeps what is wanted: their difference is a user's doing (F4). */
#include "worker.h"

#include <hash.h>
#include <istream.h>
#include <mail-storage-private.h>
#include <mailbox-attribute.h>
#include <mailbox-list-iter.h>
#include <path-util.h>
#include <str.h>

#include <dirent.h>

/* --- subscriptions -------------------------------------------------------------------------------------------------- */

/* INBOX has no name as a folder, but one to subscribe to. */
static bool subscription_name(struct session *s, const char *vname, buffer_t *name)
{
    if (!vname_is_inbox(s, vname))
        return name_of_vname(s, vname, name);
    const char *key = compat_namespace_name(mail_namespace_find(s->user->namespaces, vname));
    buffer_set_used_size(name, 0);
    buffer_append(name, key, strlen(key) + 1);
    buffer_append(name, "INBOX", 5);
    return TRUE;
}

static const char *subscription_vname(struct session *s, const char *name, size_t len)
{
    struct mail_namespace *ns = mail_namespace_find_inbox(s->user->namespaces);
    size_t key_len = strnlen(name, len);
    if (strcmp(compat_namespace_name(ns), t_strndup(name, key_len)) == 0 && len == key_len + 6 &&
        memcmp(name + key_len + 1, "INBOX", 5) == 0)
        return "INBOX";
    return vname_of_name(s, name, len);
}

static int by_name(const char *const *a, const char *const *b)
{
    return strcmp(*a, *b);
}

static int list_subscriptions(struct session *s, ARRAY_TYPE(const_string) *names)
{
    int r = 0;
    for (struct mail_namespace *ns = s->user->namespaces; ns != NULL && r == 0; ns = ns->next) {
        const struct mailbox_info *info;
        if (!session_has_namespace(s, ns))
            continue;
        struct mailbox_list_iterate_context *iter = mailbox_list_iter_init(
            ns->list, "*", MAILBOX_LIST_ITER_SELECT_SUBSCRIBED | MAILBOX_LIST_ITER_RETURN_NO_FLAGS);
        while ((info = mailbox_list_iter_next(iter)) != NULL) {
            const char *vname = t_strdup(info->vname);
            array_push_back(names, &vname);
        }
        if (mailbox_list_iter_deinit(&iter) < 0)
            r = session_fail(s, "subscriptions cannot be listed: %s", mailbox_list_get_last_internal_error(ns->list, NULL));
    }
    array_sort(names, by_name);
    return r;
}

/* Sorted, as they are kept. */
static bool listed(ARRAY_TYPE(const_string) *names, const char *vname)
{
    return array_bsearch(names, &vname, by_name) != NULL;
}

static int load_seen(struct session *s, ARRAY_TYPE(const_string) *seen)
{
    const uint8_t *v;
    size_t len, n;
    int r = rows_get(s, ROW_SUBSCRIPTIONS, "", 0, &v, &len);
    struct orset_reader in = {v, v + (r > 0 ? len : 0), r <= 0};
    while (!in.bad && in.at != in.end) {
        const uint8_t *p = orset_read_text(&in, FRAME_NAME_MAX, &n);
        const char *vname = p == NULL ? NULL : t_strndup(p, n);
        if (vname != NULL)
            array_push_back(seen, &vname);
    }
    array_sort(seen, by_name);
    return r < 0 ? -1 : 0;
}

static int put_seen(struct session *s, const ARRAY_TYPE(const_string) *names)
{
    struct orset_buf b = {.alloc = session_alloc()};
    const char *const *n;
    array_foreach(names, n) orset_buf_text(&b, *n, strlen(*n));
    int r = b.failed ? session_fail(s, "out of memory") : rows_put(s, ROW_SUBSCRIPTIONS, "", 0, b.len > 0 ? b.data : (const uint8_t *)"", b.len);
    orset_buf_free(&b);
    return r;
}

static int subscribe(struct session *s, const char *vname, bool on)
{
    buffer_t *name = t_buffer_create(128);
    if (!subscription_name(s, vname, name))
        return 0;
    int r = orset_local_subscribe(s->os, name->data, name->used, on);
    return r < 0 && r != ORSET_E_LIMIT ? session_core_failed(s, vname) : 0;
}

int subscriptions_ingest(struct session *s)
{
    ARRAY_TYPE(const_string) now, seen;
    const char *const *n;
    t_array_init(&now, 16);
    t_array_init(&seen, 16);
    if (list_subscriptions(s, &now) < 0 || load_seen(s, &seen) < 0)
        return -1;
    /* A file that vanished is no user who gave up all of them. */
    if (array_count(&now) == 0 && array_count(&seen) > 3) {
        session_note(s, NOTE_WARNING, "all %u subscriptions are gone at once: not replicated", array_count(&seen));
        return 0;
    }
    array_foreach(&now, n)
    {
        if (!listed(&seen, *n) && subscribe(s, *n, TRUE) < 0)
            return -1;
    }
    array_foreach(&seen, n)
    {
        if (!listed(&now, *n) && subscribe(s, *n, FALSE) < 0)
            return -1;
    }
    return put_seen(s, &now);
}

int subscription_apply(struct session *s, const char *name, size_t len)
{
    ARRAY_TYPE(const_string) seen;
    const char *vname = subscription_vname(s, name, len);
    bool on = orset_subscribed(s->os, name, len);
    if (vname == NULL)
        return 0;
    struct mailbox *box = session_mailbox(s, vname, 0);
    int r = mailbox_set_subscribed(box, on);
    if (r < 0)
        session_note(s, NOTE_WARNING, "%s: cannot be %ssubscribed: %s", vname, on ? "" : "un", mailbox_get_last_internal_error(box, NULL));
    mailbox_free(&box);
    if (r < 0)
        return 0;
    t_array_init(&seen, 16);
    if (session_begin(s) < 0)
        return -1;
    if (load_seen(s, &seen) < 0)
        r = -1;
    if (on && !listed(&seen, vname)) {
        array_push_back(&seen, &vname);
        array_sort(&seen, by_name);
    }
    for (unsigned i = 0; !on && i < array_count(&seen); i++)
        if (strcmp(array_idx_elem(&seen, i), vname) == 0)
            array_delete(&seen, i--, 1);
    if (r < 0 || put_seen(s, &seen) < 0 || orset_done_subscription(s->os, name, len) < 0) {
        session_rollback(s);
        return session_core_failed(s, vname);
    }
    return session_commit(s);
}

#define ACL_PREFIX MAILBOX_ATTRIBUTE_PREFIX_DOVECOT_PVT "acl/"
#define SIEVE_PREFIX MAILBOX_ATTRIBUTE_PREFIX_DOVECOT_PVT_SERVER "sieve/"

/* --- attributes ----------------------------------------------------------------------------------------------------- */

static const struct {
    enum mail_attribute_type type;
    char letter;
} attribute_types[] = {{MAIL_ATTRIBUTE_TYPE_PRIVATE, 'p'}, {MAIL_ATTRIBUTE_TYPE_SHARED, 's'}};

static void seen_key(struct orset_key *k, uint32_t folder, const char *key, size_t len)
{
    k->n = 0;
    orset_key_num(k, folder);
    orset_key_put(k, key, len);
}

/* 1: *value; 0: unset; -1 */
static int read_value(struct mailbox *box, enum mail_attribute_type type, const char *key, buffer_t *value)
{
    struct mail_attribute_value v;
    const unsigned char *data;
    size_t n;
    int r = mailbox_attribute_get_stream(box, type, key, &v);
    buffer_set_used_size(value, 0);
    if (r <= 0)
        return r;
    if (v.value != NULL)
        buffer_append(value, v.value, strlen(v.value));
    if (v.value_stream != NULL) {
        while (value->used <= ORSET_ATTRIBUTE_MAX && i_stream_read_more(v.value_stream, &data, &n) > 0) {
            buffer_append(value, data, n);
            i_stream_skip(v.value_stream, n);
        }
        if (v.value_stream->stream_errno != 0)
            r = -1;
        i_stream_unref(&v.value_stream);
    }
    return v.value == NULL && value->used == 0 ? I_MIN(r, 0) : r;
}

/* key: its type's letter, then Dovecot's key. unset_too: the log says that it was changed, so "not there" means unset. */
static int attribute_ingest(struct session *s, struct mailbox *box, uint32_t folder, unsigned type, const char *name,
                            bool unset_too)
{
    const char *key = t_strdup_printf("%c%s", attribute_types[type].letter, name);
    size_t len = strlen(key), seen_len;
    buffer_t *value = buffer_create_dynamic(default_pool, 256);
    struct orset_key k;
    const uint8_t *v;
    int r = len > ORSET_ATTRIBUTE_KEY_MAX ? -1 : read_value(box, attribute_types[type].type, name, value);
    if (r < 0) {
        buffer_free(&value);
        return 0; /* no attributes here, or not now */
    }
    uint64_t hash = r == 0 ? 0 : orset_hash(value->data, value->used).lo | 1;
    seen_key(&k, folder, key, len);
    int had = rows_get(s, ROW_ATTRIBUTES, k.b, k.n, &v, &seen_len);
    bool same = had > 0 ? seen_len == sizeof hash && memcmp(v, &hash, sizeof hash) == 0 : r == 0;
    if (had >= 0 && !same && (r > 0 || unset_too)) {
        had = orset_local_attribute(s->os, folder, key, len, r > 0 ? value->data : NULL, value->used);
        if (had == ORSET_E_LIMIT)
            session_note(s, NOTE_WARNING, "%s: attribute %s is not replicated: %s", mailbox_get_vname(box), name,
                         orset_error_text(s->os));
        else if (had < 0)
            had = session_core_failed(s, name);
        else
            had = rows_put(s, ROW_ATTRIBUTES, k.b, k.n, &hash, sizeof hash);
    }
    buffer_free(&value);
    return had == -1 ? -1 : 0;
}

static int attributes_all(struct session *s, struct mailbox *box, uint32_t folder, unsigned type, const char *prefix)
{
    ARRAY_TYPE(const_string) keys;
    const char *key, *const *k;
    struct mailbox_attribute_iter *iter = mailbox_attribute_iter_init(box, attribute_types[type].type, prefix);
    t_array_init(&keys, 8);
    while ((key = mailbox_attribute_iter_next(iter)) != NULL) {
        key = t_strconcat(prefix, key, NULL);
        array_push_back(&keys, &key);
    }
    if (mailbox_attribute_iter_deinit(&iter) < 0)
        return 0;
    array_foreach(&keys, k)
    {
        if (attribute_ingest(s, box, folder, type, *k, FALSE) < 0)
            return -1;
    }
    return 0;
}

/* --- what is lost --- */

struct known_keys {
    uint32_t folder;
    const char *prefix;
    ARRAY_TYPE(const_string) list;
};

static int collect_known(void *arg, const uint8_t *key, size_t len, const uint8_t *v, size_t vlen)
{
    struct known_keys *k = arg;
    struct orset_reader in = {key + 1, key + len, false};
    uint64_t hash = 0;
    uint32_t folder = (uint32_t)orset_key_read(&in);
    const char *name = t_strndup(in.at, (size_t)(in.end - in.at));
    if (vlen == sizeof hash)
        memcpy(&hash, v, sizeof hash);
    if (folder == k->folder && hash != 0 && str_begins_with(name, k->prefix))
        array_push_back(&k->list, &name);
    return 0;
}

/* Those that were seen set, in the folder. */
static int known_keys(struct session *s, uint32_t folder, const char *prefix, struct known_keys *k)
{
    k->folder = folder;
    k->prefix = prefix;
    t_array_init(&k->list, 8);
    return rows_each(s, ROW_ATTRIBUTES, collect_known, k);
}

/* Nobody unset it: it is seen unset, and is to be set again. */
static int attribute_lost(struct session *s, uint32_t folder, const char *key)
{
    struct orset_key k;
    uint64_t none = 0;
    int r = orset_local_attribute_missing(s->os, folder, key, strlen(key));
    if (r < 0)
        return session_core_failed(s, key);
    seen_key(&k, folder, key, strlen(key));
    return rows_put(s, ROW_ATTRIBUTES, k.b, k.n, &none, sizeof none);
}

int attributes_restore(struct session *s, struct mailbox *box, uint32_t folder, bool lost)
{
    struct known_keys k;
    const char *const *key;
    unsigned n = 0, rights = 0;
    buffer_t *value = t_buffer_create(256);
    if (known_keys(s, folder, "", &k) < 0)
        return -1;
    array_foreach(&k.list, key)
    {
        unsigned type = **key == 's' ? 1 : 0;
        bool right = str_begins_with(*key + 1, ACL_PREFIX);
        if ((!lost && !right) || str_begins_with(*key + 1, SIEVE_PREFIX) ||
            read_value(box, attribute_types[type].type, *key + 1, value) != 0)
            continue;
        /* A right is in a file of its own, which goes with no index: its owner has perhaps revoked it, and is not overruled. */
        n += !right;
        rights += right;
        if (!right && attribute_lost(s, folder, *key) < 0)
            return -1;
    }
    if (n > 0)
        session_note(s, NOTE_INFO, "%s: %u attributes went with its index: they are set again", mailbox_get_vname(box), n);
    if (rights > 0)
        session_note(s, NOTE_WARNING, "%s: the rights of %u that were granted are not there, and its log does not tell whether somebody revoked "
                     "them: they are not granted again, nor revoked on the other sites; grant or revoke them", mailbox_get_vname(box), rights);
    return 0;
}

int rights_restore(struct session *s, uint32_t folder)
{
    struct known_keys k;
    const char *const *key;
    int r = known_keys(s, folder, "s" ACL_PREFIX, &k);
    array_foreach(&k.list, key)
    {
        if (r == 0)
            r = attribute_lost(s, folder, *key) < 0 ? -1 : 0;
    }
    return r;
}

int attributes_ingest(struct session *s, struct mailbox *box, uint32_t folder)
{
    for (unsigned type = 0; type < N_ELEMENTS(attribute_types); type++)
        if (attributes_all(s, box, folder, type, "") < 0 ||
            (folder == ORSET_INBOX && attributes_all(s, box, folder, type, MAILBOX_ATTRIBUTE_PREFIX_DOVECOT_PVT_SERVER) < 0))
            return -1;
    return 0;
}

int attributes_ingest_changed(struct session *s, struct mailbox *box, uint32_t folder, const ARRAY_TYPE(const_string) *changes)
{
    HASH_TABLE(const char *, void *) last; /* key: number of its last change, plus one */
    unsigned n;
    int r = 0;
    const char *const *change = array_get(changes, &n);
    if (n == 0)
        return 0;
    hash_table_create(&last, default_pool, 0, str_hash, strcmp);
    for (unsigned i = 0; i < n; i++)
        hash_table_update(last, change[i] + 1, POINTER_CAST(i + 1));
    for (unsigned i = 0; i < n && r == 0; i++) {
        const char *key = change[i] + 1, *name = key + 1;
        /* One that was set last and is not there is lost. Of Sieve scripts only this program writes such records: one that is gone by now,
         * its directory tells why. */
        bool unset = *change[i] == '-' && !str_begins_with(name, SIEVE_PREFIX);
        if (hash_table_lookup(last, key) == POINTER_CAST(i + 1))
            r = attribute_ingest(s, box, folder, *key == 's' ? 1 : 0, name, unset);
    }
    hash_table_destroy(&last);
    return r;
}

/* --- what no index log tells of: Sieve scripts, put and deleted beside it --- */

static bool is_script(const char *key)
{
    return str_begins_with(key, SIEVE_PREFIX "files/");
}

/* The directory of the scripts, from one that is open: no setting needs to be understood. NULL: they are in no directory. */
static const char *sieve_directory(struct mailbox *box, const char *key)
{
    struct mail_attribute_value v;
    const char *path = NULL, *end;
    if (mailbox_attribute_get_stream(box, MAIL_ATTRIBUTE_TYPE_PRIVATE, key, &v) <= 0 || v.value_stream == NULL)
        return NULL;
    int fd = i_stream_get_fd(v.value_stream);
    if (fd != -1 && t_readlink(t_strdup_printf("/proc/self/fd/%d", fd), &path, &end) < 0)
        path = NULL;
    i_stream_unref(&v.value_stream);
    return path != NULL && *path == '/' && (end = strrchr(path, '/')) != path ? t_strdup_until(path, end) : NULL;
}

static int remember_sieve_directory(struct session *s, struct mailbox *box, const char *key)
{
    const char *path = sieve_directory(box, key);
    buffer_t *row = t_buffer_create(256);
    struct file_id id = file_id(path);
    const uint8_t *v;
    size_t len;
    if (path == NULL)
        return 0;
    buffer_append(row, &id, sizeof id);
    buffer_append(row, path, strlen(path));
    int r = rows_get(s, ROW_SIEVE, "", 0, &v, &len);
    if (r < 0 || (r > 0 && len == row->used && memcmp(v, row->data, len) == 0))
        return r < 0 ? -1 : 0;
    return rows_put(s, ROW_SIEVE, "", 0, row->data, row->used);
}

enum sieve_end {
    SIEVE_UNKNOWN, /* what became of the scripts cannot be said */
    SIEVE_EMPTIED, /* the very directory that had them is there, can be read, and has none: a user deleted the last one */
    SIEVE_LOST     /* it is not there, or another one is in its place */
};

static int sieve_end(struct session *s, enum sieve_end *end_r)
{
    struct file_id id;
    const uint8_t *v;
    size_t len;
    *end_r = SIEVE_UNKNOWN;
    int r = rows_get(s, ROW_SIEVE, "", 0, &v, &len);
    if (r <= 0 || len <= sizeof id)
        return I_MIN(r, 0);
    memcpy(&id, v, sizeof id);
    const char *path = t_strndup(v + sizeof id, len - sizeof id);
    if (id.ino == 0)
        return 0;
    if (!same_file(&id, path)) {
        *end_r = SIEVE_LOST;
        return 0;
    }
    DIR *dir = opendir(path);
    const struct dirent *entry;
    if (dir == NULL)
        return 0;
    bool any = FALSE;
    errno = 0;
    while ((entry = readdir(dir)) != NULL)
        if (strlen(entry->d_name) > 6 && strcmp(entry->d_name + strlen(entry->d_name) - 6, ".sieve") == 0)
            any = TRUE; /* one that cannot be read, or came meanwhile */
    if (errno == 0 && !any)
        *end_r = SIEVE_EMPTIED;
    (void)closedir(dir);
    return 0;
}

static int sieve_lost(struct session *s, const ARRAY_TYPE(const_string) *gone)
{
    const char *const *key;
    session_note(s, NOTE_WARNING, "the directory of the Sieve scripts is lost: they are put there again");
    array_foreach(gone, key)
    {
        if (attribute_lost(s, ORSET_INBOX, *key) < 0)
            return -1;
    }
    return 0;
}

/* One that is gone was deleted, if another is still there, or the directory is the one that it was in; all at once in a lost directory are
 * damage (F1). */
static int sieve_deleted(struct session *s, struct mailbox *box)
{
    struct known_keys k;
    const char *const *key;
    buffer_t *value = t_buffer_create(256);
    ARRAY_TYPE(const_string) gone;
    unsigned left = 0, lost = 0;
    t_array_init(&gone, 8);
    if (known_keys(s, ORSET_INBOX, "p" SIEVE_PREFIX, &k) < 0)
        return -1;
    array_foreach(&k.list, key)
    {
        /* Which one is the active one is told by a link elsewhere, which says nothing of the directory. */
        bool script = is_script(*key + 1);
        int r = read_value(box, MAIL_ATTRIBUTE_TYPE_PRIVATE, *key + 1, value);
        if (r == 0)
            array_push_back(&gone, key);
        left += script && r > 0;
        lost += script && r == 0;
        if (script && r > 0 && remember_sieve_directory(s, box, *key + 1) < 0)
            return -1;
    }
    if (array_count(&gone) == 0)
        return 0;
    if (left == 0) {
        enum sieve_end end;
        if (sieve_end(s, &end) < 0)
            return -1;
        if (end != SIEVE_EMPTIED)
            return end == SIEVE_LOST && lost > 0 ? sieve_lost(s, &gone) : 0;
        if (lost > 0)
            session_note(s, NOTE_INFO, "the last Sieve script was deleted");
    }
    array_foreach(&gone, key)
    {
        if (attribute_ingest(s, box, ORSET_INBOX, 0, *key + 1, TRUE) < 0)
            return -1;
    }
    return 0;
}

int server_attributes_ingest(struct session *s)
{
    struct box *x = box_by_folder(s, ORSET_INBOX);
    int r = 0;
    if (x == NULL || x->gone || x->vname == NULL)
        return 0;
    struct mailbox *box = session_mailbox(s, x->vname, 0);
    if (session_open_mailbox(s, x, box) == 0)
        r = attributes_all(s, box, ORSET_INBOX, 0, MAILBOX_ATTRIBUTE_PREFIX_DOVECOT_PVT_SERVER) < 0 ? -1 : sieve_deleted(s, box);
    mailbox_free(&box);
    return r;
}

static int set_attribute(struct mailbox *box, const char *key, const uint8_t *value, size_t len)
{
    unsigned type = *key == 's' ? 1 : 0;
    struct mail_attribute_value v;
    i_zero(&v);
    if (value != NULL && memchr(value, '\0', len) != NULL)
        v.value_stream = i_stream_create_from_data(value, len); /* a text would end there; who cannot keep it says so */
    else if (value != NULL)
        v.value = t_strndup(value, len);
    struct mailbox_transaction_context *t =
        mailbox_transaction_begin(box, MAILBOX_TRANSACTION_FLAG_SYNC | MAILBOX_TRANSACTION_FLAG_NO_NOTIFY, "dovelane attribute");
    int r = mailbox_attribute_set(t, attribute_types[type].type, key + 1, &v);
    i_stream_unref(&v.value_stream);
    if (r < 0) {
        mailbox_transaction_rollback(&t);
        return -1;
    }
    return mailbox_transaction_commit(&t);
}

int attribute_apply(struct session *s, uint32_t folder, const char *name, size_t len)
{
    struct box *x = box_of_folder(s, folder);
    const char *key = t_strndup(name, len);
    const uint8_t *value = NULL;
    size_t value_len = 0;
    uint64_t hash = 0;
    struct orset_key k;
    int got = orset_attribute_get(s->os, folder, name, len, &value, &value_len);
    if (got < 0)
        return session_core_failed(s, key);
    if (x == NULL || x->gone || x->vname == NULL || len < 2)
        return 0;
    if (got == 0)
        value = NULL;
    else
        hash = orset_hash(value, value_len).lo | 1;
    struct mailbox *box = session_mailbox(s, x->vname, 0);
    int r = session_open_mailbox(s, x, box) < 0 ? -1 : set_attribute(box, key, value, value_len);
    if (r < 0)
        session_note(s, NOTE_WARNING, "%s: attribute %s waits: %s", x->vname, key + 1, mailbox_get_last_internal_error(box, NULL));
    if (r < 0 || session_begin(s) < 0) {
        mailbox_free(&box);
        return r < 0 ? 1 : -1;
    }
    /* The first script makes the directory; whose the next deletion is, is told by it. */
    r = got > 0 && is_script(key + 1) ? remember_sieve_directory(s, box, key + 1) : 0;
    mailbox_free(&box);
    seen_key(&k, folder, name, len);
    if (r < 0 || rows_put(s, ROW_ATTRIBUTES, k.b, k.n, &hash, sizeof hash) < 0 || orset_done_attribute(s->os, folder, name, len) < 0) {
        session_rollback(s);
        return session_core_failed(s, key);
    }
    return session_commit(s);
}
