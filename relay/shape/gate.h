/* gate - what may leave for a next hop now, as its rules say (docs/shape.md). connections.c asks
 * before it gives a mail to a connection or opens one; intake.c asks before it takes.
 *
 * One gate for each next hop that lanes name, its head, and all hosts that its mail is tried at.
 * Where no rule holds, each of these calls is one comparison. A rate and a number of connections
 * are the whole group's: bucket.h and slots.h have our part. */
#ifndef DOVELANE_RELAY_SHAPE_GATE_H
#define DOVELANE_RELAY_SHAPE_GATE_H

#include "relay/shape/shape_control.h"
#include "relay/smtp/smtp.h"

/* Nothing may be sent to the next hop now, whatever waits: an admin said so, or the next hop asked
 * for less. why_r: which of the two, for the log; may be NULL. */
bool gate_suspended(struct destination *, const char **why_r);

/* Of a head: for so long, at least, no admin has suspended it. */
bool gate_unsuspended_for(const struct destination *, int64_t milliseconds);

/* Whether a mail may be given to a connection now. False: `wake` is called when it may. */
bool gate_opens(struct destination *);
/* Whether a connection may be opened where there is none: with a low rate not long before a mail
 * may leave. */
bool gate_opens_soon(struct destination *);
/* A mail was given to a connection. */
void gate_passed(struct destination *, const struct smtp_mail *);

/* How many connections this host of the next hop may have now, at most `most`. */
size_t gate_connections(struct destination *, size_t most);
/* It has more than that: one that is idle is to be closed. */
bool gate_is_crowded(struct destination *);

/* Most mails over one connection. */
unsigned gate_connection_mails(struct destination *);

/* By how much the window grows with a success, and shrinks with a failure. */
double gate_grows_by(struct destination *, double window);
double gate_shrinks_by(struct destination *, double window);

/* How many mails of it may be in hand, at most `most`: with a rate, what leaves in two seconds. */
size_t gate_in_hand(struct destination *, size_t most);

/* What the next hop said to a mail, or instead of a greeting ("host ... said: 421 4.7.0 ..."). The
 * rules file knows what some replies ask for. */
void gate_heard(struct destination *, const char *dsn, const char *text);

/* For destinations_open(): nobody names that next hop any more. */
void gate_forget(struct destination *);

#endif
