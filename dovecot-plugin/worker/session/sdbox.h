/* sdbox - mails of an sdbox that its index does not list. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_SDBOX_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_SDBOX_H

#include "dovecot-plugin/compat.h"

struct session;

bool sdbox_is(const struct mailbox *);
/* Before mails of the opened mailbox are judged, where its index is another one than at the last
 * scan. If the directory has mails that the index does not list, Dovecot rebuilds it from them.
 * 1: it did, and the mailbox is closed; 0: there are none; -1: nothing can be judged now, which was
 * noted. */
int sdbox_mend(struct session *, struct mailbox *);

#endif
