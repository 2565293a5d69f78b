/* system_groups - the supplementary groups of a user of this host, as initgroups(3) gives them
 * to a process. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_SYSTEM_GROUPS_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_SYSTEM_GROUPS_H

#include <sys/types.h>

#define SYSTEM_GROUPS_MOST 1024

/* Returns how many there are, in the order of the host's databases; 0 when they are more than
 * SYSTEM_GROUPS_MOST. */
int system_groups(const char *user, gid_t group_r[SYSTEM_GROUPS_MOST]);

#endif
