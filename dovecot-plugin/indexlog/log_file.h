/* log_file - a file of an index's log, read record by record from its first one on. The library
 * reads only logs that an index begins with, not those before a rebuild.
 *
 * Format: mail-transaction-log.h of Dovecot's lib-index. */
#ifndef DOVELANE_DOVECOT_PLUGIN_INDEXLOG_LOG_FILE_H
#define DOVELANE_DOVECOT_PLUGIN_INDEXLOG_LOG_FILE_H

#include "dovecot-plugin/compat.h"

#include <mail-transaction-log.h>

struct log_file {
    struct mail_transaction_log_header head;
    uint8_t *bytes; /* all of it */
    size_t size;
    /* of the last record */
    size_t next;
    /* as the library's views give it: the data's size, the type without
     * MAIL_TRANSACTION_EXPUNGE_PROT */
    struct mail_transaction_header hdr;
    const uint8_t *data;
    uint64_t before, modseq; /* of the mailbox before it and after it */
};

/* 0; -1 and errno: it cannot be read, is larger than any such log, or is not a log (EINVAL).
 * Copied, since Dovecot may cut the end off. Closing an index log ends this process's fcntl() locks
 * on it: not to be called while the library holds one. */
int log_file_open(struct log_file *, const char *path);
/* False: there is none any more, or it is not whole. */
bool log_file_next(struct log_file *);
void log_file_close(struct log_file *);

/* Whether the record is a client's request to expunge mails; not what a sync did, nor another
 * program's that acts for no client. */
bool log_file_requests(const struct log_file *);
/* That, or a change of flags or keywords. */
bool log_file_speaks(const struct log_file *);

#endif
