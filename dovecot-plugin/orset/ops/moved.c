/* moved - mails of a folder that is shown in another one's mailbox by now (two ids with one name):
 * they wait to be placed there, and to leave the folder's own. */
#include "dovecot-plugin/orset/base/rows.h"
#include "dovecot-plugin/orset/ops/emit.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/orset/state/folder.h"
#include "dovecot-plugin/orset/state/message.h"

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

int orset_find_moved(struct orset *os, uint32_t folder, uint32_t uid)
{
    uint8_t guid[16];
    struct find_moved find = {guid, {0, 0}};
    int r;
    struct folder *f = orset_need_folder(os, folder, &r);
    if (!f || (r = orset_task_doomed_guid(os, folder, uid, guid)) <= 0)
        return f && r == 0 ? ORSET_KNOWN : r;
    if (f->home == folder || (r = orset_each_message(os, folder, find_moved, &find)) <= 0)
        return r < 0 ? r : ORSET_KNOWN;
    r = orset_message_load(os, folder, find.dot, &os->m[0]);
    return r > 0 ? ORSET_OK : r < 0 ? r : orset_storage_fail(os, "a message vanished");
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
