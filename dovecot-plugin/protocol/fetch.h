/* fetch - what a mail process of Dovecot asks when it reads a mail of which only a stub is at this
 * site (role = on-demand). The bytes are to be got from another one. Pure: no I/O.
 *
 *     2 TAB user TAB guid TAB sha256 TAB size LF     the question; on the socket of commit.h, one a
 *                                                    connection
 *     + LF                                           they are in FETCH_DIRECTORY, by their SHA-256
 *     - text LF                                      they are not, and why
 *
 * sha256 and size are the stub's. Another site may claim what size it likes.
 *
 * Main asks the user's worker: FETCH_VERB GUID SHA256 SIZE [STATE]. Its rows are "owner UID", the
 * id that the user's files have, and then some of these:
 *
 *     here          as above
 *     state STATE   which sites were asked, and when: for the next question about this text, which
 *                   another process may get
 *     asked TEXT    other sites were asked; TEXT says which, for the log
 *     never TEXT    they cannot be got, and why */
#ifndef DOVELANE_DOVECOT_PLUGIN_PROTOCOL_FETCH_H
#define DOVELANE_DOVECOT_PLUGIN_PROTOCOL_FETCH_H

#include <stdbool.h>
#include <stddef.h>

#include "dovecot-plugin/protocol/line.h"

#define FETCH_VERB "fetch-body"
#define FETCH_DIRECTORY "fetched" /* in the directory of the user's state */

struct fetch_question {
    char user[256];
    char guid[LINE_GUID_HEX];
    char sha256[LINE_SHA256_HEX];
    char size[16]; /* decimal, at least 1 */
};

/* Whether a line is such a question, well formed or not. */
bool fetch_is_asked(const char *line, size_t n);
/* line: without its LF. false: it is malformed. */
bool fetch_read(const char *line, size_t n, struct fetch_question *);

#endif
