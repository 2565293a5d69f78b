/* todo - the effects: rows that say what a mailbox still lacks of the state.
 *
 *     FOLDER        folder           -> nothing
 *     PLACE         folder, dot      -> nothing                the message has no UID here
 *     FLAGS         mailbox, UID     -> flags the mailbox has  they differ from those the state wants
 *     RENUMBER      mailbox, UID     -> new UID
 *     REMOVE        mailbox, UID     -> GUID                   no live dot is bound to it
 *     SUBSCRIPTION  name             -> nothing                the mailbox has the opposite
 *     ATTRIBUTE     folder, key      -> hash of the value the mailbox has
 *
 * Without a FLAGS row the mailbox has exactly the flags the state wants: so what was *seen* (F4) costs
 * nothing. */
#include "internal.h"

#include <string.h>

static void todo_key(struct orset_key *k, int kind, uint32_t home, const void *rest, size_t len)
{
    k->n = 0;
    orset_key_num(k, (uint64_t)kind);
    orset_key_num(k, home);
    orset_key_put(k, rest, len);
}

int orset_todo_put(struct orset *os, int kind, uint32_t home, const void *rest, size_t len,
                   const struct orset_buf *v)
{
    struct orset_key k;
    todo_key(&k, kind, home, rest, len);
    return orset_row_put(os, ORSET_T_TODO, &k, v);
}

int orset_todo_del(struct orset *os, int kind, uint32_t home, const void *rest, size_t len)
{
    struct orset_key k;
    todo_key(&k, kind, home, rest, len);
    return orset_row_del(os, ORSET_T_TODO, &k);
}

int orset_todo_uid(struct orset *os, int kind, uint32_t home, uint32_t uid, const struct orset_buf *v)
{
    struct orset_key k;
    todo_key(&k, kind, home, "", 0);
    orset_key_num(&k, uid);
    return v ? orset_row_put(os, ORSET_T_TODO, &k, v) : orset_row_del(os, ORSET_T_TODO, &k);
}

int orset_todo_place(struct orset *os, struct folder *f, struct orset_dot d, bool wanted)
{
    struct orset_key k;
    todo_key(&k, ORSET_TODO_PLACE, f->index, "", 0);
    orset_key_dot(&k, d);
    return wanted ? orset_row_put(os, ORSET_T_TODO, &k, NULL) : orset_row_del(os, ORSET_T_TODO, &k);
}

int orset_todo_seen(struct orset *os, uint32_t home, uint32_t uid, struct orset_flags *seen)
{
    struct orset_key k;
    struct orset_reader r;
    todo_key(&k, ORSET_TODO_FLAGS, home, "", 0);
    orset_key_num(&k, uid);
    int got = orset_row_get(os, ORSET_T_TODO, &k, &r);
    if (got > 0)
        orset_flags_read(&r, seen);
    return got;
}

int orset_todo_flags(struct orset *os, uint32_t home, uint32_t uid, const struct orset_flags *before,
                     const struct orset_flags *now, const struct orset_flags *seen)
{
    struct orset_flags recorded;
    int got = orset_todo_seen(os, home, uid, &recorded);
    if (got < 0)
        return got;
    if (!seen)
        seen = got ? &recorded : before;
    if (orset_flags_equal(now, seen))
        return got ? orset_todo_uid(os, ORSET_TODO_FLAGS, home, uid, NULL) : 0;
    if (got && orset_flags_equal(&recorded, seen))
        return 0;
    os->row.len = 0;
    orset_flags_write(&os->row, seen);
    return orset_todo_uid(os, ORSET_TODO_FLAGS, home, uid, &os->row);
}

/* --- reading them
 * -------------------------------------------------------------------------------------------------- */

struct next {
    struct orset_todo *t;
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
    n->value = (struct orset_reader){n->copy, n->copy + len, false};
    return 1;
}

struct find_source {
    struct orset *os;
    uint8_t guid[16];
    uint32_t folder, uid; /* found */
    unsigned n;
    struct {
        uint32_t folder;
        struct orset_dot dot;
    } candidate[32];
};

static int source_row(void *arg, const uint8_t *key, size_t len, const uint8_t *v, size_t vlen)
{
    struct find_source *s = arg;
    struct orset_reader r = {key + 6, key + len, false};
    (void)v;
    (void)vlen;
    s->candidate[s->n].folder = (uint32_t)orset_key_read(&r);
    s->candidate[s->n].dot = orset_key_read_dot(&r);
    return ++s->n == sizeof s->candidate / sizeof s->candidate[0];
}

/* A local instance of the GUID saves the body's transfer: a placed message, or one that waits for its
 * removal. */
static int find_source(struct orset *os, struct orset_todo *t)
{
    struct find_source s = {.os = os};
    struct orset_reader r;
    struct orset_key k;
    memcpy(s.guid, t->message.facts.guid, 16);
    t->source_folder = ORSET_NO_FOLDER;
    t->source_uid = 0;
    if (os->store.each(os->store.ctx, ORSET_T_GUID, s.guid, 6, 6, source_row, &s) < 0)
        return orset_storage_fail(os, "GUIDs");
    for (unsigned i = 0; i < s.n && t->source_uid == 0; i++) {
        uint32_t f = s.candidate[i].folder;
        struct orset_dot d = s.candidate[i].dot;
        if (d.origin == ORSET_DOOMED_ORIGIN) {
            todo_key(&k, ORSET_TODO_REMOVE, f, "", 0);
            orset_key_num(&k, d.counter);
            int got = orset_row_get(os, ORSET_T_TODO, &k, &r);
            const uint8_t *guid = got > 0 ? orset_read_bytes(&r, 16) : NULL;
            if (!guid || memcmp(guid, s.guid, 16) != 0)
                continue;
            t->source_folder = f;
            t->source_uid = (uint32_t)d.counter;
        } else if (orset_message_load(os, f, d, &os->m[2]) > 0 && os->m[2].p.uid &&
                   memcmp(os->m[2].p.facts.guid, s.guid, 16) == 0) {
            t->source_folder = orset_folder_at(os, f)->home;
            t->source_uid = os->m[2].p.uid;
        }
    }
    return 0;
}

/* 1, or 0 when this row is not for the caller now. */
static int fill_place(struct orset *os, struct orset_todo *t, struct orset_reader *key)
{
    struct folder *f = orset_folder_at(os, t->folder);
    struct orset_dot d = orset_key_read_dot(key);
    struct message *m = &os->m[0];
    uint32_t agreed;
    if (!f || (f->index != ORSET_INBOX && f->name_stamp.clock == 0))
        return 0; /* its create has not come: nowhere to place it */
    int r = orset_message_load(os, f->index, d, m);
    if (r <= 0)
        return r;
    int n = orset_group_load(os, m);
    for (int i = 0; i < n; i++)
        if (orset_dot_order(os, os->group[i], d) < 0)
            return 0; /* another row speaks for this message */
    if (n < 0 || (r = orset_group_union(os, m, &t->flags)) < 0 ||
        (r = orset_group_agreed(os, m, &agreed)) < 0)
        return n < 0 ? n : r;
    const struct folder *home = orset_folder_at(os, f->home);
    t->folder = f->home;
    t->message = m->p;
    t->message.agreed = agreed;
    t->uid = agreed >= home->uid_next && agreed <= ORSET_UID_MAX && agreed - home->uid_next <= ORSET_UID_JUMP
                 ? agreed
                 : 0;
    r = find_source(os, t);
    return r < 0 ? r : 1;
}

static int fill(struct orset *os, struct orset_todo *t, struct next *n)
{
    struct orset_reader key = {t->at, t->at + t->at_len, false};
    int r = 1;
    t->kind = (enum orset_todo_kind)orset_key_read(&key);
    t->folder = (uint32_t)orset_key_read(&key);
    t->uid = t->new_uid = t->source_uid = 0;
    t->source_folder = ORSET_NO_FOLDER;
    t->name = (const char *)key.at;
    t->name_len = (size_t)(key.end - key.at);
    switch (t->kind) {
    case ORSET_TODO_FOLDER:
    case ORSET_TODO_SUBSCRIPTION:
    case ORSET_TODO_ATTRIBUTE: break;
    case ORSET_TODO_PLACE: r = fill_place(os, t, &key); break;
    case ORSET_TODO_RENUMBER: t->new_uid = (uint32_t)orset_read_num(&n->value, UINT32_MAX); /* fall through */
    case ORSET_TODO_REMOVE: t->uid = (uint32_t)orset_key_read(&key); break;
    case ORSET_TODO_FLAGS:
        t->uid = (uint32_t)orset_key_read(&key);
        r = orset_message_by_uid(os, t->folder, t->uid, &t->message);
        if (r > 0)
            r = orset_group_union(os, &os->m[0], &t->flags) < 0 ? ORSET_E_STORAGE : 1;
        break;
    }
    return r;
}

int orset_todo_next(struct orset *os, struct orset_todo *t)
{
    for (;;) {
        struct next n = {.t = t};
        struct orset_key from = {0};
        orset_key_put(&from, t->at, t->at_len);
        if (t->at_len) /* the smallest key behind it */
            orset_key_put(&from, "", 1);
        int got = os->store.each(os->store.ctx, ORSET_T_TODO, from.b, from.n, 0, next_row, &n);
        if (got < 0)
            return orset_storage_fail(os, "todo rows");
        if (got == 0 || t->at[0] >= ORSET_TODO_MISMATCH)
            return 0;
        got = fill(os, t, &n);
        if (got)
            return got;
    }
}

/* --- done
 * -----------------------------------------------------------------------------------------------------------
 */

/* A UID that no live dot is bound to. */
static int orphan_uid(struct orset *os, struct folder *home, uint32_t uid)
{
    uint8_t none[16] = {0};
    struct orset_buf v = {.alloc = &os->alloc, .data = none, .len = 16, .room = 16};
    int r = orset_message_by_uid(os, home->index, uid, NULL);
    return r ? (r < 0 ? r : 0) : orset_todo_uid(os, ORSET_TODO_REMOVE, home->index, uid, &v);
}

int orset_done_place(struct orset *os, uint32_t folder, struct orset_dot d, uint32_t uid,
                     const struct orset_flags *seen)
{
    struct message *m = &os->m[0];
    struct orset_flags wanted;
    struct folder *f = orset_folder_at(os, folder);
    int r = orset_need_transaction(os);
    if (r < 0)
        return r;
    if (!f || uid == 0)
        return orset_fail(os, ORSET_E_ABSENT, "placed in folder %u under UID %u: no such folder or UID",
                          folder, uid);
    struct folder *home = orset_folder_at(os, f->home);
    r = orset_message_load(os, folder, d, m);
    if (r < 0)
        return r;
    /* Removed while it was being saved, or placed before: the copy just made is one too many. */
    if (r == 0 || (m->p.uid && m->p.uid != uid))
        return orphan_uid(os, home, uid);
    if (m->p.uid == 0 && (r = orset_message_by_uid(os, home->index, uid, NULL)) > 0)
        r = orset_local_missing(os, home->index, uid); /* the UID was another mail's: that one is damage */
    if (r < 0 || (r = orset_message_load(os, folder, d, m)) <= 0)
        return r < 0 ? r : ORSET_E_STORAGE;
    if (m->p.uid == 0 &&
        ((r = orset_local_uid_next(os, home->index, uid + 1)) < 0 || (r = orset_bind(os, home, m, uid)) < 0))
        return r;
    if ((r = orset_message_load(os, folder, d, m)) <= 0 || (r = orset_group_union(os, m, &wanted)) < 0)
        return r < 0 ? r : ORSET_E_STORAGE;
    return orset_todo_flags(os, home->index, uid, &wanted, &wanted, seen);
}

int orset_done_flags(struct orset *os, uint32_t folder, uint32_t uid, const struct orset_flags *seen)
{
    struct orset_flags wanted;
    int r = orset_need_transaction(os);
    if (r < 0 || (r = orset_message_by_uid(os, folder, uid, NULL)) < 0)
        return r;
    if (r == 0)
        return orset_fail(os, ORSET_E_ABSENT, "flags of UID %u in folder %u: no message is bound to it", uid,
                          folder);
    if ((r = orset_group_union(os, &os->m[0], &wanted)) < 0)
        return r;
    return orset_todo_flags(os, folder, uid, &wanted, &wanted, seen);
}

int orset_done_remove(struct orset *os, uint32_t folder, uint32_t uid)
{
    struct orset_key k;
    struct orset_reader r;
    int e = orset_need_transaction(os);
    if (e < 0)
        return e;
    todo_key(&k, ORSET_TODO_REMOVE, folder, "", 0);
    orset_key_num(&k, uid);
    int got = orset_row_get(os, ORSET_T_TODO, &k, &r);
    if (got <= 0)
        return got < 0 ? got : ORSET_KNOWN;
    const uint8_t *guid = orset_read_bytes(&r, 16);
    struct orset_key g = {0};
    if (!guid)
        return orset_storage_fail(os, "a removal's row is cut");
    orset_key_put(&g, guid, 6);
    orset_key_num(&g, folder);
    orset_key_num(&g, ORSET_DOOMED_ORIGIN);
    orset_key_num(&g, uid);
    if ((e = orset_row_del(os, ORSET_T_TODO, &k)) < 0)
        return e;
    return orset_row_del(os, ORSET_T_GUID, &g);
}

int orset_done_renumber(struct orset *os, uint32_t folder, uint32_t uid, uint32_t new_uid)
{
    struct folder *home = orset_folder_at(os, folder);
    struct orset_flags seen;
    int r = orset_need_transaction(os), had;
    if (r < 0)
        return r;
    if (!home || new_uid == 0)
        return orset_fail(os, ORSET_E_ABSENT, "renumbered in folder %u to UID %u: no such folder or UID",
                          folder, new_uid);
    if ((r = orset_todo_uid(os, ORSET_TODO_RENUMBER, folder, uid, NULL)) < 0 ||
        (r = orset_message_by_uid(os, folder, uid, NULL)) < 0)
        return r;
    if (r == 0)
        return orphan_uid(os, home, new_uid); /* removed meanwhile */
    if ((had = orset_todo_seen(os, folder, uid, &seen)) < 0 ||
        (r = orset_unbind(os, home, &os->m[0], true)) < 0 ||
        (r = orset_bind(os, home, &os->m[0], new_uid)) < 0 || !had)
        return had < 0 ? had : r;
    os->row.len = 0;
    orset_flags_write(&os->row, &seen);
    return orset_todo_uid(os, ORSET_TODO_FLAGS, folder, new_uid, &os->row);
}

int orset_done_folder(struct orset *os, uint32_t folder)
{
    int r = orset_need_transaction(os);
    return r < 0 ? r : orset_todo_del(os, ORSET_TODO_FOLDER, folder, "", 0);
}

int orset_done_subscription(struct orset *os, const char *name, size_t len)
{
    int r = orset_need_transaction(os);
    return r < 0 ? r : orset_todo_del(os, ORSET_TODO_SUBSCRIPTION, 0, name, len);
}

int orset_done_attribute(struct orset *os, uint32_t folder, const char *key, size_t len)
{
    int r = orset_need_transaction(os);
    return r < 0 ? r : orset_todo_del(os, ORSET_TODO_ATTRIBUTE, folder, key, len);
}
