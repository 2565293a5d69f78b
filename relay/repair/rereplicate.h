/* rereplicate - gives mail of an owner that is lost for good another owner, so that there are
 * `copies` of it again. Rules: docs/takeover/copying.md, "Copying what a lost node held".
 * tests/model/copying.h walks through it.
 *
 * The relay that serves a lane does it, block by block:
 *
 *   CLOCK   what time is it at the own server?
 *   STORE   the block goes to every other owner of the new lane, under the same ids. Only what is stored by that counts: what was there already may be dropped
 *           there at any time, since the own lane of that name lacks it
 *   MOVE    at home from the old lane into the new one, what all have stored; not later than half a settle after CLOCK, by the own server's clock. Until
 *           settle is over nobody compares the copies, and afterwards this node has them, too
 *
 * A lane of an ordered destination is one block, whatever it holds. Nothing is taken from it from
 * the moment in which it is listed. Its first mails must not be in one lane, and those behind them
 * in another. When not all can be moved, nothing is.
 *
 *   ACK     what was moved is acknowledged under the old name at that lane's other owners, or owed to them: the server of a lost one may live on, and would give it back
 *
 * What is not moved, because it was leased, in flight or came too late, comes up again. The new
 * owners drop it at their next comparison. The lost node, should it ever come back, finds its
 * copies missing here, and drops them. */
#ifndef DOVELANE_RELAY_REPAIR_REREPLICATE_H
#define DOVELANE_RELAY_REPAIR_REREPLICATE_H

#include "relay/relay.h"

struct rereplicate *rereplicate_open(struct relay *);
void rereplicate_close(struct rereplicate *); /* before the connections that it uses end */
void rereplicate_free(struct rereplicate *);  /* and after */

/* Begins what is due. Called with every beat. */
void rereplicate_tick(struct relay *, double now);

#endif
