/* user - see user.h. */
#include "dovecot-plugin/replicator/users/user.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "dovecot-plugin/replicator/users/confirm.h"
#include "dovecot-plugin/replicator/state/ledger.h"
#include "lib/base/log.h"
#include "lib/base/metrics.h"
#include "dovecot-plugin/replicator/users/pace.h"
#include "dovecot-plugin/replicator/users/progress.h"
#include "dovecot-plugin/replicator/users/sched.h"
#include "dovecot-plugin/replicator/lanes/outbox.h"
#include "dovecot-plugin/replicator/lanes/inbox.h"

#define BUCKETS 65536
#define USERS_MAX 1000000
#define NAMED_MOST 1000 /* names of one peer that nobody has known yet, or that nobody knows */
#define KEEP 100000
#define COLLECT 30. /* seconds between two looks for users who can leave memory */
#define CONFIRM 1.  /* a vector that is owed is told after this many seconds */
#define FORGET_EVERY 60.
/* hints between two looks at a user: what many commands in a row give, not a person (the plugin
 * tells of one open mailbox at most every 2 ms) */
#define BUSY 6
/* in flight, beside the first parcel, of a user who cannot take any now, ... */
#define FAILING_BYTES (1024 * 1024)
#define FAILING_MAX 64 /* ... and parcels */
#define BACKOFF_FIRST 1.
#define BACKOFF_MOST 60.

LIST_HEAD(user_list, user);

struct users {
    struct replicator *r;
    size_t n, unproven;            /* unproven: named by hints */
    size_t named[FRAME_SITES_MAX]; /* unproven: named by parcels of each peer */
    double said[FRAME_SITES_MAX];  /* that one names too many */
    struct user_list all, bucket[BUCKETS];
    ev_timer collect;
};

static size_t bucket_of(const char *name, size_t n)
{
    return (size_t)(orset_hash(name, n).lo % BUCKETS);
}

/* ---- the table ---- */

static void on_timer(struct ev_loop *loop, ev_timer *t, int events)
{
    (void)loop, (void)events;
    user_plan(t->data);
}

struct user *user_find(struct users *us, const char *name, size_t n)
{
    struct user *u;
    LIST_FOREACH (u, &us->bucket[bucket_of(name, n)], in_hash)
        if (strlen(u->name) == n && !memcmp(u->name, name, n))
            return u;
    return NULL;
}

struct user *user_get(struct users *us, const char *name, size_t n)
{
    struct user *u = user_find(us, name, n);
    if (u && u->real && clock_monotonic() < u->unknown_until) {
        struct user *real = user_find(us, u->real, strlen(u->real));
        return real ? real : user_get(us, u->real, strlen(u->real));
    }
    if (u || us->n >= USERS_MAX)
        return u;
    size_t npeers = us->r->group.npeers;
    u = mem_zero(sizeof *u + npeers * sizeof *u->peer);
    u->r = us->r;
    u->name = mem_strndup(name, n);
    u->queued = USER_NOTHING;
    TAILQ_INIT(&u->parcels);
    TAILQ_INIT(&u->admin);
    ev_timer_init(&u->timer, on_timer, 0., 0.);
    u->timer.data = u;
    for (size_t i = 0; i < npeers; i++) {
        struct user_peer *p = &u->peer[i];
        if (!us->r->group.peer[i].removed)
            ledger_get_unconfirmed(us->r->ledger, us->r->group.peer[i].site, u->name,
                                   &p->unconfirmed, &p->since);
        p->resend_wait = seconds(us->r->config->resend_after);
        p->exchange_wait = seconds(us->r->config->exchange_after);
    }
    progress_load(u);
    LIST_INSERT_HEAD(&us->all, u, in_all);
    LIST_INSERT_HEAD(&us->bucket[bucket_of(name, n)], u, in_hash);
    metric_set(replicator_users, (long long)++us->n);
    return u;
}

static void user_free(struct user *u)
{
    struct users *us = u->r->users;
    ASSERT(!u->worker && !u->ending && !u->holds);
    user_forget_work(u);
    user_prove(u);
    sched_dequeue(us->r->sched, u);
    ev_timer_stop(us->r->loop, &u->timer);
    LIST_REMOVE(u, in_all);
    LIST_REMOVE(u, in_hash);
    free(u->look);
    free(u->name);
    free(u->real);
    free(u);
    metric_set(replicator_users, (long long)--us->n);
}

bool user_may_be_named(struct users *us, size_t peer, const char *name, size_t n)
{
    const struct user *u = user_find(us, name, n);
    if (us->named[peer] < NAMED_MOST || (u && (u->known || u->unproven)))
        return true;
    char *text = mem_strndup(name, n);
    bool known = ledger_knows(us->r->ledger, text);
    free(text);
    if (!known && replicator_may_say(&us->said[peer], 60.))
        log_warning("replica %s: it names too many users that are not known here, as %.*s: their "
                    "parcels are dropped, and come again",
                    us->r->group.peer[peer].name, (int)n, name);
    return known;
}

size_t users_unproven(const struct users *us)
{
    return us->unproven;
}

void user_prove(struct user *u)
{
    struct users *us = u->r->users;
    if (u->unproven && u->named_by > 0)
        us->named[u->named_by - 1]--;
    else if (u->unproven)
        us->unproven--;
    u->unproven = false;
}

size_t users_count(const struct users *us)
{
    return us->n;
}

void users_each(struct users *us, user_fn *fn, void *arg)
{
    struct user *u;
    LIST_FOREACH (u, &us->all, in_all)
        fn(u, arg);
}

/* A mailbox of it has changed within active_for, here or there. */
static bool active(const struct user *u, double at)
{
    return u->active_at != 0 && at - u->active_at < seconds(u->r->config->active_for);
}

/* When next, of what is done the more seldom the longer nothing has happened: after `times` what
 * that is by now. 0: it will not be active any more then. */
static double later(const struct user *u, double now, int64_t least, double times)
{
    double wait = (now - u->active_at) * times,
           at = now + (wait > seconds(least) ? wait : seconds(least));
    return active(u, at) ? at : 0;
}

static bool unsent(const struct user_peer *p)
{
    return p->missing || p->more;
}

/* Whether it would be missed. The sweep of all users comes back to those to whom something is to be
 * done later, but once an hour: of those, not more than KEEP stay. What a peer has not confirmed
 * stands in the ledger, too; a wish for a TICK, and an exchange that is due, nowhere else. */
static bool needed(const struct user *u, double now)
{
    const struct replicator *r = u->r;
    bool work = u->worker || u->ending || u->queued != USER_NOTHING || u->nparcels ||
                user_has_reason(u) || u->sweep || !TAILQ_EMPTY(&u->admin);
    bool waits = u->tick_at != 0;
    for (size_t i = 0; i < r->group.npeers; i++)
        waits = waits || u->peer[i].resend_at != 0 || u->peer[i].exchange_at != 0 ||
                unsent(&u->peer[i]) || u->peer[i].held;
    return work || (waits && r->users->n < KEEP) || now < u->unknown_until ||
           user_kind(u) != USER_ORDINARY || active(u, now) || now < u->open_after;
}

static void on_collect(struct ev_loop *loop, ev_timer *t, int events)
{
    (void)loop, (void)events;
    struct users *us = t->data;
    double now = clock_monotonic();
    if (!ledger_flush(us->r->ledger)) /* what it could not write it writes again from here */
        return;
    for (struct user *u = LIST_FIRST(&us->all), *next; u; u = next) {
        next = LIST_NEXT(u, in_all);
        if (needed(u, now))
            continue;
        for (size_t i = 0; i < us->r->group.npeers; i++)
            if (unsent(&u->peer[i]))
                outbox_forgotten(us->r->outbox, i);
        user_free(u);
    }
}

static void write_again(struct user *u, void *arg)
{
    if (u->known)
        ledger_write_user(arg, u->name, u->joining == FRAME_JOINED);
}

static void write_all_again(void *arg)
{
    struct users *us = arg;
    users_each(us, write_again, us->r->ledger);
}

struct users *users_open(struct replicator *r)
{
    struct users *us = mem_zero(sizeof *us);
    us->r = r;
    ledger_on_loss(r->ledger, write_all_again, us);
    LIST_INIT(&us->all);
    ev_timer_init(&us->collect, on_collect, COLLECT, COLLECT);
    us->collect.data = us;
    ev_timer_start(r->loop, &us->collect);
    return us;
}

void users_close(struct users *us)
{
    if (!us)
        return;
    while (!LIST_EMPTY(&us->all))
        user_free(LIST_FIRST(&us->all));
    ev_timer_stop(us->r->loop, &us->collect);
    ledger_on_loss(us->r->ledger, NULL, NULL);
    free(us);
}

/* ---- reasons ---- */

/* peer: whose parcel named it, from 1 on; 0: a hint, or who may be believed. */
static void heard_of(struct user *u, size_t peer)
{
    struct replicator *r = u->r;
    if (!u->known && !ledger_user_seen(r->ledger, u->name) && !u->unproven) {
        u->unproven = true;
        u->named_by = peer;
        if (peer > 0)
            r->users->named[peer - 1]++;
        else
            r->users->unproven++;
    }
    u->known = true;
}

/* Something happens with this user: it is swept and greeted more often again. */
static void activate(struct user *u, size_t peer)
{
    struct replicator *r = u->r;
    double now = clock_monotonic(), sweep = now + seconds(r->config->sweep_active);
    u->active_at = now;
    if (u->sweep_at == 0 || u->sweep_at > sweep)
        u->sweep_at = sweep;
    double hello = now + seconds(r->config->hello_every);
    for (size_t i = 0; i < r->group.npeers; i++) {
        struct user_peer *p = &u->peer[i];
        if (p->hello_at == 0 || p->hello_at > hello)
            p->hello_at = hello;
    }
    heard_of(u, peer);
}

static void clear_look(struct user *u)
{
    for (size_t i = 0; i < u->nlook; i++)
        free(u->look[i].name);
    free(u->look);
    u->look = NULL;
    u->nlook = 0;
    u->look_all = u->look_many = false;
}

bool user_has_reason(const struct user *u)
{
    return u->look_all || u->look_many || u->nlook > 0;
}

void user_asked_to_look(struct user *u)
{
    const struct config *config = u->r->config;
    double now = clock_monotonic(), least = seconds(config->hint_wait),
           most = seconds(config->hint_wait_most);
    bool busy = u->hints >= BUSY && least > 0;
    u->look_gap = !busy ? 0 : u->look_gap == 0 ? 2 * least : 2 * u->look_gap;
    if (u->look_gap > most)
        u->look_gap = most > least ? most : 0;
    u->hints = 0;
    u->look_most = now + u->look_gap;
    u->look_after = now + least;
}

/* Of a user who is busy, the end of a pause is waited for. */
static void put_off(struct user *u)
{
    u->hints++;
    if (u->look_gap == 0 || u->look_wait != 0)
        return;
    double at = clock_monotonic() + seconds(u->r->config->hint_wait);
    u->look_after = at < u->look_most ? at : u->look_most;
}

void user_look(struct user *u, const char *guid, const char *name, size_t n)
{
    activate(u, 0);
    put_off(u);
    bool known = !n || u->look_all || u->look_many;
    for (size_t i = 0; i < u->nlook && !known; i++)
        known = u->look[i].n == n && !memcmp(u->look[i].name, name, n) &&
                !strcmp(u->look[i].guid, guid);
    if (!n) {
        clear_look(u);
        u->look_all = true;
    } else if (!known && u->nlook == FRAME_MAILBOXES_MAX) {
        clear_look(u);
        u->look_many = true;
    } else if (!known) {
        if (!u->look)
            u->look = mem_zero(FRAME_MAILBOXES_MAX * sizeof *u->look);
        struct look *l = &u->look[u->nlook++];
        snprintf(l->guid, sizeof l->guid, "%s", guid);
        l->name = mem_dup(name, n);
        l->n = n;
    }
    user_plan(u);
}

void user_sweep(struct user *u)
{
    u->sweep = true;
    user_plan(u);
}

void user_parcel(struct user *u, struct parcel_in_flight *p)
{
    TAILQ_INSERT_TAIL(&u->parcels, p, in_user);
    u->nparcels++;
    u->parcel_bytes += p->body.n;
    /* A hello brings nothing. Were it activity, two sites would keep each other at it for ever. */
    if (p->kind == PARCEL_BATCH && p->first == 0)
        heard_of(u, p->peer + 1);
    else
        activate(u, p->peer + 1);
    confirm_heard(u, p);
    user_plan(u);
}

static void remove_parcel(struct user *u, struct parcel_in_flight *p)
{
    TAILQ_REMOVE(&u->parcels, p, in_user);
    u->nparcels--;
    u->parcel_bytes -= p->body.n;
    u->nwaiting -= p->waits;
    u->waiting_until = u->nwaiting > 0 ? u->waiting_until : 0;
    p->waits = false;
}

void user_parcel_done(struct user *u, struct parcel_in_flight *p)
{
    remove_parcel(u, p);
    inbox_done(u->r->inbox, p);
}

static void drop_parcels(struct user *u)
{
    metric_add(replicator_dropped, (long long)u->nparcels);
    while (!TAILQ_EMPTY(&u->parcels))
        user_parcel_done(u, TAILQ_FIRST(&u->parcels));
}

void user_drop_answers(struct user *u)
{
    for (struct parcel_in_flight *p = TAILQ_FIRST(&u->parcels), *next; p; p = next) {
        next = TAILQ_NEXT(p, in_user);
        if (!parcel_is_answer(p->kind))
            continue;
        metric_add(replicator_dropped, 1);
        user_parcel_done(u, p);
    }
}

static bool is_slow(const struct user *u)
{
    return u->asked_at != 0 && clock_monotonic() - u->asked_at > USER_LENGTHY_AFTER;
}

bool user_has_room(const struct user *u, size_t bytes, bool crowded)
{
    double now = clock_monotonic();
    bool failing = u->parcel_wait > 0 || u->open_wait > 0;
    if (!failing && !(crowded && is_slow(u)))
        return true;
    if (u->nparcels == 0)
        /* else it would never be tried again */
        return !crowded || (now >= u->parcel_after && now >= u->open_after);
    return !crowded && u->nparcels < FAILING_MAX &&
           u->parcel_bytes - TAILQ_FIRST(&u->parcels)->body.n + bytes <= FAILING_BYTES;
}

void user_trim_parcels(struct user *u, bool crowded)
{
    size_t kept = 0, n = 0;
    for (struct parcel_in_flight *p = TAILQ_FIRST(&u->parcels), *next; p; p = next) {
        bool first = n++ == 0;
        next = TAILQ_NEXT(p, in_user);
        if (first && (!crowded || u->asked_at != 0)) /* a worker may have it */
            continue;
        if (!crowded && n <= FAILING_MAX && kept + p->body.n <= FAILING_BYTES) {
            kept += p->body.n;
            continue;
        }
        metric_add(replicator_dropped, 1);
        user_parcel_done(u, p);
    }
}

void user_trim_slow(struct user *u)
{
    if (u->nparcels > 1 && is_slow(u))
        user_trim_parcels(u, true);
}

bool user_is_another(struct user *u, const char *name, size_t n)
{
    struct user *real =
        strlen(u->name) == n && !memcmp(u->name, name, n) ? NULL : user_get(u->r->users, name, n);
    free(u->real);
    u->real = NULL;
    if (!real || real == u)
        return false;
    u->real = mem_strndup(name, n);
    if (user_has_reason(u))
        user_look(real, "", "", 0);
    if (u->sweep)
        user_sweep(real);
    for (struct parcel_in_flight *p; (p = TAILQ_FIRST(&u->parcels));) {
        remove_parcel(u, p);
        user_parcel(real, p);
    }
    struct admin_request *q;
    TAILQ_FOREACH (q, &u->admin, link)
        q->user = real;
    TAILQ_CONCAT(&real->admin, &u->admin, link);
    user_plan(real);
    return true;
}

void user_want(struct user *u, size_t peer, enum frame_ship how)
{
    u->peer[peer].want |= 1u << how;
    user_plan(u);
}

void user_fail_requests(struct user *u, const char *why, bool later)
{
    struct admin_request *q;
    while ((q = TAILQ_FIRST(&u->admin))) {
        TAILQ_REMOVE(&u->admin, q, link);
        q->calls->failed(q, why, later);
    }
}

void user_forget_work(struct user *u)
{
    drop_parcels(u);
    clear_look(u);
    u->sweep = u->tick = u->joins = false;
    u->tick_at = u->sweep_at = 0;
    for (size_t i = 0; i < u->r->group.npeers; i++) {
        struct user_peer *p = &u->peer[i];
        p->want = 0;
        p->unconfirmed = 0;
        p->behind = p->more = p->owed = false;
        p->missing = 0;
        p->resend_at = p->hello_at = p->exchange_at = 0;
        p->resends = 0;
    }
    pace_forget_all(u->r->pace, u);
    user_fail_requests(u, "the user cannot be opened", false);
}

/* ---- what happened ---- */

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
        p->hello_at = later(u, clock_monotonic(), u->r->config->hello_every, 3);
}

void user_send(struct user *u, const struct frame_parcel *send)
{
    const struct group *g = &u->r->group;
    if (send->body.n > PARCEL_MAX) {
        log_error("user=%s: a worker's parcel of %zu bytes is above %d: not sent", u->name,
                  send->body.n, PARCEL_MAX);
        return;
    }
    for (size_t i = 0; i < g->npeers; i++)
        if (!g->peer[i].removed && (send->site == 0 || send->site == g->peer[i].site))
            send_to(u, i, send);
}

static void count_unconfirmed(struct user *u, size_t i, uint64_t n)
{
    struct replicator *r = u->r;
    struct user_peer *p = &u->peer[i];
    const struct peer *peer = &r->group.peer[i];
    double now = clock_monotonic();
    bool confirms = n < p->unconfirmed || !n, tried = p->resends > 1;
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
    count_unconfirmed(u, peer, 0);
}

static double sooner(double a, double b)
{
    return a == 0 ? b : b == 0 ? a : a < b ? a : b;
}

void user_done(struct user *u, const struct frame_done *d)
{
    struct replicator *r = u->r;
    double now = clock_monotonic();
    /* since it was opened: READY did not say so */
    bool joins = d->joins == FRAME_JOINING, anew = joins && !u->joins;
    for (size_t k = 0; k < d->nsites; k++) {
        int i = group_peer(&r->group, d->site[k].site);
        if (i < 0 || r->group.peer[i].removed)
            continue;
        struct user_peer *p = &u->peer[i];
        count_unconfirmed(u, (size_t)i, d->site[k].unconfirmed);
        if (anew && !d->site[k].asking) { /* else it asked by itself */
            p->exchange_at = now;
        } else if (d->site[k].behind && !p->behind) {
            p->exchange_at = joins ? now : now + p->exchange_wait;
        } else if (!d->site[k].behind && !p->cut_off) {
            p->exchange_at = 0;
            p->exchange_wait = seconds(r->config->exchange_after);
        }
        p->behind = d->site[k].behind;
        p->more = d->site[k].more;
        p->asking = d->site[k].asking;
        p->owed = d->site[k].owed;
        if (d->site[k].owed && (p->hello_at == 0 || p->hello_at > now + CONFIRM))
            p->hello_at = now + CONFIRM;
    }
    u->joins = joins;
    progress_done(u, d);
    if (d->unplaced == 0)
        pace_forget_all(r->pace, u);
    double tick = d->tick ? now + seconds((int64_t)d->tick) : 0;
    u->tick_at = u->tick_kept ? sooner(u->tick_at, tick) : tick;
}

double user_backoff(double *wait)
{
    *wait = *wait == 0 ? BACKOFF_FIRST : *wait * 2 < BACKOFF_MOST ? *wait * 2 : BACKOFF_MOST;
    return clock_monotonic() + *wait;
}

bool user_may_say(struct user *u)
{
    return replicator_may_say(&u->said, 60.);
}

/* ---- what is due ---- */

static bool passed(double moment, double now)
{
    return moment != 0 && moment <= now;
}

bool user_may_ask(const struct user *u, size_t peer)
{
    struct outbox *s = u->r->outbox;
    return u->joins ? outbox_answered(s, peer) : outbox_ready(s, peer) && outbox_may_try(s, peer);
}

static void due_peer(struct user *u, size_t i, double now)
{
    struct replicator *r = u->r;
    struct user_peer *p = &u->peer[i];
    double most = seconds(r->config->resend_most);
    if (unsent(p) && now >= p->ship_after && outbox_ready(r->outbox, i))
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
        p->hello_at = may ? later(u, now, r->config->hello_every, 3) : now + again;
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
        u->sweep_at = later(u, now, r->config->sweep_active, 1);
    }
}

/* What can be done for it now. An exchange waits for its turn, and so does all that would begin
 * one. Of users who are not ordinary few have a worker at a time anyway. */
enum user_class user_class(struct user *u, double now)
{
    bool may_look = now >= u->look_after, look = user_has_reason(u) && may_look;
    unsigned want = 0;
    if (now < u->open_after)
        return USER_NOTHING;
    if (!TAILQ_EMPTY(&u->admin))
        return USER_FIRST;
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

static double next_moment(struct user *u, double now)
{
    double at = sooner(sooner(u->tick_at, u->sweep_at), u->waiting_until);
    for (size_t i = 0; i < u->r->group.npeers; i++) {
        const struct user_peer *p = &u->peer[i];
        at = sooner(at, sooner(p->resend_at, sooner(p->hello_at, p->exchange_at)));
        if (unsent(p) && p->ship_after > now)
            at = sooner(at, p->ship_after);
    }
    if ((user_has_reason(u) || u->sweep) && u->look_after > now)
        at = sooner(at, u->look_after);
    if (u->nparcels && u->parcel_after > now)
        at = sooner(at, u->parcel_after);
    if (u->queued != USER_NOTHING && u->queued_as != USER_ORDINARY)
        at = sooner(at, u->kind[u->queued_as].until);
    if (at != 0 && at < u->open_after)
        at = u->open_after;
    return u->open_after > now ? sooner(at, u->open_after) : at;
}

void user_plan(struct user *u)
{
    struct replicator *r = u->r;
    double now = clock_monotonic();
    due(u, now);
    enum user_class c = user_class(u, now);
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
