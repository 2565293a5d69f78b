/* tasks - rows that say what a mailbox still lacks of the state.
 *
 *     FOLDER        folder           -> nothing
 *     PLACE         folder, dot      -> nothing                the message has no UID here
 *     FLAGS         mailbox, UID     -> flags the mailbox has  they differ from those the state wants
 *     RENUMBER      mailbox, UID     -> new UID
 *     REMOVE        mailbox, UID     -> GUID                   no live dot is bound to it
 *     SUBSCRIPTION  name             -> nothing                the mailbox has the opposite
 *     ATTRIBUTE     folder, key      -> hash of the value the mailbox has
 *     BODY          mailbox, UID     -> SHA-256 of the bytes the mailbox has
 *
 * Without a FLAGS row the mailbox has exactly the flags the state wants: so what was *seen* (F4)
 * costs nothing. */
#include "dovecot-plugin/orset/internal.h"

#include <string.h>

static void task_key(struct orset_key *k, int kind, uint32_t home, const void *rest, size_t len)
{
    k->n = 0;
    orset_key_num(k, (uint64_t)kind);
    orset_key_num(k, home);
    orset_key_put(k, rest, len);
}

int orset_task_row(struct orset *os, int kind, uint32_t home, const void *rest, size_t len,
                   struct orset_reader *r)
{
    struct orset_key k;
    task_key(&k, kind, home, rest, len);
    return orset_row_get(os, ORSET_T_TASK, &k, r);
}

int orset_task_put(struct orset *os, int kind, uint32_t home, const void *rest, size_t len,
                   const struct orset_buf *v)
{
    struct orset_key k;
    task_key(&k, kind, home, rest, len);
    return orset_row_put(os, ORSET_T_TASK, &k, v);
}

int orset_task_del(struct orset *os, int kind, uint32_t home, const void *rest, size_t len)
{
    struct orset_key k;
    task_key(&k, kind, home, rest, len);
    return orset_row_del(os, ORSET_T_TASK, &k);
}

int orset_task_uid(struct orset *os, int kind, uint32_t home, uint32_t uid,
                   const struct orset_buf *v)
{
    struct orset_key k;
    task_key(&k, kind, home, "", 0);
    orset_key_num(&k, uid);
    return v ? orset_row_put(os, ORSET_T_TASK, &k, v) : orset_row_del(os, ORSET_T_TASK, &k);
}

int orset_task_place(struct orset *os, struct folder *f, struct orset_dot d, bool wanted)
{
    struct orset_key k;
    task_key(&k, ORSET_TASK_PLACE, f->index, "", 0);
    orset_key_dot(&k, d);
    os->place_changes += wanted;
    return wanted ? orset_row_put(os, ORSET_T_TASK, &k, NULL) : orset_row_del(os, ORSET_T_TASK, &k);
}

static int any_row(void *arg, const uint8_t *key, size_t len, const uint8_t *v, size_t vlen)
{
    (void)arg, (void)key, (void)len, (void)v, (void)vlen;
    return 1;
}

int orset_task_any_place(struct orset *os, uint32_t folder)
{
    struct orset_key k = {0};
    orset_key_num(&k, ORSET_TASK_PLACE);
    if (folder != ORSET_NO_FOLDER)
        orset_key_num(&k, folder);
    int r = os->store.each(os->store.ctx, ORSET_T_TASK, k.b, k.n, k.n, any_row, NULL);
    return r < 0 ? orset_storage_fail(os, "todo rows") : r;
}

int orset_task_seen(struct orset *os, uint32_t home, uint32_t uid, struct orset_flags *seen)
{
    struct orset_key k;
    struct orset_reader r;
    task_key(&k, ORSET_TASK_FLAGS, home, "", 0);
    orset_key_num(&k, uid);
    int got = orset_row_get(os, ORSET_T_TASK, &k, &r);
    if (got > 0)
        orset_flags_read(os, &r, seen);
    return got > 0 && (r.bad || r.at != r.end) ? orset_corrupt(os, "the flags that a mailbox has")
                                               : got;
}

int orset_task_flags(struct orset *os, uint32_t home, uint32_t uid,
                     const struct orset_flags *before, const struct orset_flags *now,
                     const struct orset_flags *seen)
{
    struct orset_flags recorded;
    int got = orset_task_seen(os, home, uid, &recorded);
    if (got < 0)
        return got;
    if (!seen)
        seen = got ? &recorded : before;
    if (orset_flags_equal(now, seen))
        return got ? orset_task_uid(os, ORSET_TASK_FLAGS, home, uid, NULL) : 0;
    if (got && orset_flags_equal(&recorded, seen))
        return 0;
    os->row.len = 0;
    orset_flags_write(&os->row, seen);
    return orset_task_uid(os, ORSET_TASK_FLAGS, home, uid, &os->row);
}

int orset_task_doomed(struct orset *os, uint32_t home, uint32_t uid, const uint8_t guid[16])
{
    static const uint8_t any[16];
    struct orset_key k;
    struct orset_reader r;
    task_key(&k, ORSET_TASK_REMOVE, home, "", 0);
    orset_key_num(&k, uid);
    int got = orset_row_get(os, ORSET_T_TASK, &k, &r);
    const uint8_t *row = got > 0 ? orset_read_bytes(&r, 16) : any;
    if (got <= 0 || !row)
        return got <= 0 ? got : orset_corrupt(os, "a removal's row is cut");
    if (memcmp(row, guid, 16) == 0 || memcmp(row, any, 16) == 0)
        return 1;
    got = orset_done_remove(os, home, uid);
    return got < 0 ? got : 0;
}

int orset_task_doomed_guid(struct orset *os, uint32_t home, uint32_t uid, uint8_t guid_r[16])
{
    struct orset_key k;
    struct orset_reader r;
    task_key(&k, ORSET_TASK_REMOVE, home, "", 0);
    orset_key_num(&k, uid);
    int got = orset_row_get(os, ORSET_T_TASK, &k, &r);
    const uint8_t *row = got > 0 ? orset_read_bytes(&r, 16) : NULL;
    if (got > 0 && !row)
        return orset_corrupt(os, "a removal's row is cut");
    if (row)
        memcpy(guid_r, row, 16);
    return got;
}

int orset_task_bytes(struct orset *os, uint32_t home, uint32_t uid, uint8_t sha256_r[32])
{
    struct orset_key k;
    struct orset_reader r;
    task_key(&k, ORSET_TASK_BODY, home, "", 0);
    orset_key_num(&k, uid);
    int got = orset_row_get(os, ORSET_T_TASK, &k, &r);
    const uint8_t *bytes = got > 0 ? orset_read_bytes(&r, 32) : NULL;
    if (got > 0 && !bytes)
        return orset_corrupt(os, "a body's row is cut");
    if (bytes)
        memcpy(sha256_r, bytes, 32);
    return got;
}

int orset_task_body(struct orset *os, uint32_t home, uint32_t uid, const uint8_t before[32],
                    const uint8_t now[32], const uint8_t *seen)
{
    struct orset_key k;
    struct orset_reader r;
    task_key(&k, ORSET_TASK_BODY, home, "", 0);
    orset_key_num(&k, uid);
    int got = orset_row_get(os, ORSET_T_TASK, &k, &r);
    if (got < 0)
        return got;
    if (!seen)
        seen = got ? orset_read_bytes(&r, 32) : before;
    if (!seen)
        return orset_corrupt(os, "a body's row is cut");
    if (memcmp(now, seen, 32) == 0)
        return got ? orset_row_del(os, ORSET_T_TASK, &k) : 0;
    os->row.len = 0;
    orset_buf_put(&os->row, seen, 32);
    return orset_row_put(os, ORSET_T_TASK, &k, &os->row);
}

/* --- reading them
 * ---------------------------------------------------------------------------------------------- */

struct next {
    struct orset_task *t;
    struct orset_reader value;
    uint8_t copy[64];
};

static int next_row(void *arg, const uint8_t *key, size_t key_len, const uint8_t *v, size_t len)
{
    struct next *n = arg;
    if (key_len > sizeof n->t->at)
        return -1;
    memcpy(n->t->at, key, key_len);
    n->t->at_len = key_len;
    /* FLAGS rows can be longer than this; their value is not needed here. */
    len = len < sizeof n->copy ? len : sizeof n->copy;
    memcpy(n->copy, v, len);
    n->value = orset_reader_of(n->copy, len);
    return 1;
}

/* The rows of a GUID, a page at a time: the store is not to be asked for anything else while it
 * gives rows. */
struct guid_rows {
    struct orset *os;
    uint8_t guid[16];
    struct orset_key from; /* where the next page begins; empty before the first */
    unsigned n, at;
    struct {
        uint32_t folder;
        struct orset_dot dot;
    } row[32];
};

#define SOURCES_TRIED 32 /* beyond, the body is asked for */
#define GUID_ROWS (sizeof((struct guid_rows *)0)->row / sizeof((struct guid_rows *)0)->row[0])

static int guid_row(void *arg, const uint8_t *key, size_t len, const uint8_t *v, size_t vlen)
{
    struct guid_rows *g = arg;
    struct orset_reader r = {key + 6, key + len, false};
    (void)v;
    (void)vlen;
    g->row[g->n].folder = orset_key_read_folder(g->os, &r);
    struct orset_reader doomed = r;
    uint64_t origin = orset_key_read(&doomed, UINT16_MAX),
             uid = orset_key_read(&doomed, UINT32_MAX);
    struct orset_dot d = {ORSET_DOOMED_ORIGIN, uid};
    if (origin == ORSET_DOOMED_ORIGIN)
        r = doomed;
    else
        d = orset_key_read_dot(g->os, &r);
    if (r.bad || r.at != r.end)
        return orset_corrupt(g->os, "a GUID's row");
    g->row[g->n].dot = d;
    if (++g->n < GUID_ROWS)
        return 0;
    g->from.n = 0;
    orset_key_put(&g->from, key, len);
    orset_key_put(&g->from, "", 1); /* the smallest key behind it */
    return 1;
}

/* 1 and the next one; 0: there is no more. Its GUID begins alike: whether it is the same the
 * message says. */
static int guid_next(struct orset *os, struct guid_rows *g, uint32_t *folder, struct orset_dot *d)
{
    if (g->at == g->n) {
        if (g->from.n > 0 && g->n < GUID_ROWS)
            return 0;
        if (g->from.n == 0)
            orset_key_put(&g->from, g->guid, 6);
        struct orset_key from = g->from;
        g->n = g->at = 0;
        if (os->store.each(os->store.ctx, ORSET_T_GUID, from.b, from.n, 6, guid_row, g) < 0)
            return orset_storage_fail(os, "GUIDs");
        if (g->n == 0)
            return 0;
    }
    *folder = g->row[g->at].folder;
    *d = g->row[g->at++].dot;
    return 1;
}

/* A local instance of the GUID saves the body's transfer: a placed message, or one that waits
 * for its removal. */
static int find_source(struct orset *os, struct orset_task *t)
{
    struct guid_rows g = {.os = os};
    struct message *m = &os->m[2];
    struct orset_dot d;
    uint32_t f = 0;
    int r = 1;
    memcpy(g.guid, t->message.facts.guid, 16);
    t->source_folder = ORSET_NO_FOLDER;
    t->source_uid = 0;
    for (unsigned n = 0;
         n < SOURCES_TRIED && t->source_uid == 0 && (r = guid_next(os, &g, &f, &d)) > 0; n++) {
        if (d.origin == ORSET_DOOMED_ORIGIN) {
            uint8_t guid[16];
            if (orset_task_doomed_guid(os, f, (uint32_t)d.counter, guid) <= 0 ||
                memcmp(guid, g.guid, 16) != 0)
                continue;
            t->source_folder = f;
            t->source_uid = (uint32_t)d.counter;
        } else if (orset_message_load(os, f, d, m) > 0 && m->p.uid &&
                   memcmp(m->p.facts.guid, g.guid, 16) == 0 &&
                   memcmp(m->p.facts.sha256, t->message.facts.sha256, 32) == 0) {
            t->source_folder = orset_folder_at(os, f)->home;
            t->source_uid = m->p.uid;
        }
    }
    return r < 0 ? r : 0;
}

int orset_mail_lives(struct orset *os, const uint8_t guid[16], const uint8_t sha256[32])
{
    struct guid_rows g = {.os = os};
    struct message *m = &os->m[0];
    struct orset_dot d;
    uint32_t f = 0;
    int r = 1;
    memcpy(g.guid, guid, 16);
    for (unsigned n = 0; n < SOURCES_TRIED && (r = guid_next(os, &g, &f, &d)) > 0; n++) {
        if (d.origin == ORSET_DOOMED_ORIGIN)
            continue;
        if ((r = orset_message_load(os, f, d, m)) < 0)
            return r;
        if (r > 0 && m->p.uid && memcmp(m->p.facts.guid, guid, 16) == 0 &&
            memcmp(m->p.facts.sha256, sha256, 32) == 0)
            return 1;
    }
    return r < 0 ? r : 0;
}

/* 1: a live message of that GUID has no UID here yet. It is to be copied from what waits for its
 * removal: its last bytes here, perhaps the last anywhere. */
static int is_needed(struct orset *os, const uint8_t guid[16])
{
    struct guid_rows g = {.os = os};
    struct message *m = &os->m[0];
    struct orset_dot d;
    uint32_t f = 0;
    int r;
    if ((r = orset_task_any_place(os, ORSET_NO_FOLDER)) <= 0)
        return r;
    memcpy(g.guid, guid, 16);
    while ((r = guid_next(os, &g, &f, &d)) > 0) {
        if (d.origin == ORSET_DOOMED_ORIGIN)
            continue;
        if ((r = orset_message_load(os, f, d, m)) < 0)
            return r;
        if (r > 0 && m->p.uid == 0 && memcmp(m->p.facts.guid, guid, 16) == 0)
            return 1;
    }
    return r;
}

/* 1, or 0 when this row is not for the caller now. */
static int fill_place(struct orset *os, struct orset_task *t, struct orset_reader *key)
{
    struct folder *f = orset_folder_at(os, t->folder);
    struct orset_dot d = orset_key_read_dot(os, key);
    struct message *m = &os->m[0];
    uint32_t agreed;
    if (key->bad || key->at != key->end)
        return orset_corrupt(os, "a message that waits to be placed");
    if (!f || (f->index != ORSET_INBOX && f->name_stamp.clock == 0))
        return 0; /* its create has not come: nowhere to place it */
    int r = orset_message_load(os, f->index, d, m);
    if (r <= 0)
        return r;
    struct orset_dot speaker;
    if ((r = orset_group_speaker(os, m, &speaker, NULL)) < 0)
        return r;
    if (!orset_same_dot(speaker, d))
        return 0; /* another row speaks for this message */
    if ((r = orset_group_union(os, m, &t->flags)) < 0 ||
        (r = orset_group_agreed(os, m, &agreed)) < 0)
        return r;
    const struct folder *home = orset_folder_at(os, f->home);
    t->folder = f->home;
    t->message = m->p;
    t->message.agreed = agreed;
    t->uid = agreed >= home->uid_next && agreed <= ORSET_UID_MAX &&
                     agreed - home->uid_next <= ORSET_UID_JUMP
                 ? agreed
                 : 0;
    r = find_source(os, t);
    return r < 0 ? r : 1;
}

static int fill_remove(struct orset *os, struct next *n)
{
    const uint8_t *guid = orset_read_bytes(&n->value, 16);
    if (!guid)
        return orset_corrupt(os, "a removal's row is cut");
    int r = is_needed(os, guid);
    return r < 0 ? r : !r;
}

/* What follows the kind: a mailbox here but for what hangs on a name; a UID, or a name. */
static bool key_is_true(const struct orset *os, const struct orset_task *t,
                        const struct orset_reader *key)
{
    bool named = t->kind == ORSET_TASK_SUBSCRIPTION || t->kind == ORSET_TASK_ATTRIBUTE;
    bool here = t->folder < os->nfolders ||
                (t->kind == ORSET_TASK_ATTRIBUTE && t->folder == ORSET_NO_FOLDER);
    if (key->bad || !here ||
        (t->kind == ORSET_TASK_SUBSCRIPTION && !orset_name_valid(t->name, t->name_len)))
        return false;
    return named ? t->name_len > 0 : t->kind == ORSET_TASK_PLACE || key->at == key->end;
}

/* all: those, too, that are not for the caller now */
static int fill(struct orset *os, struct orset_task *t, struct next *n, bool all)
{
    struct orset_reader key = orset_reader_of(t->at, t->at_len);
    int r = 1;
    t->kind = (enum orset_task_kind)orset_key_read(&key, ORSET_TASK_BODY);
    t->folder = (uint32_t)orset_key_read(&key, UINT32_MAX);
    t->uid = t->new_uid = t->source_uid = 0;
    t->source_folder = ORSET_NO_FOLDER;
    t->name = (const char *)key.at;
    t->name_len = (size_t)(key.end - key.at);
    if (t->kind >= ORSET_TASK_FLAGS && t->kind != ORSET_TASK_SUBSCRIPTION &&
        t->kind != ORSET_TASK_ATTRIBUTE) {
        t->uid = (uint32_t)orset_key_read(&key, UINT32_MAX);
        key.bad |= t->uid == 0;
    }
    if (!key_is_true(os, t, &key))
        return orset_corrupt(os, "what a mailbox lacks");
    switch (t->kind) {
    case ORSET_TASK_FOLDER:
    case ORSET_TASK_SUBSCRIPTION:
    case ORSET_TASK_ATTRIBUTE: break;
    case ORSET_TASK_PLACE: r = fill_place(os, t, &key); break;
    case ORSET_TASK_RENUMBER:
        t->new_uid = (uint32_t)orset_read_num(&n->value, ORSET_UID_MAX);
        if (t->new_uid == 0)
            return orset_corrupt(os, "a mail's new UID");
        break;
    case ORSET_TASK_REMOVE: r = all ? 1 : fill_remove(os, n); break;
    case ORSET_TASK_BODY:
    case ORSET_TASK_FLAGS:
        r = orset_message_by_uid(os, t->folder, t->uid, &t->message);
        if (r == 0 && t->kind == ORSET_TASK_BODY) {
            memset(&t->message, 0, sizeof t->message);
            return 1;
        }
        if (r > 0)
            r = orset_group_union(os, &os->m[0], &t->flags) < 0 ? ORSET_E_STORAGE : 1;
        break;
    }
    return r;
}

static int next_of(struct orset *os, struct orset_task *t, bool all)
{
    for (;;) {
        struct next n = {.t = t};
        struct orset_key from = {0};
        orset_key_put(&from, t->at, t->at_len);
        if (t->at_len) /* the smallest key behind it */
            orset_key_put(&from, "", 1);
        int got = os->store.each(os->store.ctx, ORSET_T_TASK, from.b, from.n, 0, next_row, &n);
        if (got < 0)
            return orset_storage_fail(os, "todo rows");
        if (got > 0 && (t->at_len == 0 || t->at_len == sizeof t->at))
            return orset_corrupt(os, "what a mailbox lacks");
        if (got == 0 || t->at[0] >= ORSET_TASK_MISMATCH)
            return 0;
        got = fill(os, t, &n, all);
        if (got)
            return got;
    }
}

int orset_task_next(struct orset *os, struct orset_task *t)
{
    return next_of(os, t, false);
}

uint64_t orset_place_changes(const struct orset *os)
{
    return os->place_changes;
}

/* 1; 0: there is no such message any more */
static int fill_place_only(struct orset *os, struct orset_task *t)
{
    struct orset_reader key = orset_reader_of(t->at, t->at_len);
    (void)orset_key_read(&key, ORSET_TASK_PLACE);
    uint32_t index = (uint32_t)orset_key_read(&key, UINT32_MAX);
    struct orset_dot d = orset_key_read_dot(os, &key);
    const struct folder *f = orset_folder_at(os, index);
    if (key.bad || key.at != key.end || !f)
        return orset_corrupt(os, "a message that waits to be placed");
    t->kind = ORSET_TASK_PLACE;
    t->folder = f->home;
    int r = orset_message_load(os, index, d, &os->m[0]);
    if (r > 0 && orset_group_agreed(os, &os->m[0], &t->uid) < 0)
        return ORSET_E_STORAGE;
    return r;
}

int orset_task_next_place(struct orset *os, struct orset_task *t)
{
    for (;;) {
        struct next n = {.t = t};
        struct orset_key from = {0};
        const uint8_t kind = ORSET_TASK_PLACE;
        if (t->at_len) { /* the smallest key behind it */
            orset_key_put(&from, t->at, t->at_len);
            orset_key_put(&from, "", 1);
        } else {
            orset_key_put(&from, &kind, 1);
        }
        int r = os->store.each(os->store.ctx, ORSET_T_TASK, from.b, from.n, 0, next_row, &n);
        if (r < 0)
            return orset_storage_fail(os, "todo rows");
        if (r == 0 || t->at[0] != ORSET_TASK_PLACE)
            return 0;
        if ((r = fill_place_only(os, t)) != 0)
            return r;
    }
}

int orset_task_next_removal(struct orset *os, struct orset_task *t)
{
    int r = next_of(os, t, true);
    return r > 0 && t->kind != ORSET_TASK_REMOVE ? 0 : r;
}

int orset_unplaced(struct orset *os, unsigned most)
{
    struct orset_task *t = os->alloc.resize(os->alloc.ctx, NULL, sizeof *t);
    unsigned n = 0;
    int got = 0;
    if (!t)
        return orset_fail(os, ORSET_E_MEMORY, "out of memory");
    memset(t, 0, sizeof *t);
    t->at[0] = ORSET_TASK_PLACE;
    t->at_len = 1;
    while (n < most && (got = orset_task_next(os, t)) > 0 && t->kind == ORSET_TASK_PLACE)
        n++;
    os->alloc.resize(os->alloc.ctx, t, 0);
    return got < 0 ? got : (int)n;
}

int orset_task_get(struct orset *os, struct orset_task *t)
{
    struct next n = {.t = t};
    const uint8_t *v;
    size_t len;
    int got = os->store.get(os->store.ctx, ORSET_T_TASK, t->at, t->at_len, &v, &len);
    if (got < 0)
        return orset_storage_fail(os, "todo rows");
    if (got == 0)
        return 0;
    len = len < sizeof n.copy ? len : sizeof n.copy;
    memcpy(n.copy, v, len);
    n.value = orset_reader_of(n.copy, len);
    return fill(os, t, &n, false);
}

/* --- done
 * -------------------------------------------------------------------------------------------------
 */

/* A UID that no live dot is bound to. */
static int orphan_uid(struct orset *os, struct folder *home, uint32_t uid)
{
    uint8_t none[16] = {0};
    struct orset_buf v = {.alloc = &os->alloc, .data = none, .len = 16, .room = 16};
    int r = orset_message_by_uid(os, home->index, uid, NULL);
    return r ? (r < 0 ? r : 0) : orset_task_uid(os, ORSET_TASK_REMOVE, home->index, uid, &v);
}

int orset_done_place(struct orset *os, uint32_t folder, struct orset_dot d, uint32_t uid,
                     const struct orset_flags *seen)
{
    return orset_placed(os, folder, d, uid, seen, NULL);
}

int orset_placed(struct orset *os, uint32_t folder, struct orset_dot d, uint32_t uid,
                 const struct orset_flags *seen, const uint8_t *seen_body)
{
    struct message *m = &os->m[0];
    struct orset_flags wanted;
    struct orset_dot speaker;
    uint8_t own[32], body[32];
    struct folder *f = orset_folder_at(os, folder);
    int r = orset_need_transaction(os);
    if (r < 0)
        return r;
    if (!f || uid == 0)
        return orset_fail(os, ORSET_E_ABSENT,
                          "placed in folder %u under UID %u: no such folder or UID", folder, uid);
    struct folder *home = orset_folder_at(os, f->home);
    r = orset_message_load(os, folder, d, m);
    if (r < 0)
        return r;
    /* Removed while it was being saved, or placed before: the copy just made is one too many. */
    if (r == 0 || (m->p.uid && m->p.uid != uid))
        return orphan_uid(os, home, uid);
    if (m->p.uid == 0 && (r = orset_message_by_uid(os, home->index, uid, NULL)) > 0)
        /* the UID was another mail's: that one is damage */
        r = orset_local_missing(os, home->index, uid);
    if (r < 0 || (r = orset_message_load(os, folder, d, m)) <= 0)
        return r < 0 ? r : ORSET_E_STORAGE;
    if (m->p.uid == 0 && ((r = orset_local_uid_next(os, home->index, uid + 1)) < 0 ||
                          (r = orset_bind(os, home, m, uid)) < 0))
        return r;
    if ((r = orset_message_load(os, folder, d, m)) <= 0 ||
        (r = orset_group_union(os, m, &wanted)) < 0 ||
        (r = orset_group_speaker(os, m, &speaker, body)) < 0)
        return r < 0 ? r : ORSET_E_STORAGE;
    memcpy(own, m->p.facts.sha256, 32);
    r = orset_task_flags(os, home->index, uid, &wanted, &wanted, seen);
    return r < 0 ? r
                 : orset_task_body(os, home->index, uid, body, body, seen_body ? seen_body : own);
}

int orset_done_flags(struct orset *os, uint32_t folder, uint32_t uid,
                     const struct orset_flags *seen)
{
    struct orset_flags wanted;
    int r = orset_need_transaction(os);
    if (r < 0 || (r = orset_message_by_uid(os, folder, uid, NULL)) < 0)
        return r;
    if (r == 0)
        return orset_fail(os, ORSET_E_ABSENT,
                          "flags of UID %u in folder %u: no message is bound to it", uid, folder);
    if ((r = orset_group_union(os, &os->m[0], &wanted)) < 0)
        return r;
    return orset_task_flags(os, folder, uid, &wanted, &wanted, seen);
}

int orset_done_remove(struct orset *os, uint32_t folder, uint32_t uid)
{
    struct orset_key k;
    struct orset_reader r;
    int e = orset_need_transaction(os);
    if (e < 0)
        return e;
    task_key(&k, ORSET_TASK_REMOVE, folder, "", 0);
    orset_key_num(&k, uid);
    int got = orset_row_get(os, ORSET_T_TASK, &k, &r);
    if (got <= 0)
        return got < 0 ? got : ORSET_KNOWN;
    const uint8_t *guid = orset_read_bytes(&r, 16);
    struct orset_key g = {0};
    if (!guid)
        return orset_corrupt(os, "a removal's row is cut");
    orset_key_put(&g, guid, 6);
    orset_key_num(&g, folder);
    orset_key_num(&g, ORSET_DOOMED_ORIGIN);
    orset_key_num(&g, uid);
    if ((e = orset_row_del(os, ORSET_T_TASK, &k)) < 0)
        return e;
    return orset_row_del(os, ORSET_T_GUID, &g);
}

/* What a mailbox still lacks of a mail goes with it from uid to new_uid. */
static int rebind(struct orset *os, struct folder *home, uint32_t uid, uint32_t new_uid,
                  const uint8_t *new_body)
{
    struct orset_flags seen;
    struct orset_dot speaker;
    struct orset_key k;
    struct orset_reader row;
    uint8_t seen_body[32], body[32];
    int r = orset_message_by_uid(os, home->index, uid, NULL), had, had_body;
    if (r <= 0)
        return r < 0 ? r : orphan_uid(os, home, new_uid); /* removed meanwhile */
    if ((had = orset_task_seen(os, home->index, uid, &seen)) < 0)
        return had;
    task_key(&k, ORSET_TASK_BODY, home->index, "", 0);
    orset_key_num(&k, uid);
    if ((had_body = orset_row_get(os, ORSET_T_TASK, &k, &row)) < 0)
        return had_body;
    const uint8_t *b = new_body ? new_body : had_body ? orset_read_bytes(&row, 32) : NULL;
    if (b)
        memcpy(seen_body, b, 32);
    if ((r = orset_unbind(os, home, &os->m[0], true)) < 0 ||
        (r = orset_bind(os, home, &os->m[0], new_uid)) < 0)
        return r;
    if (b && ((r = orset_group_speaker(os, &os->m[0], &speaker, body)) < 0 ||
              (r = orset_task_body(os, home->index, new_uid, body, body, seen_body)) < 0))
        return r;
    if (!had)
        return 0;
    os->row.len = 0;
    orset_flags_write(&os->row, &seen);
    return orset_task_uid(os, ORSET_TASK_FLAGS, home->index, new_uid, &os->row);
}

static int need_mailbox(struct orset *os, uint32_t folder, uint32_t new_uid, struct folder **home)
{
    int r = orset_need_transaction(os);
    *home = orset_folder_at(os, folder);
    if (r == 0 && (!*home || new_uid == 0))
        r = orset_fail(os, ORSET_E_ABSENT,
                       "renumbered in folder %u to UID %u: no such folder or UID", folder, new_uid);
    return r;
}

int orset_done_renumber(struct orset *os, uint32_t folder, uint32_t uid, uint32_t new_uid)
{
    struct folder *home;
    int r = need_mailbox(os, folder, new_uid, &home);
    if (r < 0 || (r = orset_task_uid(os, ORSET_TASK_RENUMBER, folder, uid, NULL)) < 0)
        return r;
    return rebind(os, home, uid, new_uid, NULL);
}

int orset_done_body(struct orset *os, uint32_t folder, uint32_t uid, uint32_t new_uid,
                    const uint8_t sha256[32])
{
    struct orset_flags before, after, seen, more;
    struct folder *home;
    uint8_t old[32];
    int had, r = need_mailbox(os, folder, new_uid, &home);
    if (r < 0 || (had = orset_task_bytes(os, folder, uid, old)) < 0)
        return r < 0 ? r : had;
    if ((r = rebind(os, home, uid, new_uid, sha256)) < 0 || !had)
        return r;
    /* Nobody has the old bytes any more, or will not. What was marked on them alone stays
     * marked. */
    if ((r = orset_message_by_uid(os, folder, new_uid, NULL)) <= 0 ||
        (r = orset_group_union(os, &os->m[0], &before)) < 0 || (r = orset_drop_bytes(os, old)) < 0)
        return r;
    if ((r = orset_message_by_uid(os, folder, new_uid, NULL)) <= 0 ||
        (r = orset_group_union(os, &os->m[0], &after)) < 0 ||
        (had = orset_task_seen(os, folder, new_uid, &seen)) < 0)
        return r <= 0 ? r : had;
    orset_flags_diff(&before, &after, &more);
    r = orset_local_flags(os, folder, new_uid, had ? &seen : &after, &more);
    return r < 0 ? r : 0;
}

int orset_done_alone(struct orset *os, uint32_t folder, uint32_t uid)
{
    int r = orset_need_transaction(os);
    return r < 0 ? r : orset_task_uid(os, ORSET_TASK_BODY, folder, uid, NULL);
}

int orset_done_folder(struct orset *os, uint32_t folder)
{
    int r = orset_need_transaction(os);
    return r < 0 ? r : orset_task_del(os, ORSET_TASK_FOLDER, folder, "", 0);
}

int orset_done_subscription(struct orset *os, const char *name, size_t len)
{
    int r = orset_need_transaction(os);
    return r < 0 ? r : orset_task_del(os, ORSET_TASK_SUBSCRIPTION, 0, name, len);
}

int orset_done_attribute(struct orset *os, uint32_t folder, const char *key, size_t len)
{
    int r = orset_need_transaction(os);
    return r < 0 ? r : orset_task_del(os, ORSET_TASK_ATTRIBUTE, folder, key, len);
}
