/* user_peer - what one user and one peer have to say to each other (user.h). */
#include "dovecot-plugin/replicator/users/user.h"

#include "lib/base/clock.h"
#include "dovecot-plugin/replicator/site/ledger.h"
#include "lib/base/log.h"
#include "lib/base/metrics.h"
#include "dovecot-plugin/replicator/lanes/outbox.h"

#define FORGET_EVERY 60.

void user_want(struct user *u, size_t peer, enum frame_ship how)
{
    u->peer[peer].want |= 1u << how;
    user_plan(u);
}

void user_unsent(struct user *u, size_t peer, uint64_t first)
{
    struct user_peer *p = &u->peer[peer];
    double now = clock_monotonic();
    if (first && (!p->missing || first < p->missing))
        p->missing = first;
    if (p->resend_at == 0)
        p->resend_at = now + p->resend_wait;
    user_plan(u);
}

static void send_to(struct user *u, size_t peer, const struct frame_parcel *send)
{
    struct user_peer *p = &u->peer[peer];
    if (p->missing && send->first > p->missing) {
        /* The peer would meet a gap: ops before it did not come into the lane. */
        metric_add(replicator_unsent, 1);
        return;
    }
    if (!outbox_send(u->r->outbox, u->name, peer, send))
        user_unsent(u, peer, send->first);
    else if (send->kind == PARCEL_BATCH && p->hello_at) /* it can wait: this says as much */
        p->hello_at = user_later(u, clock_monotonic(), u->r->config->hello_every, 3);
}

void user_send(struct user *u, const struct frame_parcel *send)
{
    const struct group *g = &u->r->group;
    if (send->body.n > PARCEL_MAX) {
        log_of(LOG_LEVEL_ERROR, LOG_FIELD_user, u->name,
               "a worker's parcel of %zu bytes is above %d: not sent", send->body.n, PARCEL_MAX);
        return;
    }
    for (size_t i = 0; i < g->npeers; i++)
        if (!g->peer[i].removed && (send->site == 0 || send->site == g->peer[i].site))
            send_to(u, i, send);
}

void user_unconfirmed(struct user *u, size_t i, uint64_t n)
{
    struct replicator *r = u->r;
    struct user_peer *p = &u->peer[i];
    const struct peer *peer = &r->group.peer[i];
    double now = clock_monotonic();
    bool confirms = n < p->unconfirmed || !n, tried = p->resends > 1;
    if (n < p->unconfirmed && p->since)
        metric_observe(metric_series(METRIC_replica_confirm_seconds, peer->name, NULL),
                       (double)(clock_wall() - p->since) / 1e6);
    if (confirms) { /* no reason to wait longer next time */
        p->resend_wait = seconds(r->config->resend_after);
        p->resends = 0;
    }
    if (!n) {
        p->resend_at = 0;
        p->since = 0;
    } else if (!p->unconfirmed || p->resend_at == 0) {
        p->resend_at = now + p->resend_wait;
        if (!p->since)
            p->since = clock_wall();
    } else if (n < p->unconfirmed) {
        /* it takes again: all that was tried before is sent */
        p->resend_at = tried ? now : now + p->resend_wait;
        p->since = clock_wall();
    }
    if (n != p->unconfirmed)
        ledger_unconfirmed(r->ledger, peer->site, u->name, n, p->since);
    p->unconfirmed = n;
    bool old = p->since && clock_wall() - p->since > r->config->backlog_age * 1000;
    if (n && (old || n > (uint64_t)r->config->backlog) && now >= p->forget_after) {
        p->want |= 1u << FRAME_SHIP_FORGET;
        /* another peer may still need what this one does not get */
        p->forget_after = now + FORGET_EVERY;
        p->since = clock_wall();
    }
}

void user_all_confirmed(struct user *u, size_t peer)
{
    struct user_peer *p = &u->peer[peer];
    p->missing = 0;
    p->more = false;
    p->want &= ~(1u << FRAME_SHIP_NEW | 1u << FRAME_SHIP_CONFIRMED);
    user_unconfirmed(u, peer, 0);
}
