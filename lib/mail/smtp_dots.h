/* smtp_dots - a message as DATA wants it (RFC 5321 section 4.5.2). It has CRLF line ends, a second
 * dot before a line's leading dot, and a lone dot at the end. Pure.
 *
 * A bare LF becomes CRLF, as Postfix sends it. A "\n." that goes out as it is can be read as a line
 * by one server and not by another. That is how mail is smuggled. */
#ifndef DOVELANE_LIB_MAIL_SMTP_DOTS_H
#define DOVELANE_LIB_MAIL_SMTP_DOTS_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/mem.h"

/* true when the message can go out byte by byte as it stands (all but its end, see
 * smtp_dots_terminator). */
bool smtp_dots_clean(const char *message, size_t len);

/* What to send behind a clean message. */
const char *smtp_dots_terminator(const char *message, size_t len);

/* The same for BDAT, where the dot means nothing (RFC 3030 section 2): only line ends matter. */
bool smtp_dots_clean_chunk(const char *message, size_t len);
/* CRLF when the last line has none */
const char *smtp_dots_chunk_end(const char *message, size_t len);

/* For a message that must be changed, piece by piece. */
struct smtp_dots {
    bool chunk;   /* for BDAT: no dots */
    bool in_line; /* something of the present line went out */
    bool cr;      /* its last byte was CR */
};

void smtp_dots_begin(struct smtp_dots *);
void smtp_dots_add(struct smtp_dots *, const char *piece, size_t len, struct buf *out);
void smtp_dots_end(struct smtp_dots *, struct buf *out); /* the terminator */

#endif
