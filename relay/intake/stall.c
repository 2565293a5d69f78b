/* Why a relay must not take from a Redis that stood still.
 *
 * The milter sends PUSH to every owner and waits store_deadline (1.5 s) for their answers. When one
 * is missing it gives up, sends REVOKE on the same connections, and leaves the mail to Postfix's
 * own queue: from then on delivering the entry makes a duplicate. On the owner that did not answer,
 * PUSH and REVOKE lie in the socket's buffer, one behind the other. When that server goes on
 * (SIGCONT, the end of a fork or of a slow command, a VM that is resumed) it executes the PUSH, and
 * wakes whoever waits in READY, before it has even read the REVOKE: it reads a connection in pieces
 * of 16 KB, and other connections are served in between. A TAKE sent at that moment leases an entry
 * that is about to be revoked, and a next hop takes it within milliseconds.
 *
 * So: when the server was silent for as long as it takes a milter to give up, what comes out of
 * TAKE goes back (KEEP 0: its place and its count are untouched), and for `settle` nothing is
 * taken. Within that time every revocation under way has arrived: they are in the same buffers as
 * their pushes, or were sent at most store_deadline later, and settle is at least twice that. What
 * was not revoked is then taken as ever. An entry that waits for a connection when the silence is
 * noticed goes back as well; one that is being sent is finished, since REVOKE answers LEASED or
 * GONE for it and the milter knows what to do.
 *
 * The same holds when we stood still ourselves (SIGSTOP, a paused VM: then server and relay go on
 * at the same time and the server has the same late PUSHes before it). Our own pause alone would do
 * no harm to late PUSHes, but it hides the server's: nobody measured its silence meanwhile.
 *
 * How long is too long: the gap must be noticed when it is shorter than store_deadline by the time
 * between two pings and two looks (0.3 s): two thirds of the deadline, at most 1 s. With a
 * store_deadline below half a second the rule cannot be kept, and a late PUSH may be delivered.
 *
 * The silence of the server is measured by pings of our own, on the connection that takes, by a
 * clock that does not jump. */
#include "relay/intake/stall.h"

#include <stdlib.h>

#include "lib/base/clock.h"
#include "relay/tables/destinations.h"
#include "relay/tables/inflight.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/metrics.h"
#include "relay/delivery/mail.h"
#include "relay/acks/owners.h"
#include "relay/cluster/cluster_view.h"

#define LOOK 0.1 /* seconds between two looks, also the longest time that the loop sleeps */
#define PING 0.2 /* seconds between two pings */
#define TOO_LONG 1.0
#define TOO_SHORT 0.35 /* the loop's and the network's everyday hiccups must stay below */

struct stall {
    struct relay *relay;
    ev_timer look;
    ev_check turn;
    double asked;    /* when the ping under way was sent, 0: none (CLOCK_MONOTONIC) */
    double answered; /* last answer; before the first, the start */
    double turned;   /* the last turn of the loop (CLOCK_BOOTTIME) */
    bool still;
    double until;
};

static double too_long(const struct relay *r)
{
    double limit = (double)r->config->store_deadline / 1000. * 2 / 3;
    return limit > TOO_LONG ? TOO_LONG : limit < TOO_SHORT ? TOO_SHORT : limit;
}

bool stall_now(const struct relay *r)
{
    return r->stall->still;
}

static void stood_still(struct stall *s, bool ourselves, double seconds)
{
    const char *who = ourselves ? "the relay" : "the node's Redis";
    cluster_stood_still(s->relay, ourselves, seconds);
    s->until = clock_monotonic() + (double)s->relay->config->settle / 1000.;
    if (!ourselves)
        owners_silent(s->relay);
    if (s->still)
        return;
    s->still = true;
    metric_add(relay_stillness, 1);
    log_warning(
        "%s stood still for %.1f s: nothing is taken until it has answered for %.1f s, so that "
        "revocations under way win",
        who, seconds, (double)s->relay->config->settle / 1000.);
    for (struct entry *e = inflight_first(s->relay), *next; e; e = next) {
        next = TAILQ_NEXT(e, taken);
        mail_leave(e);
    }
}

static void on_pong(struct wire *w, redisReply *reply, void *arg)
{
    struct stall *s = arg;
    if (reply)
        s->answered = clock_monotonic();
    s->asked = 0.;
}

/* Since when an answer is owed: to the ping, or to our attempts to connect. */
static double silence(const struct stall *s)
{
    if (s->asked > 0.)
        return clock_monotonic() - s->asked;
    return owners_ready(s->relay) ? 0. : clock_monotonic() - s->answered;
}

static void on_look(struct ev_loop *loop, ev_timer *t, int events)
{
    struct stall *s = t->data;
    double now = clock_monotonic(), owed = silence(s);
    if (owed >= too_long(s->relay))
        stood_still(s, false, owed);
    else if (s->still && now >= s->until) {
        s->still = false;
        log_info("taking again");
        destinations_want_all(s->relay);
    }
    if (s->asked <= 0. && owners_ready(s->relay) && now - s->answered >= PING &&
        wire_sendf(owners_wire(s->relay), on_pong, s, "PING"))
        s->asked = now;
}

/* Comes before everything else that a turn of the loop has to handle: before answers that lay in
 * our socket while we slept. */
static void on_turn(struct ev_loop *loop, ev_check *c, int events)
{
    struct stall *s = c->data;
    double now = clock_boottime(), gap = now - s->turned;
    s->turned = now;
    if (gap >= too_long(s->relay))
        stood_still(s, true, gap);
}

struct stall *stall_open(struct relay *r)
{
    struct stall *s = mem_zero(sizeof *s);
    s->relay = r;
    s->answered = clock_monotonic();
    s->turned = clock_boottime();
    ev_timer_init(&s->look, on_look, LOOK, LOOK);
    s->look.data = s;
    ev_timer_start(r->loop, &s->look);
    ev_check_init(&s->turn, on_turn);
    ev_set_priority(&s->turn, EV_MAXPRI);
    s->turn.data = s;
    ev_check_start(r->loop, &s->turn);
    return s;
}

void stall_close(struct stall *s)
{
    ev_timer_stop(s->relay->loop, &s->look);
    ev_check_stop(s->relay->loop, &s->turn);
    free(s);
}
