/* verbs - what the words of a request to the admin's socket ask for, and its rows' meaning. */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_ADMIN_VERBS_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_ADMIN_VERBS_H

#include <stdbool.h>
#include <stddef.h>

#include "dovecot-plugin/replicator/replicator.h"

/* Of a request's field, in place: \001t is a tab, and the like. */
void verb_unescape(char *field);

/* One that a worker answers. */
bool verb_is_known(const char *verb);
bool verb_is_join_status(char *const *field, size_t nfields);
/* Of one user alone: all of them is said by nobody who means it. */
bool verb_is_forget_wrong(char *const *field, size_t nfields);
/* When it succeeded, the user's state is exchanged with all peers. */
bool verb_exchanges(const char *verb);

/* Of verify: the row says that the state differs. A script looks at the exit status. */
bool verb_differs(const char *verb, struct text row);
/* Of status for all users, one line each: the state's. A row may begin with a mark. */
bool verb_leaves_out(const char *verb, struct text row);

#endif
