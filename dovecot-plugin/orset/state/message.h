/* message - one message dot: its row, and what it counts for in digests. */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_STATE_MESSAGE_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_STATE_MESSAGE_H

#include "dovecot-plugin/orset/base/handle.h"

/* 1, 0, error */
int orset_message_load(struct orset *, uint32_t folder, struct orset_dot, struct message *);
int orset_message_store(struct orset *, struct message *);
int orset_message_del(struct orset *, const struct message *);
int orset_message_parse(struct orset *, struct orset_reader *, struct message *); /* value only */
/* folder and dot */
bool orset_message_key_read(const struct orset *, struct orset_reader *key, struct message *);
/* A GUID's text becomes a file name in a Maildir, and a word in its dovecot-uidlist. */
bool orset_guid_text_valid(const void *text, size_t len);

struct orset_sum orset_message_sum(const struct orset *, const struct message *);
struct orset_sum orset_flagdot_sum(const struct orset *, const struct message *,
                                   const struct flagdot *);
/* both, in the folder's */
void orset_message_count(struct orset *, struct folder *, const struct message *, bool add);

/* The keeper's word on it. 1 when it changed */
int orset_agree(struct orset *, struct message *, const struct agreed *);

#endif
