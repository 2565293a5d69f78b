/* message_set - message dots come into the state and leave it. A message of several dots (rule 4)
 * stays as long as one of them does; its mailbox is told what changes by that. */
#include "dovecot-plugin/orset/state/message_set.h"
#include "dovecot-plugin/orset/base/rows.h"
#include "dovecot-plugin/orset/state/arrivals.h"
#include "dovecot-plugin/orset/state/binding.h"
#include "dovecot-plugin/orset/state/folder.h"
#include "dovecot-plugin/orset/state/group.h"
#include "dovecot-plugin/orset/state/message.h"
#include "dovecot-plugin/orset/state/tasks.h"

#include <string.h>

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
        return orset_fail(os, ORSET_E_LIMIT, "%d dots of one message in %s", n,
                          orset_folder_label(os, f->index));
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
        if (os->joined && m->p.uid != 0)
            os->joined(os->joined_arg, home->index, m->p.uid);
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
    int r = orset_message_del(os, m);
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
    struct orset_dot old = m->p.dot;
    int r = orset_message_del(os, m);
    if (r < 0 || (r = orset_copy_del(os, m)) < 0 || (r = orset_task_place(os, f, old, false)) < 0)
        return r;
    m->p.dot = fresh;
    if ((r = put_rows(os, m)) < 0)
        return r;
    return m->p.uid == 0 ? orset_task_place(os, f, fresh, true)
                         : orset_uid_row_redot(os, orset_folder_at(os, f->home), m, old);
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
        if (os->removed)
            os->removed(os->removed_arg, &m->p.facts);
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
    if ((r = orset_uid_row_put(os, home->index, uid, f->index, other)) < 0 ||
        (r = orset_message_load(os, f->index, other, m)) < 0 ||
        (r = orset_group_union(os, m, &now)) < 0 ||
        (r = orset_task_flags(os, home->index, uid, &before, &now, NULL)) < 0 ||
        (r = orset_group_speaker(os, m, &speaker, body)) < 0 ||
        (r = orset_task_body(os, home->index, uid, had_body, body, NULL)) < 0)
        return r;
    return orset_note_mismatch(os, home, m, uid);
}
