/* floor - the least that this machine lets a random access to a large state cost: reads of
 * memory, and bare UPDATEs of SQLite. */
#ifndef DOVELANE_TESTS_BENCH_ORSET_FLOOR_H
#define DOVELANE_TESTS_BENCH_ORSET_FLOOR_H

#include <stdbool.h>
#include <stdint.h>

typedef void floor_row_fn(const char *measure, double value, const char *unit, double goal,
                          bool at_least);

/* For a state of so many messages, 125 bytes each. */
void floor_rows(uint32_t messages, floor_row_fn *);

#endif
