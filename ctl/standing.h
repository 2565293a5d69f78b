/* standing - the rules of `dovelane hold --add`: mail that comes in and fits one is held from the start. The milters obey them (lib/ingress/holds.h). */
#ifndef DOVELANE_CTL_STANDING_H
#define DOVELANE_CTL_STANDING_H

#include "ctl/ctl.h"
#include "lib/mail/match.h"

void standing_list(struct ctl *);
void standing_add(struct ctl *, const struct match *);
void standing_remove(struct ctl *, const char *number);

/* Prints which rules would hold a mail of which the addresses and the next hop are known, and which may: those that look at more. */
void standing_explain(struct ctl *, const struct match_facts *);

#endif
