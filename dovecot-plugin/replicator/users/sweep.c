/* sweep - lists the users, and marks so many a second. */
#include "dovecot-plugin/replicator/users/sweep.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "dovecot-plugin/replicator/site/ledger.h"
#include "lib/base/log.h"
#include "dovecot-plugin/replicator/users/sched.h"
#include "dovecot-plugin/replicator/users/resend.h"
#include "dovecot-plugin/replicator/users/user.h"

#define STEP 0.1         /* seconds */
#define WAITING_MOST 200 /* with so many users waiting for workers, the next ones are not added */
#define TURNS_MOST 2     /* nor with so many a worker that wait for their turn to exchange */
#define TRICKLE 1.       /* seconds from one to the next where turns are awaited */
#define REST 4.          /* times as long as a sweep took */
#define LIST_FOR 60.     /* seconds to get a list of users before going on with those known */

enum phase { RESTING, LISTING_WANTED, LISTING_ASKED, WALKING };

struct sweep {
    struct replicator *r;
    enum phase phase;
    bool again;
    double credit, last, listed_by;
    double began, ended, added;
    char *after;
    size_t users;
    ev_timer every, step;
};

static void walk(struct sweep *s)
{
    s->phase = WALKING;
    free(s->after);
    s->after = mem_strdup("");
    s->users = 0;
    s->credit = 0;
    s->last = clock_monotonic();
}

static void begin(struct sweep *s)
{
    s->phase = LISTING_WANTED;
    s->r->unswept = true;
    s->began = clock_monotonic();
    s->listed_by = clock_monotonic() + LIST_FOR;
    ev_timer_again(s->r->loop, &s->step);
}

/* Who is always open would never be looked up again. An exchange that would be cut off has one
 * sweep more; one that never ends is not waited for. */
static bool is_open_for_long(const struct user *u)
{
    double every = seconds(u->r->config->sweep_all), since = clock_monotonic() - u->opened_at;
    bool busy = u->turn.asking || u->unplaced > 0;
    return since >= (busy ? 2 * every : every);
}

static void on_user(void *arg, const char *name, uint64_t ops, int64_t since)
{
    struct sweep *s = arg;
    struct user *u = user_get(s->r->users, name, strlen(name));
    (void)ops, (void)since;
    free(s->after);
    s->after = mem_strdup(name);
    s->users++;
    if (u)
        user_sweep(u);
    if (u && u->worker && is_open_for_long(u))
        user_ask_userdb(u);
}

static void finish(struct sweep *s)
{
    log_info("swept: %zu users were looked at or wait for it", s->users);
    ev_timer_stop(s->r->loop, &s->step);
    s->phase = RESTING;
    s->ended = clock_monotonic();
    s->r->unswept = false;
    /* Whoever was dropped from memory with something unconfirmed. */
    for (size_t i = 0; i < s->r->group.npeers; i++)
        if (!s->r->group.peer[i].removed)
            resend_all(s->r->resend, i);
    if (s->again)
        begin(s);
    s->again = false;
}

/* So many may be added now. Of users whose state is new not more are begun than exchange soon: both
 * sites go by names, so that a user is often open at both at a time. But one a second is: turns may
 * be long, and the others are to be looked at, too. */
static size_t room(const struct sweep *s, double now)
{
    struct sched *sched = s->r->sched;
    size_t waiting = sched_waiting(sched) + sched_unknown(sched), turns = sched_in_turn(sched);
    size_t most = TURNS_MOST * (size_t)s->r->config->replicator_workers;
    if (waiting > WAITING_MOST || turns > most)
        return now >= s->added + TRICKLE;
    return turns > 0 ? most + 1 - turns : WAITING_MOST + 1 - waiting;
}

static void some_users(struct sweep *s)
{
    double now = clock_monotonic();
    s->credit += (now - s->last) * (double)s->r->config->sweep_rate;
    s->last = now;
    if (s->credit > (double)s->r->config->sweep_rate)
        s->credit = (double)s->r->config->sweep_rate;
    size_t most = room(s, now);
    if (s->credit < 1 || most == 0)
        return;
    most = s->credit < (double)most ? (size_t)s->credit : most;
    size_t n = ledger_users(s->r->ledger, s->after, most, on_user, s);
    s->credit -= (double)n;
    s->added = now;
    if (n < most)
        finish(s);
}

static void on_step(struct ev_loop *loop, ev_timer *t, int events)
{
    (void)loop, (void)events;
    struct sweep *s = t->data;
    double now = clock_monotonic();
    if (s->phase == LISTING_WANTED && now > s->listed_by) {
        log_warning("the userdb's users are not listed, since no worker can be asked: only users "
                    "seen before are swept");
        walk(s);
    }
    if (s->phase == WALKING)
        some_users(s);
}

bool sweep_is_listing(const struct sweep *s)
{
    return s->phase == LISTING_WANTED || s->phase == LISTING_ASKED;
}

bool sweep_wants_list(const struct sweep *s)
{
    return s->phase == LISTING_WANTED;
}

void sweep_list_asked(struct sweep *s)
{
    ASSERT(s->phase == LISTING_WANTED);
    s->phase = LISTING_ASKED;
}

void sweep_name(struct sweep *s, struct text name)
{
    char user[FRAME_USER_MAX + 1];
    if (!frame_user_ok(name.p, name.n))
        return;
    memcpy(user, name.p, name.n);
    user[name.n] = '\0';
    ledger_user_listed(s->r->ledger, user);
}

void sweep_listed(struct sweep *s, bool whole)
{
    if (s->phase != LISTING_ASKED)
        return;
    if (!whole)
        log_warning("the userdb's users cannot be listed (iterate_query?): only users seen before "
                    "are swept");
    walk(s);
}

void sweep_everyone(struct sweep *s)
{
    if (s->phase == RESTING)
        begin(s);
    else if (s->phase == WALKING)
        s->again = true;
}

bool sweep_running(const struct sweep *s)
{
    return s->phase != RESTING;
}

bool sweep_rests(const struct sweep *s)
{
    return s->phase != RESTING ||
           (s->ended != 0 && clock_monotonic() < s->ended + REST * (s->ended - s->began));
}

static void on_every(struct ev_loop *loop, ev_timer *t, int events)
{
    (void)loop, (void)events;
    sweep_everyone(t->data);
}

struct sweep *sweep_open(struct replicator *r)
{
    struct sweep *s = mem_zero(sizeof *s);
    s->r = r;
    double every = seconds(r->config->sweep_all);
    ev_timer_init(&s->every, on_every, every, every);
    ev_timer_init(&s->step, on_step, STEP, STEP);
    s->every.data = s->step.data = s;
    ev_timer_start(r->loop, &s->every);
    if (r->first || r->unclean || r->adopted)
        begin(s);
    return s;
}

void sweep_stop(struct sweep *s)
{
    ev_timer_stop(s->r->loop, &s->every);
    ev_timer_stop(s->r->loop, &s->step);
    s->phase = RESTING;
}

void sweep_close(struct sweep *s)
{
    if (!s)
        return;
    sweep_stop(s);
    free(s->after);
    free(s);
}
