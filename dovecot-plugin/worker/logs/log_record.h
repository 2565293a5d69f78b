/* log_record - what a record of an index's log says, read from its bytes. The log is a file of its
 * user's, and a record may end anywhere.
 *
 * Records of equal entries need no more than their count: LOG_RECORD_ENTRIES. Format:
 * mail-transaction-log.h of Dovecot's lib-index. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_LOGS_LOG_RECORD_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_LOGS_LOG_RECORD_H

#include "dovecot-plugin/compat.h"

#include <mail-transaction-log.h>

/* hdr as the library's views give it: the size is the data's. */
#define LOG_RECORD_ENTRIES(hdr, entry) ((hdr)->size / sizeof *(entry))

struct log_keyword {
    const char *name; /* not ended by a NUL */
    size_t name_len;
    bool set;
    const uint32_t *uids; /* pairs: from, to */
    size_t n;             /* of pairs */
};
/* False: its head is cut. */
bool log_record_keyword(const struct mail_transaction_header *hdr, const void *data,
                        struct log_keyword *);

struct log_attributes {
    const char *data;
    size_t size, at, end, value; /* of the next key; behind the last one; of the next key's time */
};
void log_record_attributes(const struct mail_transaction_header *hdr, const void *data,
                           struct log_attributes *);
/* The next key, '+' or '-' first, and when it was written; 0: it does not say. False: there is
 * none any more, or it is cut. */
bool log_record_attribute(struct log_attributes *, const char **key_r, uint32_t *written_r);

#endif
