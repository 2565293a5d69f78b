/* doomed - mails that are to be removed from a mailbox. */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_STATE_DOOMED_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_STATE_DOOMED_H

#include "dovecot-plugin/orset/base/handle.h"

int orset_doom(struct orset *, struct folder *home, const uint8_t guid[16], uint32_t uid);
int orset_undoom(struct orset *, uint32_t home, uint32_t uid); /* ORSET_KNOWN: it was not */
/* 1: a REMOVE row waits for this mail. A row that means another mail is dropped. */
int orset_task_doomed(struct orset *, uint32_t home, uint32_t uid, const uint8_t guid[16]);

#endif
