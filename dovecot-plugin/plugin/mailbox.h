/* mailbox - watches a mailbox: one hint per commit that changed it, intents around its deletion. */
#ifndef PLUGIN_MAILBOX_H
#define PLUGIN_MAILBOX_H

struct mailbox;

/* Hook. */
void plugin_mailbox_allocated(struct mailbox *box);

#endif
