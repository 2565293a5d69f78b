/* message - message dots: their rows, the message that several dots make (rule 4), and the UID
 * bound to it.
 *
 *     ORSET_T_MESSAGE  folder, dot              -> facts, flag dots, agreed UID, bound UID
 *     ORSET_T_GUID     6 bytes of GUID, folder, dot -> k         finds a message's dots (group.c), and a body to copy
 *     ORSET_T_UID      mailbox, UID             -> folder, dot   one dot of the message bound to it
 *
 * What holds: all live dots of a message have the same bound UID; a bound UID has a row in
 * ORSET_T_UID that names a live dot of its message; an unplaced dot has a PLACE row in
 * ORSET_T_TASK. */
#include "dovecot-plugin/orset/internal.h"

#include <string.h>

enum { HAS_AGREED = 1, HAS_GUID_TEXT = 2, HAS_SIBLINGS = 4, UID_IS_CLAIM = 8, HAS_UID = 16 };

static void message_key(struct orset_key *k, uint32_t folder, struct orset_dot d)
{
    k->n = 0;
    orset_key_num(k, folder);
    orset_key_dot(k, d);
}

static void uid_key(struct orset_key *k, uint32_t home, uint32_t uid)
{
    k->n = 0;
    orset_key_num(k, home);
    orset_key_num(k, uid);
}

/* --- the row
 * ---------------------------------------------------------------------------------------------- */

int orset_message_store(struct orset *os, struct message *m)
{
    struct orset_buf *b = &os->row;
    struct orset_key k;
    bool is_claim = m->p.uid && m->p.uid == m->p.claim;
    b->len = 0;
    orset_buf_u8(b, (uint8_t)((m->round ? HAS_AGREED : 0) |
                              (m->p.facts.guid_text_len ? HAS_GUID_TEXT : 0) |
                              (m->siblings ? HAS_SIBLINGS : 0) | (is_claim ? UID_IS_CLAIM : 0) |
                              (m->p.uid && !is_claim ? HAS_UID : 0)));
    orset_buf_put(b, m->p.facts.guid, 16);
    orset_buf_put(b, m->p.facts.sha256, 32);
    orset_buf_num(b, (uint64_t)m->p.facts.received);
    /* Saved soon after it was received, nearly always: the difference is short. Zigzag, it may be
     * negative.
     */
    int64_t later = m->p.facts.saved - m->p.facts.received;
    orset_buf_num(b, (uint64_t)later << 1 ^ (later < 0 ? UINT64_MAX : 0));
    orset_buf_num(b, m->p.facts.size);
    orset_buf_num(b, m->p.k);
    orset_buf_num(b, m->p.claim);
    if (m->p.uid && !is_claim)
        orset_buf_num(b, m->p.uid);
    if (m->round) {
        orset_buf_num(b, m->term);
        orset_buf_num(b, m->round);
        orset_buf_num(b, m->agreed);
        orset_buf_num(b, m->agreed_by);
    }
    if (m->p.facts.guid_text_len)
        orset_buf_text(b, m->guid_text, m->p.facts.guid_text_len);
    for (unsigned i = 0; i < m->nflags; i++) {
        orset_buf_num(b, (uint64_t)m->flag[i].flag << 1 | m->flag[i].off);
        orset_dot_write(b, m->flag[i].dot);
    }
    message_key(&k, m->p.folder, m->p.dot);
    return orset_row_put(os, ORSET_T_MESSAGE, &k, b);
}

static bool is_date(int64_t seconds)
{
    return seconds >= -ORSET_DATE_MAX && seconds <= ORSET_DATE_MAX;
}

int orset_message_parse(struct orset *os, struct orset_reader *r, struct message *m)
{
    unsigned has = orset_read_u8(r);
    const uint8_t *guid = orset_read_bytes(r, 16), *sha = orset_read_bytes(r, 32);
    m->nflags = 0;
    if (r->bad)
        return orset_corrupt(os, "a message's row is cut");
    memcpy(m->p.facts.guid, guid, 16);
    memcpy(m->p.facts.sha256, sha, 32);
    uint64_t received = orset_read_num(r, UINT64_MAX), z = orset_read_num(r, UINT64_MAX);
    m->p.facts.received = (int64_t)received;
    m->p.facts.saved = (int64_t)(received + (z >> 1 ^ (z & 1 ? UINT64_MAX : 0)));
    m->p.facts.size = orset_read_num(r, ORSET_SIZE_MAX);
    m->p.k = (uint32_t)orset_read_num(r, ORSET_SAME_MESSAGE_MAX);
    m->p.claim = (uint32_t)orset_read_num(r, UINT32_MAX);
    m->p.uid = has & UID_IS_CLAIM ? m->p.claim
               : has & HAS_UID    ? (uint32_t)orset_read_num(r, UINT32_MAX)
                                  : 0;
    m->siblings = has & HAS_SIBLINGS;
    m->term = m->round = m->agreed = 0;
    if (has & HAS_AGREED) {
        m->term = orset_read_num(r, ORSET_CLOCK_MAX);
        m->round = (uint32_t)orset_read_num(r, UINT32_MAX);
        m->agreed = (uint32_t)orset_read_num(r, UINT32_MAX);
        m->agreed_by = (uint16_t)orset_read_num(r, os->norigins - 1u);
        r->bad |= m->round == 0;
    }
    r->bad |= has >= HAS_UID << 1 || m->p.k == 0 || !is_date(m->p.facts.received) ||
              !is_date(m->p.facts.saved);
    m->p.facts.guid_text_len = 0;
    m->p.facts.guid_text = NULL;
    if (has & HAS_GUID_TEXT) {
        size_t n;
        const uint8_t *t = orset_read_text(r, ORSET_GUID_TEXT_MAX, &n);
        r->bad |= !t || !orset_guid_text_valid(t, n);
        if (!r->bad) {
            memcpy(m->guid_text, t, n);
            m->p.facts.guid_text = m->guid_text;
            m->p.facts.guid_text_len = n;
        }
    }
    while (!r->bad && r->at < r->end) {
        struct flagdot f;
        uint64_t n = orset_read_num(r, 2 * (ORSET_KEYWORDS_MAX + ORSET_SYSTEM_FLAGS));
        f.flag = (uint16_t)(n >> 1);
        f.off = n & 1;
        f.dot = orset_row_read_dot(os, r);
        r->bad |=
            f.flag >= ORSET_SYSTEM_FLAGS + os->nkeywords || m->nflags >= ORSET_ROW_FLAGDOTS_MAX;
        if (!r->bad && orset_flagdot_put(os, m, f) < 0)
            return ORSET_E_MEMORY;
    }
    return r->bad ? orset_corrupt(os, "a message's row cannot be read") : 1;
}

int orset_message_load(struct orset *os, uint32_t folder, struct orset_dot d, struct message *m)
{
    struct orset_key k;
    struct orset_reader r;
    if (folder >= os->nfolders || d.origin >= os->norigins)
        return orset_corrupt(os, "a row names a message of a folder or site that does not exist");
    message_key(&k, folder, d);
    int got = orset_row_get(os, ORSET_T_MESSAGE, &k, &r);
    if (got <= 0)
        return got;
    m->p.folder = folder;
    m->p.dot = d;
    return orset_message_parse(os, &r, m);
}

bool orset_message_key_read(const struct orset *os, struct orset_reader *k, struct message *m)
{
    m->p.folder = orset_key_read_folder(os, k);
    m->p.dot = orset_key_read_dot(os, k);
    return !k->bad && k->at == k->end;
}

bool orset_guid_text_valid(const void *text, size_t len)
{
    const uint8_t *t = text;
    if (len > ORSET_GUID_TEXT_MAX || (len > 0 && t[0] == '.'))
        return false;
    for (size_t i = 0; i < len; i++)
        if (t[i] <= ' ' || t[i] == 0x7f || t[i] == '/')
            return false;
    return true;
}

/* --- digest
 * ---------------------------------------------------------------------------------------------- */

struct orset_sum orset_message_sum(const struct orset *os, const struct message *m)
{
    const struct orset_facts *f = &m->p.facts;
    uint64_t w[20] = {0};
    unsigned n = 0;
    w[n++] = os->origin[m->p.dot.origin].hash;
    w[n++] = m->p.dot.counter;
    for (int i = 0; i < 48; i++) {
        uint8_t byte = i < 16 ? f->guid[i] : f->sha256[i - 16];
        w[n + (unsigned)i / 8] |= (uint64_t)byte << 8 * (i % 8);
    }
    n += 6;
    w[n++] = (uint64_t)f->received;
    w[n++] = (uint64_t)f->saved;
    w[n++] = f->size;
    w[n++] = (uint64_t)m->p.k << 32 | m->p.claim;
    w[n++] = f->guid_text_len ? orset_hash(m->guid_text, f->guid_text_len).lo : 0;
    if (m->round) {
        w[n++] = m->term;
        w[n++] = (uint64_t)m->round << 32 | m->agreed;
        w[n++] = os->origin[m->agreed_by].hash;
    }
    return orset_hash_words(w, n);
}

struct orset_sum orset_flagdot_sum(const struct orset *os, const struct message *m,
                                   const struct flagdot *f)
{
    uint64_t w[6] = {os->origin[m->p.dot.origin].hash, m->p.dot.counter,
                     os->origin[f->dot.origin].hash,   f->dot.counter,
                     orset_flag_hash(os, f->flag),     f->off};
    return orset_hash_words(w, 6);
}

void orset_message_count(struct orset *os, struct folder *f, const struct message *m, bool add)
{
    void (*change)(struct orset_sum *, struct orset_sum) = add ? orset_sum_add : orset_sum_sub;
    change(&f->sum, orset_message_sum(os, m));
    for (unsigned i = 0; i < m->nflags; i++)
        change(&f->sum, orset_flagdot_sum(os, m, &m->flag[i]));
}

/* --- binding
 * ---------------------------------------------------------------------------------------------- */

int orset_note_mismatch(struct orset *os, struct folder *home, const struct message *m,
                        uint32_t uid)
{
    uint32_t agreed;
    int r = orset_group_agreed(os, m, &agreed);
    if (r < 0)
        return r;
    struct orset_buf none = {0};
    if (agreed != uid) {
        home->uid_dirty = true;
        if ((r = orset_folder_touch(os, home)) < 0)
            return r;
    }
    return orset_task_uid(os, ORSET_TASK_MISMATCH, home->index, uid, agreed != uid ? &none : NULL);
}

/* Binds every live dot of the message to uid, 0: none. */
static int set_uid(struct orset *os, struct message *m, uint32_t uid)
{
    int n = orset_group_load(os, m), r;
    for (int i = 0; i < n; i++) {
        struct message *o = &os->m[2];
        if ((r = orset_message_load(os, m->p.folder, os->group[i], o)) <= 0)
            return r < 0 ? r : orset_corrupt(os, "a GUID's row without its message");
        if ((o->p.uid == 0) != (uid == 0) &&
            (r = orset_task_place(os, orset_folder_at(os, m->p.folder), o->p.dot, uid == 0)) < 0)
            return r;
        o->p.uid = uid;
        if ((r = orset_message_store(os, o)) < 0)
            return r;
    }
    m->p.uid = uid;
    return n < 0 ? n : 0;
}

/* A row of ORSET_T_UID. */
static bool read_place(const struct orset *os, struct orset_reader *r, struct place *at)
{
    at->folder = (uint32_t)orset_read_num(r, ORSET_FOLDERS_MAX);
    at->dot = orset_row_read_dot(os, r);
    return !r->bad && at->folder < os->nfolders;
}

static int put_uid_row(struct orset *os, uint32_t home, uint32_t uid, uint32_t folder,
                       struct orset_dot d)
{
    struct orset_key k;
    uid_key(&k, home, uid);
    os->row.len = 0;
    orset_buf_num(&os->row, folder);
    orset_dot_write(&os->row, d);
    return orset_row_put(os, ORSET_T_UID, &k, &os->row);
}

int orset_bind(struct orset *os, struct folder *home, struct message *m, uint32_t uid)
{
    int r = set_uid(os, m, uid);
    if (r < 0 || (r = put_uid_row(os, home->index, uid, m->p.folder, m->p.dot)) < 0)
        return r;
    if (uid >= home->uid_next) {
        home->uid_next = uid + 1;
        if ((r = orset_folder_touch(os, home)) < 0)
            return r;
    }
    return orset_note_mismatch(os, home, m, uid);
}

/* The mailbox still has the mail: it is to be removed, and until then others can copy it. */
int orset_doom(struct orset *os, struct folder *home, const uint8_t guid[16], uint32_t uid)
{
    struct orset_key k;
    orset_guid_key(&k, guid, home->index);
    orset_key_num(&k, ORSET_DOOMED_ORIGIN);
    orset_key_num(&k, uid);
    int r = orset_row_put(os, ORSET_T_GUID, &k, NULL);
    struct orset_buf v = {.alloc = &os->alloc};
    orset_buf_put(&v, guid, 16);
    if (r == 0)
        r = v.failed ? orset_fail(os, ORSET_E_MEMORY, "no memory for a row")
                     : orset_task_uid(os, ORSET_TASK_REMOVE, home->index, uid, &v);
    orset_buf_free(&v);
    return r;
}

/* Lets the message's UID go; gone: the mailbox does not have it any more. The message's dots
 * stay, unplaced. A mail with other bytes than the message's stays: whoever removed or moved the
 * message had not seen it, and it is one that the state does not know. */
int orset_unbind(struct orset *os, struct folder *home, struct message *m, bool gone)
{
    struct orset_key k;
    uint32_t uid = m->p.uid;
    uint8_t bytes[32];
    int other = gone ? 0 : orset_task_bytes(os, home->index, uid, bytes),
        r = other < 0 ? other : set_uid(os, m, 0);
    uid_key(&k, home->index, uid);
    if (r < 0 || (r = orset_row_del(os, ORSET_T_UID, &k)) < 0 ||
        (r = orset_task_uid(os, ORSET_TASK_FLAGS, home->index, uid, NULL)) < 0 ||
        (r = orset_task_uid(os, ORSET_TASK_RENUMBER, home->index, uid, NULL)) < 0 ||
        (r = other ? 0 : orset_task_uid(os, ORSET_TASK_BODY, home->index, uid, NULL)) < 0 ||
        (r = orset_task_uid(os, ORSET_TASK_MISMATCH, home->index, uid, NULL)) < 0)
        return r;
    return gone || other ? 0 : orset_doom(os, home, m->p.facts.guid, uid);
}

/* --- add and remove
 * ---------------------------------------------------------------------------------------------- */

static int put_rows(struct orset *os, struct message *m)
{
    int r = orset_message_store(os, m);
    return r < 0 ? r : orset_copy_put(os, m);
}

/* Marks every other dot of the message: from now on they are looked for by GUID. n: of them, in
 * os->group. */
static int mark_siblings(struct orset *os, const struct message *m, int n, struct orset_dot *same)
{
    same->counter = 0;
    for (int i = 0; i < n; i++) {
        struct message *o = &os->m[2];
        int r = orset_message_load(os, m->p.folder, os->group[i], o);
        if (r < 0)
            return r;
        if (!o->siblings) {
            o->siblings = true;
            if ((r = orset_message_store(os, o)) < 0)
                return r;
        }
        if (memcmp(o->p.facts.guid, m->p.facts.guid, 16) == 0)
            *same = o->p.dot;
    }
    return 0;
}

/* Puts the dot into the state. uid: the UID its mailbox has it under already, 0: it is to be
 * placed, unless another dot of the message is. */
int orset_message_add(struct orset *os, struct message *m, uint32_t uid)
{
    struct folder *f = orset_folder_at(os, m->p.folder), *home = orset_folder_at(os, f->home);
    struct orset_flags before = {0}, now;
    uint8_t had_body[32], body[32];
    struct orset_dot same, speaker;
    const struct copy *there;
    int r, n = orset_copies_of(os, m->p.facts.guid, m->p.folder, m->p.k, &there);
    if (n < 0)
        return n;
    if (n >= ORSET_SAME_MESSAGE_MAX) /* of an op this was found in its dry run */
        return orset_fail(os, ORSET_E_LIMIT, "%d dots of one message in folder %u", n, f->index);
    for (int i = 0; i < n; i++)
        os->group[i] = there[i].dot;
    m->siblings = n > 0;
    m->p.uid = 0;
    bool was_live = orset_folder_live(f);
    if ((r = mark_siblings(os, m, n, &same)) < 0)
        return r;
    if (same.counter) {
        /* m[2] is the room of what looks at a group */
        struct message *other = &os->m[0];
        if (orset_message_load(os, f->index, same, other) <= 0)
            return orset_storage_fail(os, "a message vanished");
        m->p.uid = other->p.uid;
        if ((r = orset_group_union(os, other, &before)) < 0 ||
            (r = orset_group_speaker(os, other, &speaker, had_body)) < 0)
            return r;
    }
    if ((r = put_rows(os, m)) < 0)
        return r;
    f->messages++;
    orset_message_count(os, f, m, true);
    if ((r = orset_arrived(os, f->index, m->p.dot)) < 0)
        return r;
    for (unsigned i = 0; i < m->nflags; i++)
        if ((r = orset_arrived(os, f->index, m->flag[i].dot)) < 0)
            return r;
    if ((r = orset_folder_touch(os, f)) < 0 || (!was_live && (r = orset_folder_changed(os, f)) < 0))
        return r;
    if (m->p.uid == 0)
        r = uid ? orset_bind(os, home, m, uid) : orset_task_place(os, f, m->p.dot, true);
    else if ((r = orset_group_union(os, m, &now)) == 0 &&
             (r = orset_task_flags(os, home->index, m->p.uid, &before, &now, NULL)) == 0 &&
             (r = orset_group_speaker(os, m, &speaker, body)) == 0 &&
             (r = orset_task_body(os, home->index, m->p.uid, had_body, body, NULL)) == 0)
        r = orset_note_mismatch(os, home, m, m->p.uid);
    return r;
}

static int remove_rows(struct orset *os, struct folder *f, const struct message *m)
{
    struct orset_key k;
    message_key(&k, f->index, m->p.dot);
    int r = orset_row_del(os, ORSET_T_MESSAGE, &k);
    if (r < 0 || (r = orset_copy_del(os, m)) < 0)
        return r;
    if (f->messages == 0)
        return orset_corrupt(os, "a folder with fewer messages than rows of them");
    f->messages--;
    orset_message_count(os, f, m, false);
    if (!orset_folder_live(f) && (r = orset_folder_changed(os, f)) < 0)
        return r;
    return orset_folder_touch(os, f);
}

int orset_message_redot(struct orset *os, struct folder *f, struct message *m,
                        struct orset_dot fresh)
{
    struct orset_key k;
    struct orset_reader row;
    struct orset_dot old = m->p.dot;
    struct place named;
    int r;
    message_key(&k, f->index, old);
    if ((r = orset_row_del(os, ORSET_T_MESSAGE, &k)) < 0)
        return r;
    if ((r = orset_copy_del(os, m)) < 0 || (r = orset_task_place(os, f, old, false)) < 0)
        return r;
    m->p.dot = fresh;
    if ((r = put_rows(os, m)) < 0)
        return r;
    if (m->p.uid == 0)
        return orset_task_place(os, f, fresh, true);
    uid_key(&k, f->home, m->p.uid);
    if ((r = orset_row_get(os, ORSET_T_UID, &k, &row)) <= 0 || !read_place(os, &row, &named))
        return r < 0 ? r : orset_corrupt(os, "a bound UID has no row");
    return orset_same_dot(named.dot, old) ? put_uid_row(os, f->home, m->p.uid, f->index, fresh) : 0;
}

/* Takes the dot out of the state. The UID goes when it was the message's last dot. Uses m[0] as
 * room. */
int orset_message_remove(struct orset *os, struct folder *f, struct orset_dot d, bool local)
{
    struct message *m = &os->m[0];
    struct folder *home = orset_folder_at(os, f->home);
    struct orset_flags before, now;
    struct orset_dot speaker;
    uint8_t had_body[32], body[32];
    int r = orset_message_load(os, f->index, d, m);
    if (r <= 0)
        return r;
    uint32_t uid = m->p.uid;
    os->place_changes += uid == 0; /* its row goes, or another one speaks for the message */
    if ((r = orset_group_union(os, m, &before)) < 0 ||
        (r = orset_group_speaker(os, m, &speaker, had_body)) < 0)
        return r;
    int n = orset_group_load(os, m);
    if (n < 0)
        return n;
    if (n == 1) {
        r = uid ? orset_unbind(os, home, m, local) : 0;
        if (r == 0)
            r = orset_task_place(os, f, d, false);
        return r < 0 ? r : remove_rows(os, f, m);
    }
    struct orset_dot other = os->group[0].origin == d.origin && os->group[0].counter == d.counter
                                 ? os->group[1]
                                 : os->group[0];
    if ((r = orset_task_place(os, f, d, false)) < 0 || (r = remove_rows(os, f, m)) < 0)
        return r;
    if (uid == 0)
        return 0;
    if ((r = put_uid_row(os, home->index, uid, f->index, other)) < 0 ||
        (r = orset_message_load(os, f->index, other, m)) < 0 ||
        (r = orset_group_union(os, m, &now)) < 0 ||
        (r = orset_task_flags(os, home->index, uid, &before, &now, NULL)) < 0 ||
        (r = orset_group_speaker(os, m, &speaker, body)) < 0 ||
        (r = orset_task_body(os, home->index, uid, had_body, body, NULL)) < 0)
        return r;
    return orset_note_mismatch(os, home, m, uid);
}

/* --- queries
 * ---------------------------------------------------------------------------------------------- */

int orset_message_by_uid(struct orset *os, uint32_t folder, uint32_t uid, struct orset_message *out)
{
    struct orset_key k;
    struct orset_reader r;
    uid_key(&k, folder, uid);
    int got = orset_row_get(os, ORSET_T_UID, &k, &r);
    if (got <= 0)
        return got;
    struct place at;
    if (!read_place(os, &r, &at))
        return orset_corrupt(os, "a UID's row");
    struct orset_dot d = at.dot;
    if ((got = orset_message_load(os, at.folder, d, &os->m[0])) <= 0)
        return got < 0 ? got : orset_corrupt(os, "a UID's row names no message");
    if (orset_group_speaker(os, &os->m[0], &d, NULL) < 0)
        return ORSET_E_STORAGE;
    if (!orset_same_dot(d, os->m[0].p.dot) && orset_message_load(os, at.folder, d, &os->m[0]) <= 0)
        return orset_storage_fail(os, "a message vanished");
    if (!out)
        return 1;
    *out = os->m[0].p;
    return orset_group_agreed(os, &os->m[0], &out->agreed) < 0 ? ORSET_E_STORAGE : 1;
}

int orset_message_get(struct orset *os, uint32_t folder, struct orset_dot d,
                      struct orset_message *out)
{
    int got = orset_message_load(os, folder, d, &os->m[0]);
    if (got <= 0)
        return got;
    *out = os->m[0].p;
    return orset_group_agreed(os, &os->m[0], &out->agreed) < 0 ? ORSET_E_STORAGE : 1;
}

int orset_message_flags(struct orset *os, uint32_t folder, struct orset_dot d,
                        struct orset_flags *flags)
{
    int got = orset_message_load(os, folder, d, &os->m[0]);
    if (got <= 0)
        return got < 0 ? got
                       : orset_fail(os, ORSET_E_ABSENT, "no such message in folder %u", folder);
    return orset_group_union(os, &os->m[0], flags);
}

struct each {
    struct orset *os;
    orset_message_fn *fn;
    void *arg;
};

/* m[0] */
static int call_each(struct each *e)
{
    struct message *m = &e->os->m[0];
    struct orset_flags yes = {0}, no = {0};
    m->p.agreed = m->round ? m->agreed : m->p.claim;
    orset_flags_of(m, &yes, &no);
    yes.system &= (uint8_t)~no.system;
    return e->fn(e->arg, &m->p, &yes);
}

static int each_row(void *arg, const uint8_t *key, size_t len, const uint8_t *v, size_t vlen)
{
    struct each *e = arg;
    struct orset_reader k = orset_reader_of(key, len), r = orset_reader_of(v, vlen);
    struct message *m = &e->os->m[0];
    if (!orset_message_key_read(e->os, &k, m))
        return orset_corrupt(e->os, "a message's key");
    int got = orset_message_parse(e->os, &r, m);
    return got < 0 ? got : call_each(e);
}

int orset_each_message(struct orset *os, uint32_t folder, orset_message_fn *fn, void *arg)
{
    struct orset_key k = {0};
    struct each e = {os, fn, arg};
    orset_key_num(&k, folder);
    return os->store.each(os->store.ctx, ORSET_T_MESSAGE, k.b, k.n, k.n, each_row, &e);
}

int orset_each_copy(struct orset *os, uint32_t folder, const uint8_t guid[16], orset_message_fn *fn,
                    void *arg)
{
    struct each e = {os, fn, arg};
    int n = orset_copies(os, guid, folder), r = 0;
    for (int i = 0; i < n && r == 0; i++) {
        r = orset_message_load(os, folder, os->copies.v[i].dot, &os->m[0]);
        r = r > 0 && memcmp(os->m[0].p.facts.guid, guid, 16) == 0 ? call_each(&e) : r < 0 ? r : 0;
    }
    return n < 0 ? n : r;
}
