/* retry - when a mail is tried again. Pure: no clock is read here.
 *
 * Every owner of an entry must come to the same time by itself. Then a takeover neither begins the
 * schedule anew nor sends everything at once. So the wait depends on nothing but the envelope, the
 * entry's id, and the two settings. All times are microseconds. */
#ifndef DOVELANE_RELAY_DELIVERY_RETRY_H
#define DOVELANE_RELAY_DELIVERY_RETRY_H

#include <stdint.h>

#include "lib/mail/entryid.h"
#include "lib/mail/envelope.h"

struct retry_policy {
    int64_t first; /* longest wait after the first attempt */
    int64_t most;  /* longest wait at all */
};

/* The wait after attempt number `attempts` (from 1), made when the mail was `age` old. It doubles
 * with every attempt. It is never shorter than for a mail of that age that was tried on schedule.
 * So a mail that grew old without attempts does not begin at `first` again. (Its next hop was away,
 * or a dead owner's count was lost.) Up to a quarter less by the id, never more. */
int64_t retry_wait(const struct retry_policy *, const unsigned char id[ENTRYID_LEN], int64_t age,
                   uint32_t attempts);

/* When the entry is due, in microseconds since 1970; 0: now (no open recipient was tried yet). */
int64_t retry_due(const struct retry_policy *, const unsigned char id[ENTRYID_LEN],
                  const struct envelope *);

/* How long from now until then; 0 when due. Never more than the longest wait, whatever the
 * clocks of two hosts say. */
int64_t retry_left(const struct retry_policy *, const unsigned char id[ENTRYID_LEN],
                   const struct envelope *, int64_t now);

#endif
