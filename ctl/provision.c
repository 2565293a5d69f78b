/* dovelane init, join, invite, cert, group - they run a few times in a host's life and edit other programs' text files, so they are Python
 * (provision/); this only starts them. */
#include "provision.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "mem.h"

#define PYTHON "/usr/bin/python3"

void provision_command(struct ctl *ctl, int argc, char **argv)
{
    /* -I: neither the caller's directory nor environment says what root runs. -B: no files beside the program's. */
    char **words = mem_zero(((size_t)argc + 4) * sizeof *words);
    words[0] = PYTHON;
    words[1] = "-IB";
    words[2] = PROVISION_DIR;
    memcpy(words + 3, argv, (size_t)argc * sizeof *words);
    execv(PYTHON, words);
    ctl_usage("%s cannot be started (%s): %s needs it", PYTHON, strerror(errno), argv[0]);
}
