/* lane_link - the one connection of lane_load: requests are put into it, replies come out of it.
 * One for the whole program. */
#ifndef DOVELANE_TESTS_BENCH_LANE_LINK_H
#define DOVELANE_TESTS_BENCH_LANE_LINK_H

#include <stdbool.h>
#include <stddef.h>

/* Says why, and ends the program. */
__attribute__((format(printf, 1, 2), noreturn)) void link_fail(const char *format, ...);
double link_now(void); /* seconds of the monotonic clock */

/* path: of a UNIX socket; NULL: the port on loopback. body_size: of each body that will be put,
 * in bytes. */
void link_open(const char *path, int port, size_t body_size);

void link_put(const void *bytes, size_t len);
/* at most 127 bytes */
__attribute__((format(printf, 1, 2))) void link_print(const char *format, ...);
void link_put_body(void);
size_t link_waiting(void); /* bytes put and not sent, large bodies apart */

/* Sends what goes, takes in what is there; waits for either. spin: without ever sleeping. False
 * when nothing came for 60 s. */
bool link_turn(bool spin);

const char *link_came(const char **end); /* what came and was not taken */
void link_take(const char *up_to);

#endif
