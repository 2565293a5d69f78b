/* prefetch - tells the store which rows come next. */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_STATE_PREFETCH_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_STATE_PREFETCH_H

#include "dovecot-plugin/orset/base/handle.h"

/* as orset_prefetch() */
void orset_prefetch_messages(struct orset *, const struct place *, size_t n);

#endif
