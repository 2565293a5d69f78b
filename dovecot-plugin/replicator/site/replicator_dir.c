/* replicator_dir - looks where a reserve is, and chooses the directory by that. */
#include "dovecot-plugin/replicator/site/replicator_dir.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/mem.h"

static int reach_reserve(const char *directory, int mode)
{
    char *path = mem_printf("%s/reserve", directory);
    int e = eaccess(path, mode) < 0 ? errno : 0;
    free(path);
    return e;
}

/* Only ENOENT says that there is none: in a directory that this user may not search there may be
 * one that counts. */
static char *unknown(const char *directory, int e, const char *own, const char *older)
{
    return mem_printf(
        "%s/reserve: %s: this user (uid %u) cannot see whether it is there, and a new one would "
        "give its numbers once more. Run service dovelane-replicator as dovelane-replicator, and "
        "let it search %s and %s (chmod 0711 %s), or set replicator_dir "
        "(upgrade page, \"The replicator's own user\")",
        directory, strerror(e), (unsigned)geteuid(), own, older, older);
}

char *replicator_dir_find(const char *setting, const char *own, const char *older, char **error_r)
{
    *error_r = NULL;
    if (*setting)
        return mem_strdup(setting);
    int in_own = reach_reserve(own, F_OK), in_older = reach_reserve(older, F_OK);
    if (in_own == 0)
        return mem_strdup(own);
    if (in_older == 0 && reach_reserve(older, W_OK) == 0 && !eaccess(older, W_OK))
        return mem_strdup(older); /* own may be closed to this user: Dovecot stays as it was */
    if (in_older == 0)
        *error_r = mem_printf(
            "%s/reserve belongs to another user than this one (uid %u), and %s has none. Stop "
            "Dovecot, then `mv %s/reserve %s/replicator.db* %s/ && chown dovelane-replicator: "
            "%s/*` (upgrade page, \"The replicator's own user\")",
            older, (unsigned)geteuid(), own, older, older, own, own);
    else if (in_own != ENOENT)
        *error_r = unknown(own, in_own, own, older);
    else if (in_older != ENOENT)
        *error_r = unknown(older, in_older, own, older);
    else
        return mem_strdup(!eaccess(own, W_OK) || eaccess(older, W_OK) ? own : older);
    return NULL;
}
