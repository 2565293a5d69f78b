/* smtp_compose - the commands of one mail, from its envelope and what the server offered. Pure. */
#ifndef DOVELANE_RELAY_SMTP_SMTP_COMPOSE_H
#define DOVELANE_RELAY_SMTP_SMTP_COMPOSE_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/mail/envelope.h"
#include "relay/smtp/smtp_features.h"

/* XFORWARD (Postfix XFORWARD_README) in two commands, as Postfix sends them. They append nothing
 * when none of their attributes was offered and then return false. What is not known is
 * "[UNAVAILABLE]". */
bool smtp_compose_xforward_client(struct buf *, const struct envelope *,
                                  const struct smtp_features *);
bool smtp_compose_xforward_session(struct buf *, const struct envelope *,
                                   const struct smtp_features *);

/* XCLIENT (Postfix XCLIENT_README) in one command; false and nothing when none of its attributes
 * was offered. */
bool smtp_compose_xclient(struct buf *, const struct envelope *, const struct smtp_features *);

/* MAIL FROM with its arguments, each only where offered: SIZE (RFC 1870), BODY (RFC 6152), ENVID
 * and RET (RFC 3461), SMTPUTF8 (RFC 6531). size: as sent without dots. AUTH= is never passed on: we
 * do not log in. */
void smtp_compose_mail(struct buf *, const struct envelope *, const struct smtp_features *,
                       size_t size);

/* RCPT TO with ORCPT and NOTIFY (RFC 3461) where DSN was offered; without an ORCPT of the
 * client's, ORCPT is the address. Both this and MAIL FROM are, argument by argument, what
 * Postfix's smtp(8) sends for the same mail (docs/byte-identity.md). */
void smtp_compose_rcpt(struct buf *, const struct recipient *, const struct smtp_features *);

/* Whether its sender asked for SMTPUTF8. */
bool smtp_asks_utf8(const struct envelope *);

/* true when the mail cannot go without SMTPUTF8: its sender asked for it, and an address of this
 * transaction or its header is not ASCII. Asking alone does not make it so, as in Postfix: most
 * such mails are plain. */
bool smtp_needs_utf8(const struct envelope *, const size_t *index, size_t n, const char *message,
                     size_t len);

/* true when the mail cannot go without 8BITMIME: declared BODY=8BITMIME, and a byte of it is not
 * ASCII. One that was not declared is sent as it came, as Postfix does. */
bool smtp_needs_8bitmime(const struct envelope *, const char *message, size_t len);

#endif
