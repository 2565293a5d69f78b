/* class_rules - of which class a mail is, by the sections `class` of dovelane.conf
 * (docs/classes.md). */
#ifndef DOVELANE_LIB_INGRESS_CLASS_RULES_H
#define DOVELANE_LIB_INGRESS_CLASS_RULES_H

#include "lib/config/config.h"
#include "lib/mail/match.h"

/* Once, before the first mail. The config must live as long as the program. */
void class_rules_open(const struct config *);

/* The name of the first class that fits, the config's; NULL: none does. From any thread. Without
 * classes it is one comparison. */
const char *class_rules_fit(const struct match_facts *);

#endif
