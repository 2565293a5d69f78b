/* metrics_text - all metrics as text: Prometheus' classic form, and OpenMetrics 1.0. */
#ifndef DOVELANE_LIB_BASE_METRICS_TEXT_H
#define DOVELANE_LIB_BASE_METRICS_TEXT_H

#include "lib/base/mem.h"

enum metrics_form {
    METRICS_CLASSIC,
    METRICS_OPENMETRICS,
    METRICS_ALONE, /* classic, and of COUNTER and GAUGE alone: a whole number a line, no labels */
};

/* Appends all metrics that one of the programs has (enum metric_program). From any thread. */
void metrics_text(struct buf *out, unsigned programs, enum metrics_form);

/* METRIC_RELAY for "dovelane-relay"; METRIC_ALL for a name that no program has. */
unsigned metrics_program(const char *name);

#endif
