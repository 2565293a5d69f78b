/* job - takes reasons from a user into one question, and gives them back. */
#include "dovecot-plugin/replicator/workers/job.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "dovecot-plugin/protocol/parcel.h"
#include "dovecot-plugin/replicator/users/confirm.h"
#include "dovecot-plugin/replicator/users/fetches.h"
#include "dovecot-plugin/replicator/site/ledger.h"
#include "lib/base/log.h"
#include "lib/base/metrics.h"
#include "dovecot-plugin/replicator/users/progress.h"
#include "dovecot-plugin/replicator/lanes/outbox.h"
#include "dovecot-plugin/replicator/lanes/inbox.h"

#define CRASHES_MAX 3 /* workers that one parcel may take along */
/* seconds for which parcels of a user who is unknown here are dropped unseen */
#define UNKNOWN_FOR 60.
#define UNKNOWN_HINTS 5. /* the same for hints: a name made up costs a lookup, not more */

static struct text text_of(const char *s, size_t n)
{
    return (struct text){(const uint8_t *)s, n};
}

/* ---- what is next ---- */

/* Something can be sent to that peer now. */
static bool takes(const struct user *u, size_t peer)
{
    return outbox_ready(u->r->outbox, peer) && !user_keeps_from(&u->peer[peer]);
}

/* What was wanted before the lane was full waits until there is room. */
static void put_off(struct user_peer *p)
{
    if (p->want & 1u << FRAME_SHIP_CONFIRMED)
        p->missing = 1;
    else if (p->want & 1u << FRAME_SHIP_NEW)
        p->more = true;
    p->want &= ~(1u << FRAME_SHIP_CONFIRMED | 1u << FRAME_SHIP_NEW);
}

static void next_ingest(struct job *j, struct user *u, struct frame *f)
{
    j->kind = JOB_INGEST;
    j->look = user_has_reason(u);
    j->asks = u->joins;
    f->type = FRAME_INGEST;
    f->u.ingest.sweep = !u->look_all && !u->nlook;
    f->u.ingest.n = u->look_all ? 0 : u->nlook;
    for (size_t i = 0; i < f->u.ingest.n; i++) {
        f->u.ingest.mailbox[i].guid =
            *u->look[i].guid ? text_of(u->look[i].guid, 32) : text_of("-", 1);
        f->u.ingest.mailbox[i].name = text_of(u->look[i].name, u->look[i].n);
    }
}

static void next_parcel(struct job *j, struct user *u, struct frame *f)
{
    struct parcel_in_flight *p = TAILQ_FIRST(&u->parcels);
    j->kind = JOB_PARCEL;
    j->parcel = p;
    f->type = FRAME_PARCEL;
    f->u.parcel = (struct frame_parcel){
        .site = u->r->group.peer[p->peer].site, .kind = p->kind, .body = p->body};
}

/* ways: bits 1 << enum frame_ship, those that may be. */
static bool next_ship(struct job *j, struct user *u, unsigned ways, struct frame *f)
{
    for (size_t i = 0; i < u->r->group.npeers; i++) {
        struct user_peer *p = &u->peer[i];
        if (!takes(u, i))
            put_off(p);
        if (user_keeps_from(p))
            p->want &= 1u << FRAME_SHIP_FORGET;
        /* A resend says all that a hello and a first send would say. */
        if (p->want & 1u << FRAME_SHIP_CONFIRMED)
            p->want &= ~(1u << FRAME_SHIP_NEW | 1u << FRAME_SHIP_HELLO);
        if (!(p->want & ways))
            continue;
        j->how = FRAME_SHIP_FORGET;
        while (!(p->want & ways & 1u << j->how))
            j->how--;
        p->want &= ~(1u << j->how);
        j->kind = JOB_SHIP;
        j->peer = i;
        bool one = j->how == FRAME_SHIP_CONFIRMED && p->resends > 1;
        if (one) {
            f->u.ship.from = 1; /* what is missing in the lane stays so */
        } else if (j->how == FRAME_SHIP_NEW || j->how == FRAME_SHIP_CONFIRMED) {
            f->u.ship.from = j->how == FRAME_SHIP_NEW ? p->missing : 0;
            j->from = j->how == FRAME_SHIP_NEW ? p->missing : 1;
            p->missing = 0;
        }
        f->type = FRAME_SHIP;
        f->u.ship.site = u->r->group.peer[i].site;
        f->u.ship.how = j->how;
        j->asks = j->how == FRAME_SHIP_EXCHANGE;
        if (j->how == FRAME_SHIP_CONFIRMED)
            metric_add(replicator_resends, 1);
        if (j->how == FRAME_SHIP_EXCHANGE)
            metric_add(replicator_exchanges, 1);
        if (j->how == FRAME_SHIP_FORGET)
            metric_add(replicator_forgotten, 1);
        return true;
    }
    return false;
}

/* What clients did here was done before they could see what the ops bring, and an op that is made
 * of it later would name that as if they had. So it is looked at first; not when a look has just
 * failed. */
static bool ops_are_next(const struct user *u, double now)
{
    const struct parcel_in_flight *p = TAILQ_FIRST(&u->parcels);
    return u->nparcels && now >= u->parcel_after && u->look_wait == 0 &&
           (p->first != 0 || parcel_is_answer(p->kind));
}

bool job_next(struct job *j, struct user *u, bool may_ask, struct frame *f)
{
    double now = clock_monotonic();
    const unsigned exchange = 1u << FRAME_SHIP_EXCHANGE;
    bool in_turn = may_ask || !u->joins, may_look = now >= u->look_after && in_turn;
    *j = (struct job){.kind = JOB_NONE};
    memset(f, 0, sizeof *f);
    /* What waited for this opening comes first: what the worker says then of what is confirmed
     * is true. */
    if (confirm_is_next(u, now)) {
        next_parcel(j, u, f);
        return true;
    }
    if (!TAILQ_EMPTY(&u->admin)) {
        j->kind = JOB_ADMIN;
        j->admin = TAILQ_FIRST(&u->admin);
        f->type = FRAME_ADMIN;
        f->u.admin.n = j->admin->n;
        for (size_t i = 0; i < j->admin->n; i++)
            f->u.admin.arg[i] = text_of(j->admin->arg[i], strlen(j->admin->arg[i]));
        return true;
    }
    /* Before it looks: else a state that waited long for its turn would go on unheard. */
    if (u->joins && may_ask && next_ship(j, u, exchange, f))
        return true;
    if (user_has_reason(u) && (may_look || (in_turn && ops_are_next(u, now)))) {
        next_ingest(j, u, f);
        return true;
    }
    if (u->nparcels && now >= u->parcel_after) {
        next_parcel(j, u, f);
        return true;
    }
    if (next_ship(j, u, may_ask ? ~0u : ~exchange, f))
        return true;
    if (u->tick && in_turn) {
        j->kind = JOB_TICK;
        j->asks = u->joins;
        f->type = FRAME_TICK;
        return true;
    }
    if (u->sweep && may_look) {
        next_ingest(j, u, f);
        return true;
    }
    return false;
}

bool job_last(struct job *j, struct user *u, struct frame *f)
{
    *j = (struct job){.kind = JOB_NONE};
    memset(f, 0, sizeof *f);
    return confirm_first(u) && next_ship(j, u, 1u << FRAME_SHIP_HELLO, f);
}

void job_asked(struct job *j, struct user *u)
{
    switch (j->kind) {
    case JOB_ADMIN: TAILQ_REMOVE(&u->admin, j->admin, link); break;
    case JOB_TICK: u->tick = false; break;
    case JOB_INGEST:
        /* What comes from now on is another reason to look. */
        for (size_t i = 0; i < u->nlook; i++)
            free(u->look[i].name);
        u->nlook = 0;
        u->look_all = u->look_many = u->sweep = false;
        user_asked_to_look(u);
        break;
    default: break;
    }
}

/* ---- how it ended ---- */

static void not_shipped(const struct job *j, struct user *u)
{
    struct user_peer *p = &u->peer[j->peer];
    if (j->from && (!p->missing || j->from < p->missing))
        p->missing = j->from;
}

void job_reply(struct job *j, struct text row)
{
    if (j->admin)
        j->admin->calls->row(j->admin, row);
}

static void say_refused(struct user *u, const struct job *j, struct text why)
{
    metric_add(replicator_foreign, 1);
    if (!user_may_say(u))
        return;
    const char *peer = u->r->group.peer[j->parcel->peer].name;
    if (why.n > 0)
        log_of(LOG_LEVEL_WARNING, LOG_FIELD_user, u->name,
               "parcel of kind %u from %s was refused: %.*s", j->parcel->kind, peer, SHOW(why));
    else
        log_of(LOG_LEVEL_WARNING, LOG_FIELD_user, u->name,
               "parcel of kind %u from %s was refused: the worker's line for this "
               "user says why",
               j->parcel->kind, peer);
}

/* soon: milliseconds after which the worker thinks that it can be done, or 0. */
static void temporary(struct job *j, struct user *u, struct text why, uint64_t soon)
{
    double *wait = j->kind == JOB_PARCEL ? &u->parcel_wait : &u->look_wait;
    double at = user_backoff(wait), now = clock_monotonic(), hoped = now + seconds((int64_t)soon);
    if (soon && hoped < at)
        at = hoped;
    metric_add(replicator_failures, 1);
    if (j->kind == JOB_PARCEL) {
        u->parcel_after = at;
        user_trim_parcels(u, inbox_crowded(u->r->inbox));
    }
    if (j->kind == JOB_INGEST) {
        u->look_after = at;
        u->look_all = u->look_all || j->look;
        u->sweep = u->sweep || !j->look;
    }
    if (j->kind == JOB_TICK && u->tick_at == 0)
        u->tick_at = at;
    if (j->kind == JOB_SHIP) {
        struct user_peer *p = &u->peer[j->peer];
        double *moment = j->how == FRAME_SHIP_EXCHANGE    ? &p->exchange_at
                         : j->how == FRAME_SHIP_CONFIRMED ? &p->resend_at
                                                          : &p->hello_at;
        if (*moment == 0 || *moment > at)
            *moment = at;
        not_shipped(j, u);
        p->ship_after = at;
    }
    if (user_may_say(u))
        log_of(LOG_LEVEL_WARNING, LOG_FIELD_user, u->name, "not now: %.*s; again in %.0f s",
               SHOW(why), at - now);
}

static void say_done(struct user *u, const struct job *j, const struct frame_done *d)
{
    static const char *const kind[] = {"nothing", "admin", "ingest", "parcel", "ship", "tick"};
    static const char *const how[] = {"new", "confirmed", "hello", "exchange", "forget"};
    static const char *const sweep[] = {"sweep", "hinted"};
    const char *more = j->kind == JOB_SHIP     ? how[j->how]
                       : j->kind == JOB_INGEST ? sweep[j->look]
                                               : "";
    size_t peer = j->kind == JOB_PARCEL ? j->parcel->peer : j->peer;
    bool peered = j->kind == JOB_PARCEL || j->kind == JOB_SHIP;
    log_of(LOG_LEVEL_DEBUG, LOG_FIELD_user, u->name, "%s%s%s%s%s: result %d %.*s", kind[j->kind],
           *more ? " " : "", more, peered ? " " : "", peered ? u->r->group.peer[peer].name : "",
           (int)d->result, SHOW(d->text));
}

void job_done(struct job *j, struct user *u, const struct frame_done *d)
{
    ASSERT(j->kind != JOB_PARCEL || j->parcel == TAILQ_FIRST(&u->parcels));
    say_done(u, j, d);
    if (j->kind == JOB_ADMIN) {
        j->admin->calls->done(j->admin, d);
        j->admin = NULL;
    } else if (d->result == FRAME_TEMPORARY) {
        temporary(j, u, d->text, d->tick);
    } else if (j->kind == JOB_PARCEL) {
        u->parcel_wait = 0;
        if (d->result == FRAME_REFUSED)
            say_refused(u, j, d->text);
        metric_observe(metric_series(METRIC_replica_apply_seconds,
                                     u->r->group.peer[j->parcel->peer].name, NULL),
                       clock_monotonic() - j->parcel->taken);
        fetches_came(u->r->fetches, u->name, j->parcel->kind, j->parcel->body);
        user_parcel_done(u, j->parcel);
        metric_add(replicator_done, 1);
    } else {
        u->look_wait = 0;
    }
    j->kind = JOB_NONE;
}

void job_failed(struct job *j, const char *why)
{
    if (j->kind != JOB_ADMIN || !*why)
        return;
    j->admin->calls->failed(j->admin, why, true);
    *j = (struct job){.kind = JOB_NONE};
}

void job_again(struct job *j, struct user *u)
{
    ASSERT(j->kind != JOB_PARCEL || j->parcel == TAILQ_FIRST(&u->parcels));
    switch (j->kind) {
    case JOB_NONE: break;
    case JOB_ADMIN:
        j->admin->calls->failed(j->admin, "the worker went away or could not go on", true);
        break;
    case JOB_INGEST:
        u->look_all = u->look_all || j->look;
        u->sweep = true;
        break;
    case JOB_PARCEL:
        if (++j->parcel->crashes < CRASHES_MAX)
            break;
        log_of(LOG_LEVEL_ERROR, LOG_FIELD_user, u->name,
               "%d workers went away over one parcel of kind %u (%zu bytes) from %s: "
               "it is dropped, and comes again if it held something unconfirmed",
               CRASHES_MAX, j->parcel->kind, j->parcel->body.n,
               u->r->group.peer[j->parcel->peer].name);
        metric_add(replicator_dropped, 1);
        user_parcel_done(u, j->parcel);
        break;
    case JOB_SHIP:
        u->peer[j->peer].want |= 1u << j->how;
        not_shipped(j, u);
        break;
    case JOB_TICK: u->tick = true; break;
    }
    *j = (struct job){.kind = JOB_NONE};
}

void job_unknown(struct user *u)
{
    double now = clock_monotonic();
    user_forget_work(u);
    ledger_forget_user(u->r->ledger, u->name);
    progress_forget(u);
    u->known = false;
    u->active_at = 0; /* nobody's: a name that was made up stays no longer than that */
    u->unknown_until = now + UNKNOWN_FOR;
    u->open_after = now + UNKNOWN_HINTS;
}
