/* bounce - permanent failures become Postfix's bounces. We compose no DSN ourselves: the mail is
 * submitted once more to bounce_port, with its original sender, DSN arguments and just the failed
 * recipients. bounce_port is an smtpd of this host whose cleanup turns it into a bounce:
 * content_filter = error:..., and for the reason
 *
 *   header_checks = regexp:{{/^Dovelane-Bounce: (.*)/ FILTER error:$$1}}
 *
 * The reason is the first header line, so recipients with different reasons go separately. After
 * the 250 Postfix has it on disk. */
#ifndef DOVELANE_RELAY_DELIVERY_BOUNCE_H
#define DOVELANE_RELAY_DELIVERY_BOUNCE_H

#include "relay/tables/inflight.h"

/* true when a failed recipient was not yet given to the bounce port this time. */
bool bounce_wanted(const struct entry *);

/* Submits the next group of failed recipients with one reason. e->mail.done is called, maybe
 * from within. Without bounce_port: counts as tried, and false. */
bool bounce_submit(struct entry *, void (*done)(struct smtp_mail *, const char *relay));

/* Takes the results of e->mail over into the envelope. */
void bounce_results(struct entry *, const char *relay);

/* The message with its own Dovelane-Bounce headers made harmless, malloc'd with the same length, or
 * NULL when it has none. Of several such headers the last one would count, and a sender could
 * choose it. Pure. */
char *bounce_body(const char *message, size_t len);

/* "Dovelane-Bounce: 5.x.y text" CRLF for a recipient's text: printable ASCII, bounded. Pure;
 * malloc'd. */
char *bounce_header(const char *text);

/* "", or what an admin does when a port of our own Postfix refuses a mail in these words: its
 * lines in master.cf lack something. */
const char *bounce_cure(const char *reason);

#endif
