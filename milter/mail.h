/* mail - what there is of a mail, as the milter protocol gives it. */
#ifndef DOVELANE_MILTER_MAIL_H
#define DOVELANE_MILTER_MAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/mem.h"
#include "lib/ingress/mail_entries.h"
#include "lib/mail/envelope.h"

struct mail {
    /* its recipients stay empty: they are here, until they are known by destination */
    struct envelope envelope;
    struct mail_recipient *recipient;
    size_t nrecipients, recipients_size;
    unsigned foreign_ids; /* Dovelane-Id lines that are not in headers_body */
    /* header lines, empty line, body, all with CRLF; without our Received line */
    struct buf headers_body;
    bool in_body;   /* the end of the header was seen */
    bool too_large; /* more than max_entry: the bytes are no longer kept */
    bool no_memory; /* milter_memory is used up: the same as above */
    /* one of more than 998 bytes, which Postfix would fold on its way out */
    bool long_line;
    /* Postfix would write the sender or a recipient in another way than it was given */
    bool rewritten;
    size_t line;    /* bytes of the line that is under way */
    uint64_t size;  /* of all bytes, kept or not */
    size_t counted; /* of them, in milter.bytes */
};

void mail_reset(struct mail *);
void mail_add_header(struct mail *, const char *name, const char *value);
void mail_end_header(struct mail *);
void mail_add_body(struct mail *, const void *data, size_t n);
/* resolved: the address as Postfix writes it ({rcpt_addr}), NULL when it did not say. */
void mail_add_recipient(struct mail *, char *const *argv, const char *destination,
                        const char *resolved);
void mail_set_sender(struct mail *, char *const *argv, const char *resolved);
/* Makes the arguments of MAIL say BODY=8BITMIME when the message itself says that it is 8-bit
 * (mime.h). At the end of the message. */
void mail_note_encoding(struct mail *);
/* Counts bytes more against milter_memory; false when that is used up. Given back by mail_reset. */
bool mail_claim(struct mail *, size_t bytes);

#endif
