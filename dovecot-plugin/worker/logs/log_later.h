/* log_later - what clients said of mails' flags behind the place to which the log was read. Who
 * reads a mail's flags gets the newest that the process knows. The index may have been read anew
 * since its mailbox was opened: as a Maildir's is where a mail's file has another name. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_LOGS_LOG_LATER_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_LOGS_LOG_LATER_H

#include "dovecot-plugin/compat.h"

struct mailbox;

/* What was read there, for one look at a mailbox: each record once, however many mails are asked
 * for. Zeroed: nothing yet. */
struct log_later {
    uint8_t *said;  /* by a mail's number in the mailbox's view, from 1 on; of the pool */
    uint32_t mails; /* in that view */
    uint32_t seq;   /* of the log: it is read up to there */
    uoff_t offset;
    bool unknown; /* the log could not be read */
};

/* System flags of which clients, or other programs, said something of that mail there; all, where
 * the log cannot be read. */
uint8_t log_later_flags(struct log_later *, pool_t, struct mailbox *, uint32_t uid);

#endif
