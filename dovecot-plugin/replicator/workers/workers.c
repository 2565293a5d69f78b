/* workers - see worker.h. All connections: which one opens whom, who may have one, when users
 * are closed. */
#include "dovecot-plugin/replicator/workers/worker_state.h"

#include <stdlib.h>
#include <string.h>

#include "dovecot-plugin/replicator/admin/admin.h"
#include "lib/base/clock.h"
#include "lib/base/metrics.h"
#include "dovecot-plugin/replicator/users/sched.h"
#include "dovecot-plugin/replicator/lanes/outbox.h"
#include "dovecot-plugin/replicator/users/sweep.h"
#include "dovecot-plugin/replicator/users/turn.h"

#define CLOSES_WITHIN 1. /* seconds: so long nobody else is given a worker in its place */

struct worker *workers_free(struct workers *ws, const struct user *u)
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

bool workers_may_look_up(struct workers *ws)
{
    return !sweep_wants_list(ws->r->sweep) && root_free(ws) != NULL;
}

void workers_look_up(struct workers *ws, struct user *u)
{
    struct worker *w = root_free(ws);
    struct frame f = {.type = FRAME_LOOKUP};
    f.u.lookup.user = (struct text){(const uint8_t *)u->name, strlen(u->name)};
    w->user = u;
    u->worker = w;
    w->job.kind = JOB_NONE;
    worker_ask(w, LOOKING, &f);
}

void worker_open_user(struct worker *w, struct user *u, bool in_turn)
{
    struct frame f = {.type = FRAME_OPEN};
    f.u.open.user = (struct text){(const uint8_t *)u->name, strlen(u->name)};
    f.u.open.credentials = u->credentials;
    w->user = u;
    u->worker = w;
    w->slice = clock_monotonic();
    w->in_turn = w->leaving = false;
    if (in_turn)
        turn_take(w);
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

/* Processes that users of that kind have, those too that they are to leave, or have left: that may
 * take as long. */
static size_t taken(const struct workers *ws, enum user_kind k)
{
    const struct worker *w;
    size_t n = endings_of(ws->endings, k);
    TAILQ_FOREACH (w, &ws->list, link)
        n += w->user && !w->root && user_kind_soon(w->user) == k;
    return n;
}

/* So many may have one: all slow ones together one, lengthy ones half of all, and one stays for
 * everybody else, where there are two. */
static bool is_beyond(const struct workers *ws, enum user_kind k, size_t more)
{
    size_t all = (size_t)ws->r->config->replicator_workers, slow = taken(ws, USER_SLOW),
           lengthy = taken(ws, USER_LENGTHY);
    size_t most = k == USER_SLOW ? all - 1 : all / 2;
    return (k == USER_SLOW && slow + more > 1) || slow + lengthy + more > (most > 1 ? most : 1);
}

bool workers_beyond(const struct workers *ws, enum user_kind k)
{
    return is_beyond(ws, k, 0);
}

bool workers_have_room(const struct workers *ws, enum user_kind k)
{
    return k == USER_ORDINARY || !is_beyond(ws, k, 1);
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
    struct frame f;
    bool wanted = waiting > 0 || (w->asking && sched_in_turn(r->sched) > 0);
    if (!wanted)
        w->slice = now;
    if (r->stopping || w->old) {
        worker_ask_close(w);
        return;
    }
    if (wanted && (w->leaving || now - w->slice >= SCHED_SLICE) && !turn_holds(w, now)) {
        give_way(w);
        return;
    }
    w->leaving = false;
    if (job_next(&w->job, w->user, turn_may_ask(w), &f)) {
        if (w->job.asks)
            turn_take(w);
        w->asked_on = false;
        worker_ask(w, BUSY, &f);
        job_asked(&w->job, w->user);
        return;
    }
    w->in_turn = w->in_turn && w->asking;
    /* Warm it would stand in no queue, and miss its turn. */
    if (!w->asking && sched_in_turn(r->sched) > 0 && user_class(w->user, now) == USER_IN_TURN) {
        worker_ask_close(w);
        return;
    }
    if (own_kind && !turn_holds(w, now)) {
        give_way(w);
        return;
    }
    if (!ev_is_active(&w->patience)) {
        w->used = now;
        worker_set_patience(w, r->config->worker_idle);
    }
    w->stirred = user_kind(w->user) != USER_ORDINARY || user_class(w->user, now) != USER_NOTHING;
}

/* Nothing has changed for its user since it had nothing to do, and nobody needs it. With many
 * workers this is what nearly all of them are at each turn of the loop. */
static bool is_at_rest(const struct worker *w, size_t waiting)
{
    const struct replicator *r = w->all->r;
    return !w->stirred && waiting == 0 && sched_in_turn(r->sched) == 0 && !r->stopping && !w->old;
}

/* It will be free in a moment. One that was asked longer ago may be stopped, and others are given
 * free workers meanwhile. */
static bool is_closing_soon(const struct worker *w)
{
    bool closes = w->state == CLOSING || (w->state == BUSY && w->leaving);
    return closes && w->user && clock_monotonic() - w->user->asked_at < CLOSES_WITHIN;
}

size_t workers_go_on(struct workers *ws, size_t waiting)
{
    size_t coming = 0;
    double now = clock_monotonic();
    for (struct worker *w = TAILQ_FIRST(&ws->list), *next; w; w = next) {
        next = TAILQ_NEXT(w, link);
        if (w->state == WARM && is_at_rest(w, waiting)) {
            w->slice = now;
        } else if (w->state == WARM) {
            enum user_kind k = user_kind(w->user);
            size_t alike = k == USER_ORDINARY ? 0 : sched_apart(ws->r->sched, k);
            if (k != USER_ORDINARY && workers_beyond(ws, k))
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

bool workers_release_warm(struct workers *ws)
{
    struct worker *w, *longest = NULL;
    double now = clock_monotonic();
    TAILQ_FOREACH (w, &ws->list, link)
        if (w->state == WARM && !turn_holds(w, now) && (!longest || w->used < longest->used))
            longest = w;
    if (longest)
        give_way(longest);
    return longest != NULL;
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

void workers_forget_client(struct workers *ws, const void *client)
{
    struct worker *w;
    TAILQ_FOREACH (w, &ws->list, link)
        admin_forget(w->job.admin, client);
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
        if (w->user)
            w->user->worker = NULL;
        worker_free(w);
    }
    endings_close(ws->endings);
    free(ws->unreachable);
    free(ws->path);
    free(ws);
}
