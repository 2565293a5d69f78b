/* pace - fills the bucket, and lets requests through while something is in it. */
#include "dovecot-plugin/replicator/users/pace.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/metrics.h"
#include "dovecot-plugin/replicator/users/progress.h"

#define BURST 1.                     /* seconds that the bucket keeps */
#define HELD_MOST (32 * 1024 * 1024) /* bytes of what is held; what is more is asked for again */
#define LEAST_WAIT 0.01              /* seconds */
/* bytes of one that an answer brings */
#define MAIL_MOST ((double)PARCEL_PARTS_MAX * PARCEL_PART_MAX)

/* A request that waits. */
struct held_request {
    TAILQ_ENTRY(held_request) link;
    struct user *user;
    size_t peer, n;
    bool bulk;
    uint8_t *body;
};
TAILQ_HEAD(held_requests, held_request);

struct pace {
    struct replicator *r;
    double rate;  /* bytes a second; 0: no bound */
    double level; /* bytes that may be asked for, as of then */
    double at;
    size_t bytes; /* held */
    size_t held;
    struct held_requests queue;
    ev_timer timer; /* while something is held: until the bucket is at 0 */
};

static double level_now(struct pace *p)
{
    double now = clock_monotonic(), most = p->rate * BURST;
    double level = p->level + (now - p->at) * p->rate;
    p->at = now;
    p->level = level < most ? level : most;
    return p->level;
}

/* ---- one request ---- */

/* What was charged and has not come. */
static void refund(struct pace *p, struct user_peer *up)
{
    p->level += up->expected;
    up->expected = up->may = 0;
}

static size_t mails_wanted(struct text body)
{
    struct orset_reader wants;
    size_t n;
    return parcel_wants(body, &n, &wants) < 0 ? 0 : n;
}

/* Of a large mail, its first part stands for it. */
static size_t mails_in(unsigned kind, struct text body)
{
    struct orset_reader mails;
    struct parcel_body part;
    size_t n;
    if (kind == PARCEL_BODIES)
        return parcel_bodies(body, &n, &mails) < 0 ? 0 : n;
    return parcel_body(body, &part) == 0 && part.offset == 0;
}

/* It goes: the answer to the last one comes, or does not. */
static void go(struct pace *p, struct user *u, size_t peer, const struct frame_parcel *send)
{
    struct user_peer *up = &u->peer[peer];
    struct frame_parcel one = *send;
    one.site = p->r->group.peer[peer].site;
    refund(p, up);
    up->each = progress_mail_size(p->r->progress);
    up->expected = (double)mails_wanted(send->body) * up->each;
    up->may = (double)mails_wanted(send->body) * MAIL_MOST;
    p->level -= up->expected;
    user_send(u, &one);
}

/* ---- those that wait ---- */

static void set_body(struct pace *p, struct held_request *h, const struct frame_parcel *send)
{
    p->bytes += send->body.n - h->n;
    free(h->body);
    h->body = mem_dup(send->body.p, send->body.n);
    h->n = send->body.n;
    h->bulk = send->bulk;
}

static void hold(struct pace *p, struct user *u, size_t peer, const struct frame_parcel *send)
{
    struct user_peer *up = &u->peer[peer];
    if (p->bytes + send->body.n - (up->held ? up->held->n : 0) > HELD_MOST)
        return;
    if (!up->held) {
        up->held = mem_zero(sizeof *up->held);
        up->held->user = u;
        up->held->peer = peer;
        TAILQ_INSERT_TAIL(&p->queue, up->held, link);
        metric_set(replicator_held_requests, (long long)++p->held);
    }
    set_body(p, up->held, send);
}

static void drop(struct pace *p, struct held_request *h)
{
    ASSERT(p->held > 0 && p->bytes >= h->n);
    TAILQ_REMOVE(&p->queue, h, link);
    h->user->peer[h->peer].held = NULL;
    p->bytes -= h->n;
    metric_set(replicator_held_requests, (long long)--p->held);
    free(h->body);
    free(h);
}

static void arm(struct pace *p)
{
    ev_timer_stop(p->r->loop, &p->timer);
    if (TAILQ_EMPTY(&p->queue))
        return;
    double wait = -level_now(p) / p->rate;
    ev_now_update(p->r->loop);
    ev_timer_set(&p->timer, wait > LEAST_WAIT ? wait : LEAST_WAIT, 0.);
    ev_timer_start(p->r->loop, &p->timer);
}

/* In order, until the bucket is empty. */
static void run(struct pace *p)
{
    struct held_request *h;
    while (level_now(p) >= 0 && (h = TAILQ_FIRST(&p->queue))) {
        const struct frame_parcel send = {
            .kind = PARCEL_WANT, .bulk = h->bulk, .body = {h->body, h->n}};
        go(p, h->user, h->peer, &send);
        drop(p, h);
    }
    arm(p);
}

static void on_timer(struct ev_loop *loop, ev_timer *t, int events)
{
    (void)loop, (void)events;
    run(t->data);
}

/* ---- from workers and lanes ---- */

void pace_send(struct pace *p, struct user *u, const struct frame_parcel *send)
{
    const struct group *g = &p->r->group;
    if (p->rate == 0 || send->kind != PARCEL_WANT || send->body.n > PARCEL_MAX) {
        user_send(u, send);
        return;
    }
    bool waits = progress_fills(u) && (level_now(p) < 0 || !TAILQ_EMPTY(&p->queue));
    for (size_t i = 0; i < g->npeers; i++) {
        if (g->peer[i].removed || (send->site != 0 && send->site != g->peer[i].site))
            continue;
        if (waits)
            hold(p, u, i, send);
        else
            go(p, u, i, send);
    }
    run(p);
}

/* What nobody asked for costs nothing: a site that sends it would keep the others' mails away. */
void pace_came(struct pace *p, struct user *u, size_t peer, unsigned kind, struct text body)
{
    if (p->rate == 0 || (kind != PARCEL_BODY && kind != PARCEL_BODIES))
        return;
    struct user_peer *up = u ? &u->peer[peer] : NULL;
    double bytes = up && (double)body.n < up->may ? (double)body.n : up ? up->may : 0;
    double charged = bytes > 0 ? (double)mails_in(kind, body) * up->each : 0;
    if (bytes == 0)
        return;
    if (charged > up->expected)
        charged = up->expected;
    up->expected -= charged;
    up->may -= bytes;
    p->level += charged - bytes;
    run(p);
}

void pace_forget(struct pace *p, struct user *u, size_t peer)
{
    struct user_peer *up = &u->peer[peer];
    refund(p, up);
    if (up->held)
        drop(p, up->held);
    arm(p);
}

void pace_forget_all(struct pace *p, struct user *u)
{
    for (size_t i = 0; i < p->r->group.npeers; i++)
        pace_forget(p, u, i);
}

struct pace *pace_open(struct replicator *r)
{
    struct pace *p = mem_zero(sizeof *p);
    p->r = r;
    p->rate = (double)r->config->join_rate;
    p->at = clock_monotonic();
    TAILQ_INIT(&p->queue);
    ev_timer_init(&p->timer, on_timer, 0., 0.);
    p->timer.data = p;
    return p;
}

void pace_close(struct pace *p)
{
    if (!p)
        return;
    ev_timer_stop(p->r->loop, &p->timer);
    free(p);
}
