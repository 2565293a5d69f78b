/* connections - one next hop: the mails that wait for it, the connections to it, and whether it can
 * be reached.
 *
 * Connections are opened by demand, and never more at a time than there are good ones. So a next
 * hop that is away costs one attempt, not one per mail. How many may carry mails is the window. It
 * is destination_concurrency_first at first. It grows by one for as many successes as it is wide,
 * up to destination_concurrency. It shrinks by one for each connection that breaks under a mail.
 * This is the feedback of Postfix's qmgr(8) (SCHEDULER_README "concurrency"). Answers about a mail
 * or a recipient are no failures of the next hop. Rules may say other steps (relay/shape/gate.h).
 * When none can be opened, or as many as the window is wide broke with no success between, it is
 * *down*. Then what waits here goes back to its lanes untried, and nothing is taken for it. One
 * probe connection at a time, with growing waits, finds out when it is back. Greeted, it has to
 * prove itself with one mail; then everything goes on at once.
 *
 * An entry is one host, or one further address of it (relay/tables/destinations.h): mail.c goes on
 * from one to the next. */
#ifndef DOVELANE_RELAY_DELIVERY_CONNECTIONS_H
#define DOVELANE_RELAY_DELIVERY_CONNECTIONS_H

#include "relay/tables/destinations.h"

/* Looks at once whether one that is down is back, and all that its mail is tried at. Of a head. */
void destination_probe(struct destination *);

/* Has a connection opened to one that has none, so that it is known whether it can be reached. */
void destination_try(struct destination *);

/* mail->done is called when it is over, maybe from within. While the next hop is down that is at
 * once, with nobody tried. */
void destination_submit(struct destination *, struct smtp_mail *);

/* Takes a mail back that no connection has begun with. false: too late. done is not called. */
bool destination_withdraw(struct destination *, struct smtp_mail *);

/* More may leave for it than a moment ago. Of a head. */
void destination_go_on(struct destination *);

/* What waits for a connection goes back to its lanes, untried. Of a head. */
void destination_let_go(struct destination *);

/* The same where nothing may leave now (relay/shape/gate.h), for the end of the program. */
void destinations_let_go_shut(struct relay *);

/* Ends all transfers that go on and begins no more, for the end of the program. */
void destinations_drop(struct relay *, const char *why);

/* Closes every connection. */
void destinations_quit(struct relay *);

#endif
