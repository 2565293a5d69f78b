/* binding - the UID that a message has in the mailbox.
 *
 *     ORSET_T_UID      mailbox, UID             -> folder, dot   one dot of the message bound to it
 *
 * What holds: all live dots of a message have the same bound UID; a bound UID has a row in
 * ORSET_T_UID that names a live dot of its message; an unplaced dot has a PLACE row in
 * ORSET_T_TASK. */
#include "dovecot-plugin/orset/state/binding.h"
#include "dovecot-plugin/orset/base/flags.h"
#include "dovecot-plugin/orset/base/origins.h"
#include "dovecot-plugin/orset/base/rows.h"
#include "dovecot-plugin/orset/state/doomed.h"
#include "dovecot-plugin/orset/state/folder.h"
#include "dovecot-plugin/orset/state/group.h"
#include "dovecot-plugin/orset/state/message.h"
#include "dovecot-plugin/orset/state/tasks.h"

#include <string.h>

static void uid_key(struct orset_key *k, uint32_t home, uint32_t uid)
{
    k->n = 0;
    orset_key_num(k, home);
    orset_key_num(k, uid);
}

/* A row of ORSET_T_UID. */
static bool read_place(const struct orset *os, struct orset_reader *r, struct place *at)
{
    at->folder = (uint32_t)orset_read_num(r, ORSET_FOLDERS_MAX);
    at->dot = orset_row_read_dot(os, r);
    return !r->bad && at->folder < os->nfolders;
}

int orset_uid_row_put(struct orset *os, uint32_t home, uint32_t uid, uint32_t folder,
                      struct orset_dot d)
{
    struct orset_key k;
    uid_key(&k, home, uid);
    os->row.len = 0;
    orset_buf_num(&os->row, folder);
    orset_dot_write(&os->row, d);
    return orset_row_put(os, ORSET_T_UID, &k, &os->row);
}

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

int orset_bind(struct orset *os, struct folder *home, struct message *m, uint32_t uid)
{
    int r = set_uid(os, m, uid);
    if (r < 0 || (r = orset_uid_row_put(os, home->index, uid, m->p.folder, m->p.dot)) < 0)
        return r;
    if (uid >= home->uid_next) {
        home->uid_next = uid + 1;
        if ((r = orset_folder_touch(os, home)) < 0)
            return r;
    }
    return orset_note_mismatch(os, home, m, uid);
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

int orset_uid_row_redot(struct orset *os, const struct folder *home, const struct message *m,
                        struct orset_dot old)
{
    struct orset_key k;
    struct orset_reader row;
    struct place named;
    uid_key(&k, home->index, m->p.uid);
    int r = orset_row_get(os, ORSET_T_UID, &k, &row);
    if (r <= 0 || !read_place(os, &row, &named))
        return r < 0 ? r : orset_corrupt(os, "a bound UID has no row");
    return orset_same_dot(named.dot, old)
               ? orset_uid_row_put(os, home->index, m->p.uid, m->p.folder, m->p.dot)
               : 0;
}

/* --- what the caller did in the mailbox */

/* A UID that no live dot is bound to. */
static int orphan_uid(struct orset *os, struct folder *home, uint32_t uid)
{
    uint8_t none[16] = {0};
    struct orset_buf v = {.alloc = &os->alloc, .data = none, .len = 16, .room = 16};
    int r = orset_message_by_uid(os, home->index, uid, NULL);
    return r ? (r < 0 ? r : 0) : orset_task_uid(os, ORSET_TASK_REMOVE, home->index, uid, &v);
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
        return orset_fail(os, ORSET_E_ABSENT, "placed in %s under UID %u: no such folder or UID",
                          orset_folder_label(os, folder), uid);
    struct folder *home = orset_folder_at(os, f->home);
    r = orset_message_load(os, folder, d, m);
    if (r < 0)
        return r;
    /* Removed while it was being saved, or placed before: the copy just made is one too many. */
    if (r == 0 || (m->p.uid && m->p.uid != uid))
        return orphan_uid(os, home, uid);
    if (m->p.uid == 0 && (r = orset_message_by_uid(os, home->index, uid, NULL)) > 0)
        /* the UID was another mail's: that one is damage */
        r = orset_unbind(os, home, m, true);
    if (r < 0 || (r = orset_message_load(os, folder, d, m)) <= 0)
        return r < 0 ? r : ORSET_E_STORAGE;
    if (m->p.uid == 0 && ((r = orset_folder_uid_next(os, home, uid + 1)) < 0 ||
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

/* What a mailbox still lacks of a mail goes with it from uid to new_uid. */
int orset_rebind(struct orset *os, struct folder *home, uint32_t uid, uint32_t new_uid,
                 const uint8_t *new_body)
{
    struct orset_flags seen;
    struct orset_dot speaker;
    uint8_t seen_body[32], body[32];
    int r = orset_message_by_uid(os, home->index, uid, NULL), had, had_body;
    if (r <= 0)
        return r < 0 ? r : orphan_uid(os, home, new_uid); /* removed meanwhile */
    if ((had = orset_task_seen(os, home->index, uid, &seen)) < 0)
        return had;
    if ((had_body = orset_task_bytes(os, home->index, uid, seen_body)) < 0)
        return had_body;
    if (new_body)
        memcpy(seen_body, new_body, 32);
    if ((r = orset_unbind(os, home, &os->m[0], true)) < 0 ||
        (r = orset_bind(os, home, &os->m[0], new_uid)) < 0)
        return r;
    if ((new_body || had_body) &&
        ((r = orset_group_speaker(os, &os->m[0], &speaker, body)) < 0 ||
         (r = orset_task_body(os, home->index, new_uid, body, body, seen_body)) < 0))
        return r;
    if (!had)
        return 0;
    os->row.len = 0;
    orset_flags_write(&os->row, &seen);
    return orset_task_uid(os, ORSET_TASK_FLAGS, home->index, new_uid, &os->row);
}
