/* delivery_metrics - what is measured of deliveries, for each next hop. */
#ifndef DOVELANE_RELAY_DELIVERY_DELIVERY_METRICS_H
#define DOVELANE_RELAY_DELIVERY_DELIVERY_METRICS_H

#include "relay/delivery/delivery_log.h"
#include "relay/tables/inflight.h"

/* Its destination has carried the mail, or tried to: how long each phase took. Before the results
 * are put into the envelope. */
void delivery_measure(const struct entry *, const struct smtp_mail *,
                      const double phase[DELIVERY_PHASES]);

/* What came of one recipient. */
void delivery_count(const struct entry *, const struct smtp_rcpt *);

/* It is delivered, and leaves its lane. */
void delivery_measure_end(const struct entry *);

#endif
