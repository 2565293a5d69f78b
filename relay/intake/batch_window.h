/* batch_window - when the relay's loop waits a moment before it looks for events, so that it
 * handles several mails' at once.
 *
 * A mail is some five events of the loop: READY, the answer to TAKE, the next hop's replies, the
 * answer to the ack. At some thousand mails a second each of them would wake the relay, and its
 * requests the node. Gathered for 1 ms they cost the relay, the node and the next hop half
 * (docs/lab/gateway.md). A mail then goes out some milliseconds later. So it is not done below
 * BATCH_RATE, nor while lanes hold more than is asked for. Then events come in bulk by themselves,
 * and what counts is when they are answered. Pure. */
#ifndef DOVELANE_RELAY_INTAKE_BATCH_WINDOW_H
#define DOVELANE_RELAY_INTAKE_BATCH_WINDOW_H

#include <stdbool.h>
#include <stddef.h>

#define BATCH_RATE 500.       /* mails a second */
#define BATCH_WINDOW .001     /* between two looks */
#define BATCH_RATE_SECONDS .1 /* seconds over which the rate is taken */

/* All zero at first. */
struct batch_window {
    double began; /* of the window */
    size_t mails, behind;
    bool on;
};

/* n mails were taken. behind: perhaps more wait in that lane. now: seconds, of a clock that does
 * not go back. Whether to gather from now on. */
bool batch_window_took(struct batch_window *, size_t n, bool behind, double now);

#endif
