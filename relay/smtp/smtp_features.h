/* smtp_features - what a server offered in its answer to EHLO or LHLO (RFC 5321 section
 * 4.1.1.1). Pure. */
#ifndef DOVELANE_RELAY_SMTP_SMTP_FEATURES_H
#define DOVELANE_RELAY_SMTP_SMTP_FEATURES_H

#include <stdint.h>

#include "lib/mail/smtp_reply.h"

enum smtp_feature {
    SMTP_PIPELINING = 1 << 0, /* RFC 2920 */
    SMTP_CHUNKING = 1 << 1,   /* RFC 3030 */
    SMTP_8BITMIME = 1 << 2,   /* RFC 6152 */
    SMTP_UTF8 = 1 << 3,       /* RFC 6531 */
    SMTP_SIZE = 1 << 4,       /* RFC 1870 */
    SMTP_DSN = 1 << 5,        /* RFC 3461 */
    SMTP_STARTTLS = 1 << 6,   /* RFC 3207 */
    SMTP_ENHANCED = 1 << 7,   /* RFC 2034 */
    /* Attributes of XFORWARD and XCLIENT (Postfix XFORWARD_README, XCLIENT_README) */
    SMTP_XFORWARD_NAME = 1 << 8,
    SMTP_XFORWARD_ADDR = 1 << 9,
    SMTP_XFORWARD_PORT = 1 << 10,
    SMTP_XFORWARD_PROTO = 1 << 11,
    SMTP_XFORWARD_HELO = 1 << 12,
    SMTP_XFORWARD_IDENT = 1 << 13,
    SMTP_XCLIENT_NAME = 1 << 16,
    SMTP_XCLIENT_ADDR = 1 << 17,
    SMTP_XCLIENT_PORT = 1 << 18,
    SMTP_XCLIENT_PROTO = 1 << 19,
    SMTP_XCLIENT_HELO = 1 << 20,
    SMTP_XCLIENT_LOGIN = 1 << 21
};

#define SMTP_XFORWARD_FIRST (SMTP_XFORWARD_NAME | SMTP_XFORWARD_ADDR | SMTP_XFORWARD_PORT)
#define SMTP_XFORWARD_SECOND (SMTP_XFORWARD_PROTO | SMTP_XFORWARD_HELO | SMTP_XFORWARD_IDENT)
#define SMTP_XFORWARD (SMTP_XFORWARD_FIRST | SMTP_XFORWARD_SECOND)
#define SMTP_XCLIENT (0x3fu << 16)

struct smtp_features {
    unsigned set;        /* of enum smtp_feature */
    uint64_t size_limit; /* 0: none told */
};

/* Of a 250 to EHLO or LHLO. What is not known is passed over; of a keyword that is there twice
 * both count. */
void smtp_features_parse(const struct smtp_reply *, struct smtp_features *out);

/* All features that an EHLO keyword can bring, in any case ("XFORWARD": all its attributes); 0:
 * not one that is used here. */
unsigned smtp_features_named(const char *keyword);

#endif
