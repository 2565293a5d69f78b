/* delay_line - calls that come as late as a distance costs, in the order in which they were put.
 *
 * One for each direction between two nodes: what a proxy between them would add to each request
 * and answer, without its CPU. */
#ifndef DOVELANE_TESTS_BENCH_DELAY_LINE_H
#define DOVELANE_TESTS_BENCH_DELAY_LINE_H

#include <ev.h>

struct delay_line;

/* delay: seconds; with 0 a call comes at once. The line lives as long as the program. */
struct delay_line *delay_line_open(struct ev_loop *, double delay);

/* Calls fn with a and b, delay seconds from now. */
void delay_line_put(struct delay_line *, void (*fn)(void *a, void *b), void *a, void *b);

#endif
