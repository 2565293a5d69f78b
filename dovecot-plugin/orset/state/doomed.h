/* doomed - mails that are to be removed from a mailbox. */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_STATE_DOOMED_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_STATE_DOOMED_H

#include "dovecot-plugin/orset/base/handle.h"

/* A message that the mailbox showed, in a folder that another mailbox shows by now, where it waits
 * to be placed. */
struct left_mail {
    uint32_t folder;
    struct orset_dot dot;
    /* of the folder, by which it was shown until then; clock 0: it was shown by no name of it */
    struct stamp name;
};

int orset_doom(struct orset *, struct folder *home, const uint8_t guid[16], uint32_t uid);
int orset_undoom(struct orset *, uint32_t home, uint32_t uid); /* ORSET_KNOWN: it was not */
/* A mail for which a REMOVE row waits. */
int orset_doom_left(struct orset *, uint32_t home, uint32_t uid, const struct left_mail *);
/* 1; 0: it is to go for another reason */
int orset_task_left(struct orset *, uint32_t home, uint32_t uid, struct left_mail *);
/* 1: a REMOVE row waits for this mail. A row that means another mail is dropped. */
int orset_task_doomed(struct orset *, uint32_t home, uint32_t uid, const uint8_t guid[16]);

#endif
