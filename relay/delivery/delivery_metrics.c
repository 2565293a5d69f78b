/* delivery_metrics - counts results, and measures the phases of deliveries. */
#include "relay/delivery/delivery_metrics.h"

#include "lib/base/mem.h"
#include "lib/base/metrics.h"
#include "relay/tables/destinations.h"

static const char *const phase_word[DELIVERY_PHASES] = {"lane", "wait", "connect", "transfer"};
static const char *const result_word[DELIVERY_RESULTS] = {"sent", "bounced", "deferred", "unknown"};

struct delivery_metrics {
    struct metric_series *phase[DELIVERY_PHASES], *result[DELIVERY_RESULTS], *lane;
};

static struct delivery_metrics *begin(struct destination *d)
{
    d->metrics = mem_alloc(sizeof *d->metrics);
    for (int i = 0; i < DELIVERY_PHASES; i++)
        d->metrics->phase[i] = metric_series(METRIC_delivery_seconds, d->name, phase_word[i]);
    for (int i = 0; i < DELIVERY_RESULTS; i++)
        d->metrics->result[i] = metric_series(METRIC_deliveries, d->name, result_word[i]);
    d->metrics->lane = metric_series(METRIC_lane_seconds, d->name, NULL);
    return d->metrics;
}

/* NULL: the lane is not ours any more, and nobody knows its next hop. */
static inline struct delivery_metrics *metrics_of(const struct entry *e)
{
    struct destination *d = e->lane->destination;
    return !d ? NULL : d->metrics ? d->metrics : begin(d);
}

static bool is_first(const struct entry *e)
{
    for (size_t i = 0; i < e->envelope.nrecipients; i++)
        if (e->envelope.recipient[i].attempts)
            return false;
    return true;
}

void delivery_measure(const struct entry *e, const struct smtp_mail *m,
                      const double phase[DELIVERY_PHASES])
{
    struct delivery_metrics *of = metrics_of(e);
    if (!of || !m->begun || m->rcpt[0].verdict == SMTP_UNTRIED)
        return;
    if (is_first(e))
        metric_observe(of->phase[DELIVERY_LANE], phase[DELIVERY_LANE]);
    metric_observe(of->phase[DELIVERY_WAIT], phase[DELIVERY_WAIT]);
    if (phase[DELIVERY_CONNECT] > 0.)
        metric_observe(of->phase[DELIVERY_CONNECT], phase[DELIVERY_CONNECT]);
    metric_observe(of->phase[DELIVERY_TRANSFER], phase[DELIVERY_TRANSFER]);
}

void delivery_count(const struct entry *e, const struct smtp_rcpt *r)
{
    struct delivery_metrics *of = metrics_of(e);
    if (!of)
        return;
    switch (r->verdict) {
    case SMTP_SENT: metric_series_add(of->result[0], 1); return;
    case SMTP_FAILED: metric_series_add(of->result[1], 1); return;
    case SMTP_UNKNOWN: metric_series_add(of->result[3], 1); return;
    default:
        metric_series_add(of->result[2], 1);
        metric_series_add(metric_series(METRIC_deferrals, e->lane->destination->name, r->dsn), 1);
    }
}

void delivery_measure_end(const struct entry *e)
{
    struct delivery_metrics *of = metrics_of(e);
    if (of)
        metric_observe(of->lane, ev_now(e->relay->loop) - (double)e->envelope.arrived / 1e6);
}
