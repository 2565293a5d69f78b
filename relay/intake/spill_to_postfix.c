#include "relay/intake/spill_to_postfix.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "relay/delivery/connections.h"
#include "relay/delivery/reinject.h"
#include "lib/base/log.h"
#include "relay/delivery/mail.h"
#include "lib/base/mem.h"
#include "lib/base/metrics.h"
#include "relay/acks/owners.h"
#include "relay/intake/memory_pressure.h"
#include "relay/tables/lane_pause.h"
#include "relay/intake/stall.h"
#include "relay/shape/gate.h"

#define TICK 0.25
/* seconds between two rounds through all lanes; one tick while there is pressure or a drain */
#define PERIOD 5.
#define PAGE 200 /* entries looked at with one READ */
#define FETCH 50 /* read into the in-flight table with one GET */
#define FETCH_BYTES (8 * 1024 * 1024)
#define IN_HAND 100 /* on their way to Postfix's queue at one time, and as many bounces */
#define STUCK 1.    /* seconds without room: that port does not answer, others may */
#define AGAIN 10.   /* seconds until a mark that could not be obeyed is looked at again */
#define LIST_PAGE 1000

enum job_reason {
    JOB_ROUND,  /* every few seconds */
    JOB_ASKED,  /* by an admin */
    JOB_YOUNG,  /* the same, for what was too young then */
    JOB_MARKED, /* an admin's mark could not be obeyed then */
};

/* A lane to be looked through. */
struct job {
    TAILQ_ENTRY(job) next;
    enum job_reason reason;
    double not_before; /* clock_monotonic */
    size_t len;
    char name[];
};
TAILQ_HEAD(job_list, job);

struct chosen {
    unsigned char id[ENTRYID_LEN];
    enum spill_reason reason;
};

struct spill {
    struct relay *relay;
    ev_timer tick;
    struct job_list jobs;
    double tokens, last; /* spill_rate */
    double next_round, pause_until;
    size_t round; /* jobs of the present round that are left */
    bool draining, listing;
    /* there was no room for the next one: looked at again when something has left the in-flight
     * table, or with the next tick */
    bool full;
    unsigned released; /* inflight_released() by then */

    struct job *job;          /* the one that goes on, or NULL */
    struct lane *lane;        /* its lane, counted as busy so that it is not forgotten meanwhile */
    bool asking;              /* READ or GET is under way */
    bool young;               /* an entry of it was too young to be touched */
    long long at;             /* sequence to go on from */
    size_t nchosen, nexpired; /* of those, so many bounce */
    struct chosen chosen[FETCH];
    /* clock_monotonic: since then there was no room on the way to the queue, and for bounces; 0:
     * there was */
    double no_room[2];
    bool bounces; /* the last one that was looked at does, or would */
};

bool spill_draining(const struct relay *r)
{
    return r->spill->draining;
}

/* ---- jobs ---- */

static void add_job(struct spill *s, const char *name, size_t len, enum job_reason why,
                    double not_before)
{
    struct job *j;
    /* A round lists each lane once. What was too young must be looked at after its own time. */
    TAILQ_FOREACH (j, &s->jobs, next)
        if ((why == JOB_ASKED || why == JOB_MARKED) && j->reason == why && j->len == len &&
            !memcmp(j->name, name, len))
            return;
    j = mem_alloc(sizeof *j + len + 1);
    j->reason = why;
    j->not_before = not_before;
    j->len = len;
    memcpy(j->name, name, len);
    j->name[len] = '\0';
    if (why != JOB_ROUND) {
        TAILQ_INSERT_HEAD(&s->jobs, j, next);
    } else {
        TAILQ_INSERT_TAIL(&s->jobs, j, next);
        s->round++;
    }
}

/* No milter revokes any more what is older, in milliseconds. */
static int64_t settled(const struct config *c)
{
    return c->settle + c->revoke_wait;
}

static void end_job(struct spill *s)
{
    /* What was too young is looked at again when it is old enough, once: what comes later was
     * not marked by that command. */
    if (s->job && s->young)
        add_job(s, s->job->name, s->job->len, JOB_YOUNG,
                clock_monotonic() + (double)settled(s->relay->config) / 1000. + TICK);
    s->young = false;
    ASSERT(!s->job || s->job->reason != JOB_ROUND || s->round);
    s->round -= s->job && s->job->reason == JOB_ROUND;
    if (s->lane)
        s->lane->commands--;
    free(s->job);
    s->job = NULL;
    s->lane = NULL;
}

static void begin_job(struct spill *s)
{
    double now = clock_monotonic();
    while (!s->job) {
        TAILQ_FOREACH (s->job, &s->jobs, next)
            if (s->job->not_before <= now)
                break;
        if (!s->job)
            return;
        TAILQ_REMOVE(&s->jobs, s->job, next);
        s->lane = lanes_get(s->relay, s->job->name, s->job->len);
        s->lane->commands++;
        s->at = 1;
        if (s->lane->ownership != OWNERSHIP_OURS || !s->lane->destination)
            end_job(s);
        else if (s->job->reason == JOB_ASKED)
            destination_probe(s->lane->destination);
    }
}

/* ---- choosing ---- */

static void is_full(struct spill *s)
{
    s->full = true;
    s->released = inflight_released(s->relay);
}

static bool has_place(struct spill *s, bool bounces)
{
    double *since = &s->no_room[bounces];
    size_t taken = bounces ? inflight_expired(s->relay) + s->nexpired
                           : inflight_spilled(s->relay) + s->nchosen - s->nexpired;
    if (taken < IN_HAND)
        *since = 0.;
    else if (*since <= 0.)
        *since = clock_monotonic();
    return taken < IN_HAND;
}

static bool room(struct spill *s, bool bounces, bool limited)
{
    s->bounces = bounces;
    return has_place(s, bounces) && s->nchosen < FETCH && (!limited || s->tokens >= 1.);
}

/* Other lanes' mail may go the other way, and is not to wait for that. */
static bool is_stuck(struct spill *s, bool bounces)
{
    return !has_place(s, bounces) && clock_monotonic() - s->no_room[bounces] > STUCK;
}

/* What is in flight already hears of an admin's marks, too. */
static void tell_known(struct entry *e, const struct envelope *env, long long revision)
{
    if (!(env->marks & ENVELOPE_ADMIN) || env->marks == e->envelope.marks || e->dirty ||
        e->state == ENTRY_RECORDING)
        return;
    e->envelope.marks = env->marks;
    e->revision = (uint32_t)revision;
    mail_leave(e);
}

enum choice {
    CHOICE_NO,
    CHOICE_YES,
    CHOICE_LATER /* there is no room */,
    CHOICE_END /* nor is anything behind it */
};

/* How long a mail may wait. What waits because an admin suspended its next hop is not to go there
 * another way; when that has ended, it has its whole time to be tried. */
static bool is_old(struct spill *s, int64_t age, enum spill_reason *reason)
{
    struct destination *d = s->lane->destination;
    const struct shape *shape = shape_for(d);
    bool bounces = shape->timeout && shape->timeout_action == SHAPE_TIMEOUT_BOUNCE;
    int64_t most = shape->timeout ? shape->timeout : s->relay->config->lane_time;
    if (age < most || shape_suspended_at(shape, clock_wall()) || !gate_unsuspended_for(d, most))
        return false;
    /* Memory that is short does not wait for a port that takes no bounces. */
    bool memory = bounces && is_stuck(s, true) && pressure_on(s->relay, s->lane);
    *reason = memory ? SPILL_MEMORY : bounces ? SPILL_EXPIRED : SPILL_LANE_TIME;
    return true;
}

/* Its bounce was not taken, or it was delivered once, so that it does not bounce: the next attempt
 * has a time of its own. */
static bool tried_later(struct spill *s, const redisReply *r, const struct envelope *env)
{
    for (size_t i = 0; i < env->nrecipients; i++)
        if (env->recipient[i].state == RECIPIENT_WAITING &&
            !recipient_was_delivered(&env->recipient[i]))
            return false;
    return !mail_due(s->relay, s->lane->destination, (unsigned char *)r->element[1]->str, env);
}

static enum choice choose(struct spill *s, const redisReply *r, const struct envelope *env,
                          enum spill_reason *reason)
{
    const struct config *c = s->relay->config;
    long long age = r->element[4]->integer;
    bool able = reinject_able(s->relay), limited = false;
    *reason = SPILL_NONE;
    /* In order of age: those behind are younger still. */
    if (age < settled(c)) {
        s->young |= s->job->reason == JOB_ASKED;
        return s->job->reason != JOB_ROUND ? CHOICE_NO : CHOICE_END;
    }
    if (env->marks & ENVELOPE_DELETED)
        return room(s, false, false) ? CHOICE_YES : CHOICE_LATER;
    if (env->marks & ENVELOPE_HELD)
        return CHOICE_NO;
    if (env->marks & ENVELOPE_REQUEUE)
        *reason = SPILL_REQUEUE;
    else if (s->draining)
        *reason = SPILL_DRAIN;
    else if (is_old(s, age, reason))
        limited = *reason != SPILL_EXPIRED;
    else if (pressure_on(s->relay, s->lane))
        *reason = SPILL_MEMORY, limited = true;
    else if (s->job->reason == JOB_ROUND)
        return CHOICE_END;
    else if (strcmp(r->element[7]->str, "delayed") || destination_is_away(s->lane->destination) ||
             !mail_due(s->relay, s->lane->destination, (unsigned char *)r->element[1]->str, env))
        return CHOICE_NO;
    if (envelope_is_retained(env)) /* Postfix knows no ids: it would show twice */
        return CHOICE_NO;
    if (*reason == SPILL_EXPIRED && tried_later(s, r, env))
        return CHOICE_NO;
    if (*reason && *reason != SPILL_EXPIRED && !able)
        return s->job->reason != JOB_ROUND ? CHOICE_NO : CHOICE_END;
    if (*reason && *reason != SPILL_EXPIRED && s->job->reason != JOB_ASKED &&
        reinject_refused(s->relay, r->element[1]->str))
        return CHOICE_NO;
    if ((limited || *reason == SPILL_EXPIRED) && is_stuck(s, *reason == SPILL_EXPIRED))
        return s->job->reason != JOB_ROUND ? CHOICE_NO : CHOICE_END;
    if (!room(s, *reason == SPILL_EXPIRED, limited) ||
        (!*reason &&
         s->lane->destination->in_flight + s->nchosen >= (size_t)c->destination_in_flight))
        return CHOICE_LATER;
    if (limited)
        s->tokens -= 1.;
    return CHOICE_YES;
}

/* ---- into the in-flight table ---- */

static enum spill_reason reason_of(const struct spill *s, const redisReply *id)
{
    for (size_t i = 0; i < s->nchosen; i++)
        if (!memcmp(s->chosen[i].id, id->str, ENTRYID_LEN))
            return s->chosen[i].reason;
    return SPILL_NONE;
}

static void fetched(struct spill *s, redisReply *e)
{
    struct relay *r = s->relay;
    if (e->type != REDIS_REPLY_ARRAY || e->elements < 8 || e->element[1]->len != ENTRYID_LEN ||
        e->element[5]->type != REDIS_REPLY_STRING || e->element[6]->type != REDIS_REPLY_STRING)
        return;
    const redisReply *id = e->element[1], *meta = e->element[5];
    if (inflight_find(r, (unsigned char *)id->str) || s->lane->ownership != OWNERSHIP_OURS ||
        !s->lane->destination)
        return;
    struct entry *entry = inflight_add(r, s->lane, (unsigned char *)id->str, e->element[6]);
    e->element[6] = NULL;
    entry->generation = owners_generation(r);
    entry->revision = (uint32_t)e->element[2]->integer;
    entry->failed_leases = e->element[3]->integer;
    entry->stored_at = clock_boottime() - (double)e->element[4]->integer / 1000.;
    enum spill_reason reason = reason_of(s, id);
    if (reason == SPILL_EXPIRED)
        inflight_expire(entry);
    else
        inflight_spill(entry, reason);
    mail_begin(entry, meta->str, (size_t)meta->len);
}

static void on_fetched(struct wire *w, redisReply *reply, void *arg)
{
    struct spill *s = arg;
    s->asking = false;
    s->lane->commands--;
    bool may = !s->relay->stopping && !stall_now(s->relay);
    for (size_t i = 0; may && reply && reply->type == REDIS_REPLY_ARRAY && i < reply->elements; i++)
        fetched(s, reply->element[i]);
    s->nchosen = s->nexpired = 0;
    if (!s->at)
        end_job(s);
}

static void fetch(struct spill *s)
{
    struct wire *wire = owners_wire(s->relay);
    ASSERT(s->lane && !s->asking && s->nchosen && s->nchosen <= FETCH);
    const char *v[4 + FETCH] = {"LANE.GET", s->lane->name, "IDS"};
    size_t len[4 + FETCH] = {8, s->lane->name_len, 3};
    char count[24];
    len[3] = (size_t)snprintf(count, sizeof count, "%zu", s->nchosen);
    v[3] = count;
    for (size_t i = 0; i < s->nchosen; i++) {
        v[4 + i] = (const char *)s->chosen[i].id;
        len[4 + i] = ENTRYID_LEN;
    }
    s->asking = true;
    s->lane->commands++;
    if (!wire_send(wire, on_fetched, s, (int)(4 + s->nchosen), v, len))
        on_fetched(wire, NULL, s);
}

/* ---- looking ---- */

static bool well_formed(const redisReply *e)
{
    return e->type == REDIS_REPLY_ARRAY && e->elements >= 8 && e->element[1]->len == ENTRYID_LEN &&
           e->element[4]->type == REDIS_REPLY_INTEGER &&
           e->element[5]->type == REDIS_REPLY_STRING && e->element[7]->str;
}

/* true: the page was looked through to its end. */
static bool look_at_page(struct spill *s, const redisReply *page)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < page->elements; i++) {
        const redisReply *e = page->element[i];
        struct envelope env;
        enum spill_reason reason;
        if (!well_formed(e) ||
            envelope_decode(e->element[5]->str, (size_t)e->element[5]->len, &env))
            continue;
        struct entry *known = inflight_find(s->relay, (unsigned char *)e->element[1]->str);
        if (known)
            tell_known(known, &env, e->element[2]->integer);
        enum choice choice = known || !strcmp(e->element[7]->str, "leased")
                                 ? CHOICE_NO
                                 : choose(s, e, &env, &reason);
        if (choice == CHOICE_YES && s->nchosen && bytes + env.size > FETCH_BYTES)
            choice = CHOICE_LATER;
        bytes += env.size;
        envelope_free(&env);
        if (choice == CHOICE_END) {
            s->at = 0;
            return false;
        }
        if (choice == CHOICE_LATER) {
            is_full(s);
            s->at = e->element[0]->integer;
            return false;
        }
        if (choice == CHOICE_NO)
            continue;
        memcpy(s->chosen[s->nchosen].id, e->element[1]->str, ENTRYID_LEN);
        s->chosen[s->nchosen++].reason = reason;
        s->nexpired += reason == SPILL_EXPIRED;
    }
    return true;
}

static void on_page(struct wire *w, redisReply *reply, void *arg)
{
    struct spill *s = arg;
    ASSERT(s->job && s->lane->commands);
    s->asking = false;
    s->lane->commands--;
    bool good = reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
                reply->element[1]->type == REDIS_REPLY_ARRAY;
    s->nchosen = s->nexpired = 0;
    if (!good) {
        end_job(s); /* the next round begins anew */
        return;
    }
    if (s->lane->moving) {
        is_full(s); /* the same page again with the next tick */
        return;
    }
    if (look_at_page(s, reply->element[1]))
        s->at = reply->element[0]->integer;
    if (s->nchosen)
        fetch(s);
    else if (!s->at)
        end_job(s);
}

static bool may_look(const struct spill *s)
{
    struct relay *r = s->relay;
    return !r->stopping && owners_ready(r) && !owners_refused(r) && !stall_now(r);
}

static void go_on(struct spill *s)
{
    if (s->asking || !may_look(s))
        return;
    begin_job(s);
    if (!s->job)
        return;
    s->asking = true;
    s->lane->commands++;
    if (!wire_sendf(owners_wire(s->relay), on_page, s, "LANE.READ %b %lld COUNT %d NOBODY",
                    s->lane->name, s->lane->name_len, s->at, PAGE))
        on_page(owners_wire(s->relay), NULL, s);
}

/* ---- rounds ---- */

static void list(struct spill *, const char *cursor);

static void on_list(struct wire *w, redisReply *reply, void *arg)
{
    struct spill *s = arg;
    char cursor[32] = "0";
    s->listing = false;
    if (!reply || reply->type != REDIS_REPLY_ARRAY || reply->elements < 2 ||
        reply->element[1]->type != REDIS_REPLY_ARRAY)
        return;
    const redisReply *lanes = reply->element[1];
    for (size_t i = 0; i + 2 < lanes->elements; i += 3)
        if (lanes->element[i]->type == REDIS_REPLY_STRING && lanes->element[i + 1]->integer > 0)
            add_job(s, lanes->element[i]->str, (size_t)lanes->element[i]->len, JOB_ROUND, 0.);
    if (reply->element[0]->type == REDIS_REPLY_INTEGER)
        snprintf(cursor, sizeof cursor, "%lld", reply->element[0]->integer);
    else if (reply->element[0]->str)
        snprintf(cursor, sizeof cursor, "%s", reply->element[0]->str);
    if (strcmp(cursor, "0"))
        list(s, cursor);
}

static void list(struct spill *s, const char *cursor)
{
    s->listing = wire_sendf(owners_wire(s->relay), on_list, s,
                            "LANE.LIST %s MATCH " LANENAME_PREFIX "* COUNT %d", cursor, LIST_PAGE);
}

static void begin_round(struct spill *s, double now)
{
    bool urgent = s->draining || pressure_any(s->relay);
    if ((!*s->relay->config->reinject_port && !shape_control_may_bounce(s->relay)) || s->listing ||
        s->round || s->job || !may_look(s) || now < s->next_round)
        return;
    s->next_round = now + (urgent ? TICK : PERIOD);
    list(s, "0");
}

static void on_tick(struct ev_loop *loop, ev_timer *t, int events)
{
    struct spill *s = t->data;
    double now = clock_monotonic(), rate = (double)s->relay->config->spill_rate;
    s->tokens += rate * (now - s->last);
    s->last = now;
    if (s->tokens > rate)
        s->tokens = rate; /* a second's worth, and at least one */
    s->full = false;
    begin_round(s, now);
    go_on(s);
}

void spill_run(struct relay *r)
{
    struct spill *s = r->spill;
    for (struct lane *lane; (lane = lanes_marked(r));)
        add_job(s, lane->name, lane->name_len, JOB_MARKED, clock_monotonic() + AGAIN);
    size_t in_hand = s->bounces ? inflight_expired(r) : inflight_spilled(r);
    if (s->released != inflight_released(r) && in_hand <= IN_HAND / 2)
        s->full = false;
    if ((s->job || !TAILQ_EMPTY(&s->jobs)) && !s->asking && !s->full)
        go_on(s);
}

bool spill_fetches(const struct relay *r, const unsigned char *id)
{
    const struct spill *s = r->spill;
    for (size_t i = 0; i < s->nchosen; i++)
        if (!memcmp(s->chosen[i].id, id, ENTRYID_LEN))
            return true;
    return false;
}

/* ---- interface ---- */

void spill_look(struct relay *r, const char *lane, size_t len)
{
    add_job(r->spill, lane, len, JOB_ASKED, 0.);
    lane_pause_end(lanes_get(r, lane, len));
    go_on(r->spill);
}

void spill_drain(struct relay *r, bool on)
{
    struct spill *s = r->spill;
    if (s->draining == on)
        return;
    s->draining = on;
    s->next_round = 0.;
    log_info(
        on ? "an admin drains this node: everything goes to Postfix's queue, nothing is delivered"
           : "the drain is over: mail is delivered again");
    if (!on) {
        destinations_want_all(r);
        return;
    }
    /* What waits for a next hop goes back, to go the other way. */
    for (struct entry *e = inflight_first(r), *next; e; e = next) {
        next = TAILQ_NEXT(e, taken);
        if (!e->spill)
            mail_leave(e);
    }
}

struct spill *spill_open(struct relay *r)
{
    struct spill *s = mem_zero(sizeof *s);
    s->relay = r;
    TAILQ_INIT(&s->jobs);
    s->last = clock_monotonic();
    ev_timer_init(&s->tick, on_tick, TICK, TICK);
    s->tick.data = s;
    ev_timer_start(r->loop, &s->tick);
    return s;
}

void spill_close(struct spill *s)
{
    struct job *j;
    ev_timer_stop(s->relay->loop, &s->tick);
    end_job(s);
    while ((j = TAILQ_FIRST(&s->jobs))) {
        TAILQ_REMOVE(&s->jobs, j, next);
        free(j);
    }
    free(s);
}
