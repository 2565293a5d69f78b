/* lasting - lines in the log of what lasts until an admin mends it, such as a folder that cannot be
 * read. Each is written when that begins, and again each hour.
 *
 * A look finds it again each time, and looks are as frequent as the user's changes. What was said
 * is known to the process, so that a user who is closed and opened again is not told of anew. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_LASTING_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_LASTING_H

#include "dovecot-plugin/compat.h"

struct session;

/* What is said of a mailbox that cannot be opened, in each step of a look. */
#define LASTING_CLOSED "closed"

/* what: a word for the kind of trouble; name: of the mailbox, or of what else has it. Several steps
 * of a look may find the same, and each has its own words for the reason: the first one's count. */
void lasting_note(struct session *, const char *what, const char *name, const char *fmt, ...)
    ATTR_FORMAT(4, 5);
/* It is over: the next time is logged anew. */
void lasting_over(struct session *, const char *what, const char *name);

#endif
