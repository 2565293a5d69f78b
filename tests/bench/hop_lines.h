/* hop_lines - what the next hops of the benchmarks say: just so much SMTP that a relay's mail is
 * taken. Answers to commands that came together leave together. */
#ifndef DOVELANE_TESTS_BENCH_HOP_LINES_H
#define DOVELANE_TESTS_BENCH_HOP_LINES_H

#include <stdbool.h>
#include <stddef.h>

/* line: each line of a mail's content, without its end. taken: its 250 was sent. */
struct hop_calls {
    void (*line)(void *arg, const char *line);
    void (*taken)(void *arg);
};

/* A connection of its own, which has to be closed by the caller. room: bytes of the longest line.
 * NULL: no memory; else to be freed with free(). */
struct hop_lines *hop_lines_new(int fd, size_t room, const struct hop_calls *, void *arg);

/* Greets. */
void hop_lines_greet(struct hop_lines *);

/* Something can be read. False: the connection is over. */
bool hop_lines_serve(struct hop_lines *);

#endif
