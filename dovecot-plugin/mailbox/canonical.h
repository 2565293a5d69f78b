/* canonical - a mail's bytes in the form that is hashed and sent. It is the same for what was saved
 * and for what a save made of it.
 *
 * Lines end in CRLF. Dovecot's save drops a CR before each LF and one at the end. So all CRs before
 * a CRLF, and all at the end, are not part of this form. Any other CR is. */
#ifndef DOVELANE_DOVECOT_PLUGIN_MAILBOX_CANONICAL_H
#define DOVELANE_DOVECOT_PLUGIN_MAILBOX_CANONICAL_H

#include <lib.h>

#include <istream.h>

struct canonical {
    struct istream *in; /* with CRLF line ends; the caller's */
    bool as_it_is;      /* no CR is dropped: releases before 0.2 hashed and sent all of them */
    size_t skip;        /* of in, before the next piece */
    uint64_t crs, give; /* read, with nothing known of what follows; read, and to be given */
    bool dropped;       /* CRs were: the bytes differ from those of in */
};

/* The next piece, at least a byte, valid until the next call. FALSE: the end; the stream's error
 * is where it always is. */
bool canonical_next(struct canonical *, const unsigned char **data_r, size_t *size_r);

#endif
