/* mail_facts - what of a mail never changes, and by which two mails are one: its GUID, and the
 * SHA-256 of its canonical form (canonical.h). */
#ifndef DOVELANE_DOVECOT_PLUGIN_MAILBOX_MAIL_FACTS_H
#define DOVELANE_DOVECOT_PLUGIN_MAILBOX_MAIL_FACTS_H

#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/mailbox/canonical.h"

#include <buffer.h>
#include <openssl/evp.h>

struct orset_facts;

/* Reads the body once, and appends it to keep if keep is not NULL and the body has at most room
 * bytes. guid_text is on the data stack. -1: the mailbox's error says why. */
int mail_facts(struct mail *, struct orset_facts *, buffer_t *keep, size_t room);

/* All of it but its bytes' hash and size. */
int mail_facts_head(struct mail *, struct orset_facts *);
/* The mail's bytes with CRLF line ends; NULL: the mailbox's error says why. The caller's. */
struct istream *mail_crlf_stream(struct mail *);
/* Begins a hash. One at a time: it is the same context each time. Without memory it ends the
 * process. */
EVP_MD_CTX *mail_sha256_begin(void);
/* The hash and size of a stream, and its bytes where there is room for them (keep may be NULL).
 * Returns -1 when it cannot be read to its end. Unreferences it. */
int mail_hash_stream(struct canonical form, uint8_t sha256[32], uint64_t *size_r, buffer_t *keep,
                     size_t room, const char **error_r);

#endif
