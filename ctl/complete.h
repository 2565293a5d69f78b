/* complete - what may stand next on a command line: the shells' completions ask `dovelane complete`
 * (packaging/completion). */
#ifndef DOVELANE_CTL_COMPLETE_H
#define DOVELANE_CTL_COMPLETE_H

#include "ctl/ctl.h"

/* The words behind `dovelane`, of which the last is begun ("": nothing of it is there). Prints the
 * words that it may become, a line each, some with a tab and a text behind it; or ":files",
 * ":directories", ":users". Asks no node; an unreadable configuration gives no names. */
int complete(struct ctl *, int nwords, char **word);

#endif
