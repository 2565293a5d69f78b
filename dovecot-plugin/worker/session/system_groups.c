/* system_groups - asks getgrouplist(3), in a file of its own, since <grp.h> has a struct group, and
 * so has the worker. */
#include "dovecot-plugin/worker/session/system_groups.h"

#include <grp.h>

int system_groups(const char *user, gid_t group_r[SYSTEM_GROUPS_MOST])
{
    int n = SYSTEM_GROUPS_MOST;
    /* A group that the host gives everybody stands for the one that this user has by another
     * way. */
    return getgrouplist(user, 0, group_r, &n) < 0 ? 0 : n;
}
