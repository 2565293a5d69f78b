/* ingress_metrics - counts answers and stores of the milter and the proxy. */
#include "lib/ingress/ingress_metrics.h"

#include "lib/base/metrics.h"
#include "lib/daemon/metrics_http.h"
#include "lib/ingress/divert_switch.h"
#include "lib/postfix/postfix.h"

static const struct config *config;

void ingress_answered(enum answer_result result, double seconds)
{
    static const char *const word[ANSWERS] = {"lanes",    "split",      "queue", "failover",
                                              "tempfail", "over-limit", "refuse"};
    static struct metric_series *series[ANSWERS];
    if (!series[result])
        series[result] = metric_series(METRIC_answer_seconds, word[result], NULL);
    metric_observe(series[result], seconds);
}

void ingress_queued(const char *reason)
{
    metric_series_add(metric_series(METRIC_mails_queued_reasons, reason ? reason : "none", NULL),
                      1);
}

static const char *ready(void *store)
{
    return store_able(store) ? NULL : "a mail that comes now finds too few nodes that can store it";
}

/* Nothing else shows that a change of main.cf or master.cf ended diverting: Postfix takes the mail,
 * and it arrives. */
static void divert_gauges(void)
{
    char detail[128];
    bool any = postfix_asks() && !postfix_forbids(detail, sizeof detail);
    for (size_t i = 0; i < config->divert.n; i++) {
        const char *nexthop = config->divert.v[i];
        bool allowed = any && !postfix_forbids_destination(nexthop, detail, sizeof detail);
        metric_series_set(metric_series(METRIC_divert_allowed, nexthop, NULL), allowed);
    }
}

static void collect(void *store)
{
    store_gauges(store);
    metric_series_set(metric_series(METRIC_divert_on, NULL, NULL), divert_switch_on());
    divert_gauges();
    metrics_http_collected();
}

void ingress_metrics_open(struct ev_loop *loop, const char *program, const struct config *c,
                          struct store *store)
{
    config = c;
    metrics_http_start(
        &(struct metrics_http){
            .loop = loop, .program = program, .ready = ready, .collect = collect, .arg = store},
        c);
}
