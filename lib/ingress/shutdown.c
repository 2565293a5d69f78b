/* shutdown - waits after a signal until no session, connection or revocation is left, then ends
 * the loop. SIGHUP: the log is opened anew. */
#include "lib/ingress/shutdown.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "lib/base/log.h"
#include "lib/daemon/notify.h"

#define TICK 0.05
#define WITHIN 50. /* seconds; our units' TimeoutStopSec is 60 */

bool shutdown_begun;

static const struct shutdown *calls;
static ev_timer tick;
static ev_signal stop_signal[2], reopen_signal;
static double left;

static void on_tick(struct ev_loop *loop, ev_timer *t, int events)
{
    left += t->repeat;
    size_t sessions = calls->end_sessions(left);
    bool owes = store_pending_revokes(*calls->store) > 0 && left <= SHUTDOWN_FINISH;
    if (listener_left(*calls->listener) && sessions == 0 && !owes) {
        ev_break(loop, EVBREAK_ALL);
    } else if (left > WITHIN) {
        log_warning("ended in the middle of %zu sessions: their mails may be sent more than once",
                    sessions);
        ev_break(loop, EVBREAK_ALL);
    }
}

static void on_stop(struct ev_loop *loop, ev_signal *w, int events)
{
    if (shutdown_begun)
        return;
    shutdown_begun = true;
    notify("STOPPING=1");
    calls->begin();
    ev_timer_init(&tick, on_tick, 0., TICK);
    ev_timer_start(loop, &tick);
}

static void on_reopen(struct ev_loop *loop, ev_signal *w, int events)
{
    if (log_reopen() < 0)
        log_error("the log cannot be opened anew, and stays as it is: %s", strerror(errno));
}

void shutdown_catch_signals(const struct shutdown *c)
{
    static const int numbers[] = {SIGTERM, SIGINT};
    calls = c;
    for (int i = 0; i < 2; i++) {
        ev_signal_init(&stop_signal[i], on_stop, numbers[i]);
        ev_signal_start(c->loop, &stop_signal[i]);
    }
    ev_signal_init(&reopen_signal, on_reopen, SIGHUP);
    ev_signal_start(c->loop, &reopen_signal);
}
