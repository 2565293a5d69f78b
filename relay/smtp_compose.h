/* smtp_compose - the commands of one mail, from its envelope and what the server offered. Pure. */
#ifndef DOVELANE_RELAY_SMTP_COMPOSE_H
#define DOVELANE_RELAY_SMTP_COMPOSE_H

#include <stdbool.h>
#include <stddef.h>

#include "envelope.h"
#include "smtp_reply.h"

/* XFORWARD (Postfix XFORWARD_README) in two commands, as Postfix sends them. They append nothing when none of
 * their attributes was offered and then return false. What is not known is "[UNAVAILABLE]". */
bool smtp_compose_xforward_client(struct buf *, const struct envelope *, const struct smtp_features *);
bool smtp_compose_xforward_session(struct buf *, const struct envelope *, const struct smtp_features *);

/* MAIL FROM with SIZE (RFC 1870; size as sent without dots), BODY (RFC 6152), RET and ENVID (RFC 3461) and
 * SMTPUTF8 (RFC 6531), each only where offered. 8-bit mail to a server without 8BITMIME goes out as it is,
 * without BODY: the alternatives are a bounce, or a conversion that breaks its DKIM signatures. AUTH= is
 * never passed on: we do not log in. */
void smtp_compose_mail(struct buf *, const struct envelope *, const struct smtp_features *, size_t size);

/* RCPT TO with NOTIFY and ORCPT (RFC 3461) where DSN was offered. */
void smtp_compose_rcpt(struct buf *, const struct recipient *, const struct smtp_features *);

/* Whether its sender asked for SMTPUTF8. */
bool smtp_asks_utf8(const struct envelope *);

/* true when the mail cannot go without SMTPUTF8: its sender asked for it, and an address of this transaction
 * or its header is not ASCII. Asking alone does not make it so, as in Postfix: most such mails are plain. */
bool smtp_needs_utf8(const struct envelope *, const size_t *index, size_t n, const char *message, size_t len);

#endif
