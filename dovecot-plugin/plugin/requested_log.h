/* requested_log - what clients asked to expunge, by a file of an index's log. Read whole, from its first record on: the library reads only logs that an index begins with.
 *
 * Format: mail-transaction-log.h of Dovecot's lib-index. */
#ifndef PLUGIN_REQUESTED_LOG_H
#define PLUGIN_REQUESTED_LOG_H

#include <stdint.h>

typedef void requested_fn(void *arg, uint32_t uid, const uint8_t guid[16]);

/* fn for each request of a client's, in the log's order; not for what a sync did, nor for another program's that acts for no client. indexid: of another index's
 * log nothing; 0: of any. A record that is not whole ends it. 0; -1 and errno: the file cannot be read. */
int requested_log_read(const char *path, uint32_t indexid, requested_fn *fn, void *arg);

#endif
