/* line - what the plugin writes for others to read: hint lines, names of dirty marks, journal
 * lines, questions for mails. Pure C, no Dovecot.
 *
 * Fields are escaped as in Dovecot's tab-separated protocols: \001 is written "\0011", TAB "\001t",
 * LF "\001n", CR "\001r". So a line never holds a separator that is not one. Formats:
 * docs/replicator/recording.md. Formats: docs/replicator/recording.md. */
#ifndef DOVELANE_DOVECOT_PLUGIN_PROTOCOL_LINE_H
#define DOVELANE_DOVECOT_PLUGIN_PROTOCOL_LINE_H

#include <stddef.h>
#include <stdint.h>

/* A hint is one write() to a FIFO, so it must stay below PIPE_BUF to be whole. */
#define LINE_HINT_MAX 512
/* A journal line has the folder's whole name: 255 components at most 255 long do not occur, 4 kB
 * do. */
#define LINE_INTENT_MAX 8192
/* Longer names of dirty marks become LINE_MARK_ALL. */
#define LINE_MARK_MAX 250
#define LINE_MARK_ALL "+all"

/* "1 TAB user TAB guid TAB vname LF" into out. guid: 32 hex digits, or NULL for "-". A vname
 * that does not fit is left out: the hint then is for the mailbox with that GUID, or for all of
 * the user. Length without a terminating 0, or 0 when even the user does not fit. */
size_t line_hint(char out[LINE_HINT_MAX], const char *user, const char *guid, const char *vname);

/* A question for mails that were saved, and how many GUIDs it has at most. */
#define LINE_COMMIT_MAX 4096
#define LINE_COMMIT_GUIDS 63
#define LINE_GUID_HEX 33 /* bytes of one, with its terminating 0 */

/* "1 TAB user TAB namespace TAB guid[ SP guid]... LF" into out: whether another site has these n
 * mails. Length, or 0 when it does not fit. Read by protocol/commit.h. */
size_t line_commit(char out[LINE_COMMIT_MAX], const char *user, const char *namespace,
                   const char (*guid)[LINE_GUID_HEX], size_t n);

/* A question for the bytes of a mail of which only a stub is here. */
#define LINE_FETCH_MAX 1024
#define LINE_SHA256_HEX 65 /* bytes of one, with its terminating 0 */

/* "2 TAB user TAB guid TAB sha256 TAB size LF" into out. Length, or 0 when it does not fit. Read by
 * protocol/fetch.h. */
size_t line_fetch(char out[LINE_FETCH_MAX], const char *user, const char *guid, const char *sha256,
                  uint64_t size);

/* What a journal line says of a folder. */
enum line_intent {
    /* it is about to be deleted; with its name, or an empty one where only its owner knows that */
    LINE_INTENT_DELETE = 'D',
    LINE_INTENT_VOID = 'x',       /* it was not: one such intent is taken back */
    LINE_INTENT_UID_NEXT = 'N',   /* it was; in place of its name UIDNEXT, a space, UIDVALIDITY */
    LINE_INTENT_SUBSCRIBE = 'S',  /* its name is about to be subscribed; with it, and no GUID */
    LINE_INTENT_UNSUBSCRIBE = 'U' /* or unsubscribed */
};

/* "what TAB guid [TAB vname] LF" into out; vname only with capital letters. Length, or 0 when it
 * does not fit. */
size_t line_intent(char out[LINE_INTENT_MAX], enum line_intent what, const char *guid,
                   const char *vname);

/* The file name of a user's dirty mark, 0-terminated: bytes outside [A-Za-z0-9_-] as %XX; longer
 * than LINE_MARK_MAX: LINE_MARK_ALL, which no user's name can be. */
void line_mark(char out[LINE_MARK_MAX + 1], const char *user);

#endif
