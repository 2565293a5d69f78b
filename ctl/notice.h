/* notice - what an admin tells all milters by way of the nodes. It is a text under one key in every
 * node: "<serial> on|off <who>", and lines behind it. The highest serial counts
 * (lib/redis/control_keys.h). */
#ifndef DOVELANE_CTL_NOTICE_H
#define DOVELANE_CTL_NOTICE_H

#include "ctl/ctl.h"

/* The text that counts, malloc'd, and its serial; NULL and 0 when nobody has said anything. */
char *notice_read(struct ctl *, const char *key, unsigned long long *serial_r);

/* Says it to every node, above `before`; rest (lines, or "") goes behind the caller. Status 1
 * for each node that did not take it. Returns the serial. made_from: rest was made from what had
 * the serial `before`; 0 when somebody else said something since. */
unsigned long long notice_write(struct ctl *, const char *key, unsigned long long before, bool on,
                                const char *rest, bool made_from);

#endif
