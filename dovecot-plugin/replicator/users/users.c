/* users - the table of users in memory (user.h). */
#include "dovecot-plugin/replicator/users/user.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "dovecot-plugin/replicator/site/ledger.h"
#include "lib/base/metrics.h"
#include "dovecot-plugin/replicator/lanes/outbox.h"
#include "dovecot-plugin/replicator/users/progress.h"
#include "dovecot-plugin/replicator/users/retire.h"
#include "dovecot-plugin/replicator/users/sched.h"
#include "dovecot-plugin/replicator/users/unproven.h"

#define BUCKETS 65536
#define USERS_MAX 1000000
#define KEEP 100000
#define COLLECT 30. /* seconds between two looks for users who can leave memory */

LIST_HEAD(user_list, user);

struct users {
    struct replicator *r;
    size_t n;
    struct user_list all, bucket[BUCKETS];
    ev_timer collect;
};

static size_t bucket_of(const char *name, size_t n)
{
    return (size_t)(orset_hash(name, n).lo % BUCKETS);
}

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
    TAILQ_INIT(&u->forgets);
    ev_timer_init(&u->timer, on_timer, 0., 0.);
    u->timer.data = u;
    for (size_t i = 0; i < npeers; i++) {
        struct user_peer *p = &u->peer[i];
        if (!us->r->group.peer[i].removed)
            (void)ledger_get_unconfirmed(us->r->ledger, us->r->group.peer[i].site, u->name,
                                         &p->unconfirmed, &p->since);
        p->resend_wait = seconds(us->r->config->resend_after);
        p->exchange_wait = seconds(us->r->config->exchange_after);
    }
    progress_load(u);
    retire_load(u);
    LIST_INSERT_HEAD(&us->all, u, in_all);
    LIST_INSERT_HEAD(&us->bucket[bucket_of(name, n)], u, in_hash);
    metric_set(replicator_users, (long long)++us->n);
    return u;
}

static void user_free(struct user *u)
{
    struct users *us = u->r->users;
    ASSERT(us->n > 0 && !u->worker && !u->ending && !u->holds);
    user_forget_work(u);
    progress_leave(u);
    unproven_end(u);
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

/* Whether it would be missed. The sweep of all users comes back to those to whom something is to be
 * done later, but once an hour: of those, not more than KEEP stay. What a peer has not confirmed
 * stands in the ledger, too; a wish for a TICK, and an exchange that is due, nowhere else. */
static bool needed(const struct user *u, double now)
{
    const struct replicator *r = u->r;
    bool work = u->worker || u->ending || u->queued != USER_NOTHING || u->nparcels ||
                user_has_reason(u) || u->sweep || !TAILQ_EMPTY(&u->admin) || u->ask_userdb;
    bool waits = u->tick_at != 0 || u->kept_failed > 0 || u->unseen > 0;
    for (size_t i = 0; i < r->group.npeers; i++)
        waits = waits || u->peer[i].resend_at != 0 || u->peer[i].exchange_at != 0 ||
                user_lacks_some(&u->peer[i]) || u->peer[i].held;
    return work || (waits && r->users->n < KEEP) || now < u->unknown_until ||
           user_kind(u) != USER_ORDINARY || user_is_active(u, now) || now < u->open_after;
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
            if (user_lacks_some(&u->peer[i]))
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

static void hand_over(struct admin_requests *to, struct admin_requests *from, struct user *real)
{
    struct admin_request *q;
    TAILQ_FOREACH (q, from, link)
        q->user = real;
    TAILQ_CONCAT(to, from, link);
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
        user_parcel_remove(u, p);
        user_parcel(real, p);
    }
    hand_over(&real->admin, &u->admin, real);
    hand_over(&real->forgets, &u->forgets, real);
    real->ask_userdb = real->ask_userdb || !TAILQ_EMPTY(&real->forgets);
    u->ask_userdb = false;
    user_plan(real);
    return true;
}
