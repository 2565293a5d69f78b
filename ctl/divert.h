/* divert - the switch of all milters, for other commands. */
#ifndef DOVELANE_CTL_DIVERT_H
#define DOVELANE_CTL_DIVERT_H

#include "ctl/ctl.h"

/* Says it to every node, waits until the milters obey, and prints who does. False when one that
 * is connected does not. */
bool divert_say(struct ctl *, bool on);

/* What was said last, as far as the nodes that answer know. */
bool divert_is_on(struct ctl *);

/* Whose rules the milters and proxies hear as they hear the switch. */
enum divert_rules { DIVERT_HOLDS, DIVERT_SHAPE, DIVERT_RULES };
enum divert_obeyed { DIVERT_OBEYED, DIVERT_NOT_YET, DIVERT_NOBODY };

/* Waits until every milter that is connected has rules of at least that serial. NOT_YET: one has
 * not in time. NOBODY: none is connected. */
enum divert_obeyed divert_rules_obeyed(struct ctl *, enum divert_rules, unsigned long long serial);

#endif
