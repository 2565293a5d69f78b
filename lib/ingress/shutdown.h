/* shutdown - how the milter and the proxy end. After SIGTERM or SIGINT each mail that is under way
 * gets its answer, also one whose connection waits to be taken. Then the loop ends. */
#ifndef DOVELANE_LIB_INGRESS_SHUTDOWN_H
#define DOVELANE_LIB_INGRESS_SHUTDOWN_H

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>

#include "lib/daemon/listener.h"
#include "lib/store/store.h"

#define SHUTDOWN_FINISH \
    2. /* seconds for mails whose content is still coming, and for revocations */

struct shutdown {
    struct ev_loop *loop;
    struct store **store;
    struct listener **listener; /* NULL in it: not yet */
    /* No more connections but those that wait there. */
    void (*begin)(void);
    /* `seconds` after that: sessions that may end, end. How many are left. */
    size_t (*end_sessions)(double seconds);
};

/* Once, before anything can be stored. Belongs to the caller, and stays. */
void shutdown_catch_signals(const struct shutdown *);
/* True from the first signal on; for handover_await. */
extern bool shutdown_begun;

#endif
