/* user - adds what is to be done for a user, and puts it off after failures. */
#include "dovecot-plugin/replicator/users/user.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "dovecot-plugin/replicator/users/confirm.h"
#include "dovecot-plugin/replicator/users/pace.h"
#include "dovecot-plugin/replicator/users/progress.h"
#include "dovecot-plugin/replicator/users/unproven.h"

#define CONFIRM 1. /* a vector that is owed is told after this many seconds */
/* hints between two looks at a user: what many commands in a row give, not a person (the plugin
 * tells of one open mailbox at most every 2 ms) */
#define BUSY 6
#define BACKOFF_FIRST 1.
#define BACKOFF_MOST 60.

/* ---- reasons ---- */

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
    unproven_heard(u, peer);
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
    user_parcel_add(u, p);
    /* A hello brings nothing. Were it activity, two sites would keep each other at it for ever. */
    if (p->kind == PARCEL_BATCH && p->first == 0)
        unproven_heard(u, p->peer + 1);
    else
        activate(u, p->peer + 1);
    confirm_heard(u, p);
    user_plan(u);
}

void user_ask_userdb(struct user *u)
{
    u->ask_userdb = true;
    u->open_after = 0;
    user_plan(u);
}

static void fail_all(struct admin_requests *list, const char *why, bool later)
{
    struct admin_request *q;
    while ((q = TAILQ_FIRST(list))) {
        TAILQ_REMOVE(list, q, link);
        q->calls->failed(q, why, later);
    }
}

void user_fail_requests(struct user *u, const char *why, bool later)
{
    fail_all(&u->admin, why, later);
    fail_all(&u->forgets, why, later);
}

void user_fail_reads(struct user *u, const char *why, bool later)
{
    for (struct admin_request *q = TAILQ_FIRST(&u->admin), *next; q; q = next) {
        next = TAILQ_NEXT(q, link);
        if (!q->reads)
            continue;
        TAILQ_REMOVE(&u->admin, q, link);
        q->calls->failed(q, why, later);
    }
}

void user_forget_work(struct user *u)
{
    user_drop_parcels(u);
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
        user_unconfirmed(u, (size_t)i, d->site[k].unconfirmed);
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
    u->tick_at = u->tick_kept ? user_sooner(u->tick_at, tick) : tick;
}

void user_is_owned(struct user *u, uint32_t uid)
{
    u->owner = uid;
    u->owner_at = clock_monotonic();
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
