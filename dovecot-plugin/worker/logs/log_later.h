/* log_later - what clients said of a mail's flags behind the place to which the log was read. Who
 * reads a mail's flags gets the newest that the process knows. The index may have been read anew
 * since its mailbox was opened: as a Maildir's is where a mail's file has another name. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_LOGS_LOG_LATER_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_LOGS_LOG_LATER_H

#include <stdint.h>

struct mailbox;

/* System flags of which clients, or other programs, said something there; all, where the log cannot
 * be read. */
uint8_t log_later_flags(struct mailbox *, uint32_t uid);

#endif
