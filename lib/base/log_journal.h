/* log_journal - sends lines to systemd's journal by its native protocol
 * (https://systemd.io/JOURNAL_NATIVE_PROTOCOL/): one datagram a line, one field a line in it. */
#ifndef DOVELANE_LIB_BASE_LOG_JOURNAL_H
#define DOVELANE_LIB_BASE_LOG_JOURNAL_H

#include <stdbool.h>

#include "lib/base/log.h"

/* path: of the journal's socket; NULL: the usual one. Returns -1 with errno when nobody listens
 * there. */
int log_journal_open(const char *path);

/* MESSAGE (before and text), PRIORITY, SYSLOG_IDENTIFIER, SYSLOG_FACILITY (mail), DOVELANE_NODE
 * (unless it is NULL), and each field as DOVELANE_NAME. The text is cleaned (log.h). False: the journal did not take it. Waits while
 * the journal is busy, as syslog(3) does. Thread safe. */
bool log_journal_send(int priority, const char *identifier, const char *node, const char *before,
                      const char *text, const struct log_marks *);

#endif
