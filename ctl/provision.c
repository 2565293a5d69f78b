/* dovelane init, join, invite, cert, group - they run a few times in a host's life and edit
 * other programs' text files, so they are Python (provision/); this only starts them. */
#include "ctl/provision.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "ctl/out.h"
#include "lib/base/mem.h"

#define PYTHON "/usr/bin/python3"

/* Of a program that is not installed: the source tree's, to which its build folder has a link
 * (provision/meson.build). To be freed. */
static char *directory(void)
{
    char exe[PATH_MAX];
    ssize_t n =
        access(PROVISION_DIR, F_OK) < 0 ? readlink("/proc/self/exe", exe, sizeof exe - 1) : -1;
    if (n < 0)
        return mem_strdup(PROVISION_DIR);
    exe[n] = '\0';
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(exe, '/');
        if (!slash || slash == exe)
            return mem_strdup(PROVISION_DIR);
        *slash = '\0';
    }
    return mem_printf("%s/provision/source", exe);
}

void provision_command(struct ctl *ctl, int argc, char **argv)
{
    /* -I: neither the caller's directory nor environment says what root runs. -B: no files
     * beside the program's. */
    char **words = mem_zero(((size_t)argc + 5) * sizeof *words);
    size_t n = 0;
    words[n++] = PYTHON;
    words[n++] = "-IB";
    words[n++] = directory();
    if (out_is_json())
        words[n++] = "--json";
    memcpy(words + n, argv, (size_t)argc * sizeof *words);
    execv(PYTHON, words);
    ctl_usage("%s cannot be started (%s): %s needs it", PYTHON, strerror(errno), argv[0]);
}
