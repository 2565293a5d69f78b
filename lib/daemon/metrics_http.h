/* metrics_http - metrics_listen: what a scraper and a probe ask for over HTTP, by libmicrohttpd.
 *
 *   /metrics   all metrics, as OpenMetrics where the request's Accept says so, else in the
 *              classic form
 *   /healthz   200 when the loop turns, else 503
 *   /readyz    200 when the program can do its work, else 503 and why
 *
 * The server has a thread of its own, and no access to what the loop has:
 *
 *    thread ── a descriptor ──▶ loop     ready(): is it ready? collect(): gauges that must be
 *       ▲◀── a condition ────────┘       asked for. What is known within WAIT seconds is shown
 *
 * It has few connections, and each of them has a few seconds. A client that sends slowly, or much,
 * keeps other HTTP clients out for that time, and does no other harm. While the port cannot be had,
 * it tries again. It never logs: what is to be logged goes to the loop. */
#ifndef DOVELANE_LIB_DAEMON_METRICS_HTTP_H
#define DOVELANE_LIB_DAEMON_METRICS_HTTP_H

#include <ev.h>

#include "lib/config/config.h"

struct metrics_http {
    struct ev_loop *loop;
    const char *program; /* "dovelane-relay": its port is metrics_listen's, and so many above */
    /* Whether it can do its work: NULL, or why not (a line; must stay until the next call). On the
     * loop. */
    const char *(*ready)(void *arg);
    /* On the loop: sets gauges to what they are now. metrics_http_collected() follows, soon. NULL:
     * there are none. */
    void (*collect)(void *arg);
    void *arg;
};

/* Serves from now on, where metrics_listen is set. Copies both. Once in a process. */
void metrics_http_start(const struct metrics_http *, const struct config *);

/* What collect() was called for is done. On the loop. */
void metrics_http_collected(void);

/* Another config. On the loop. */
void metrics_http_reload(const struct config *);

/* The port is free when it returns. From any thread; again: nothing. */
void metrics_http_stop(void);

/* What -t looks at beyond the config itself: NULL, or what is wrong (malloc'd). */
char *metrics_http_check(const struct config *, const char *program);

#endif
