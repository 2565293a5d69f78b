/* turn - see turn.h. */
#include "dovecot-plugin/replicator/users/turn.h"

#include "lib/base/clock.h"
#include "dovecot-plugin/replicator/users/sched.h"
#include "dovecot-plugin/replicator/lanes/outbox.h"

/* Seconds for which a user's worker waits for the answer of an exchange while others wait for a
 * worker. */
#define HOLD 2.
/* The same of an only worker: nobody else answers the peers meanwhile, so one of two sites gives
 * way. */
#define HOLD_ONLY 0.2
#define TURNS 20  /* as many first turns take as long as a worker's answer may */
#define DOUBLED 3 /* times at most */

static double turn_length(const struct user *u)
{
    unsigned doubled = u->turns_used < DOUBLED ? u->turns_used : DOUBLED;
    return seconds(u->r->config->worker_timeout) / TURNS * (double)(1U << doubled);
}

bool turn_may_ask(const struct worker *w)
{
    const struct user *u = w->user;
    return w->in_turn || user_kind(u) != USER_ORDINARY ||
           (sched_is_next(w->all->r->sched, u) && turn_is_free(w->all, u->turns_used > 0));
}

bool turn_is_free(const struct workers *ws, bool used)
{
    size_t n = 0, all = 0, used_up = 0, most = (size_t)ws->r->config->replicator_workers;
    const struct worker *w;
    TAILQ_FOREACH (w, &ws->list, link) {
        bool ordinary = w->in_turn && user_kind(w->user) == USER_ORDINARY;
        all += w->in_turn;
        n += ordinary;
        used_up += ordinary && w->user->turns_used > 0;
    }
    if (used && used_up > 0 && 2 * (used_up + 1) >= most)
        return false;
    return n == 0 || all + 1 < most;
}

void turn_take(struct worker *w)
{
    if (!w->in_turn)
        w->turn_until = clock_monotonic() + turn_length(w->user);
    w->user->waits_since = 0;
    w->in_turn = true;
}

/* A turn without an end, however it ends: but who took little of it may have met a site that is
 * away. */
void turn_leave(struct worker *w)
{
    if (w->in_turn && w->asking && w->user &&
        clock_monotonic() >= w->turn_until - turn_length(w->user) / 2)
        w->user->turns_used++;
    w->in_turn = false;
}

double turn_hold_for(const struct worker *w)
{
    const struct replicator *r = w->all->r;
    bool first = r->config->replicator_workers > 1;
    for (size_t i = 0; i < r->group.npeers && !first; i++)
        first = r->group.self < r->group.peer[i].site;
    return first ? HOLD : HOLD_ONLY;
}

/* An exchange lives in the worker's memory. Closed for somebody else's sake between question and
 * answer it would begin anew with each opening, and with more users than workers never end. A
 * site that takes nothing gives no answer. */
void turn_answered(struct worker *w, const struct frame_done *d)
{
    const struct replicator *r = w->all->r;
    double most = turn_hold_for(w);
    bool was = w->asking, asks = false,
         answer = w->job.kind == JOB_PARCEL && parcel_is_answer(w->job.parcel->kind);
    w->asking = false;
    for (size_t k = 0; k < d->nsites; k++) {
        int i = group_peer(&r->group, d->site[k].site);
        bool answered =
            answer && i == (int)w->job.parcel->peer && (w->asked_on || !d->site[k].asking);
        if (answered && d->result == FRAME_OK)
            w->user->peer[i].cut_offs = 0;
        asks = asks || d->site[k].asking;
        w->asking =
            w->asking || (d->site[k].asking && i >= 0 && outbox_answered(r->outbox, (size_t)i));
    }
    if (!asks && was)
        w->user->turns_used = 0;
    /* One that asks by itself is before nobody. */
    if (!w->asking || !turn_may_ask(w)) {
        w->hold = 0;
        return;
    }
    if (!was || w->asked_on || w->hold == 0)
        w->hold = clock_monotonic() + most;
    turn_take(w);
    worker_set_patience(w, (int64_t)(most * 1000));
}

/* Not all of them, else all wait for answers here and at the peer nobody is left who gives them. */
bool turn_holds(const struct worker *w, double now)
{
    const struct worker *o;
    size_t before = 0;
    if (now >= w->hold || now >= w->turn_until)
        return false;
    TAILQ_FOREACH (o, &w->all->list, link) {
        if (o == w)
            break;
        before += now < o->hold && now < o->turn_until;
    }
    return before == 0 || before + 1 < (size_t)w->all->r->config->replicator_workers;
}
