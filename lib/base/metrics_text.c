/* metrics_text - writes all metrics as text. The forms: the OpenMetrics specification 1.0, and
 * https://prometheus.io/docs/instrumenting/exposition_formats/. */
#include "lib/base/metrics_text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/metrics_series.h"

struct text {
    struct buf *out;
    bool openmetrics;
};

static void add_escaped(struct buf *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '\\' || *text == '"')
            buf_addc(out, '\\');
        buf_addc(out, *text);
    }
}

/* In the classic form a help's quotes are not escaped, and help texts have no backslash. */
static void add_head(const struct text *f, const struct metric_declaration *d)
{
    static const char *const type[] = {"counter", "gauge", "histogram"};
    const char *total = d->kind == METRIC_COUNTER && !f->openmetrics ? "_total" : "";
    buf_printf(f->out, "# HELP dovelane_%s%s ", d->name, total);
    if (f->openmetrics)
        add_escaped(f->out, d->help);
    else
        buf_adds(f->out, d->help);
    buf_printf(f->out, "\n# TYPE dovelane_%s%s %s\n", d->name, total, type[d->kind]);
    if (f->openmetrics && *d->unit)
        buf_printf(f->out, "# UNIT dovelane_%s %s\n", d->name, d->unit);
}

static void add_microseconds(struct buf *out, long long n)
{
    unsigned long long size = n < 0 ? -(unsigned long long)n : (unsigned long long)n;
    buf_printf(out, "%s%llu.%06llu", n < 0 ? "-" : "", size / 1000000, size % 1000000);
}

static void add_number(struct buf *out, const struct metric_declaration *d, long long n)
{
    buf_addc(out, ' ');
    if (n == METRIC_NEVER)
        buf_adds(out, "+Inf");
    else if (!strcmp(d->unit, "seconds"))
        add_microseconds(out, n);
    else
        buf_printf(out, "%lld", n);
    buf_addc(out, '\n');
}

/* dovelane_NAME and what is behind it, and the labels in braces, with one more (NULL: none). */
static void add_name(struct buf *out, const struct metric_declaration *d,
                     const struct metric_series *s, const char *behind, const char *le)
{
    char before = '{';
    buf_printf(out, "dovelane_%s%s", d->name, behind);
    for (int i = 0; s && i < METRIC_LABELS; i++) {
        if (!*d->label[i])
            continue;
        buf_printf(out, "%c%s=\"", before, d->label[i]);
        add_escaped(out, s->value[i]);
        buf_addc(out, '"');
        before = ',';
    }
    if (le)
        buf_printf(out, "%cle=\"%s\"", before, le);
    if (le || before == ',')
        buf_addc(out, '}');
}

/* As OpenMetrics wants it: 1.0, not 1. */
static const char *bound_text(double bound, char out[32])
{
    snprintf(out, 32, "%.10g", bound);
    if (!strchr(out, '.'))
        strcat(out, ".0");
    return out;
}

static void add_histogram(struct buf *out, const struct metric_declaration *d,
                          const struct metric_series *s)
{
    char bound[32];
    long long so_far = 0;
    for (size_t i = 0;; i++) {
        bool last = isinf(d->bounds[i]);
        so_far += atomic_load_explicit(&s->bucket[i], memory_order_relaxed);
        add_name(out, d, s, "_bucket", last ? "+Inf" : bound_text(d->bounds[i], bound));
        buf_printf(out, " %lld\n", so_far);
        if (last)
            break;
    }
    add_name(out, d, s, "_count", NULL);
    buf_printf(out, " %lld\n", so_far);
    add_name(out, d, s, "_sum", NULL);
    add_number(out, d, atomic_load_explicit(&s->sum, memory_order_relaxed));
}

static void add_metric(const struct text *f, enum metric m)
{
    const struct metric_declaration *d = &metric_declarations[m];
    const char *total = d->kind == METRIC_COUNTER ? "_total" : "";
    long long n;
    add_head(f, d);
    if (d->alone &&
        (n = atomic_load_explicit(&metrics[m], memory_order_relaxed)) != METRIC_UNKNOWN) {
        add_name(f->out, d, NULL, total, NULL);
        add_number(f->out, d, n);
    }
    for (const struct metric_series *s = metric_series_first(m); s; s = s->next) {
        if (d->kind == METRIC_HISTOGRAM) {
            add_histogram(f->out, d, s);
            continue;
        }
        if ((n = atomic_load_explicit(&s->number, memory_order_relaxed)) == METRIC_UNKNOWN)
            continue;
        add_name(f->out, d, s, total, NULL);
        add_number(f->out, d, n);
    }
}

void metrics_text(struct buf *out, unsigned programs, enum metrics_form form)
{
    struct text text = {out, form == METRICS_OPENMETRICS};
    for (int m = 0; m < METRICS; m++)
        if ((metric_declarations[m].programs & programs) &&
            (form != METRICS_ALONE || metric_declarations[m].alone))
            add_metric(&text, (enum metric)m);
    if (text.openmetrics)
        buf_adds(out, "# EOF\n");
}

unsigned metrics_program(const char *name)
{
    static const struct {
        const char *name;
        unsigned program;
    } known[] = {{"dovelane-milter", METRIC_MILTER},
                 {"dovelane-proxy", METRIC_PROXY},
                 {"dovelane-relay", METRIC_RELAY},
                 {"dovelane-replicator", METRIC_REPLICATOR}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(name, known[i].name))
            return known[i].program;
    return METRIC_ALL;
}
