/* attributes - METADATA, access rights, and whatever else Dovecot's plugins show as attributes
 * (Sieve scripts: scripts.c).
 *
 * What was seen last is a row here, since the core keeps what is wanted: their difference is a
 * user's doing (F4) when the mailbox's log says so, or when it is a value that was never here. A
 * value that was here before, and of which no log tells, is an old backup's: the state's is set
 * again. Of access rights, where that cannot be told, none is granted (is_damage()). */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/worker/logs/log.h"
#include "dovecot-plugin/worker/metadata/attributes.h"
#include "dovecot-plugin/worker/metadata/metadata.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/rows.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <buffer.h>
#include <hash.h>
#include <istream.h>
#include <mail-storage-private.h>
#include <str.h>

#include <sys/stat.h>
#include <time.h>

/* As METADATA shows it. Each site's configuration has it, and it cannot be set. */
#define SPECIAL_USE "specialuse"
#define ACL_PREFIX MAILBOX_ATTRIBUTE_PREFIX_DOVECOT_PVT "acl/"

/* --- attributes ------------------------------------------------------------------------------- */

static const struct {
    enum mail_attribute_type type;
    char letter;
} attribute_types[] = {{MAIL_ATTRIBUTE_TYPE_PRIVATE, 'p'}, {MAIL_ATTRIBUTE_TYPE_SHARED, 's'}};

static enum mail_attribute_type key_type(const char *key)
{
    return attribute_types[*key == 's' ? 1 : 0].type;
}

static bool is_configured(const char *key)
{
    return strcmp(key + 1, SPECIAL_USE) == 0;
}

static void seen_key(struct orset_key *k, uint32_t folder, const char *key, size_t len)
{
    k->n = 0;
    orset_key_num(k, folder);
    orset_key_put(k, key, len);
}

/* --- what was seen --- */

uint64_t attribute_hash(const buffer_t *value)
{
    return orset_hash(value->data, value->used).lo | 1;
}

int attribute_seen_load(struct session *s, uint32_t folder, const char *key, size_t len,
                        struct attribute_seen *seen)
{
    struct orset_key k;
    const uint8_t *v;
    size_t n;
    i_zero(seen);
    seen_key(&k, folder, key, len);
    int r = rows_get(s, ROW_ATTRIBUTES, k.b, k.n, &v, &n);
    if (r <= 0)
        return r;
    struct orset_reader in = orset_reader_of(v, n);
    seen->any = TRUE;
    seen->hash = orset_read_u64(&in);
    /* rows of earlier versions end here */
    seen->since = in.at == in.end ? 0 : (time_t)orset_read_u64(&in);
    while (!in.bad && in.at != in.end && seen->nformer < ATTRIBUTE_FORMERS_MAX)
        seen->former[seen->nformer++] = orset_read_u64(&in);
    return in.bad ? rows_corrupt(s, "the row of what was seen of an attribute") : 1;
}

bool attribute_is_former(const struct attribute_seen *seen, uint64_t hash)
{
    for (unsigned i = 0; i < seen->nformer; i++)
        if (seen->former[i] == hash)
            return TRUE;
    return FALSE;
}

/* hash is what is seen from now on. */
static int put_seen(struct session *s, uint32_t folder, const char *key, size_t len, uint64_t hash)
{
    struct attribute_seen seen;
    struct orset_key k;
    struct orset_buf b = {.alloc = session_alloc()};
    if (attribute_seen_load(s, folder, key, len, &seen) < 0)
        return -1;
    orset_buf_u64(&b, hash);
    orset_buf_u64(&b, (uint64_t)time(NULL));
    if (seen.hash != 0 && seen.hash != hash)
        orset_buf_u64(&b, seen.hash);
    for (unsigned i = 0; i < seen.nformer && b.len < (2 + ATTRIBUTE_FORMERS_MAX) * sizeof hash; i++)
        if (seen.former[i] != hash && seen.former[i] != seen.hash)
            orset_buf_u64(&b, seen.former[i]);
    seen_key(&k, folder, key, len);
    int r = b.failed ? session_fail(s, "out of memory")
                     : rows_put(s, ROW_ATTRIBUTES, k.b, k.n, b.data, b.len);
    orset_buf_free(&b);
    return r;
}

/* --- what it means that a value is another one --- */

int attribute_read(struct mailbox *box, const char *key, buffer_t *value, time_t *written_r)
{
    struct mail_attribute_value v;
    const unsigned char *data;
    const struct stat *st;
    size_t n;
    int r = mailbox_attribute_get_stream(box, key_type(key), key + 1, &v);
    buffer_set_used_size(value, 0);
    if (written_r != NULL)
        *written_r = 0;
    if (r <= 0)
        return r;
    if (v.value != NULL)
        buffer_append(value, v.value, strlen(v.value));
    if (v.value_stream != NULL) {
        while (value->used <= ORSET_ATTRIBUTE_MAX &&
               i_stream_read_more(v.value_stream, &data, &n) > 0) {
            buffer_append(value, data, n);
            i_stream_skip(v.value_stream, n);
        }
        if (written_r != NULL && i_stream_get_fd(v.value_stream) != -1 &&
            i_stream_stat(v.value_stream, FALSE, &st) == 0)
            *written_r = st->st_mtime;
        if (v.value_stream->stream_errno != 0)
            r = -1;
        i_stream_unref(&v.value_stream);
    }
    return v.value == NULL && value->used == 0 ? I_MIN(r, 0) : r;
}

/* A right of the one that the other has not, or one that the other denies ("-") and this does
 * not. */
static bool has_more(const char *const *one, const char *const *other)
{
    for (const char *const *w = one; *w != NULL; w++)
        if (**w != '-' && !str_array_find(other, *w))
            return TRUE;
    for (const char *const *w = other; *w != NULL; w++)
        if (**w == '-' && !str_array_find(one, *w))
            return TRUE;
    return FALSE;
}

/* It grants less than the state does. 1; 0; -1 */
static int grants_less(struct session *s, uint32_t folder, const char *key, const buffer_t *value)
{
    const uint8_t *wanted;
    size_t len;
    int r = orset_attribute_get(s->os, folder, key, strlen(key), &wanted, &len);
    if (r <= 0)
        return r < 0 ? session_core_failed(s, key) : 0;
    const char *const *shown = t_strsplit_spaces(t_strndup(value->data, value->used), " ");
    const char *const *granted = t_strsplit_spaces(t_strndup(wanted, len), " ");
    return has_more(granted, shown) && !has_more(shown, granted);
}

/* Of a value that nobody is known to have set. A right that was revoked, and in a mailbox that
 * is another one any right that was known, may be an old backup's though this value is not known
 * as a former one. */
static bool is_damage(const struct attribute_seen *seen, uint64_t hash, bool right,
                      enum attributes_said said)
{
    if (said == ATTRIBUTES_BY_USER)
        return FALSE;
    return attribute_is_former(seen, hash) ||
           (right && seen->any && (seen->hash == 0 || said == ATTRIBUTES_OTHER));
}

static bool is_right(const char *key)
{
    return str_begins_with(key + 1, ACL_PREFIX);
}

/* Of a right that is less than what was granted, its owner has perhaps said so. */
static int value_damaged(struct session *s, struct mailbox *box, uint32_t folder, const char *key,
                         const buffer_t *value)
{
    int r = is_right(key) ? grants_less(s, folder, key, value) : 0;
    if (r > 0)
        session_note(s, NOTE_WARNING,
                     "%s: %s has less rights than were granted, and no log tells whether somebody "
                     "revoked them. They are not granted again, nor revoked on the other sites; "
                     "grant or revoke them",
                     mailbox_get_vname(box), key + 1);
    if (r != 0)
        return I_MIN(r, 0);
    r = orset_local_attribute_shown(s->os, folder, key, strlen(key), value->data, value->used);
    if (r < 0)
        return session_core_failed(s, key);
    if (r == ORSET_KNOWN)
        return put_seen(s, folder, key, strlen(key), attribute_hash(value));
    session_note(s, NOTE_WARNING,
                 "%s: attribute %s has an old value, and no log says who set it, as after a "
                 "restored backup. It is set again as it was",
                 mailbox_get_vname(box), key + 1);
    return 0;
}

static int value_changed(struct session *s, struct mailbox *box, uint32_t folder, const char *key,
                         const buffer_t *value, bool set)
{
    int r = orset_local_attribute(s->os, folder, key, strlen(key), set ? value->data : NULL,
                                  value->used);
    if (r == ORSET_E_LIMIT) {
        session_note(s, NOTE_WARNING, "%s: attribute %s is not replicated: %s",
                     mailbox_get_vname(box), key + 1, orset_error_text(s->os));
        return 0;
    }
    return r < 0 ? session_core_failed(s, key)
                 : put_seen(s, folder, key, strlen(key), set ? attribute_hash(value) : 0);
}

/* The state that this program wrote it for is lost. The other sites have told what they have by now:
 * a value that comes after that one, perhaps. What no site knows of any more stays. */
static int value_applied(struct session *s, struct mailbox *box, uint32_t folder, const char *key,
                         const buffer_t *value, bool set)
{
    size_t len = strlen(key);
    int r = orset_attribute_known(s->os, folder, key, len);
    if (r == 0)
        return value_changed(s, box, folder, key, value, set);
    if (r > 0)
        r = orset_local_attribute_shown(s->os, folder, key, len, set ? value->data : NULL,
                                        value->used);
    return r < 0 ? session_core_failed(s, key)
                 : put_seen(s, folder, key, len, set ? attribute_hash(value) : 0);
}

int attribute_ingest(struct session *s, struct mailbox *box, uint32_t folder, const char *key,
                     enum attributes_said said, bool unset_too)
{
    if (is_configured(key))
        return 0;
    size_t len = strlen(key);
    buffer_t *value = buffer_create_dynamic(default_pool, 256);
    struct attribute_seen seen;
    int r = len > ORSET_ATTRIBUTE_KEY_MAX ? -1 : attribute_read(box, key, value, NULL), ret = 0;
    uint64_t hash = r > 0 ? attribute_hash(value) : 0;
    /* r < 0: no attributes here, or not now */
    if (r >= 0 && (r > 0 || unset_too) &&
        (ret = attribute_seen_load(s, folder, key, len, &seen)) >= 0 && hash != seen.hash)
        ret = said == ATTRIBUTES_APPLIED ? value_applied(s, box, folder, key, value, r > 0)
              : r > 0 && is_damage(&seen, hash, is_right(key), said)
                  ? value_damaged(s, box, folder, key, value)
                  : value_changed(s, box, folder, key, value, r > 0);
    buffer_free(&value);
    return I_MIN(ret, 0);
}

int attribute_keys(struct mailbox *box, unsigned type, const char *prefix, bool scripts,
                   ARRAY_TYPE(const_string) * keys)
{
    const char *key;
    struct mailbox_attribute_iter *iter =
        mailbox_attribute_iter_init(box, attribute_types[type].type, prefix);
    while ((key = mailbox_attribute_iter_next(iter)) != NULL) {
        bool script = str_begins_with(key, SIEVE_PREFIX);
        key = t_strdup_printf("%c%s%s", attribute_types[type].letter, script ? "" : prefix, key);
        if (script == scripts)
            array_push_back(keys, &key);
    }
    return mailbox_attribute_iter_deinit(&iter);
}

static int attributes_below(struct session *s, struct mailbox *box, uint32_t folder, unsigned type,
                            const char *prefix, enum attributes_said said)
{
    ARRAY_TYPE(const_string) keys;
    const char *const *key;
    t_array_init(&keys, 8);
    if (attribute_keys(box, type, prefix, FALSE, &keys) < 0)
        return 0;
    array_foreach (&keys, key) {
        if (attribute_ingest(s, box, folder, *key, said, FALSE) < 0)
            return -1;
    }
    return 0;
}

/* --- what is lost --- */

static int collect_known(void *arg, const uint8_t *key, size_t len, const uint8_t *v, size_t vlen)
{
    struct attributes_known *k = arg;
    struct orset_reader in = {key + 1, key + len, false};
    uint64_t hash = 0;
    uint32_t folder = (uint32_t)orset_key_read(&in, UINT32_MAX);
    const char *name = t_strndup(in.at, (size_t)(in.end - in.at));
    if (vlen >= sizeof hash) {
        struct orset_reader r = orset_reader_of(v, vlen);
        hash = orset_read_u64(&r);
    }
    if (folder == k->folder && hash != 0 && str_begins_with(name, k->prefix))
        array_push_back(&k->list, &name);
    return 0;
}

int attributes_known(struct session *s, uint32_t folder, const char *prefix,
                     struct attributes_known *k)
{
    k->folder = folder;
    k->prefix = prefix;
    t_array_init(&k->list, 8);
    return rows_each(s, ROW_ATTRIBUTES, collect_known, k);
}

int attribute_lost(struct session *s, uint32_t folder, const char *key)
{
    if (orset_local_attribute_shown(s->os, folder, key, strlen(key), NULL, 0) < 0)
        return session_core_failed(s, key);
    return put_seen(s, folder, key, strlen(key), 0);
}

int attributes_restore(struct session *s, struct mailbox *box, uint32_t folder, bool lost)
{
    struct attributes_known k;
    const char *const *key;
    unsigned n = 0, rights = 0;
    buffer_t *value = t_buffer_create(256);
    if (attributes_known(s, folder, "", &k) < 0)
        return -1;
    array_foreach (&k.list, key) {
        bool right = is_right(*key);
        if ((!lost && !right) || is_configured(*key) || str_begins_with(*key + 1, SIEVE_PREFIX) ||
            attribute_read(box, *key, value, NULL) != 0)
            continue;
        /* A right is in a file of its own, which goes with no index: its owner has perhaps
         * revoked it, and is not overruled. */
        n += !right;
        rights += right;
        if (!right && attribute_lost(s, folder, *key) < 0)
            return -1;
    }
    if (n > 0)
        session_note(s, NOTE_INFO, "%s: %u attributes went with its index: they are set again",
                     mailbox_get_vname(box), n);
    if (rights > 0)
        session_note(s, NOTE_WARNING,
                     "%s: the rights of %u that were granted are not there, and its log does not "
                     "tell whether somebody revoked them. They are not granted again, nor revoked "
                     "on the other sites; grant or revoke them",
                     mailbox_get_vname(box), rights);
    return 0;
}

int rights_restore(struct session *s, uint32_t folder)
{
    struct attributes_known k;
    const char *const *key;
    int r = attributes_known(s, folder, "s" ACL_PREFIX, &k);
    array_foreach (&k.list, key) {
        if (r == 0)
            r = attribute_lost(s, folder, *key) < 0 ? -1 : 0;
    }
    return r;
}

int attributes_ingest(struct session *s, struct mailbox *box, uint32_t folder,
                      enum attributes_said said)
{
    for (unsigned type = 0; type < N_ELEMENTS(attribute_types); type++)
        if (attributes_below(s, box, folder, type, "", said) < 0 ||
            (folder == ORSET_INBOX &&
             attributes_below(s, box, folder, type, MAILBOX_ATTRIBUTE_PREFIX_DOVECOT_PVT_SERVER,
                              said) < 0))
            return -1;
    return 0;
}

typedef const char *text_key; /* HASH_TABLE adds a const of its own */

int attributes_ingest_changed(struct session *s, struct mailbox *box, uint32_t folder,
                              const ARRAY_TYPE(attribute_change) * changes, bool fresh,
                              bool rewound)
{
    HASH_TABLE(text_key, void *) last; /* key: number of its last change, plus one */
    ARRAY_TYPE(const_string) unset;
    bool scripts = FALSE;
    unsigned n;
    int r = 0;
    const struct attribute_change *change = array_get(changes, &n);
    if (n == 0)
        return 0;
    t_array_init(&unset, 8);
    hash_table_create(&last, default_pool, 0, str_hash, strcmp);
    for (unsigned i = 0; i < n; i++)
        hash_table_update(last, change[i].what + 1, POINTER_CAST(i + 1));
    for (unsigned i = 0; i < n && r == 0; i++) {
        const char *key = change[i].what + 1;
        if (hash_table_lookup(last, key) != POINTER_CAST(i + 1))
            continue;
        /* One that was set last and is not there is lost. */
        bool script = str_begins_with(key + 1, SIEVE_PREFIX), gone = *change[i].what == '-',
             applied = rewound && change[i].own;
        scripts = scripts || script;
        if (script && gone)
            array_push_back(&unset, &key);
        if ((change[i].fresh || !fresh) && (!script || (applied && folder == ORSET_INBOX)))
            r = attribute_ingest(s, box, folder, key,
                                 applied ? ATTRIBUTES_APPLIED : ATTRIBUTES_BY_USER, gone);
    }
    hash_table_destroy(&last);
    return r == 0 && scripts && folder == ORSET_INBOX ? scripts_ingest(s, box, &unset) : r;
}

static int set_attribute(struct mailbox *box, const char *key, const uint8_t *value, size_t len)
{
    struct mail_attribute_value v;
    i_zero(&v);
    if (value != NULL && memchr(value, '\0', len) != NULL)
        /* a text would end there; who cannot keep it says so */
        v.value_stream = i_stream_create_from_data(value, len);
    else if (value != NULL)
        v.value = t_strndup(value, len);
    struct mailbox_transaction_context *t = mailbox_transaction_begin(
        box, MAILBOX_TRANSACTION_FLAG_SYNC | MAILBOX_TRANSACTION_FLAG_NO_NOTIFY,
        "dovelane attribute");
    int r = mailbox_attribute_set(t, key_type(key), key + 1, &v);
    i_stream_unref(&v.value_stream);
    if (r < 0) {
        mailbox_transaction_rollback(&t);
        return -1;
    }
    return mailbox_transaction_commit(&t);
}

/* A site of 0.1.0 tells of one that its configuration has. */
static int leave_out(struct session *s, uint32_t folder, const char *name, size_t len)
{
    if (session_begin(s) < 0)
        return -1;
    if (orset_done_attribute(s->os, folder, name, len) < 0) {
        session_rollback(s);
        return session_core_failed(s, "attribute");
    }
    return session_commit(s);
}

int attribute_apply(struct session *s, uint32_t folder, const char *name, size_t len)
{
    struct box *x = box_of_folder(s, folder);
    const char *key = t_strndup(name, len);
    const uint8_t *value = NULL;
    size_t value_len = 0;
    uint64_t hash = 0;
    int got = orset_attribute_get(s->os, folder, name, len, &value, &value_len);
    if (got < 0)
        return session_core_failed(s, key);
    if (len > 1 && is_configured(key))
        return leave_out(s, folder, name, len);
    if (x == NULL || x->gone || x->vname == NULL || len < 2 || strlen(key) != len)
        return 0;
    if (got == 0)
        value = NULL;
    else
        hash = orset_hash(value, value_len).lo | 1;
    struct mailbox *box = session_mailbox(s, x->vname, 0);
    bool waits = FALSE;
    int r = session_open_mailbox(s, x, box);
    if (r == 0 && (waits = value != NULL && scripts_active_waits(box, key, value, value_len)))
        r = -1;
    else if (r == 0)
        r = set_attribute(box, key, value, value_len);
    if (r < 0 && !waits)
        session_note(s, NOTE_WARNING, "%s: attribute %s waits: %s", x->vname, key + 1,
                     mailbox_get_last_internal_error(box, NULL));
    if (r < 0 || session_begin(s) < 0) {
        mailbox_free(&box);
        return r < 0 ? 1 : -1;
    }
    /* The first script makes the directory; whose the next deletion is, is told by it. */
    r = got > 0 ? scripts_remember_directory(s, box, key) : 0;
    mailbox_free(&box);
    if (r < 0 || put_seen(s, folder, key, len, hash) < 0 ||
        orset_done_attribute(s->os, folder, name, len) < 0) {
        session_rollback(s);
        return session_core_failed(s, key);
    }
    return session_commit(s);
}
