/* doomed - mails that are to be removed from a mailbox: a REMOVE row of ORSET_T_TASK (tasks.c), and
 * one of ORSET_T_GUID, since others can be copied from the mail until it goes. */
#include "dovecot-plugin/orset/state/doomed.h"
#include "dovecot-plugin/orset/base/rows.h"
#include "dovecot-plugin/orset/state/folder.h"
#include "dovecot-plugin/orset/state/group.h"
#include "dovecot-plugin/orset/state/tasks.h"

#include <string.h>

static void guid_row_key(struct orset_key *k, uint32_t home, const uint8_t guid[16], uint32_t uid)
{
    orset_guid_key(k, guid, home);
    orset_key_num(k, ORSET_DOOMED_ORIGIN);
    orset_key_num(k, uid);
}

/* The mailbox still has the mail: it is to be removed, and until then others can copy it. */
int orset_doom(struct orset *os, struct folder *home, const uint8_t guid[16], uint32_t uid)
{
    struct orset_key k;
    guid_row_key(&k, home->index, guid, uid);
    int r = orset_row_put(os, ORSET_T_GUID, &k, NULL);
    struct orset_buf v = {.alloc = &os->alloc};
    orset_buf_put(&v, guid, 16);
    if (r == 0)
        r = v.failed ? orset_fail(os, ORSET_E_MEMORY, "no memory for a row")
                     : orset_task_uid(os, ORSET_TASK_REMOVE, home->index, uid, &v);
    orset_buf_free(&v);
    if (r == 0 && os->changed)
        os->changed(os->changed_arg, home->index, uid);
    return r;
}

int orset_task_doomed_guid(struct orset *os, uint32_t home, uint32_t uid, uint8_t guid_r[16])
{
    struct orset_reader r;
    int got = orset_task_uid_row(os, ORSET_TASK_REMOVE, home, uid, &r);
    const uint8_t *row = got > 0 ? orset_read_bytes(&r, 16) : NULL;
    if (got > 0 && !row)
        return orset_corrupt(os, "a removal's row is cut");
    if (row)
        memcpy(guid_r, row, 16);
    return got;
}

int orset_doom_left(struct orset *os, uint32_t home, uint32_t uid, const struct left_mail *left)
{
    uint8_t guid[16];
    int r = orset_task_doomed_guid(os, home, uid, guid);
    if (r <= 0)
        return r;
    os->row.len = 0;
    orset_buf_put(&os->row, guid, sizeof guid);
    orset_buf_num(&os->row, left->folder);
    orset_dot_write(&os->row, left->dot);
    orset_stamp_write(&os->row, left->name);
    return orset_task_uid(os, ORSET_TASK_REMOVE, home, uid, &os->row);
}

int orset_task_left(struct orset *os, uint32_t home, uint32_t uid, struct left_mail *left)
{
    struct orset_reader r;
    int got = orset_task_uid_row(os, ORSET_TASK_REMOVE, home, uid, &r);
    if (got <= 0 || !orset_read_bytes(&r, 16) || r.at == r.end)
        return got < 0 ? got : 0;
    left->folder = (uint32_t)orset_read_num(&r, ORSET_FOLDERS_MAX);
    left->dot = orset_row_read_dot(os, &r);
    left->name = orset_stamp_read(&r);
    return r.bad || r.at != r.end || left->folder >= os->nfolders
               ? orset_corrupt(os, "a removal's row")
               : 1;
}

int orset_undoom(struct orset *os, uint32_t home, uint32_t uid)
{
    uint8_t guid[16];
    struct orset_key k;
    int r = orset_task_doomed_guid(os, home, uid, guid);
    if (r <= 0)
        return r < 0 ? r : ORSET_KNOWN;
    guid_row_key(&k, home, guid, uid);
    r = orset_task_uid(os, ORSET_TASK_REMOVE, home, uid, NULL);
    return r < 0 ? r : orset_row_del(os, ORSET_T_GUID, &k);
}

int orset_task_doomed(struct orset *os, uint32_t home, uint32_t uid, const uint8_t guid[16])
{
    static const uint8_t any[16];
    uint8_t row[16];
    int got = orset_task_doomed_guid(os, home, uid, row);
    if (got <= 0)
        return got;
    if (memcmp(row, guid, 16) == 0 || memcmp(row, any, 16) == 0)
        return 1;
    got = orset_undoom(os, home, uid);
    return got < 0 ? got : 0;
}
