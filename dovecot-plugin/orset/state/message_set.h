/* message_set - message dots come into the state and leave it. */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_STATE_MESSAGE_SET_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_STATE_MESSAGE_SET_H

#include "dovecot-plugin/orset/base/handle.h"

/* uid: the UID its mailbox has it under already, 0: it is to be placed, unless another dot of the
 * message is. */
int orset_message_add(struct orset *, struct message *, uint32_t uid);
/* m under another number: its rows, and those that name it. The folder's sum is the caller's. */
int orset_message_redot(struct orset *, struct folder *, struct message *m, struct orset_dot);
/* The UID goes when it was the message's last dot. Uses m[0] as room. */
int orset_message_remove(struct orset *, struct folder *, struct orset_dot, bool local);

#endif
