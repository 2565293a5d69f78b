/* ingress_metrics - what both ways in measure alike, and their part of metrics_listen. */
#ifndef DOVELANE_LIB_INGRESS_INGRESS_METRICS_H
#define DOVELANE_LIB_INGRESS_INGRESS_METRICS_H

#include <ev.h>

#include "lib/config/config.h"
#include "lib/store/store.h"

/* What becomes of a mail. */
enum answer_result {
    ANSWER_LANES,    /* all of it is in lanes */
    ANSWER_SPLIT,    /* some recipients are, the others are in Postfix's queue */
    ANSWER_QUEUE,    /* the rules leave it to Postfix's queue */
    ANSWER_FAILOVER, /* storing failed: Postfix's queue has it */
    ANSWER_TEMPFAIL, /* storing failed: 4xx */
    ANSWER_LIMIT,    /* too much waits for a next hop: 4xx */
    ANSWER_REFUSE,   /* 5xx */
    ANSWERS
};

/* Counts one, and how many seconds Postfix waited for it from the end of the message on. */
void ingress_answered(enum answer_result, double seconds);

/* reason: the word of the log line, or NULL. */
void ingress_queued(const char *reason);

/* metrics_listen is served from now on. */
void ingress_metrics_open(struct ev_loop *, const char *program, const struct config *,
                          struct store *);

#endif
