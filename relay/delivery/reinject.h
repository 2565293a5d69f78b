/* reinject - mails that go to Postfix's queue by its reinject_port (docs/design.md, "Mail in" 10),
 * with the results, and with what that port refused. relay/intake/spill_to_postfix.h chooses
 * them. */
#ifndef DOVELANE_RELAY_DELIVERY_REINJECT_H
#define DOVELANE_RELAY_DELIVERY_REINJECT_H

#include <stdbool.h>

#include "relay/relay.h"
#include "relay/tables/inflight.h"

struct reinject *reinject_open(void);
void reinject_close(struct reinject *);

/* reinject_port is set, and did not refuse a moment ago. */
bool reinject_able(const struct relay *);

/* It refused that mail for good, a moment ago. */
bool reinject_refused(const struct relay *, const void *id);

/* Takes the results of e->mail over into the envelope. */
void reinject_results(struct entry *, const char *relay);

#endif
