/* hold_rules - the rules of `dovelane hold --add`: mail that fits one is stored as held. (A HOLD
 * result of Postfix's own tables never reaches a diverted mail.) The rules are heard as the switch
 * is (divert_switch.h). Of two hosts that heard at different times, one may hold what the other
 * delivers. */
#ifndef DOVELANE_LIB_INGRESS_HOLD_RULES_H
#define DOVELANE_LIB_INGRESS_HOLD_RULES_H

#include <stdbool.h>

#include "lib/mail/match.h"

/* The rules from now on: lines as match_print writes them, an empty line between two rules. A
 * rule that cannot be read is logged and left out. */
void hold_rules_set(const char *text);

/* From any thread. */
bool hold_rules_fit(const struct match_facts *);

#endif
