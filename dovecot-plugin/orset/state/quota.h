/* quota - what one peer may put into the tables that all share. */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_STATE_QUOTA_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_STATE_QUOTA_H

#include "dovecot-plugin/orset/base/handle.h"

/* 0, or ORSET_E_LIMIT when site of origin by would bring more rows than its share. */
int orset_quota_check(struct orset *, uint16_t by, enum quota, uint64_t more);
/* rows remembered on account of its site */
uint64_t orset_quota_ahead(const struct orset *, uint16_t by);
/* Find, or make on account of by. Index or error; the folder or NULL (os->broken, or the limit). */
int orset_bring_origin(struct orset *, struct orset_origin, uint16_t by);
int orset_bring_keyword(struct orset *, const char *name, size_t len, uint16_t by);
struct folder *orset_bring_folder(struct orset *, struct orset_dot id, uint16_t by);

#endif
