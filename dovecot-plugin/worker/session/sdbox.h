/* sdbox - mails of an sdbox that its index does not list. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_SDBOX_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_SDBOX_H

#include "dovecot-plugin/compat.h"

struct session;

bool sdbox_is(const struct mailbox *);
/* For an opened mailbox whose index is another one than before, before its mails are judged. Where
 * the directory has mails that the index does not list, Dovecot rebuilds the index from them.
 * 1: it did; 0: there are none; -1: it could not, which was noted: nothing can be judged now. */
int sdbox_mend(struct session *, struct mailbox *);

#endif
