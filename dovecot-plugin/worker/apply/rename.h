/* rename - a mailbox gets the name that the state wants, with whatever is in the way. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_APPLY_RENAME_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_APPLY_RENAME_H

#include "dovecot-plugin/compat.h"

struct box;
struct session;

/* Nobody but this program has moved the row's mailbox since it was looked at; asked under the
 * lists' lock, so that it stays so. Else all mailboxes are looked at again. */
bool nobody_moved(struct session *, const struct box *);
/* The mailbox gets that name, which no other known mailbox has. Its children go along; those that
 * are to be elsewhere are astray then. 1; 0: it cannot now, and a note says why; -1 */
int rename_box(struct session *, struct box *, const char *to);
/* The mailbox gets a name of this program's, at the top, where nothing is below it and it is below
 * nothing: its own turn comes. 1, 0, -1 */
int rename_aside(struct session *, struct box *);
/* Whether name lies below parent, in the parent's namespace. */
bool is_below(struct session *, const char *name, const char *parent);

#endif
