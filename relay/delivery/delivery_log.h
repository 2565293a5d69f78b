/* delivery_log - the lines about mails, as Postfix writes them, so that what reads Postfix's log
 * reads ours.
 */
#ifndef DOVELANE_RELAY_DELIVERY_DELIVERY_LOG_H
#define DOVELANE_RELAY_DELIVERY_DELIVERY_LOG_H

#include "relay/tables/inflight.h"

/* With this a recipient's text begins (behind its status code) when nobody knows whether it was
 * delivered. */
#define DELIVERY_UNKNOWN "unknown-reply: "

/* Why a recipient was tried: first, retry, takeover, unknown-reply. Everything but "first"
 * explains a second delivery. To be asked before the result is put into the envelope. */
const char *delivery_why(const struct entry *, const struct recipient *);

/* Where a mail's time went: in its lane until it was taken; until a connection had it; for setting
 * that up; for the transfer. */
enum delivery_phase {
    DELIVERY_LANE,
    DELIVERY_WAIT,
    DELIVERY_CONNECT,
    DELIVERY_TRANSFER,
    DELIVERY_PHASES
};
enum { DELIVERY_RESULTS = 4 };

/* In seconds, until now. Of a mail that nobody tried: nothing that means anything. */
void delivery_phases(const struct entry *, const struct smtp_mail *, double phase[DELIVERY_PHASES]);

/* ID: to=<a@b>, relay=host[addr]:port, delay=1.2, delays=a/b/c/d, dsn=2.0.0, status=sent (...),
 * why=..., lane=..., id=... */
void delivery_log(const struct entry *, const double phase[DELIVERY_PHASES],
                  const struct recipient *, const struct smtp_rcpt *, const char *relay,
                  const char *why);

/* For a mail whose next hop is away: nobody was tried. */
void delivery_log_away(const struct entry *, const struct recipient *, const char *dsn,
                       const char *reason);

/* A recipient that Postfix's own queue has now. */
void delivery_log_spilled(const struct entry *, const struct recipient *, const char *relay,
                          const char *reply);

/* It loses its place in an ordered lane. */
void delivery_log_aside(const struct entry *, const char *why);

/* Every recipient has it, and its owners keep it: that site said 250. */
void delivery_log_retained(const struct entry *, const char *site);
/* It is removed although no site said that it is safe. */
void delivery_log_let_go(const struct entry *, const char *why);

void delivery_log_removed(const struct entry *);
void delivery_log_deleted(const struct entry *);
/* The bounce port has this recipient. */
void delivery_log_bounced(const struct entry *, const struct recipient *, const char *relay,
                          const char *reply);
/* A port of the Postfix here ("reinject_port", "the bounce port") did not take it. */
void delivery_log_stays(const struct entry *, const struct recipient *, const char *relay,
                        const char *port, const char *reply, const char *hint);

/* A delay as Postfix prints it: two significant digits, none below 10 ms. Points into out. */
char *delivery_seconds(double s, char out[16]);

#endif
