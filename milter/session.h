/* session - what the milter knows of one SMTP session and of the mail that is under way in it.
 *
 *   callbacks.c ── facts and bytes ──▶ mail.c ── at end of message ──▶ rules.c: Postfix's queue?
 *                                                                       divert.c: lanes, and what Postfix is answered
 *
 * One thread works on a session at a time (libmilter's promise); nothing here is shared between sessions. */
#ifndef DOVELANE_MILTER_SESSION_H
#define DOVELANE_MILTER_SESSION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config.h"
#include "envelope.h"
#include "mem.h"
#include "store.h"

struct mail_recipient {
    char *given;       /* "<a@example.net>" as Postfix gave it: what smfi_delrcpt wants */
    char *destination; /* "lmtp:[10.0.0.5]:24" */
    bool again;        /* the same address was given before: stored once, as Postfix would deliver it, but deleted by each spelling */
    struct recipient r;
};

struct mail {
    struct envelope envelope; /* its recipients stay empty: they are here, until they are known by destination */
    struct mail_recipient *recipient;
    size_t nrecipients, recipients_size;
    struct buf headers_body;  /* header lines, empty line, body, all with CRLF; without our Received line */
    bool in_body;             /* the end of the header was seen */
    bool too_large;           /* more than max_entry: the bytes are no longer kept */
    bool no_memory;           /* milter_memory is used up: likewise */
    bool long_line;           /* one of more than 998 bytes, which Postfix would fold on its way out */
    bool rewritten;           /* Postfix would write the sender or a recipient in another way than it was given */
    size_t line;              /* bytes of the line that is under way */
    uint64_t size;            /* of all bytes, kept or not */
    size_t counted;           /* of them, in milter.bytes */
};

struct session {
    char *client_name, *client_addr, *client_port, *helo, *host;
    char *tls_version, *tls_cipher, *tls_bits, *tls_subject, *tls_issuer;
    struct mail mail;
};

/* What all sessions share. config and store are set before the first one. */
struct milter {
    const struct config *config;
    struct store *store;
    atomic_llong bytes;  /* of mail that is held at this moment, with the copies that are under way */
    atomic_int deciding; /* sessions between the end of a message and its answer */
};
extern struct milter milter;

/* mail.c */
void mail_reset(struct mail *);
void mail_add_header(struct mail *, const char *name, const char *value);
void mail_end_header(struct mail *);
void mail_add_body(struct mail *, const void *data, size_t n);
/* resolved: the address as Postfix writes it ({rcpt_addr}), NULL when it did not say. */
void mail_add_recipient(struct mail *, char *const *argv, const char *destination, const char *resolved);
void mail_set_sender(struct mail *, char *const *argv, const char *resolved);
/* Counts bytes more against milter_memory; false when that is used up. Given back by mail_reset. */
bool mail_claim(struct mail *, size_t bytes);

/* received.c: the line that Postfix hides from milters (it shows them all but its own), as Postfix writes it. */
void received_line(const struct session *, const struct mail *, struct buf *out);

/* rules.c: NULL, or why this mail is Postfix's (docs/design.md, "Mail in" 9); detail gets the address or value it is about, or "". */
const char *rules_queue_reason(const struct mail *, char *detail, size_t size);

/* divert.c */
enum verdict {
    VERDICT_DISCARD,  /* everything is in lanes (or delivered already) */
    VERDICT_ACCEPT,   /* Postfix's own queue takes it, or what is left of it */
    VERDICT_TEMPFAIL
};
/* Deletes a recipient from Postfix's copy; returns false when Postfix does not let us. */
typedef bool delete_recipient_fn(void *arg, const char *given);
enum verdict divert(struct session *, delete_recipient_fn *, void *arg);

#endif
