/* directory - see directory.h. */
#include "directory.h"

#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "mem.h"

static bool has_reserve(const char *directory, int mode)
{
    char *path = mem_printf("%s/reserve", directory);
    bool has = !eaccess(path, mode);
    free(path);
    return has;
}

char *directory_find(const char *setting, const char *own, const char *older, char **error_r)
{
    *error_r = NULL;
    if (*setting)
        return mem_strdup(setting);
    if (has_reserve(own, F_OK))
        return mem_strdup(own);
    if (!has_reserve(older, F_OK))
        return mem_strdup(!eaccess(own, W_OK) || eaccess(older, W_OK) ? own : older);
    if (has_reserve(older, W_OK) && !eaccess(older, W_OK))
        return mem_strdup(older);
    *error_r = mem_printf("%s/reserve belongs to another user than this one (uid %u), and %s has none: stop Dovecot, then mv %s/reserve %s/replicator.db* %s/ && chown dovelane-replicator: %s/* "
                          "(upgrade page, \"The replicator's own user\")",
                          older, (unsigned)geteuid(), own, older, older, own, own);
    return NULL;
}
