/* divert_rules - whose a mail is: ours, or Postfix's (docs/design.md, "Mail in" 9). Postfix keeps
 * what it would change, what is larger than max_entry, and what no destination takes. */
#ifndef DOVELANE_MILTER_DIVERT_RULES_H
#define DOVELANE_MILTER_DIVERT_RULES_H

#include <stddef.h>

#include "milter/mail.h"

/* NULL, or why this mail is Postfix's; detail gets the address or value it is about, or "". */
const char *rules_queue_reason(const struct mail *, char *detail, size_t size);
/* The last of them: what Postfix's maps say. Asked before (lookup.h); what is not known now
 * could not be found out in time. */
const char *rules_maps(const struct mail *, char *detail, size_t size);

#endif
