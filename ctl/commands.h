/* commands - the table of what `dovelane` can do: its help, and the completion of shells, come from
 * here. */
#ifndef DOVELANE_CTL_COMMANDS_H
#define DOVELANE_CTL_COMMANDS_H

#include <getopt.h>

#include "ctl/ctl.h"

struct command {
    const char *name, *arguments, *help; /* name NULL: help is a heading */
    command_fn *run;
    const struct option *options; /* NULL: words has all */
    const char *words;            /* what may follow, with a blank between two */
    const char *unconfigured; /* an option with which it needs no configuration, as with --help */
    bool own_help;            /* reads its options itself */
};

extern const struct command commands[];
extern const size_t commands_n;

/* NULL: there is none of that name. */
const struct command *commands_find(const char *name);

#endif
