/* envelope - all that is known of a mail beside its bytes; the meta part of an entry.
 *
 * The codec is a version byte, then fields in a fixed order: integers as LEB128, texts as a
 * length and bytes. Decoding checks every length against what is there and against
 * ENVELOPE_*_MAX and refuses what is left over. A field's NULL and "" are the same. Field order
 * and limits: docs/envelope.md. */
#ifndef DOVELANE_LIB_MAIL_ENVELOPE_H
#define DOVELANE_LIB_MAIL_ENVELOPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/mem.h"

#define ENVELOPE_VERSION 1
/* the same, with the marks behind the last recipient; an older program leaves such a mail in its
 * lane */
#define ENVELOPE_VERSION_MARKED 2
/* the same, with the marks (0, maybe) behind the last recipient, and a site behind a recipient's
 * state RETAINED */
#define ENVELOPE_VERSION_RETAINED 3
#define ENVELOPE_TEXT_MAX 4096
#define ENVELOPE_RECIPIENTS_MAX 10000
#define ENVELOPE_SIZE_MAX (1024 * 1024)

/* What an admin wants done with the mail, before anything else. On every owner's copy, so that
 * it holds after a takeover, too. */
enum envelope_mark {
    ENVELOPE_HELD = 1,    /* not delivered until it is released */
    ENVELOPE_REQUEUE = 2, /* to Postfix's own queue, through reinject_port */
    ENVELOPE_DELETED = 4, /* removed unseen, as soon as every owner can be told */
    /* not an admin's: it was the first of an ordered lane for head_hold, and those behind it
     * need not wait for it any more */
    ENVELOPE_ASIDE = 8,
};
#define ENVELOPE_ADMIN (ENVELOPE_HELD | ENVELOPE_REQUEUE | ENVELOPE_DELETED)
#define ENVELOPE_MARKS (ENVELOPE_ADMIN | ENVELOPE_ASIDE)

enum recipient_state {
    RECIPIENT_WAITING, /* to be delivered (again) */
    RECIPIENT_SENT,    /* the next hop said 250 for it */
    RECIPIENT_FAILED,  /* permanent failure, not yet bounced */
    RECIPIENT_BOUNCED, /* Postfix has it on its bounce port, or no bounce is due */
    /* the next hop said 250 for it, and the owners keep it until enough sites have it on disk
     * (docs/two-disks.md) */
    RECIPIENT_RETAINED
};

struct recipient {
    char *address; /* as RCPT TO gave it, without <> */
    char *args;    /* its ESMTP arguments as given, "NOTIFY=FAILURE ORCPT=rfc822;a@b" */
    enum recipient_state state;
    uint32_t site;     /* RETAINED: the number of the replica that took it */
    uint32_t attempts; /* for the last of which code and text stand */
    /* SMTP reply code, 0: none (a connection failed). 2xx while WAITING: see
     * recipient_was_delivered */
    uint32_t code;
    char *text;           /* reply or reason, shortened */
    int64_t last_attempt; /* microseconds since 1970, 0: none */
};

struct envelope {
    int64_t arrived;   /* microseconds since 1970, when the milter had the whole mail */
    char *queue_id;    /* Postfix's, as in its 250 */
    char *host;        /* the Postfix that took it */
    char *sender;      /* without <>; "" is the null sender */
    char *sender_args; /* "SIZE=1000 BODY=8BITMIME RET=HDRS ENVID=abc+2B SMTPUTF8", as given */
    char *client_name; /* "unknown" when Postfix knows none */
    char *client_addr; /* "192.0.2.1", "2001:db8::1", empty for none */
    char *client_port;
    char *helo;
    char *protocol;     /* SMTP, ESMTP, ESMTPS, ESMTPA, ESMTPSA */
    char *login;        /* {auth_authen} */
    char *login_method; /* {auth_type} */
    char *login_sender; /* {auth_author} */
    char *tls_version, *tls_cipher, *tls_bits, *tls_subject, *tls_issuer;
    char *message_id; /* as in the header, with <>; for the log */
    uint64_t size;    /* bytes of the body part of the entry */
    size_t nrecipients;
    struct recipient *recipient;
    uint32_t marks; /* of enum envelope_mark */
};

/* NULL when it can be encoded without loss and its addresses and arguments can stand in SMTP
 * commands; otherwise what is wrong (a constant text). The milter leaves such a mail to Postfix;
 * the relay leaves such an entry in its lane. Addresses and arguments are bounded by
 * ENVELOPE_TEXT_MAX and have no control characters, recipients are not empty. */
const char *envelope_unfit(const struct envelope *);

/* Appends the encoding. Texts that envelope_unfit does not look at (client, TLS facts, reasons)
 * are cut at ENVELOPE_TEXT_MAX. */
void envelope_encode(const struct envelope *, struct buf *out);

/* Returns NULL, or what is wrong (a constant text); *out is then empty. The texts are malloc'd,
 * empty ones but the sender are NULL; free with envelope_free. */
const char *envelope_decode(const void *data, size_t len, struct envelope *out);
void envelope_free(struct envelope *);

/* Whether it is delivered to all who can be delivered to, and kept for at least one of them. Then
 * nobody waits or is to be bounced, and one recipient is RETAINED. */
bool envelope_is_retained(const struct envelope *);

/* It was delivered, and its site has lost it since: it waits to be delivered again. Its code stays
 * that of the 250, whatever later attempts say. */
bool recipient_was_delivered(const struct recipient *);

/* The value of an ESMTP argument ("NOTIFY") in "A=b NOTIFY=SUCCESS,FAILURE"; malloc'd, NULL when
 * it is not there, "" when it has no value. Keywords compare without case (RFC 5321 section
 * 2.4). */
char *envelope_arg(const char *args, const char *keyword);

#endif
