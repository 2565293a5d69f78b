/* metrics - counters and gauges of a program, declared once in metrics.def, shown in Prometheus'
 * text form on a UNIX socket. Counting is one relaxed atomic addition. */
#ifndef DOVELANE_LIB_BASE_METRICS_H
#define DOVELANE_LIB_BASE_METRICS_H

#include <stdatomic.h>
#include <stdint.h>

#include "lib/base/mem.h"

enum metric {
#define COUNTER(name, help) METRIC_##name,
#define GAUGE(name, help) METRIC_##name,
#include "lib/base/metrics.def"
#undef COUNTER
#undef GAUGE
    METRICS
};

extern atomic_llong metrics[METRICS];

#define metric_add(name, n) \
    atomic_fetch_add_explicit(&metrics[METRIC_##name], (n), memory_order_relaxed)
#define metric_value(name) atomic_load_explicit(&metrics[METRIC_##name], memory_order_relaxed)
#define metric_set(name, n) \
    atomic_store_explicit(&metrics[METRIC_##name], (n), memory_order_relaxed)

/* A thread that answers every connection to the socket with that text. path may contain %p
 * (program). "" : nothing. Returns -1 with errno. */
int metrics_serve(const char *path, const char *program);

/* The same in two steps, for a program that may yet find that another one is at work: until
 * metrics_begin() that one's socket stays. One of begin and drop follows. */
int metrics_bind(const char *path, const char *program);
int metrics_begin(void);
void metrics_drop(void);

#endif
