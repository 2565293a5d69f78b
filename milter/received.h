/* received - the Received line of Postfix. */
#ifndef DOVELANE_MILTER_RECEIVED_H
#define DOVELANE_MILTER_RECEIVED_H

#include "milter/session.h"

/* The line that Postfix hides from milters (it shows them all but its own), as
 * Postfix writes it. */
void received_line(const struct milter_session *, const struct mail *, struct buf *out);
/* True when Postfix's line would have what no milter gets: how TLS was agreed on
 * (smtpd_tls_received_header). detail names the parameter. */
bool received_is_postfixs(const struct envelope *, char *detail, size_t size);

#endif
