/* task_done - the caller did a task in the mailbox. */
#include "dovecot-plugin/orset/base/flags.h"
#include "dovecot-plugin/orset/base/rows.h"
#include "dovecot-plugin/orset/ops/emit.h"
#include "dovecot-plugin/orset/state/binding.h"
#include "dovecot-plugin/orset/state/doomed.h"
#include "dovecot-plugin/orset/state/folder.h"
#include "dovecot-plugin/orset/state/group.h"
#include "dovecot-plugin/orset/state/tasks.h"

int orset_done_place(struct orset *os, uint32_t folder, struct orset_dot d, uint32_t uid,
                     const struct orset_flags *seen)
{
    return orset_placed(os, folder, d, uid, seen, NULL);
}

int orset_done_flags(struct orset *os, uint32_t folder, uint32_t uid,
                     const struct orset_flags *seen)
{
    struct orset_flags wanted;
    int r = orset_need_transaction(os);
    if (r < 0 || (r = orset_message_by_uid(os, folder, uid, NULL)) < 0)
        return r;
    if (r == 0)
        return orset_fail(os, ORSET_E_ABSENT, "flags of UID %u in %s: no message is bound to it",
                          uid, orset_folder_label(os, folder));
    if ((r = orset_group_union(os, &os->m[0], &wanted)) < 0)
        return r;
    return orset_task_flags(os, folder, uid, &wanted, &wanted, seen);
}

int orset_done_remove(struct orset *os, uint32_t folder, uint32_t uid)
{
    int r = orset_need_transaction(os);
    return r < 0 ? r : orset_undoom(os, folder, uid);
}

static int need_mailbox(struct orset *os, uint32_t folder, uint32_t new_uid, struct folder **home)
{
    int r = orset_need_transaction(os);
    *home = orset_folder_at(os, folder);
    if (r == 0 && (!*home || new_uid == 0))
        r = orset_fail(os, ORSET_E_ABSENT, "renumbered in %s to UID %u: no such folder or UID",
                       orset_folder_label(os, folder), new_uid);
    return r;
}

int orset_done_renumber(struct orset *os, uint32_t folder, uint32_t uid, uint32_t new_uid)
{
    struct folder *home;
    int r = need_mailbox(os, folder, new_uid, &home);
    if (r < 0 || (r = orset_task_uid(os, ORSET_TASK_RENUMBER, folder, uid, NULL)) < 0)
        return r;
    return orset_rebind(os, home, uid, new_uid, NULL);
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
    if ((r = orset_rebind(os, home, uid, new_uid, sha256)) < 0 || !had)
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
