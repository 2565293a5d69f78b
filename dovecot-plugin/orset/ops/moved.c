/* moved - mails of a folder that is shown in another one's mailbox by now (two ids with one name):
 * they wait to be placed there, and to leave the folder's own. */
#include "dovecot-plugin/orset/base/origins.h"
#include "dovecot-plugin/orset/base/rows.h"
#include "dovecot-plugin/orset/ops/emit.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/orset/state/doomed.h"
#include "dovecot-plugin/orset/state/folder.h"
#include "dovecot-plugin/orset/state/group.h"
#include "dovecot-plugin/orset/state/message.h"
#include "dovecot-plugin/orset/state/task_list.h"

#include <string.h>

struct find_moved {
    const uint8_t *guid;
    struct orset_dot dot;
};

static int find_moved(void *arg, const struct orset_message *m, const struct orset_flags *own)
{
    struct find_moved *f = arg;
    (void)own;
    if (m->uid != 0 || memcmp(m->facts.guid, f->guid, 16) != 0)
        return 0;
    f->dot = m->dot;
    return 1;
}

/* The message that had this UID, into m[0], by the dot that the row says: a folder may have more
 * mails of that GUID. 1; 0: it is gone, or is another folder's */
static int find_by_dot(struct orset *os, uint32_t folder, const struct left_mail *left, bool placed)
{
    int r = left->folder == folder ? orset_message_load(os, folder, left->dot, &os->m[0]) : 0;
    return r > 0 ? placed || os->m[0].p.uid == 0 : r;
}

/* The same where the row is of a version that did not say a dot: one that waits to be placed. */
static int find_by_guid(struct orset *os, uint32_t folder, const uint8_t guid[16])
{
    struct find_moved find = {guid, {0, 0}};
    int r = orset_each_message(os, folder, find_moved, &find);
    if (r <= 0)
        return r;
    r = orset_message_load(os, folder, find.dot, &os->m[0]);
    return r == 0 ? orset_storage_fail(os, "a message vanished") : r;
}

int orset_find_moved(struct orset *os, uint32_t folder, uint32_t uid, bool placed)
{
    uint8_t guid[16];
    struct left_mail left;
    int r;
    struct folder *f = orset_need_folder(os, folder, &r);
    if (!f || (r = orset_task_doomed_guid(os, folder, uid, guid)) <= 0)
        return f && r == 0 ? ORSET_KNOWN : r;
    if (f->home == folder)
        return ORSET_KNOWN;
    if ((r = orset_task_left(os, folder, uid, &left)) >= 0)
        r = r > 0 ? find_by_dot(os, folder, &left, placed) : find_by_guid(os, folder, guid);
    return r < 0 ? r : r > 0 ? ORSET_OK : ORSET_KNOWN;
}

int orset_leaves_moved(struct orset *os, uint32_t folder, uint32_t uid, const uint8_t guid[16])
{
    uint8_t doomed[16];
    int r;
    struct folder *f = orset_need_folder(os, folder, &r);
    if (!f || f->home == folder || (r = orset_task_doomed_guid(os, folder, uid, doomed)) <= 0)
        return f && r >= 0 ? 0 : r;
    return memcmp(doomed, guid, sizeof doomed) == 0;
}

/* The message of a folder that was shown by this name, into m[0]. 1; 0: it is gone, or placed */
static int find_left(struct orset *os, const struct left_mail *left, const void *name, size_t len)
{
    const struct folder *f = orset_folder_at(os, left->folder);
    if (!f || f->name_len != len || memcmp(f->name, name, len) != 0 ||
        orset_stamp_order(left->name, f->name_stamp) != 0)
        return 0;
    int r = orset_message_load(os, left->folder, left->dot, &os->m[0]);
    return r > 0 ? os->m[0].p.uid == 0 : r;
}

/* The one in m[0], with the presence of its folder where that is shown nowhere. */
static int delete_left(struct orset *os, orset_shown_fn *is_shown, void *arg)
{
    struct orset_dot dots[ORSET_SAME_MESSAGE_MAX];
    const struct folder *f = orset_folder_at(os, os->m[0].p.folder);
    int n = orset_group_load(os, &os->m[0]);
    if (n < 0)
        return n;
    memcpy(dots, os->group, (size_t)n * sizeof dots[0]);
    int r = orset_emit_remove(os, f, dots, (unsigned)n);
    if (r < 0 || f->npresence == 0 || is_shown(arg, f->index))
        return r;
    orset_op_begin(os, OP_DELETE);
    orset_folder_id_write(&os->op, f);
    orset_op_presence(os, f);
    return orset_emit(os, 0);
}

int orset_local_delete_left(struct orset *os, const void *name, size_t len,
                            orset_shown_fn *is_shown, void *arg)
{
    struct orset_task t = {.at_len = 1, .at = {ORSET_TASK_REMOVE}};
    struct left_mail left;
    int r = orset_need_transaction(os), result = ORSET_KNOWN;
    while (r >= 0 && (r = orset_task_next_removal(os, &t)) > 0) {
        if ((r = orset_task_left(os, t.folder, t.uid, &left)) <= 0 ||
            (r = find_left(os, &left, name, len)) <= 0)
            continue;
        r = delete_left(os, is_shown, arg);
        result = ORSET_OK;
    }
    return r < 0 ? r : result;
}
