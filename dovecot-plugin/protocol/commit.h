/* commit - what a mail process of Dovecot asks before it replies to a save (dovelane_commit = peers):
 * whether another site has these mails. Pure: no I/O.
 *
 *     1 TAB user TAB namespace TAB guid[ SP guid]... LF      the question; one at a time
 *     + LF                                                   another site has all of them on its disk
 *     - text LF                                              there is nothing to wait for, and why
 *
 * Written by line_commit(). Whose name or namespace has to be escaped there is not replicated. */
#ifndef DOVELANE_DOVECOT_PLUGIN_PROTOCOL_COMMIT_H
#define DOVELANE_DOVECOT_PLUGIN_PROTOCOL_COMMIT_H

#include <stdbool.h>
#include <stddef.h>

#include "dovecot-plugin/protocol/line.h"

struct commit_question {
    char user[256];
    char namespace[256];
    size_t n; /* at least one */
    char guid[LINE_COMMIT_GUIDS][LINE_GUID_HEX];
};

/* line: without its LF. false: it is not a question. */
bool commit_read(const char *line, size_t n, struct commit_question *);

#endif
