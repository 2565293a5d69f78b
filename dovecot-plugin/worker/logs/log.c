/* log - which messages of a mailbox were touched since its cursor, by the index's transaction log
 * (F2, F4).
 *
 * An offset of our own is never handed to the library: one that lies inside a record makes
 * Dovecot mark the live log corrupt. The library is asked for the offset behind the modseq that
 * the last record read began with; the first record from there that raises the modseq must be
 * that record, by its hash. Any doubt only means: compare the whole mailbox. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/worker/logs/log.h"
#include "dovecot-plugin/worker/logs/log_record.h"
#include "dovecot-plugin/worker/session/flags.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <guid.h>
#include <mail-index-modseq.h>
#include <mail-index-private.h>
#include <mail-index-view-private.h>
#include <mail-storage-private.h>
#include <mail-transaction-log-private.h>
#include <seq-range-array.h>

#include <fcntl.h>
#include <sys/stat.h>

uint64_t log_record_hash(const struct mail_transaction_header *hdr, const void *data)
{
    return orset_hash(data, hdr->size).lo ^ ((uint64_t)hdr->type * 0x9e3779b97f4a7c15ULL);
}

/* What take_record() knows besides the record. */
struct reading {
    struct session *s;
    const struct box *x;
    struct log_scan *scan;
    const struct mail_transaction_log *log;
    struct log_pos at;  /* of the record */
    bool flag_changes;  /* who said what of which flag counts */
    bool says_the_same; /* the record in which reading stopped is there */
    /* saved by the transaction in which the record is, if that is no client's */
    ARRAY_TYPE(seq_range) fresh;
    ARRAY_TYPE(seq_range) own_expunges; /* that no client asked for */
};

static bool is_behind(const struct log_pos *at, const struct log_pos *from)
{
    return from->seq != 0 &&
           (at->seq > from->seq || (at->seq == from->seq && at->offset >= from->offset));
}

/* Of a transaction of this program, or of another one that acts for no client; not of what a
 * sync found. */
static bool is_own(const struct reading *in, const struct mail_transaction_header *hdr)
{
    return (hdr->type & MAIL_TRANSACTION_SYNC) != 0 && is_behind(&in->at, &in->x->writing);
}

/* Of the file in which the record is, when it was made, in seconds; 0: not known, or it is the
 * one in which reading stopped. */
static uint32_t born_behind(const struct reading *in)
{
    struct statx st;
    for (const struct mail_transaction_log_file *f = in->log->files; f != NULL; f = f->next)
        if (f->hdr.file_seq == in->at.seq && in->x->at.log_id != 0 &&
            log_identity(f->fd, "") != in->x->at.log_id &&
            statx(f->fd, "", AT_EMPTY_PATH, STATX_BTIME, &st) == 0 &&
            (st.stx_mask & STATX_BTIME) != 0)
            return (uint32_t)st.stx_btime.tv_sec;
    return 0;
}

static void add_range(ARRAY_TYPE(seq_range) * to, uint32_t uid1, uint32_t uid2, uint32_t next_uid)
{
    if (uid1 < next_uid && uid1 <= uid2)
        seq_range_array_add_range(to, uid1, I_MIN(uid2, next_uid - 1));
}

/* --- what clients say of mails that have another UID by now ----------------------------------- */

static struct late_change *late_of(struct log_scan *scan, uint32_t uid, bool add)
{
    struct late_change *l;
    array_foreach_modifiable (&scan->late, l) {
        if (l->uid == uid)
            return l;
    }
    if (!add)
        return NULL;
    l = array_append_space(&scan->late);
    l->uid = uid;
    return l;
}

/* Not told by a scan already whose cursor stayed where it was. */
static bool is_news(const struct reading *in)
{
    const struct log_pos *told = &in->x->now.reasserted;
    return in->at.seq > told->seq || (in->at.seq == told->seq && in->at.offset >= told->offset);
}

/* set, cut: what a client's record says of each of these UIDs, or NULL: expunged. */
static void take_late(struct reading *in, const struct mail_transaction_header *hdr, uint32_t uid1,
                      uint32_t uid2, const struct orset_flags *set, const struct orset_flags *cut)
{
    struct late_change *l;
    unsigned low = 0, high, n;
    if ((hdr->type & (MAIL_TRANSACTION_SYNC | MAIL_TRANSACTION_EXTERNAL)) != 0 ||
        !array_is_created(&in->x->moved) || (set != NULL && !is_news(in)))
        return;
    /* Under its new UID, what it is by now is what counts. */
    array_foreach_modifiable (&in->scan->late, l) {
        if (l->uid < uid1 || l->uid > uid2)
            continue;
        if (set == NULL) {
            l->taken = l->taken || l->rescued;
            continue;
        }
        l->rescued = l->rescued && (set->system & ORSET_DELETED) == 0;
        flags_without(&l->set, set);
        flags_without(&l->set, cut);
        flags_without(&l->cut, set);
        flags_without(&l->cut, cut);
    }
    const struct moved *m = array_get(&in->x->moved, &n);
    for (high = n; low < high;) {
        unsigned middle = low + (high - low) / 2;
        if (m[middle].uid < uid1)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < n && m[low].uid <= uid2; low++) {
        if (!is_behind(&in->at, &m[low].from))
            continue;
        l = late_of(in->scan, m[low].new_uid, TRUE);
        seq_range_array_add(&in->scan->touched, m[low].new_uid);
        if (set == NULL) {
            l->expunged = TRUE;
            continue;
        }
        flags_without(&l->cut, set);
        flags_unite(&l->set, set);
        flags_without(&l->set, cut);
        flags_unite(&l->cut, cut);
        l->rescued = (l->cut.system & ORSET_DELETED) != 0;
    }
}

static void add_word(ARRAY_TYPE(flag_change) * flag_changes,
                     const struct mail_transaction_header *hdr, uint32_t uid1, uint32_t uid2,
                     const struct orset_flags *set, const struct orset_flags *cut)
{
    struct flag_change *w = t_new(struct flag_change, 1);
    w->uid1 = uid1;
    w->uid2 = uid2;
    w->set = *set;
    w->cut = *cut;
    w->own = (hdr->type & MAIL_TRANSACTION_SYNC) != 0;
    array_push_back(flag_changes, &w);
}

static void take_word(struct reading *in, const struct mail_transaction_header *hdr, uint32_t uid1,
                      uint32_t uid2, const struct orset_flags *set, const struct orset_flags *cut)
{
    if (!in->flag_changes || (hdr->type & MAIL_TRANSACTION_EXTERNAL) != 0)
        return;
    /* The keywords of a mail that is saved are none of its changes: a copy has those that a
     * client gave the mail. */
    if ((hdr->type & MAIL_TRANSACTION_SYNC) != 0 && seq_range_exists(&in->fresh, uid1) &&
        seq_range_exists(&in->fresh, uid2))
        return;
    add_word(&in->scan->flag_changes, hdr, uid1, uid2, set, cut);
}

/* --- changes of flags ------------------------------------------------------------------------- */

typedef void change_fn(void *arg, const struct mail_transaction_header *hdr, uint32_t uid1,
                       uint32_t uid2, const struct orset_flags *set, const struct orset_flags *cut);

static void each_flags(const struct mail_transaction_header *hdr, const void *data, change_fn *fn,
                       void *arg)
{
    const struct mail_transaction_flag_update *rec = data;
    for (size_t n = LOG_RECORD_ENTRIES(hdr, rec); n > 0; n--, rec++) {
        struct orset_flags set = {.system = flags_system(rec->add_flags)},
                           cut = {.system = flags_system(rec->remove_flags)};
        fn(arg, hdr, rec->uid1, rec->uid2, &set, &cut);
    }
}

/* named: which keyword it is is asked. */
static void each_keyword(struct session *s, const struct mail_transaction_header *hdr,
                         const void *data, bool named, change_fn *fn, void *arg)
{
    struct orset_flags one = {0}, none = {0};
    struct log_keyword k;
    if (!log_record_keyword(hdr, data, &k))
        return;
    int n = named ? orset_keyword(s->os, k.name, k.name_len) : -1;
    if (n >= 0)
        one.keyword[one.nkeywords++] = (uint16_t)n;
    for (size_t i = 0; i < k.n; i++)
        fn(arg, hdr, k.uids[2 * i], k.uids[2 * i + 1], k.set ? &one : &none, k.set ? &none : &one);
}

static void flag_change_of(void *arg, const struct mail_transaction_header *hdr, uint32_t uid1,
                           uint32_t uid2, const struct orset_flags *set,
                           const struct orset_flags *cut)
{
    add_word(arg, hdr, uid1, uid2, set, cut);
}

void log_flag_changes(struct session *s, const struct mail_transaction_header *hdr,
                      const void *data, ARRAY_TYPE(flag_change) * flag_changes)
{
    if ((hdr->type & MAIL_TRANSACTION_EXTERNAL) != 0)
        return;
    switch (hdr->type & MAIL_TRANSACTION_TYPE_MASK) {
    case MAIL_TRANSACTION_FLAG_UPDATE: each_flags(hdr, data, flag_change_of, flag_changes); break;
    case MAIL_TRANSACTION_KEYWORD_UPDATE:
        each_keyword(s, hdr, data, TRUE, flag_change_of, flag_changes);
        break;
    default: break;
    }
}

/* --- records ---------------------------------------------------------------------------------- */

static void take_change(void *arg, const struct mail_transaction_header *hdr, uint32_t uid1,
                        uint32_t uid2, const struct orset_flags *set, const struct orset_flags *cut)
{
    struct reading *in = arg;
    struct log_scan *scan = in->scan;
    add_range(&scan->touched, uid1, uid2, scan->end.uid_next);
    if (is_own(in, hdr))
        add_range(&scan->own_flags, uid1, uid2, scan->end.uid_next);
    take_late(in, hdr, uid1, uid2, set, cut);
    take_word(in, hdr, uid1, uid2, set, cut);
}

/* Of these UIDs, those on which a client has set \Deleted. */
static void add_undeleted(struct log_scan *scan, uint32_t uid1, uint32_t uid2)
{
    ARRAY_TYPE(seq_range) uids;
    t_array_init(&uids, 4);
    add_range(&uids, uid1, uid2, scan->end.uid_next);
    seq_range_array_intersect(&uids, &scan->reasserts[__builtin_ctz(ORSET_DELETED)]);
    seq_range_array_merge(&scan->undeleted, &uids);
}

/* What a Maildir's sync found is another program's word: only what it takes back counts here. */
static void take_flags(struct reading *in, const struct mail_transaction_header *hdr,
                       const void *data)
{
    struct log_scan *scan = in->scan;
    const struct mail_transaction_flag_update *rec = data;
    bool found = (hdr->type & MAIL_TRANSACTION_EXTERNAL) != 0;
    each_flags(hdr, data, take_change, in);
    if ((hdr->type & MAIL_TRANSACTION_SYNC) != 0 || !is_news(in))
        return;
    for (size_t n = LOG_RECORD_ENTRIES(hdr, rec); n > 0; n--, rec++) {
        uint8_t set = flags_system(rec->add_flags), cut = flags_system(rec->remove_flags);
        if ((set & ORSET_DELETED) != 0)
            seq_range_array_remove_range(&scan->undeleted, rec->uid1, rec->uid2);
        else if ((cut & ORSET_DELETED) != 0)
            add_undeleted(scan, rec->uid1, rec->uid2);
        for (unsigned i = 0; i < ORSET_SYSTEM_FLAGS; i++) {
            if ((set & 1U << i) != 0 && !found)
                add_range(&scan->reasserts[i], rec->uid1, rec->uid2, scan->end.uid_next);
            else if ((cut & 1U << i) != 0)
                seq_range_array_remove_range(&scan->reasserts[i], rec->uid1, rec->uid2);
        }
    }
}

static void take_keywords(struct reading *in, const struct mail_transaction_header *hdr,
                          const void *data)
{
    each_keyword(in->s, hdr, data, array_is_created(&in->x->moved) || in->flag_changes, take_change,
                 in);
}

static void take_attributes(struct reading *in, const struct mail_transaction_header *hdr,
                            const void *data)
{
    struct log_attributes all;
    const char *key;
    uint32_t written, born = born_behind(in);
    log_record_attributes(hdr, data, &all);
    while (log_record_attribute(&all, &key, &written)) {
        if (strlen(key) < 3) /* '+', 'p', and no key */
            continue;
        struct attribute_change *change = array_append_space(&in->scan->attributes);
        change->what = t_strdup(key);
        change->fresh = born != 0 && written > born;
        change->own = (hdr->type & MAIL_TRANSACTION_SYNC) != 0;
    }
}

/* Internal: a session asked for it. External: a session noticed, or did what was asked for. */
static void take_expunges(struct reading *in, const struct mail_transaction_header *hdr,
                          const void *data, bool guids)
{
    struct log_scan *scan = in->scan;
    ARRAY_TYPE(seq_range) *to =
        (hdr->type & MAIL_TRANSACTION_EXTERNAL) != 0 ? &scan->touched : &scan->requested;
    bool by_client = (hdr->type & (MAIL_TRANSACTION_EXTERNAL | MAIL_TRANSACTION_SYNC)) == 0;
    if (guids) {
        const struct mail_transaction_expunge_guid *rec = data;
        for (size_t n = LOG_RECORD_ENTRIES(hdr, rec); n > 0; n--, rec++) {
            add_range(to, rec->uid, rec->uid, scan->end.uid_next);
            if (by_client)
                add_range(&scan->by_clients, rec->uid, rec->uid, scan->end.uid_next);
            if (in->x->rewound && (hdr->type & MAIL_TRANSACTION_SYNC) != 0) {
                struct expunged_mail *former = array_append_space(&scan->former);
                memcpy(former->guid, rec->guid_128, sizeof former->guid);
                former->uid = rec->uid;
            }
            if ((scan->anew || in->x->now.doubted) && by_client) {
                struct expunged_mail *asked = array_append_space(&scan->asked);
                memcpy(asked->guid, rec->guid_128, sizeof asked->guid);
                asked->uid = rec->uid;
            }
            take_late(in, hdr, rec->uid, rec->uid, NULL, NULL);
        }
    } else {
        const struct mail_transaction_expunge *rec = data;
        for (size_t n = LOG_RECORD_ENTRIES(hdr, rec); n > 0; n--, rec++) {
            add_range(to, rec->uid1, rec->uid2, scan->end.uid_next);
            if (by_client)
                add_range(&scan->by_clients, rec->uid1, rec->uid2, scan->end.uid_next);
            take_late(in, hdr, rec->uid1, rec->uid2, NULL, NULL);
        }
    }
}

static void take_record(struct reading *in, const struct mail_transaction_header *hdr,
                        const void *data)
{
    struct log_scan *scan = in->scan;
    switch (hdr->type & MAIL_TRANSACTION_TYPE_MASK) {
    case MAIL_TRANSACTION_APPEND: {
        const struct mail_index_record *rec = data;
        bool own = is_own(in, hdr) && array_count(&scan->own_saved) == 0;
        for (size_t n = LOG_RECORD_ENTRIES(hdr, rec); n > 0; n--, rec++) {
            if (own)
                add_range(&scan->own_saved, rec->uid, rec->uid, scan->end.uid_next);
            add_range(&scan->touched, rec->uid, rec->uid, scan->end.uid_next);
            if ((hdr->type & MAIL_TRANSACTION_SYNC) != 0)
                seq_range_array_add(&in->fresh, rec->uid);
            if ((hdr->type & MAIL_TRANSACTION_SYNC) != 0)
                add_range(&scan->saved, rec->uid, rec->uid, scan->end.uid_next);
            else
                add_range(&scan->made, rec->uid, rec->uid, scan->end.uid_next);
        }
        break;
    }
    case MAIL_TRANSACTION_FLAG_UPDATE: take_flags(in, hdr, data); break;
    case MAIL_TRANSACTION_KEYWORD_UPDATE: take_keywords(in, hdr, data); break;
    case MAIL_TRANSACTION_KEYWORD_RESET: {
        const struct mail_transaction_keyword_reset *rec = data;
        for (size_t n = LOG_RECORD_ENTRIES(hdr, rec); n > 0; n--, rec++)
            add_range(&scan->touched, rec->uid1, rec->uid2, scan->end.uid_next);
        break;
    }
    case MAIL_TRANSACTION_EXPUNGE: take_expunges(in, hdr, data, FALSE); break;
    case MAIL_TRANSACTION_EXPUNGE_GUID: take_expunges(in, hdr, data, TRUE); break;
    case MAIL_TRANSACTION_ATTRIBUTE_UPDATE: take_attributes(in, hdr, data); break;
    default: return;
    }
    scan->anything = TRUE;
}

static void not_unbroken(struct log_scan *scan, enum log_verdict verdict, const char *why)
{
    if (verdict > scan->verdict) {
        scan->verdict = verdict;
        scan->why = why;
    }
}

/* What can be said without the log. raised: the UIDVALIDITY that the state wants it to have; it
 * has it, and that was not written down before a crash. */
static void compare_heads(struct log_scan *scan, const struct cursor *at, uint64_t highest,
                          uint32_t raised)
{
    if (at->indexid == 0)
        not_unbroken(scan, LOG_SCAN_BROKEN, "it was never looked at");
    else if (at->indexid != scan->end.indexid)
        not_unbroken(scan, LOG_SCAN_BROKEN, "its index is another one");
    else if (at->uid_validity != scan->end.uid_validity && raised != scan->end.uid_validity)
        not_unbroken(scan, LOG_SCAN_BROKEN, "its UIDVALIDITY changed");
    else if (at->uid_next > scan->end.uid_next)
        not_unbroken(scan, LOG_SCAN_BROKEN, "its UIDNEXT went back");
    else if (at->modseq > highest)
        not_unbroken(scan, LOG_SCAN_BROKEN, "its log ends before what was read of it");
    else if (at->hash == 0)
        not_unbroken(scan, LOG_SCAN_GAP, "its log was empty");
}

/* The file with which the log begins, or the oldest that there is. The library may have older
 * ones open still, that a rebuild replaced. read: in which file reading stopped. */
static const struct mail_transaction_log_file *first_file(struct mail_transaction_log *log,
                                                          uint32_t read)
{
    const struct mail_transaction_log_file *first = log->files;
    struct mail_transaction_log_file *older;
    const char *why;
    if (first->hdr.prev_file_seq != 0 && first->hdr.file_seq > read &&
        mail_transaction_log_find_file(log, 1, FALSE, &older, &why) >= 0)
        first = log->files; /* the one before is opened when it is asked for */
    for (const struct mail_transaction_log_file *f = first; f != NULL; f = f->next)
        if (f->hdr.prev_file_seq == 0)
            first = f;
    return first;
}

uint64_t log_identity(int dir, const char *path)
{
    struct statx st;
    if (statx(dir, path, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, STATX_INO | STATX_BTIME, &st) < 0)
        return 0;
    const uint64_t w[] = {st.stx_ino,
                          (st.stx_mask & STATX_BTIME) == 0
                              ? 0
                              : (uint64_t)st.stx_btime.tv_sec * 1000000000U + st.stx_btime.tv_nsec};
    uint64_t id = orset_hash_words(w, 2).lo;
    return id != 0 ? id : 1;
}

/* Of the file with that number; not of one that is not open any more. */
static uint64_t file_identity(const struct mail_transaction_log *log, uint32_t file_seq)
{
    for (const struct mail_transaction_log_file *f = log->files; f != NULL; f = f->next)
        if (f->hdr.file_seq == file_seq)
            return log_identity(f->fd, "");
    return 0;
}

/* A mailbox that was restored from a backup has a log that may say the same, byte for byte,
 * where reading stopped: an append's record has a UID and flags, no more. But it is another
 * file. */
static bool is_other_file(const struct mail_transaction_log *log, const struct cursor *at)
{
    uint64_t id = at->log_id == 0 ? 0 : file_identity(log, at->file_seq);
    return id != 0 && id != at->log_id;
}

/* Of an earlier time than what was read: a file with that number that is another one, or only
 * files before that number. Where it has the record in which reading stopped, it may as well
 * have been copied later. */
static bool is_of_a_backup(const struct mail_transaction_log *log, const struct reading *in)
{
    const struct cursor *at = &in->x->at;
    return at->indexid == in->scan->end.indexid && at->log_id != 0 && !in->says_the_same &&
           (is_other_file(log, at) || log->head->hdr.file_seq < at->file_seq);
}

bool log_is_known(struct mailbox *box, const struct cursor *at)
{
    const struct mail_index_header *hdr = mail_index_get_header(box->view);
    return at->indexid == 0 || (at->indexid == hdr->indexid && at->uid_next <= hdr->next_uid &&
                                !is_other_file(box->view->index->log, at));
}

/* Places the log view at the cursor. 1; 0: at the log's beginning instead, the verdict says why;
 * -1 */
static int place_view(struct mail_index_view *view, struct mail_transaction_log_view *log_view,
                      const struct cursor *at, struct log_scan *scan)
{
    uint32_t seq;
    uoff_t offset;
    const char *reason = "";
    bool reset = FALSE;
    if (scan->verdict == LOG_SCAN_UNBROKEN && scan->begins && scan->first > at->file_seq)
        not_unbroken(scan, LOG_SCAN_BROKEN, "its index was rebuilt");
    if (scan->verdict != LOG_SCAN_BROKEN && is_other_file(view->index->log, at))
        not_unbroken(scan, LOG_SCAN_BROKEN,
                     "its log is another file, as after a backup was restored");
    if (scan->verdict == LOG_SCAN_UNBROKEN) {
        if (!mail_index_modseq_get_next_log_offset(view, at->before, &seq, &offset)) {
            not_unbroken(scan, LOG_SCAN_GAP, "its log does not reach back to what was read last");
        } else {
            int r = mail_transaction_log_view_set(log_view, seq, offset, view->log_file_head_seq,
                                                  view->log_file_head_offset, &reset, &reason);
            /* reset is also said of a log's very first record. What begins behind a real one is
             * found by the hash. */
            if (r != 0)
                return r;
            not_unbroken(scan, LOG_SCAN_GAP, "a part of its log is gone");
        }
    }
    /* A rotated log names the one before it; one that begins anew is of an index that was made
     * anew. */
    if (at->hash != 0 && scan->begins)
        not_unbroken(scan, LOG_SCAN_BROKEN, "its index was rebuilt");
    return mail_transaction_log_view_set_all(log_view) < 0 ? -1 : 0;
}

/* Asked for, and not carried out yet by the sync that follows. */
static bool is_open_request(struct mail_index_view *view, const struct mail_transaction_header *hdr,
                            const void *data)
{
    uint32_t seq1, seq2;
    if ((hdr->type & MAIL_TRANSACTION_EXTERNAL) != 0)
        return FALSE;
    switch (hdr->type & MAIL_TRANSACTION_TYPE_MASK) {
    case MAIL_TRANSACTION_EXPUNGE_GUID: {
        const struct mail_transaction_expunge_guid *rec = data;
        for (size_t n = LOG_RECORD_ENTRIES(hdr, rec); n > 0; n--, rec++)
            if (mail_index_lookup_seq(view, rec->uid, &seq1))
                return TRUE;
        break;
    }
    case MAIL_TRANSACTION_EXPUNGE: {
        const struct mail_transaction_expunge *rec = data;
        for (size_t n = LOG_RECORD_ENTRIES(hdr, rec); n > 0; n--, rec++)
            if (mail_index_lookup_seq_range(view, rec->uid1, rec->uid2, &seq1, &seq2))
                return TRUE;
        break;
    }
    default: break;
    }
    return FALSE;
}

/* What an expunge record names, a request for it or that it is done. */
static void expunge_uids(const struct mail_transaction_header *hdr, const void *data,
                         ARRAY_TYPE(seq_range) * uids)
{
    switch (hdr->type & MAIL_TRANSACTION_TYPE_MASK & ~MAIL_TRANSACTION_EXPUNGE_PROT) {
    case MAIL_TRANSACTION_EXPUNGE_GUID: {
        const struct mail_transaction_expunge_guid *rec = data;
        for (size_t n = LOG_RECORD_ENTRIES(hdr, rec); n > 0; n--, rec++)
            seq_range_array_add(uids, rec->uid);
        break;
    }
    case MAIL_TRANSACTION_EXPUNGE: {
        const struct mail_transaction_expunge *rec = data;
        for (size_t n = LOG_RECORD_ENTRIES(hdr, rec); n > 0; n--, rec++)
            seq_range_array_add_range(uids, rec->uid1, rec->uid2);
        break;
    }
    default: break;
    }
}

/* This program's record, or one by which a sync carried out what this program asked for. */
static bool is_own_change(struct reading *in, const struct mail_transaction_header *hdr,
                          const void *data)
{
    ARRAY_TYPE(seq_range) uids;
    const struct seq_range *range;
    if ((hdr->type & (MAIL_TRANSACTION_EXPUNGE | MAIL_TRANSACTION_EXPUNGE_GUID)) == 0)
        return (hdr->type & MAIL_TRANSACTION_SYNC) != 0;
    t_array_init(&uids, 8);
    expunge_uids(hdr, data, &uids);
    if ((hdr->type & MAIL_TRANSACTION_SYNC) != 0) {
        seq_range_array_merge(&in->own_expunges, &uids);
        return TRUE;
    }
    array_foreach (&uids, range) {
        for (uint32_t uid = range->seq1; uid <= range->seq2; uid++)
            if (!seq_range_exists(&in->own_expunges, uid))
                return FALSE;
    }
    return !array_is_empty(&uids);
}

static void read_records(struct mail_index_view *view, struct mail_transaction_log_view *log_view,
                         struct reading *in)
{
    const struct cursor *at = &in->x->at;
    struct log_scan *scan = in->scan;
    const struct mail_transaction_header *hdr;
    const void *data;
    uint64_t before = mail_transaction_log_view_get_prev_modseq(log_view), modseq;
    bool found = scan->verdict != LOG_SCAN_UNBROKEN, stay = FALSE;
    for (; mail_transaction_log_view_next(log_view, &hdr, &data) > 0; before = modseq) {
        uint32_t seq;
        uoff_t offset;
        modseq = mail_transaction_log_view_get_prev_modseq(log_view);
        mail_transaction_log_view_get_prev_pos(log_view, &seq, &offset);
        in->says_the_same = in->says_the_same || (modseq == at->modseq && modseq != before &&
                                                  log_record_hash(hdr, data) == at->hash);
        if (seq > view->log_file_head_seq ||
            (seq == view->log_file_head_seq && offset >= view->log_file_head_offset))
            break; /* behind what the mailbox was opened with: the next scan's */
        /* Who asked for an expunge must still be known when it is carried out: the cursor stays
         * before that record. */
        stay = stay || is_open_request(view, hdr, data);
        if (modseq != before && (!stay || !found)) {
            uint64_t hash = log_record_hash(hdr, data);
            if (!found) {
                found = TRUE;
                if (modseq == at->modseq && hash == at->hash)
                    continue; /* read last time */
                not_unbroken(scan, LOG_SCAN_BROKEN,
                             "its log says another thing where reading stopped");
            }
            scan->end.before = before;
            scan->end.modseq = modseq;
            scan->end.hash = hash;
            scan->end.file_seq = seq;
        }
        if (!is_own_change(in, hdr, data) && modseq != before && scan->lowest_modseq == 0)
            scan->lowest_modseq = before + 1;
        in->at = (struct log_pos){seq, offset};
        if ((hdr->type & MAIL_TRANSACTION_SYNC) == 0)
            array_clear(&in->fresh);
        take_record(in, hdr, data);
    }
    if (!found)
        not_unbroken(scan, LOG_SCAN_BROKEN, "its log lacks what was read last");
}

struct log_pos log_end(struct mailbox *box)
{
    return (struct log_pos){box->view->log_file_head_seq, box->view->log_file_head_offset};
}

int log_scan(struct session *s, struct mailbox *box, const struct box *x, struct log_scan *scan)
{
    struct mail_index_view *view = box->view;
    const struct mail_index_header *hdr = mail_index_get_header(view);
    struct mail_transaction_log_view *log_view;
    struct reading in = {.s = s, .x = x, .scan = scan, .log = view->index->log};
    struct orset_folder f;
    t_array_init(&in.fresh, 8);
    t_array_init(&in.own_expunges, 8);
    i_zero(scan);
    t_array_init(&scan->touched, 16);
    t_array_init(&scan->requested, 16);
    t_array_init(&scan->by_clients, 16);
    t_array_init(&scan->saved, 16);
    t_array_init(&scan->made, 16);
    for (unsigned i = 0; i < ORSET_SYSTEM_FLAGS; i++)
        t_array_init(&scan->reasserts[i], 4);
    t_array_init(&scan->undeleted, 4);
    t_array_init(&scan->attributes, 4);
    t_array_init(&scan->late, 4);
    t_array_init(&scan->flag_changes, 4);
    t_array_init(&scan->former, 4);
    t_array_init(&scan->asked, 4);
    t_array_init(&scan->own_flags, 4);
    t_array_init(&scan->own_saved, 4);
    scan->end = x->at;
    scan->end.indexid = hdr->indexid;
    scan->end.uid_validity = hdr->uid_validity;
    scan->end.uid_next = hdr->next_uid;
    compare_heads(scan, &x->at, mail_index_modseq_get_highest(view),
                  orset_folder_get(s->os, x->folder, &f) == 0 ? f.uid_validity : 0);
    bool same = scan->verdict != LOG_SCAN_BROKEN;
    if (!same)
        scan->end.before = scan->end.modseq = scan->end.hash = 0;

    const struct mail_transaction_log_file *first = first_file(view->index->log, x->at.file_seq);
    scan->first = first->hdr.file_seq;
    scan->first_modseq = first->hdr.initial_modseq;
    scan->begins = first->hdr.prev_file_seq == 0;
    scan->complete = x->rewound && x->at.indexid == 0 && scan->begins;
    log_view = mail_transaction_log_view_open(view->index->log);
    int r = place_view(view, log_view, &x->at, scan);
    /* A log of an old backup does not begin later than what was read of it. */
    scan->anew =
        same && scan->verdict == LOG_SCAN_BROKEN && scan->begins && scan->first > x->at.file_seq;
    in.flag_changes = x->rewound || x->adopted != 0 || x->now.elsewhere || scan->anew;
    if (r >= 0)
        read_records(view, log_view, &in);
    scan->highest_modseq = mail_index_modseq_get_highest(view);
    if (scan->verdict != LOG_SCAN_UNBROKEN)
        scan->lowest_modseq = 0;
    scan->restored = scan->verdict == LOG_SCAN_BROKEN && is_of_a_backup(view->index->log, &in);
    scan->end.log_id = file_identity(view->index->log, scan->end.file_seq);
    mail_transaction_log_view_close(&log_view);
    scan->rebuilt = same && scan->verdict == LOG_SCAN_BROKEN;
    if (x->now.doubted)
        not_unbroken(scan, LOG_SCAN_BROKEN, "another mail has a UID than the state says");
    return r < 0 ? session_fail(s, "%s: its index log cannot be read", mailbox_get_vname(box)) : 0;
}
