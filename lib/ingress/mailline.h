/* mailline - the one line in the log that a mail gets which was given to the store. Scripts read
 * it:
 *
 *     <id>: from=<S>, size=N, nrcpt=N, message-id=M, client=NAME[ADDR], action=A [reason=R],
 *     entries=N, nodes=mx1>mx2, store=0.0ms */
#ifndef DOVELANE_LIB_INGRESS_MAILLINE_H
#define DOVELANE_LIB_INGRESS_MAILLINE_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/store/store.h"

struct mailline {
    const char *id; /* Postfix's queue id, or the proxy's */
    const char *sender;
    size_t size; /* bytes */
    size_t nrecipients;
    const char *message_id;                /* NULL: it has none */
    const char *client_name, *client_addr; /* NULL: not known */
    const char *next;                      /* what proxy_next answered; NULL: it was not asked */
    bool held;                             /* by a rule of `dovelane hold --add` */
    double began; /* clock_monotonic() when it was given to the store; 0: it was not */
    const struct store_request *stored;
};

/* action: "lane", "split" and so on. reason: why not all of it is in lanes; "" when it is. */
void mailline_say(const struct mailline *, const char *action, const char *reason);

/* The shorter line of a mail that was not given to the store:
 *
 *     <id>: from=<S>, nrcpt=N[, client=NAME[ADDR]], action=A reason=R[, next=REPLY] */
void mailline_say_left(const struct mailline *, const char *action, const char *reason);

#endif
