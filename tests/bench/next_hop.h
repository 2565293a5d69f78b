/* next_hop - the server that a gateway under test sends to: takes smtp_load's mails and notes
 * when each was answered 250. A thread of its own, on the clock of the generator
 * (CLOCK_MONOTONIC), so that the way of each mail from one 250 to the other is a difference of
 * two times. */
#ifndef DOVELANE_TESTS_BENCH_NEXT_HOP_H
#define DOVELANE_TESTS_BENCH_NEXT_HOP_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

/* Listens, and starts the thread. run, mails: those of which the id in X-Oracle-Id is
 * RUN-NUMBER-first. NULL, or what went wrong. */
const char *next_hop_open(const struct sockaddr_in *, const char *run, uint64_t mails);

/* How many different ones have come. */
uint64_t next_hop_count(void);

/* How many came more than once. */
uint64_t next_hop_twice(void);

/* When its 250 was sent (ns), 0: not yet. */
uint64_t next_hop_answered(uint64_t mail);

#endif
