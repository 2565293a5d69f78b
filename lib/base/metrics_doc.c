/* metrics-doc - writes docs/metrics.md from metrics.def.
 *
 * metrics-doc markdown
 * metrics-doc names      a metric a line, tabs between: name, type, programs */
#include <stdio.h>
#include <string.h>

#include "lib/base/metrics_series.h"

static const char head[] =
    "<!-- made by: build/lib/metrics-doc markdown -->\n"
    "# Metrics\n\n"
    "For Prometheus, and whatever reads its forms. Each program answers over HTTP at the address "
    "and\n"
    "port of `metrics_listen` ([settings.md](settings.md)); the default is this host alone:\n\n"
    "| program | port |\n"
    "|---|---|\n"
    "| dovelane-milter | 7061 |\n"
    "| dovelane-proxy | 7062 |\n"
    "| dovelane-relay | 7063 |\n"
    "| dovelane-replicator | 7064 |\n\n"
    "| path | answer |\n"
    "|---|---|\n"
    "| `/metrics` | all metrics of the program: OpenMetrics 1.0 where the request's Accept names "
    "it, "
    "else the classic text form |\n"
    "| `/healthz` | 200 when the program's event loop turns, else 503 |\n"
    "| `/readyz` | 200 when it can do its work, else 503 and why in a line. A way in: a mail that "
    "comes now can be stored. The relay: its node is alive, and the server takes acks. The "
    "replicator: its node's server is there |\n\n"
    "GET and HEAD are answered, and each connection is closed after its answer.\n\n"
    "* `metrics_tls_cert_file` makes it HTTPS (TLS 1.2 or later), `metrics_user_file` asks for a "
    "name\n"
    "  and a password (Basic). A new password counts at once, a new certificate within ten "
    "seconds. Set\n"
    "  both where other hosts reach the port.\n"
    "* 16 connections at one time, 16 kB for a request and 10 seconds for each: what goes beyond "
    "that is\n"
    "  closed, or waits. The server has a thread of its own, so a scraper that hangs holds up "
    "other\n"
    "  scrapers and no mail.\n"
    "* A port that cannot be had is tried again twice a second, and a warning says so after 5 "
    "seconds.\n"
    "  Mail goes on.\n"
    "* `metrics_socket` answers a connection with the classic form, as before: whole numbers "
    "without\n"
    "  labels, of all programs.\n"
    "* A label has at most 100 values in one metric; what comes beyond them counts for the value\n"
    "  `other`. Values stay until the program ends; a node that was taken out (`dovelane nodes\n"
    "  --forget`) has no gauges any more. `seconds` have six decimals. Gauges are what they are "
    "at\n"
    "  the request.\n\n"
    "What is measured of a mail takes less than 1 % of the program's instructions for it\n"
    "(`tests/integration/relay/test_metrics_cost.py`).\n\n"
    "| label | value |\n"
    "|---|---|\n"
    "| `nexthop` | a destination as in `divert`: `lmtp:[10.0.0.5]:24` |\n"
    "| `node` | a node's name |\n"
    "| `peer` | another replica's name |\n"
    "| `reason` | a word of the log line: why a mail is Postfix's, a refusal, a status code |\n"
    "| `result`, `phase`, `state` | the words that the row names |\n";

static const struct {
    unsigned programs;
    const char *title;
} section[] = {
    {METRIC_ALL, "All programs"},       {METRIC_INGRESS, "dovelane-milter and dovelane-proxy"},
    {METRIC_MILTER, "dovelane-milter"}, {METRIC_PROXY, "dovelane-proxy"},
    {METRIC_RELAY, "dovelane-relay"},   {METRIC_REPLICATOR, "dovelane-replicator"}};

static const char *const kind[] = {"counter", "gauge", "histogram"};

static const char *behind(const struct metric_declaration *d)
{
    return d->kind == METRIC_COUNTER ? "_total" : "";
}

static void row(const struct metric_declaration *d)
{
    printf("| `dovelane_%s%s` | %s | %s%s%s | %s |\n", d->name, behind(d), kind[d->kind],
           d->label[0], *d->label[1] ? ", " : "", d->label[1], d->help);
}

static void markdown(void)
{
    fputs(head, stdout);
    for (size_t s = 0; s < sizeof section / sizeof *section; s++) {
        printf("\n## %s\n\n| metric | type | labels | what |\n|---|---|---|---|\n",
               section[s].title);
        for (int m = 0; m < METRICS; m++)
            if (metric_declarations[m].programs == section[s].programs)
                row(&metric_declarations[m]);
    }
}

static void names(void)
{
    for (int m = 0; m < METRICS; m++)
        printf("dovelane_%s%s\t%s\t%u\n", metric_declarations[m].name,
               behind(&metric_declarations[m]), kind[metric_declarations[m].kind],
               metric_declarations[m].programs);
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "markdown")) {
        markdown();
        return 0;
    }
    if (argc == 2 && !strcmp(argv[1], "names")) {
        names();
        return 0;
    }
    fprintf(stderr, "usage: metrics-doc markdown | names\n");
    return 2;
}
