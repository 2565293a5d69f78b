/* mail - what becomes of one entry in flight.
 *
 *   begin ─▶ deliver (in batches) ─▶ [record] ─▶ bounce who failed ─┬▶ nobody open: ack
 *                                                                  └▶ somebody open: record ─▶ return
 *
 * record (META to every owner) comes before everything that may take long or be interrupted. So the
 * relay that goes on with the entry repeats only what is open. */
#ifndef DOVELANE_RELAY_DELIVERY_MAIL_H
#define DOVELANE_RELAY_DELIVERY_MAIL_H

#include "relay/tables/inflight.h"

/* The entry is fresh from TAKE, or was read (spill_to_postfix.h: then e->spill says why); meta is
 * its envelope. */
void mail_begin(struct entry *, const char *meta, size_t len);

/* Whether its schedule lets it be tried now. */
bool mail_due(struct relay *, struct destination *, const unsigned char id[ENTRYID_LEN],
              const struct envelope *);

/* The entry goes back as soon as possible: at once when no connection has begun with it, else
 * when what goes on is over. Nothing more is begun with it. */
void mail_leave(struct entry *);

#endif
