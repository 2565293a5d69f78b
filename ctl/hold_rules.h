/* hold_rules - the rules of `dovelane hold --add`: mail that comes in and fits one is held from
 * the start. The milters obey them (lib/ingress/hold_rules.h). */
#ifndef DOVELANE_CTL_HOLD_RULES_H
#define DOVELANE_CTL_HOLD_RULES_H

#include "ctl/ctl.h"
#include "lib/mail/match.h"

void hold_rules_list(struct ctl *);
void hold_rules_add(struct ctl *, const struct match *);
void hold_rules_remove(struct ctl *, const char *number);

/* Prints which rules would hold a mail of which the addresses and the next hop are known, and
 * which may: those that look at more. */
void hold_rules_explain(struct ctl *, const struct match_facts *);

#endif
