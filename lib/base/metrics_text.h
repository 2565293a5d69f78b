/* metrics_text - all metrics as text: Prometheus' classic form, and OpenMetrics 1.0. */
#ifndef DOVELANE_LIB_BASE_METRICS_TEXT_H
#define DOVELANE_LIB_BASE_METRICS_TEXT_H

#include <stdbool.h>

#include "lib/base/mem.h"

/* Appends all metrics that one of the programs has (enum metric_program). From any thread. */
void metrics_text(struct buf *out, unsigned programs, bool openmetrics);

/* METRIC_RELAY for "dovelane-relay"; METRIC_ALL for a name that is none of a program's. */
unsigned metrics_program(const char *name);

#endif
