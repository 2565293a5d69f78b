/* content - what comes after DATA: without its dots, and with what cleanup(8) would take out of its
 * header taken out. Pure.
 *
 * Only <CR><LF>.<CR><LF> ends it (RFC 5321 section 4.1.1.4). A bare LF is no line end here, and
 * Postfix never sends one: it is a reason to refuse. Nor is a bare CR. Postfix's own Received line
 * is the first one that comes (behind what access(5) PREPENDs), so that none is added. */
#ifndef DOVELANE_PROXY_CONTENT_H
#define DOVELANE_PROXY_CONTENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/mem.h"
#include "lib/postfix/postfix.h"

/* bytes of one header, its folded lines together: Postfix cuts longer ones */
#define CONTENT_HEADER_MOST 60000

struct content {
    const struct postfix_header *header; /* set by the caller */
    bool bare_lf;
    bool bare_cr;   /* Postfix makes a blank of it (cleanup_replace_stray_cr_lf) */
    bool long_line; /* one of more than 998 bytes, which Postfix would fold on its way out */
    /* something that Postfix would mend: a line that is no header, NUL, too long, no empty line */
    bool odd_header;
    unsigned hops;    /* Received lines */
    unsigned dropped; /* header lines that were taken out */
    char *message_id; /* with <>; NULL: none */
    uint64_t size;    /* of all that came out */
    /* the parser's own */
    enum { CONTENT_START, CONTENT_DOT, CONTENT_DOT_CR, CONTENT_IN } at;
    bool cr; /* the last byte was one */
    bool in_body;
    bool rest; /* of a header line whose beginning was judged already */
    bool dropping, any_header;
    size_t line_len, header_len;
    struct buf line; /* a header line that is under way */
};

/* Appends to out what is to be kept. Returns how many bytes were used: all, unless *end_r (the
 * last dot was among them). */
size_t content_feed(struct content *, const char *data, size_t len, struct buf *out, bool *end_r);
void content_free(struct content *); /* and is {0} again */

/* A part of a MIME message has a header line with blanks before its colon, which cleanup(8)
 * would take out. Parts are found by lines that begin with "--". */
bool content_odd_parts(const char *message, size_t len);

#endif
