/* divert_rules - disk first: what goes to lanes only when nothing that Postfix would do with it is
 * lost by that (docs/design.md, "Mail in" 9). What is larger than max_entry stays Postfix's. */
#ifndef DOVELANE_PROXY_DIVERT_RULES_H
#define DOVELANE_PROXY_DIVERT_RULES_H

#include "proxy/engine.h"

#define RULES_DETAIL 600

/* At DATA: gives each recipient that may be diverted its destination. NULL; or why none may be
 * (then, or when it is one recipient's, detail tells about whom or what). Where no recipient is
 * left, the reason of the first. */
const char *rules_envelope(struct engine *, char detail[RULES_DETAIL]);

/* The same by Postfix's maps: takes destinations away again. Does not block when the maps'
 * answers are known (lookup.h). */
const char *rules_maps(struct engine *, char detail[RULES_DETAIL]);

/* At the end of the content: NULL, or why none may be. */
const char *rules_content(const struct engine *);

size_t rules_diverted(const struct engine *); /* recipients that have a destination */

#endif
