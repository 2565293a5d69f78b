/* poison - mails that end the relay that touches them, so that it comes back, takes them again, and
 * ends again.
 *
 * The server counts leases that failed: they ended with a connection or by time, which is what a
 * crash looks like from there. What is given back on purpose is not counted (owners_return says
 * KEEP), and what ended while we lived on is excused here. So an entry's count is how often a relay
 * of this node died with the entry in flight:
 *
 *   3   it is taken alone: the only suspect of this relay, and the only entry of its lane. Others that were in flight
 *       with a culprit by chance get no higher that way, and are delivered one after the other.
 *   6   it goes to Postfix's hold queue through reinject_port (greeted with POISON_HELO, which that port's smtpd_helo_restrictions answer with HOLD;
 *       without that line Postfix delivers it), where an admin finds it with postqueue -p and lets it go with postsuper -H.
 *   9   not even that works: it stays in its lane and is not touched again; an admin can read it with LANE.GET. */
#ifndef DOVELANE_RELAY_TABLES_POISON_H
#define DOVELANE_RELAY_TABLES_POISON_H

#include "lib/mail/entryid.h"
#include "lib/redis/control_keys.h"
#include "relay/relay.h"

enum poison_verdict { POISON_NO, POISON_ALONE, POISON_HOLD, POISON_LEAVE };

struct poison *poison_open(void);
void poison_close(struct poison *);

/* So many of the entry's failed leases ended while we lived. Remembered for the last thousand
 * entries. */
void poison_excuse(struct relay *, const unsigned char id[ENTRYID_LEN], long long n);

/* failed_leases: the server's count. */
enum poison_verdict poison_judge(const struct relay *, const unsigned char id[ENTRYID_LEN],
                                 long long failed_leases);

#endif
