/* origins - who makes numbers: the table of origins with its version vector, the order of dots,
 * and Lamport clocks. */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_BASE_ORIGINS_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_BASE_ORIGINS_H

#include "dovecot-plugin/orset/base/handle.h"

int orset_intern_origin(struct orset *, struct orset_origin);     /* index or error */
int orset_find_origin(const struct orset *, struct orset_origin); /* index or -1 */
bool orset_covered(const struct orset *, struct orset_dot);
bool orset_same_dot(struct orset_dot, struct orset_dot);
/* by (site, epoch, counter) */
int orset_dot_order(const struct orset *, struct orset_dot, struct orset_dot);
int orset_stamp_order(struct stamp, struct stamp);
int orset_see_clock(struct orset *, uint64_t clock);
struct stamp orset_next_stamp(struct orset *);

int orset_origins_read(struct orset *);
int orset_origins_write(struct orset *); /* those that changed */
void orset_origins_free(struct orset *);

#endif
