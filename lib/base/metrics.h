/* metrics - what a program counts and measures, declared once in metrics.def.
 *
 *   counters and gauges    one atomic number each: metric_add(), metric_set()
 *   those with labels,     a series for each value of the labels. metric_series() finds or makes
 *   and histograms         it; its caller keeps it where it counts often
 *
 * Any thread may count and measure. That is a relaxed atomic addition, two for a histogram. A
 * series is there until the process ends. metrics_text.h has the text forms. */
#ifndef DOVELANE_LIB_BASE_METRICS_H
#define DOVELANE_LIB_BASE_METRICS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum metric {
#define COUNTER(programs, name, help) METRIC_##name,
#define GAUGE(programs, name, unit, help) METRIC_##name,
#define COUNTERS(programs, name, first, second, help) METRIC_##name,
#define GAUGES(programs, name, unit, first, second, help) METRIC_##name,
#define HISTOGRAM(programs, name, first, second, bounds, help) METRIC_##name,
#include "lib/base/metrics.def"
    METRICS
};

/* The programs that have a metric. */
enum metric_program {
    METRIC_MILTER = 1 << 0,
    METRIC_PROXY = 1 << 1,
    METRIC_RELAY = 1 << 2,
    METRIC_REPLICATOR = 1 << 3,
    METRIC_INGRESS = METRIC_MILTER | METRIC_PROXY,
    METRIC_ALL = METRIC_INGRESS | METRIC_RELAY | METRIC_REPLICATOR,
};

/* What a gauge is set to while nobody knows its value: it is not shown. */
#define METRIC_UNKNOWN INT64_MIN
/* Never, of a time that is left: shown as +Inf. */
#define METRIC_NEVER INT64_MAX

extern atomic_llong metrics[METRICS];

#define metric_add(name, n) \
    atomic_fetch_add_explicit(&metrics[METRIC_##name], (n), memory_order_relaxed)
#define metric_value(name) atomic_load_explicit(&metrics[METRIC_##name], memory_order_relaxed)
#define metric_set(name, n) \
    atomic_store_explicit(&metrics[METRIC_##name], (n), memory_order_relaxed)

/* ---- series ---- */

struct metric_series;

/* Different values that one label of one metric has at most; what comes beyond them counts for
 * the value "other". */
#define METRIC_VALUES_MOST 100

/* The series of these values of its labels. Copies them, at most 300 bytes of each; NULL: it has
 * no such label. Never NULL. */
struct metric_series *metric_series(enum metric, const char *first, const char *second);

void metric_series_add(struct metric_series *, long long n);
void metric_series_set(struct metric_series *, long long n);

/* A gauge that is summed up from several things, which takes a while. Call metric_gather_begin();
 * then each thing adds its part, and metric_publish() makes the sums the values. A series that
 * nothing was added to becomes 0. metric_most() keeps the largest part. All by one thread. */
void metric_gather_begin(enum metric);
void metric_gather(struct metric_series *, long long n);
void metric_most(struct metric_series *, long long n);
void metric_publish(enum metric);

/* What a series of a histogram gets: seconds; less than 0 counts as 0. */
void metric_observe(struct metric_series *, double seconds);

/* ---- the UNIX socket ---- */

/* A thread that answers every connection to the socket with METRICS_ALONE. path may contain
 * %p (program). "" : nothing. Returns -1 with errno. */
int metrics_serve(const char *path, const char *program);

/* The same in two steps, for a program that may yet find that another one is at work: until
 * metrics_begin() that one's socket stays. One of begin and drop follows. */
int metrics_bind(const char *path, const char *program);
int metrics_begin(void);
void metrics_drop(void);

#endif
