/* smtp_reply - replies of an SMTP or LMTP server, from bytes as they come (RFC 5321 section 4.2).
 * Pure.
 *
 * Strict where leniency could put a reply to the wrong command. A line has three digits from 200 to
 * 599, then a blank, a hyphen or the end. All lines of a reply have the same code. Lenient where
 * nothing can go wrong: LF without CR, missing text, control characters (shown as '?'). Bounded: a
 * line, the lines of a reply, and the text that is kept. */
#ifndef DOVELANE_LIB_MAIL_SMTP_REPLY_H
#define DOVELANE_LIB_MAIL_SMTP_REPLY_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/mem.h"

#define SMTP_REPLY_LINE_MAX 2048 /* RFC 5321 4.5.3.1.5 demands 512 */
#define SMTP_REPLY_LINES_MAX 200
#define SMTP_REPLY_TEXT_MAX 8192 /* what is kept of it; the rest is read and dropped */
#define SMTP_DSN_MAX 12          /* "5.123.123" and NUL */

struct smtp_reply {
    int code;
    struct buf text; /* the lines without code, '\n' between them; data may be NULL */
    /* the parser's own */
    struct buf line; /* an incomplete line */
    unsigned nlines; /* complete ones of this reply */
    bool complete;
};

enum smtp_reply_status { SMTP_REPLY_MORE, SMTP_REPLY_DONE, SMTP_REPLY_BAD };

/* Reads at most one reply from data and tells in used_r how many bytes that took. DONE: code and
 * text hold until the next call, which begins a new reply. BAD: this is no SMTP server, or not
 * one we can follow; the connection is of no more use. {0} is a fresh parser. */
enum smtp_reply_status smtp_reply_feed(struct smtp_reply *, const char *data, size_t len,
                                       size_t *used_r);

/* true when bytes of an unfinished reply are buffered. */
bool smtp_reply_begun(const struct smtp_reply *);
void smtp_reply_free(struct smtp_reply *);

/* The text in one line, at most size - 1 bytes. */
void smtp_reply_flat(const struct smtp_reply *, char *out, size_t size);

/* The enhanced status code (RFC 3463) with which the text begins if its class fits the code, else
 * "<class>.0.0". */
void smtp_reply_dsn(const struct smtp_reply *, char dsn[SMTP_DSN_MAX]);

/* Length of the enhanced status code at the start of a text (it ends with a blank or the end), 0
 * when there is none. */
size_t smtp_dsn_length(const char *text);

#endif
