/* divert - the switch of all milters, for other commands. */
#ifndef DOVELANE_CTL_DIVERT_H
#define DOVELANE_CTL_DIVERT_H

#include "ctl/ctl.h"

/* Says it to every node, waits until the milters obey, and prints who does. False when one that
 * is connected does not. */
bool divert_say(struct ctl *, bool on);

/* What was said last, as far as the nodes that answer know. */
bool divert_is_on(struct ctl *);

/* Waits until every milter that is connected has hold rules of at least that serial. False when
 * one has not in time, or none is connected. */
bool divert_rules_obeyed(struct ctl *, unsigned long long serial);

#endif
