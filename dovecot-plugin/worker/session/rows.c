/* rows - what this program itself remembers, as ORSET_T_APP rows beside the core's: so it is
 * committed with the state it belongs to. Rows are read once, at open; what is in memory is what
 * the last commit wrote, or it is read again. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/orset/store.h"
#include "dovecot-plugin/store/state_sqlite.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/rows.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <mail-storage-private.h>
#include <seq-range-array.h>
#include <unichar.h>

#include <unistd.h>

#define ROWS_VERSION 1

static struct orset_buf value_buf(void)
{
    return (struct orset_buf){.alloc = session_alloc()};
}

static void put_str(struct orset_buf *b, const char *s)
{
    orset_buf_text(b, s == NULL ? "" : s, s == NULL ? 0 : strlen(s));
}

/* A mailbox's name. The library takes no other bytes: it ends the program over them. */
static char *read_vname(struct orset_reader *r)
{
    size_t len;
    const uint8_t *p = orset_read_text(r, ROW_NAME_MAX, &len);
    char *name = p == NULL || len == 0 ? NULL : i_strndup(p, len);
    r->bad = r->bad || (name != NULL && (strlen(name) != len || !uni_utf8_str_is_valid(name)));
    if (r->bad)
        i_free(name);
    return name;
}

int rows_corrupt(struct session *s, const char *what)
{
    state_sqlite_corrupt(s->db, what);
    return session_fail(s, "the state's rows cannot be true: %s", what);
}

/* Read to its end, and nothing was bad. */
static bool row_end(const struct orset_reader *r)
{
    return !r->bad && r->at == r->end;
}

/* The folder that a row's key names; ORSET_NO_FOLDER: none that there is. */
static uint32_t row_folder(struct session *s, const uint8_t *key, size_t len)
{
    struct orset_reader k = {key + 1, key + len, false};
    uint32_t folder = (uint32_t)orset_key_read(&k, ORSET_FOLDERS_MAX);
    return row_end(&k) && folder < orset_folders(s->os) ? folder : ORSET_NO_FOLDER;
}

/* --- any row ---------------------------------------------------------------------------------- */

static void row_key(struct orset_key *k, char kind, const void *key, size_t len)
{
    k->n = 0;
    orset_key_put(k, &kind, 1);
    orset_key_put(k, key, len);
}

int rows_put(struct session *s, char kind, const void *key, size_t key_len, const void *value,
             size_t len)
{
    struct orset_key k;
    i_assert(orset_in_transaction(s->os));
    row_key(&k, kind, key, key_len);
    if (s->store.put(s->store.ctx, ORSET_T_APP, k.b, k.n, value, len) < 0)
        return session_fail(s, "state: %s", state_sqlite_error(s->db));
    return 0;
}

int rows_del(struct session *s, char kind, const void *key, size_t key_len)
{
    struct orset_key k;
    i_assert(orset_in_transaction(s->os));
    row_key(&k, kind, key, key_len);
    if (s->store.del(s->store.ctx, ORSET_T_APP, k.b, k.n) < 0)
        return session_fail(s, "state: %s", state_sqlite_error(s->db));
    return 0;
}

int rows_get(struct session *s, char kind, const void *key, size_t key_len, const uint8_t **value,
             size_t *len)
{
    struct orset_key k;
    row_key(&k, kind, key, key_len);
    int r = s->store.get(s->store.ctx, ORSET_T_APP, k.b, k.n, value, len);
    return r < 0 ? session_fail(s, "state: %s", state_sqlite_error(s->db)) : r;
}

int rows_each(struct session *s, char kind, orset_row_fn *fn, void *arg)
{
    if (s->store.each(s->store.ctx, ORSET_T_APP, &kind, 1, 1, fn, arg) < 0)
        return session_fail(s, "state: %s", state_sqlite_error(s->db));
    return 0;
}

static int put_buf(struct session *s, char kind, const struct orset_key *k, struct orset_buf *b)
{
    int r = b->failed ? session_fail(s, "out of memory")
                      : rows_put(s, kind, k->b, k->n, b->data, b->len);
    orset_buf_free(b);
    return r;
}

/* --- mailboxes -------------------------------------------------------------------------------- */

static void put_held(struct orset_buf *b, const struct box *x)
{
    const struct seq_range *range;
    uint32_t last = 0;
    array_foreach (&x->quarantine, range) {
        orset_buf_num(b, range->seq1 - last);
        orset_buf_num(b, range->seq2 - range->seq1);
        last = range->seq2;
    }
}

static void read_held(struct orset_reader *r, struct box *x)
{
    for (uint32_t last = 0; !r->bad && r->at != r->end;) {
        uint32_t first = last + (uint32_t)orset_read_num(r, UINT32_MAX - last);
        last = first + (uint32_t)orset_read_num(r, UINT32_MAX - first);
        if (!r->bad)
            seq_range_array_add_range(&x->quarantine, first, last);
        r->bad = r->bad || seq_range_count(&x->quarantine) > ROW_UIDS_MAX;
    }
}

/* A mailbox that was not read since it was restored has read no file, and yet an identity. */
#define RESTORED_LOG 1

int rows_put_box(struct session *s, const struct box *x)
{
    struct orset_buf b = value_buf();
    struct orset_key k = rows_folder_key(x->folder);
    orset_buf_u8(&b, ROWS_VERSION);
    orset_buf_u8(&b, (uint8_t)(x->gone | x->deleting << 1 | (array_count(&x->quarantine) > 0) << 2 |
                               x->all << 3 | x->astray << 4 | x->rewound << 5 | x->beyond << 6 |
                               x->estranged << 7));
    orset_buf_put(&b, x->guid, sizeof x->guid);
    put_str(&b, x->vname);
    put_str(&b, x->moving);
    orset_buf_num(&b, x->at.indexid);
    orset_buf_num(&b, x->at.file_seq);
    orset_buf_num(&b, x->at.uid_validity);
    orset_buf_num(&b, x->at.uid_next);
    orset_buf_num(&b, x->at.before);
    orset_buf_num(&b, x->at.modseq);
    orset_buf_u64(&b, x->at.hash);
    orset_buf_u64(&b, x->at.stamp);
    orset_buf_num(&b, (uint64_t)x->brake_since);
    orset_buf_num(&b, x->brake_used);
    orset_buf_num(&b, x->vanished);
    orset_buf_num(&b, (uint64_t)x->vanished_since);
    orset_buf_num(&b, x->adopted);
    orset_buf_u64(&b, x->restored && x->at.file_seq == 0 ? RESTORED_LOG : x->at.log_id);
    put_held(&b, x);
    return put_buf(s, 'b', &k, &b);
}

static int load_box(void *arg, const uint8_t *key, size_t key_len, const uint8_t *v, size_t len)
{
    struct session *s = arg;
    struct orset_reader r = orset_reader_of(v, len);
    uint32_t folder = row_folder(s, key, key_len);
    if (orset_read_u8(&r) != ROWS_VERSION || folder == ORSET_NO_FOLDER ||
        box_by_folder(s, folder) != NULL)
        return rows_corrupt(s, "a mailbox's row is of none");
    struct box *x = box_add(s, folder);
    uint8_t bits = orset_read_u8(&r);
    x->gone = (bits & 1) != 0;
    x->deleting = (bits & 2) != 0;
    /* 4: something is quarantined. A crash may have cut short what became of it; earlier
     * versions did not say which it is */
    x->all = (bits & (4 | 8)) != 0;
    x->astray = (bits & 16) != 0;
    x->rewound = (bits & 32) != 0;
    x->beyond = (bits & 64) != 0;
    x->estranged = (bits & 128) != 0;
    box_set_guid(s, x, orset_read_bytes(&r, sizeof x->guid));
    char *vname = read_vname(&r);
    box_set_vname(s, x, vname);
    i_free(vname);
    x->moving = read_vname(&r);
    x->at.indexid = (uint32_t)orset_read_num(&r, UINT32_MAX);
    x->at.file_seq = (uint32_t)orset_read_num(&r, UINT32_MAX);
    x->at.uid_validity = (uint32_t)orset_read_num(&r, UINT32_MAX);
    x->at.uid_next = (uint32_t)orset_read_num(&r, UINT32_MAX);
    x->at.before = orset_read_num(&r, UINT64_MAX);
    x->at.modseq = orset_read_num(&r, UINT64_MAX);
    x->at.hash = orset_read_u64(&r);
    x->at.stamp = orset_read_u64(&r);
    x->brake_since = (time_t)orset_read_num(&r, INT64_MAX);
    x->brake_used = (uint32_t)orset_read_num(&r, UINT32_MAX);
    if (r.at != r.end) { /* rows of the first version end here */
        x->vanished = (unsigned)orset_read_num(&r, UINT32_MAX);
        x->vanished_since = (time_t)orset_read_num(&r, INT64_MAX);
        s->scan_again = s->scan_again || x->vanished != 0;
    }
    if (r.at != r.end) { /* and those of the second */
        x->adopted = (uint32_t)orset_read_num(&r, UINT32_MAX);
        x->at.log_id = orset_read_u64(&r);
        if (x->at.file_seq == 0 && x->at.log_id == RESTORED_LOG) {
            x->restored = TRUE;
            x->at.log_id = 0;
        }
    }
    read_held(&r, x);
    return r.bad ? rows_corrupt(s, "a mailbox's row") : 0;
}

/* --- peers, and whether an exchange comes first ----------------------------------------------- */

int rows_put_peer(struct session *s, const struct peer *p)
{
    struct orset_buf b = value_buf();
    struct orset_key k = {0};
    orset_key_num(&k, p->site);
    orset_buf_u8(&b, ROWS_VERSION);
    orset_buf_num(&b, p->confirmed);
    orset_buf_num(&b, p->sent);
    orset_buf_u8(
        &b, (uint8_t)(p->behind | p->forgotten << 1 | p->answered << 2 | p->told_reading << 3));
    orset_buf_num(&b, (uint64_t)p->reading_until);
    return put_buf(s, 'p', &k, &b);
}

struct peer *session_peer(struct session *s, uint64_t site)
{
    for (unsigned i = 0; i < s->npeers; i++)
        if (s->peer[i].site == site)
            return &s->peer[i];
    return NULL;
}

static int load_peer(void *arg, const uint8_t *key, size_t key_len, const uint8_t *v, size_t len)
{
    struct session *s = arg;
    struct orset_reader k = {key + 1, key + key_len, false}, r = orset_reader_of(v, len);
    struct peer *p = session_peer(s, orset_key_read(&k, UINT64_MAX));
    uint8_t version = orset_read_u8(&r);
    if (!row_end(&k))
        return rows_corrupt(s, "a site's row is of none");
    if (p == NULL) /* a site that left the group */
        return 0;
    p->confirmed = orset_read_num(&r, ORSET_COUNTER_MAX);
    p->sent = orset_read_num(&r, ORSET_COUNTER_MAX);
    uint8_t bits = orset_read_u8(&r);
    p->behind = (bits & 1) != 0;
    p->forgotten = (bits & 2) != 0;
    p->answered = (bits & 4) != 0;
    p->told_reading = (bits & 8) != 0;
    p->reading_until = r.at < r.end ? (time_t)orset_read_num(&r, INT64_MAX) : 0;
    return version != ROWS_VERSION || r.bad ? rows_corrupt(s, "a site's row") : 0;
}

int rows_put_join(struct session *s)
{
    struct orset_buf b = value_buf();
    struct orset_key k = {0};
    if (s->join.phase == JOINED)
        return rows_del(s, 'j', "", 0);
    orset_buf_num(&b, (uint64_t)s->join.until);
    orset_buf_u8(&b, s->join.phase == JOIN_ALONE);
    orset_buf_num(&b, (uint64_t)s->join.since);
    return put_buf(s, 'j', &k, &b);
}

/* --- who saves into a Maildir ----------------------------------------------------------------- */

int rows_say_saving(struct session *s, struct mailbox *box, struct box *x)
{
    struct orset_buf b = value_buf();
    struct orset_key k = rows_folder_key(x->folder);
    if (x->saving || !is_maildir(box))
        return 0;
    orset_buf_num(&b, (uint64_t)getpid());
    if (session_begin(s) < 0) {
        orset_buf_free(&b);
        return -1;
    }
    if (put_buf(s, ROW_SAVING, &k, &b) < 0) {
        session_rollback(s);
        return -1;
    }
    x->saving = TRUE;
    return session_commit(s);
}

int rows_saved(struct session *s, struct box *x)
{
    struct orset_key k = rows_folder_key(x->folder);
    if (x->saver == 0)
        return 0;
    x->saver = 0;
    return rows_del(s, ROW_SAVING, k.b, k.n);
}

int rows_close(struct session *s)
{
    struct box *const *x;
    unsigned n = 0;
    array_foreach (&s->boxes, x)
        n += (*x)->saving;
    if (n == 0)
        return 0;
    if (session_begin(s) < 0)
        return -1;
    array_foreach (&s->boxes, x) {
        struct orset_key k = rows_folder_key((*x)->folder);
        if ((*x)->saving && rows_del(s, ROW_SAVING, k.b, k.n) < 0) {
            session_rollback(s);
            return -1;
        }
    }
    return session_commit(s);
}

static int load_saver(void *arg, const uint8_t *key, size_t key_len, const uint8_t *v, size_t len)
{
    struct session *s = arg;
    struct orset_reader r = orset_reader_of(v, len);
    struct box *x = box_by_folder(s, row_folder(s, key, key_len));
    pid_t pid = (pid_t)orset_read_num(&r, INT32_MAX);
    if (!row_end(&r))
        return rows_corrupt(s, "the row of who saves mails");
    if (x == NULL)
        return 0;
    x->saving = pid == getpid();
    x->saver = x->saving ? 0 : pid;
    s->cut_short = s->cut_short || x->saver != 0;
    return 0;
}

/* <seconds>.M<microseconds>P<process>.<host>..., as Dovecot names files; a preserved name is
 * another process'. */
static bool is_named_by(struct mail *mail, enum mail_fetch_field name_of, pid_t saver)
{
    const char *name, *at;
    if (saver == 0 || mail_get_special(mail, name_of, &name) < 0 ||
        (at = strstr(name, ".M")) == NULL)
        return FALSE;
    for (at += 2; *at >= '0' && *at <= '9'; at++)
        ;
    const char *pid = t_strdup_printf("P%ld.", (long)saver);
    return strncmp(at, pid, strlen(pid)) == 0;
}

bool saved_by(struct mail *mail, pid_t saver)
{
    return is_named_by(mail, MAIL_FETCH_GUID, saver);
}

bool file_by(struct mail *mail, pid_t saver)
{
    return is_named_by(mail, MAIL_FETCH_STORAGE_ID, saver);
}

/* --- all of them ------------------------------------------------------------------------------ */

static int found_one(void *arg, const uint8_t *key, size_t key_len, const uint8_t *v, size_t len)
{
    bool *found = arg;
    (void)key;
    (void)key_len;
    (void)v;
    (void)len;
    *found = TRUE;
    return 0;
}

static int load_writing(void *arg, const uint8_t *key, size_t key_len, const uint8_t *v, size_t len)
{
    struct session *s = arg;
    struct orset_reader r = orset_reader_of(v, len);
    struct box *x = box_by_folder(s, row_folder(s, key, key_len));
    if (x == NULL)
        return 0;
    (void)orset_read_u8(&r);
    x->writing.seq = (uint32_t)orset_read_num(&r, UINT32_MAX);
    x->writing.offset = orset_read_num(&r, UINT64_MAX);
    s->cut_short = TRUE;
    return r.bad ? rows_corrupt(s, "the row of what is being written") : 0;
}

static int load_moved(void *arg, const uint8_t *key, size_t key_len, const uint8_t *v, size_t len)
{
    struct session *s = arg;
    struct box *x = box_by_folder(s, row_folder(s, key, key_len));
    return x == NULL ? 0 : moved_load(s, x, v, len);
}

/* What a crash, or a failed commit, left between saying what is about to happen and saying that
 * it did. */
static int find_cut_short(struct session *s)
{
    struct box *const *x;
    s->cut_short = FALSE;
    array_foreach (&s->boxes, x)
        s->cut_short = s->cut_short || (*x)->moving != NULL || (*x)->deleting;
    return rows_each(s, ROW_RENUMBER, found_one, &s->cut_short) < 0 ||
                   rows_each(s, ROW_SAVING, load_saver, s) < 0 ||
                   rows_each(s, ROW_WRITE_INTENT, load_writing, s) < 0 ||
                   rows_each(s, ROW_MOVED, load_moved, s) < 0
               ? -1
               : 0;
}

int rows_load(struct session *s)
{
    const uint8_t *v;
    size_t len;
    bool repairs = FALSE;
    mailbox_table_clear(s);
    for (unsigned i = 0; i < s->npeers; i++) {
        s->peer[i].confirmed = s->peer[i].sent = 0;
        s->peer[i].behind = s->peer[i].forgotten = s->peer[i].answered = s->peer[i].told_reading =
            FALSE;
        s->peer[i].reading_until = 0;
    }
    if (rows_each(s, 'b', load_box, s) < 0 || rows_each(s, 'p', load_peer, s) < 0 ||
        find_cut_short(s) < 0 || rows_each(s, ROW_MODSEQ_REPAIR, found_one, &repairs) < 0 ||
        rows_each(s, ROW_UIDNEXT_ASK, found_one, &s->asks_uidnext) < 0)
        return -1;
    s->modseq_repairs = repairs ? MODSEQ_REPAIRS_SOON : NO_MODSEQ_REPAIRS;
    int r = rows_get(s, 'j', "", 0, &v, &len);
    s->join.phase = JOINED;
    if (r > 0) {
        struct orset_reader in = orset_reader_of(v, len);
        s->join.until = (time_t)orset_read_num(&in, INT64_MAX);
        bool alone = in.at < in.end && orset_read_u8(&in) != 0;
        /* one of 0.1.0: it has asked */
        s->join.since = in.at < in.end ? (time_t)orset_read_num(&in, INT64_MAX) : s->join.until;
        /* Not alone where all that could be asked were removed. */
        s->join.phase = !alone ? JOIN_ASKING : s->npeers > 0 ? JOIN_ALONE : JOINED;
    }
    if (r >= 0)
        r = rows_get(s, ROW_REWOUND, "", 0, &v, &len);
    s->rewound = r > 0;
    return r < 0 ? -1 : 0;
}

int rows_put_rewound(struct session *s, bool rewound)
{
    s->rewound = rewound;
    return rewound ? rows_put(s, ROW_REWOUND, "", 0, "", 0) : rows_del(s, ROW_REWOUND, "", 0);
}
