/* workers - all connections: which one opens whom, who may have one, when users are closed. */
#include "dovecot-plugin/replicator/workers/worker_state.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/metrics.h"
#include "dovecot-plugin/replicator/users/holders.h"
#include "dovecot-plugin/replicator/users/sched.h"
#include "dovecot-plugin/replicator/lanes/outbox.h"
#include "dovecot-plugin/replicator/users/sweep.h"
#include "dovecot-plugin/replicator/users/turn.h"

#define CLOSES_WITHIN 1. /* seconds: so long nobody else is given a worker in its place */

/* One without a user that can open this one, whose credentials are known. Connected now if there
 * may be another, or in place of one that can open others only. NULL: none. */
static struct worker *free_for(struct workers *ws, const struct user *u)
{
    struct worker *w, *fresh = NULL, *other = NULL;
    TAILQ_FOREACH (w, &ws->list, link) {
        if (w->state != IDLE || w->old || w->root)
            continue;
        if (w->credentials == u->credentials)
            return w;
        *(w->credentials == 0 ? &fresh : &other) = w;
    }
    size_t most = (size_t)ws->r->config->replicator_workers;
    bool full = ws->n >= most, crowded = ws->n + endings_count(ws->endings) >= 2 * most;
    if (fresh || clock_monotonic() < ws->connect_after || crowded || (full && !other))
        return fresh;
    if (full)
        worker_end(other, false);
    return worker_connect(ws, false);
}

/* The one that opens nobody, if it has nothing to do. */
static struct worker *root_free(struct workers *ws)
{
    if (ws->root && ws->root->state == IDLE && ws->root->old)
        worker_free(ws->root);
    if (!ws->root && clock_monotonic() >= ws->connect_after)
        return worker_connect(ws, true);
    return ws->root && ws->root->state == IDLE ? ws->root : NULL;
}

/* The list of users goes first. */
static void look_up_next(struct workers *ws)
{
    bool may = !ws->r->stopping && !sweep_wants_list(ws->r->sweep);
    struct worker *w = may && sched_unknown(ws->r->sched) > 0 ? root_free(ws) : NULL;
    struct user *u = w ? sched_take_unknown(ws->r->sched) : NULL;
    struct frame f = {.type = FRAME_LOOKUP};
    if (!u)
        return;
    f.u.lookup.user = (struct text){(const uint8_t *)u->name, strlen(u->name)};
    w->user = u;
    u->worker = w;
    w->job.kind = JOB_NONE;
    worker_ask(w, LOOKING, &f);
}

static void open_user(struct worker *w, struct user *u, bool in_turn)
{
    ASSERT(!u->worker && !u->ending && !u->turn.has);
    struct frame f = {.type = FRAME_OPEN};
    worker_tell_retired(w, u);
    f.u.open.user = (struct text){(const uint8_t *)u->name, strlen(u->name)};
    f.u.open.credentials = u->credentials;
    f.u.open.existing = w->existing = user_is_only_read(u, clock_monotonic());
    w->user = u;
    u->worker = w;
    holders_add(u);
    w->slice = clock_monotonic();
    w->leaving = false;
    if (in_turn)
        turn_take(u);
    w->job.kind = JOB_NONE;
    w->credentials = u->credentials;
    metric_add(replicator_opens, 1);
    worker_ask(w, OPENING, &f);
}

bool workers_list_users(struct workers *ws)
{
    struct worker *w = root_free(ws);
    struct frame f = {.type = FRAME_ADMIN};
    if (!w)
        return false;
    f.u.admin.n = 1;
    f.u.admin.arg[0] = (struct text){(const uint8_t *)"users", 5};
    worker_ask(w, LISTING, &f);
    return true;
}

/* Others need the worker. Its user has one question more, at most. */
static void give_way(struct worker *w)
{
    struct frame f;
    bool last = !w->leaving && job_last(&w->job, w->user, &f);
    if (last)
        worker_ask(w, BUSY, &f);
    else
        worker_ask_close(w);
    w->leaving = last;
}

/* What a warm worker does next. waiting: so many need a worker; its own kind: those who may have
 * no other than this one. */
static void go_on(struct worker *w, size_t waiting, bool own_kind, double now)
{
    struct replicator *r = w->all->r;
    struct user *u = w->user;
    struct frame f;
    bool wanted = waiting > 0 || (u->turn.asking && sched_in_turn(r->sched) > 0);
    if (!wanted)
        w->slice = now;
    if (r->stopping || w->old || u->ask_userdb) {
        worker_ask_close(w);
        return;
    }
    if (wanted && (w->leaving || now - w->slice >= SCHED_SLICE) && !turn_holds(w->user, now)) {
        give_way(w);
        return;
    }
    w->leaving = false;
    if (job_next(&w->job, u, turn_may_ask(u, sched_is_next(r->sched, u)), &f)) {
        if (w->job.asks)
            turn_take(u);
        u->turn.asked_on = false;
        worker_ask(w, BUSY, &f);
        job_asked(&w->job, u);
        return;
    }
    turn_pause(u);
    /* Warm it would stand in no queue, and miss its turn. */
    if (!u->turn.asking && sched_in_turn(r->sched) > 0 && user_class(u, now) == USER_IN_TURN) {
        worker_ask_close(w);
        return;
    }
    if (own_kind && !turn_holds(w->user, now)) {
        give_way(w);
        return;
    }
    if (!ev_is_active(&w->patience)) {
        w->used = now;
        worker_set_patience(w, r->config->worker_idle);
    }
    u->stirred = user_kind(u) != USER_ORDINARY || user_class(u, now) != USER_NOTHING;
}

/* Nothing has changed for its user since it had nothing to do, and nobody needs it. With many
 * workers this is what nearly all of them are at each turn of the loop. */
static bool is_at_rest(const struct worker *w, size_t waiting)
{
    const struct replicator *r = w->all->r;
    return !w->user->stirred && waiting == 0 && sched_in_turn(r->sched) == 0 && !r->stopping &&
           !w->old;
}

/* It will be free in a moment. One that was asked longer ago may be stopped, and others are given
 * free workers meanwhile. */
static bool is_closing_soon(const struct worker *w)
{
    bool closes = w->state == CLOSING || (w->state == BUSY && w->leaving);
    return closes && w->user && clock_monotonic() - w->user->asked_at < CLOSES_WITHIN;
}

/* Gives each warm worker its user's next question, or lets it close its user: when that has had
 * its slice and others wait (waiting users), or was idle for worker_idle. Returns how many
 * workers are about to be free. */
static size_t all_go_on(struct workers *ws, size_t waiting)
{
    size_t coming = 0;
    double now = clock_monotonic();
    for (struct worker *w = TAILQ_FIRST(&ws->list), *next; w; w = next) {
        next = TAILQ_NEXT(w, link);
        if (w->state == WARM && is_at_rest(w, waiting)) {
            w->slice = now;
        } else if (w->state == WARM) {
            ASSERT(w->user && w->user->worker == w && w->user->holds);
            enum user_kind k = user_kind(w->user);
            size_t alike = k == USER_ORDINARY ? 0 : sched_apart(ws->r->sched, k);
            if (k != USER_ORDINARY && holders_are_beyond(ws->r, k))
                worker_ask_close(w);
            else
                go_on(w, (waiting > coming ? waiting - coming : 0) + alike, alike > 0, now);
        }
        coming += is_closing_soon(w);
        if (w->state == ENDING || (w->state == IDLE && (w->old || ws->r->stopping)))
            worker_end(w, false);
    }
    return coming;
}

/* Closes the user that was idle for longest. false: all are at work. */
static bool release_warm(struct workers *ws)
{
    struct worker *w, *longest = NULL;
    double now = clock_monotonic();
    TAILQ_FOREACH (w, &ws->list, link)
        if (w->state == WARM && !turn_holds(w->user, now) && (!longest || w->used < longest->used))
            longest = w;
    if (longest)
        give_way(longest);
    return longest != NULL;
}

void workers_run(struct workers *ws)
{
    struct sched *s = ws->r->sched;
    size_t coming = all_go_on(ws, sched_waiting(s));
    look_up_next(ws);
    while (sched_waiting(s) > coming && !ws->r->stopping) {
        struct user *u = sched_first(s);
        ASSERT(u);
        struct worker *w = free_for(ws, u);
        if (!w)
            break;
        open_user(w, u, sched_take(s, u));
    }
    /* Those who still wait need workers that are warm with somebody else. */
    while (sched_waiting(s) > coming && !ws->r->stopping && release_warm(ws))
        coming++;
}

void workers_flush(struct workers *ws)
{
    bool full = outbox_full(ws->r->outbox);
    struct worker *w;
    TAILQ_FOREACH (w, &ws->list, link) {
        if (w->sent < w->out.len && !ev_is_active(&w->wr))
            worker_flush(w);
        /* What a worker sends must not pile up here faster than the node takes it. */
        if (full)
            ev_io_stop(ws->r->loop, &w->rd);
        else
            ev_io_start(ws->r->loop, &w->rd);
    }
}

void workers_renew(struct workers *ws)
{
    struct worker *w;
    TAILQ_FOREACH (w, &ws->list, link)
        w->old = true;
}

const char *workers_unreachable(const struct workers *ws)
{
    return ws->n == 0 && clock_monotonic() < ws->connect_after ? ws->unreachable : NULL;
}

size_t workers_count(const struct workers *ws)
{
    return ws->n;
}

size_t workers_busy(const struct workers *ws)
{
    size_t n = 0;
    struct worker *w;
    TAILQ_FOREACH (w, &ws->list, link)
        n += w->user != NULL && !w->root;
    return n;
}

struct workers *workers_open(struct replicator *r, const char *path)
{
    struct workers *ws = mem_zero(sizeof *ws);
    ws->r = r;
    ws->path = mem_strdup(path);
    ws->endings = endings_open(r);
    TAILQ_INIT(&ws->list);
    return ws;
}

void workers_close(struct workers *ws)
{
    if (!ws)
        return;
    while (!TAILQ_EMPTY(&ws->list)) {
        struct worker *w = TAILQ_FIRST(&ws->list);
        if (w->user) {
            holders_remove(w->user);
            w->user->worker = NULL;
        }
        worker_free(w);
    }
    endings_close(ws->endings);
    free(ws->unreachable);
    free(ws->path);
    free(ws);
}
