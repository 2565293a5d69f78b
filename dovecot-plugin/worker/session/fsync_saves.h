/* fsync_saves - the files of mails that are saved together reach the disk together. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_FSYNC_SAVES_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_FSYNC_SAVES_H

#include "dovecot-plugin/compat.h"

/* Between these two a mail is saved, and its file is not waited for ... */
void sync_gather(void);
void sync_let(void);
/* ... but here, for those of many mails at once: they are on the disk, or -1 and errno. Before
 * the mailbox's commit. */
int sync_gathered(void);

#endif
