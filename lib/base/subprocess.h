/* subprocess - another program, run to its end: what goes in, what comes out, and not longer
 * than it may take. */
#ifndef DOVELANE_LIB_BASE_SUBPROCESS_H
#define DOVELANE_LIB_BASE_SUBPROCESS_H

#include <stdbool.h>

#include "lib/base/mem.h"

struct subprocess_result {
    struct buf out, err; /* at most 16 MiB each; the rest is read and dropped */
    int status;          /* exit status; 128 + signal; -1: not started or over time */
    const char *failure; /* NULL, or why status is -1 */
    bool late;           /* it was over time */
    bool cut;            /* some of out or err was dropped */
};

/* argv[0] is looked for in PATH (plus the sbin directories). input may be NULL. Blocks for at
 * most timeout_ms, then kills it. */
struct subprocess_result subprocess_run(const char *const *argv, const char *input,
                                        size_t input_len, int timeout_ms);
void subprocess_free(struct subprocess_result *);

/* Whether there is such a program in PATH. */
bool subprocess_exists(const char *program);

#endif
