/* user_plan - what is due for a user, and when the next of it is (user.h). */
#include "dovecot-plugin/replicator/users/user.h"

#include "lib/base/clock.h"
#include "dovecot-plugin/replicator/lanes/outbox.h"
#include "dovecot-plugin/replicator/users/sched.h"

bool user_is_active(const struct user *u, double at)
{
    return u->active_at != 0 && at - u->active_at < seconds(u->r->config->active_for);
}

double user_later(const struct user *u, double now, int64_t least, double times)
{
    double wait = (now - u->active_at) * times,
           at = now + (wait > seconds(least) ? wait : seconds(least));
    return user_is_active(u, at) ? at : 0;
}

static bool passed(double moment, double now)
{
    return moment != 0 && moment <= now;
}

bool user_may_ask(const struct user *u, size_t peer)
{
    struct outbox *s = u->r->outbox;
    if (user_keeps_from(&u->peer[peer]))
        return false;
    return u->joins ? outbox_answered(s, peer) : outbox_ready(s, peer) && outbox_may_try(s, peer);
}

static void put_off(double *moment, double wait, double now)
{
    if (passed(*moment, now))
        *moment = now + wait;
}

static void due_peer(struct user *u, size_t i, double now)
{
    struct replicator *r = u->r;
    struct user_peer *p = &u->peer[i];
    double most = seconds(r->config->resend_most);
    if (user_keeps_from(p)) { /* as if its lane were full */
        put_off(&p->resend_at, p->resend_wait, now);
        put_off(&p->exchange_at, p->exchange_wait, now);
        put_off(&p->hello_at, OUTBOX_PROBE, now);
        return;
    }
    if (user_lacks_some(p) && now >= p->ship_after && outbox_ready(r->outbox, i))
        p->want |= 1u << FRAME_SHIP_NEW;
    if (passed(p->resend_at, now)) {
        /* While the lane takes nothing, or nobody takes from it, asking the worker would only
         * cost. */
        if (outbox_ready(r->outbox, i) && outbox_may_try(r->outbox, i)) {
            p->want |= 1u << FRAME_SHIP_CONFIRMED;
            p->resends++;
            p->resend_wait = p->resend_wait * 2 < most ? p->resend_wait * 2 : most;
        }
        p->resend_at = now + p->resend_wait;
    }
    if (passed(p->exchange_at, now)) {
        if (user_may_ask(u, i)) {
            p->want |= 1u << FRAME_SHIP_EXCHANGE;
            p->cut_off = false;
            p->exchange_wait = p->exchange_wait * 2 < most ? p->exchange_wait * 2 : most;
        }
        p->exchange_at = now + p->exchange_wait;
    }
    if (passed(p->hello_at, now)) {
        bool may = outbox_may_try(r->outbox, i);
        /* While the peer takes nothing, perhaps all night: the longer, the more seldom. */
        double again = (now - u->active_at) / 8;
        again = again < OUTBOX_PROBE ? OUTBOX_PROBE : again > most ? most : again;
        if (may)
            p->want |= 1u << FRAME_SHIP_HELLO;
        p->hello_at = may ? user_later(u, now, r->config->hello_every, 3) : now + again;
    }
}

static void due(struct user *u, double now)
{
    struct replicator *r = u->r;
    for (size_t i = 0; i < r->group.npeers; i++)
        if (!r->group.peer[i].removed)
            due_peer(u, i, now);
    if (passed(u->tick_at, now)) {
        u->tick = true;
        u->tick_at = 0;
        u->tick_kept = false;
    }
    if (passed(u->sweep_at, now)) {
        u->sweep = true;
        u->sweep_at = user_later(u, now, r->config->sweep_active, 1);
    }
}

/* What can be done for it now. An exchange waits for its turn, and so does all that would begin
 * one. Of users who are not ordinary few have a worker at a time anyway. */
static enum user_class class_of_work(const struct user *u, double now)
{
    bool may_look = now >= u->look_after, look = user_has_reason(u) && may_look;
    unsigned want = 0;
    if (look && !u->joins)
        /* names that are made up are in nobody's way */
        return u->unproven ? USER_SECOND : USER_FIRST;
    for (size_t i = 0; i < u->r->group.npeers; i++)
        want |= u->peer[i].want;
    bool waiting = u->nparcels == u->nwaiting && now < u->waiting_until;
    if ((u->nparcels && !waiting && now >= u->parcel_after) ||
        want & ~(1u << FRAME_SHIP_EXCHANGE) || (u->tick && !u->joins))
        return USER_SECOND;
    bool sweep = u->sweep && may_look;
    if (want || (u->joins && (look || sweep || u->tick)))
        return user_kind(u) == USER_ORDINARY ? USER_IN_TURN : USER_SECOND;
    return sweep ? USER_LAST : USER_NOTHING;
}

enum user_class user_class(struct user *u, double now)
{
    if (now < u->open_after)
        return USER_NOTHING;
    if (!TAILQ_EMPTY(&u->admin) || u->ask_userdb)
        return USER_FIRST;
    return class_of_work(u, now);
}

bool user_is_only_read(const struct user *u, double now)
{
    const struct admin_request *q;
    TAILQ_FOREACH (q, &u->admin, link)
        if (!q->reads)
            return false;
    return !TAILQ_EMPTY(&u->admin) && class_of_work(u, now) == USER_NOTHING;
}

static double next_moment(struct user *u, double now)
{
    double at = user_sooner(user_sooner(u->tick_at, u->sweep_at), u->waiting_until);
    for (size_t i = 0; i < u->r->group.npeers; i++) {
        const struct user_peer *p = &u->peer[i];
        at = user_sooner(at, user_sooner(p->resend_at, user_sooner(p->hello_at, p->exchange_at)));
        if (user_lacks_some(p) && p->ship_after > now)
            at = user_sooner(at, p->ship_after);
    }
    if ((user_has_reason(u) || u->sweep) && u->look_after > now)
        at = user_sooner(at, u->look_after);
    if (u->nparcels && u->parcel_after > now)
        at = user_sooner(at, u->parcel_after);
    if (u->queued != USER_NOTHING && u->queued_as != USER_ORDINARY)
        at = user_sooner(at, u->kind[u->queued_as].until);
    if (at != 0 && at < u->open_after)
        at = u->open_after;
    return u->open_after > now ? user_sooner(at, u->open_after) : at;
}

void user_plan(struct user *u)
{
    struct replicator *r = u->r;
    double now = clock_monotonic();
    due(u, now);
    enum user_class c = user_class(u, now);
    if (u->ask_userdb && !u->worker && u->credentials != 0) {
        sched_dequeue(r->sched, u);
        u->credentials = 0;
    }
    if (u->worker)
        u->stirred = true;
    else if (!u->ending)
        sched_queue(r->sched, u, c);
    double at = next_moment(u, now);
    ev_timer_stop(r->loop, &u->timer);
    if (at == 0)
        return;
    /* libev counts from the loop's own idea of now, which may lie behind. */
    ev_now_update(r->loop);
    ev_timer_set(&u->timer, at > now ? at - now : 0., 0.);
    ev_timer_start(r->loop, &u->timer);
}
