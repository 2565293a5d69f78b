/* aliases - mails whose GUID in the mailbox is another one than their message's. */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_STATE_ALIASES_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_STATE_ALIASES_H

#include "dovecot-plugin/orset/base/handle.h"

struct alias {
    uint8_t guid[16];
    size_t text_len;
    char text[ORSET_GUID_TEXT_MAX];
};

int orset_alias_get(struct orset *, const uint8_t guid[16], struct alias *); /* 1, 0, error */
int orset_alias_put(struct orset *, const uint8_t guid[16], const struct message *to);
/* The mail of the message with this GUID has another one in its mailbox. */
int orset_parted_put(struct orset *, const uint8_t guid[16], const uint8_t there[16]);

#endif
