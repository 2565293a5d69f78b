/* metrics_series - the metrics' declarations and their series, as the text forms read them. */
#ifndef DOVELANE_LIB_BASE_METRICS_SERIES_H
#define DOVELANE_LIB_BASE_METRICS_SERIES_H

#include <stdbool.h>

#include "lib/base/metrics.h"

enum metric_kind { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };

#define METRIC_LABELS 2
#define METRIC_BOUNDS_MOST 16

struct metric_declaration {
    const char *name; /* without dovelane_, and without a counter's _total */
    enum metric_kind kind;
    unsigned programs;                /* enum metric_program */
    const char *unit;                 /* "", "seconds", "bytes" */
    bool alone;                       /* one number in metrics[], and no series */
    const char *label[METRIC_LABELS]; /* "": none */
    /* of a histogram's buckets, in seconds; the last one is INFINITY */
    double bounds[METRIC_BOUNDS_MOST + 1];
    const char *help;
};

extern const struct metric_declaration metric_declarations[METRICS];

struct metric_series {
    struct metric_series *next;  /* of this metric */
    struct metric_series *chain; /* in the table's bucket */
    enum metric metric;
    const double *bounds;       /* the declaration's */
    char *value[METRIC_LABELS]; /* "" where there is no label */
    atomic_llong number;
    long long gathered;
    /* of a histogram: all, in microseconds; and how many are at most each bound and above the
     * one before it */
    atomic_llong sum, bucket[METRIC_BOUNDS_MOST + 1];
};

/* All series of a metric, the youngest first; others may come meanwhile. NULL: it has none. */
const struct metric_series *metric_series_first(enum metric);

#endif
