/* vector_read - a peer's vector, compared with what this state knows. */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_STATE_VECTOR_READ_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_STATE_VECTOR_READ_H

#include "dovecot-plugin/orset/base/vector.h"

/* covers: see struct peer. On an error *p is empty. */
int orset_vector_read(struct orset *, struct orset_reader *, uint64_t site, bool covers,
                      struct peer *p);

#endif
