/* credentials - one process, one user id.
 *
 * What a user keeps in his mailboxes, and state.db among it, is read by much code of Dovecot's and
 * ours. A fault in it shall give him what he has already. So a worker becomes the first user that
 * it opens and cannot become root again, as a process of imap does; users with the same
 * credentials, as those of one "vmail", follow in the same process.
 *
 * Whoever has a user's id may look into processes that have it and leave core files, unless they
 * are not dumpable (prctl(2)). Such a process has a connection with auth that was made as root.
 * Dovecot drops root in a way that leaves it not dumpable (TEMP_PRIV_DROP, seteuid); the rest is
 * done here, and does not change that. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/worker/session/credentials.h"
#include "dovecot-plugin/worker/session/system_groups.h"

#include <mail-storage-settings.h>
#include <str.h>

#include <sys/prctl.h>
#include <unistd.h>

static uint64_t bodies;

/* Not the name itself: users of one id may have names of their own there. */
static void add_groups(string_t *all, const char *system_user)
{
    gid_t group[SYSTEM_GROUPS_MOST];
    int n = system_groups(system_user, group);
    for (int i = 0; i < n; i++)
        str_printfa(all, "%ld ", (long)group[i]);
}

static const char *root_of(struct mail_storage_service_user *user)
{
    return compat_not_expanded(compat_user_set(user)->mail_chroot);
}

uint64_t credentials_of(struct mail_storage_service_user *user, const char *const *fields)
{
    static const char groups_of[] = "system_groups_user=";
    const struct mail_user_settings *set = compat_user_set(user);
    string_t *all = t_str_new(256);
    str_printfa(all, "%s\n%s\n%s\n%s\n", set->mail_uid, set->mail_gid, compat_access_groups(set),
                set->mail_privileged_group);
    for (; fields != NULL && *fields != NULL; fields++)
        if (str_begins_with(*fields, groups_of))
            add_groups(all, *fields + sizeof groups_of - 1);
    uint64_t number = orset_hash(str_data(all), str_len(all)).lo;
    return number != 0 ? number : 1;
}

bool credentials_fit(struct mail_storage_service_user *user, uint64_t number)
{
    return bodies == 0 || (bodies == number && *root_of(user) == '\0');
}

void credentials_keep(uint64_t number)
{
    uid_t uid = geteuid();
    if (uid == 0)
        return; /* it could not be opened before anything was dropped */
    bodies = number;
    if (getuid() != 0)
        return; /* done before; or the service is another user's from the start */
    if (setresuid(uid, uid, uid) < 0)
        i_fatal("setresuid(%d): %m", (int)uid);
    if (prctl(PR_SET_DUMPABLE, 0) < 0)
        i_fatal("prctl(PR_SET_DUMPABLE): %m");
    if (seteuid(0) == 0 || setuid(0) == 0)
        i_fatal("uid %d can become root again", (int)uid);
}

uint64_t credentials_kept(void)
{
    return bodies;
}
