#include "relay/shape/slots.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "relay/shape/scripts.h"

#define POLL 1.    /* seconds */
#define SOON 0.02  /* the same, when more are wanted */
#define ANSWER 0.6 /* seconds: an answer that takes longer is not waited for */
#define TOLD 3500  /* milliseconds for which what a relay said counts */
#define VALUE_MOST 1e6
#define LEFT_MOST (7 * 86400000LL) /* milliseconds */
#define SETTLING 1.5 /* seconds: at a new arbiter nobody gets more before all have said theirs */

static const char *const kind_word[BACKOFF_KINDS] = {"suspend", "rate", "connections"};

/* What was heard here, and no node was told yet. */
struct heard {
    double value;
    int64_t milliseconds; /* 0: nothing */
};

struct slots {
    struct relay *relay;
    struct arbiters *arbiters;
    char *destination, *connections_key, *backoff_key;
    const struct slots_calls *calls;
    void *arg;
    struct arbiter arbiter;
    int64_t most;
    bool backoff;
    size_t may;      /* as was answered last */
    double asked_at; /* clock_monotonic; 0: no question is open */
    struct heard heard[BACKOFF_KINDS];
    ev_timer poll;
    size_t open; /* questions without an answer */
    bool closed; /* it goes with the last of them */
    bool refused;
};

static void poll_in(struct slots *s, double seconds)
{
    ev_timer_stop(s->relay->loop, &s->poll);
    ev_timer_set(&s->poll, seconds, 0.);
    ev_timer_start(s->relay->loop, &s->poll);
}

/* ---- connections ---- */

/* One relay's part, when nobody counts for the group. */
static size_t part_of_one(const struct slots *s)
{
    size_t part = (size_t)s->most / s->relay->config->nnodes;
    return part ? part : 1;
}

static void set_may(struct slots *s, size_t may)
{
    bool changed = s->may != may;
    s->may = may;
    if (changed)
        s->calls->changed(s->arg);
}

static void on_refused(struct slots *s, const redisReply *reply)
{
    if (!s->refused)
        log_warning(
            "connections to %s cannot be counted for the group, and each relay has its part "
            "of them: %s. `dovelane acl` again, into the nodes' aclfile, and ACL LOAD",
            s->destination, reply->str ? reply->str : "no number");
    s->refused = true;
    set_may(s, part_of_one(s));
}

/* Of each answer, first. True: nobody waits for it any more. */
static bool is_over(struct slots *s)
{
    bool closed = s->closed;
    s->open--;
    if (closed && !s->open)
        slots_close(s);
    return closed;
}

static void on_slots(struct wire *w, redisReply *reply, void *arg)
{
    struct slots *s = arg;
    if (is_over(s))
        return;
    s->asked_at = 0.;
    if (!s->most || !reply)
        return;
    if (reply->type != REDIS_REPLY_INTEGER) {
        on_refused(s, reply);
        return;
    }
    s->refused = false;
    set_may(s, (size_t)(reply->integer < 0         ? 0
                        : reply->integer > s->most ? s->most
                                                   : reply->integer));
}

static void ask_slots(struct slots *s, struct wire *w, double part, size_t held, size_t wanted)
{
    char number[4][24];
    if (arbiter_known(s->arbiters, &s->arbiter) < SETTLING && wanted > held)
        wanted = held ? held : 1;
    int64_t most = (int64_t)((double)s->most * part);
    snprintf(number[0], sizeof number[0], "%zu", held);
    snprintf(number[1], sizeof number[1], "%zu", wanted);
    snprintf(number[2], sizeof number[2], "%lld", most > 0 ? (long long)most : 1ll);
    snprintf(number[3], sizeof number[3], "%d", TOLD);
    if (wire_sendf(w, on_slots, s, "EVAL %s 1 %s %s %s %s %s %s", SHAPE_SLOTS, s->connections_key,
                   s->relay->node, number[0], number[1], number[2], number[3])) {
        s->open++;
        s->asked_at = clock_monotonic();
    }
}

/* ---- back-off ---- */

static int kind_of(const char *word)
{
    for (int i = 0; word && i < BACKOFF_KINDS; i++)
        if (!strcmp(word, kind_word[i]))
            return i;
    return -1;
}

/* A value that no rule can have would be no bound at all, or for ever. */
static void heard_of(struct slots *s, enum backoff_kind kind, double value, long long left)
{
    bool good = kind == BACKOFF_SUSPEND ? value >= 0. : value > 0. && value <= VALUE_MOST;
    if (good && left > 0)
        s->calls->backoff(s->arg, kind, value, left < LEFT_MOST ? left : LEFT_MOST);
}

static void on_backoff(struct wire *w, redisReply *reply, void *arg)
{
    struct slots *s = arg;
    if (is_over(s))
        return;
    if (!reply || reply->type != REDIS_REPLY_ARRAY)
        return;
    for (size_t i = 0; i + 2 < reply->elements; i += 3) {
        int kind = kind_of(reply->element[i]->str);
        const char *value = reply->element[i + 1]->str, *left = reply->element[i + 2]->str;
        if (kind >= 0 && value && left)
            heard_of(s, (enum backoff_kind)kind, strtod(value, NULL), strtoll(left, NULL, 10));
    }
}

static void ask_backoff(struct slots *s, struct wire *w)
{
    char number[2 * BACKOFF_KINDS][32];
    const char *v[4 + 3 * BACKOFF_KINDS] = {"EVAL", SHAPE_BACKOFF, "1", s->backoff_key};
    size_t len[4 + 3 * BACKOFF_KINDS];
    int n = 4;
    for (int i = 0; i < BACKOFF_KINDS; i++) {
        struct heard *h = &s->heard[i];
        if (!h->milliseconds)
            continue;
        snprintf(number[2 * i], sizeof number[0], "%.9g", h->value);
        snprintf(number[2 * i + 1], sizeof number[0], "%lld", (long long)h->milliseconds);
        v[n++] = kind_word[i];
        v[n++] = number[2 * i];
        v[n++] = number[2 * i + 1];
    }
    for (int i = 0; i < n; i++)
        len[i] = strlen(v[i]);
    if (!wire_send(w, on_backoff, s, n, v, len))
        return;
    s->open++;
    memset(s->heard, 0, sizeof s->heard);
}

/* ---- the poll ---- */

static void on_poll(struct ev_loop *loop, ev_timer *t, int events)
{
    struct slots *s = t->data;
    size_t held = 0, wanted = 0;
    double part;
    if (s->relay->stopping || !s->calls->need(s->arg, &held, &wanted))
        return; /* slots_want() begins again */
    poll_in(s, POLL);
    struct wire *w = arbiter_choose(s->arbiters, &s->arbiter, s->destination, &part);
    if (!w)
        return;
    bool waits = s->asked_at > 0. && clock_monotonic() - s->asked_at < ANSWER;
    if (s->most && !waits)
        ask_slots(s, w, part, held, wanted);
    if (s->backoff)
        ask_backoff(s, w);
}

static void poll_at(struct slots *s, double seconds)
{
    if (!ev_is_active(&s->poll) || ev_timer_remaining(s->relay->loop, &s->poll) > seconds)
        poll_in(s, seconds);
}

/* ---- interface ---- */

size_t slots_may(const struct slots *s)
{
    return s->most ? s->may : SIZE_MAX;
}

void slots_want(struct slots *s)
{
    bool waits = s->asked_at > 0. && clock_monotonic() - s->asked_at < ANSWER;
    poll_at(s, s->most && !waits ? SOON : POLL);
}

void slots_tell(struct slots *s, enum backoff_kind kind, double value, int64_t milliseconds)
{
    struct heard *h = &s->heard[kind];
    if (!h->milliseconds || value < h->value)
        h->value = value;
    if (milliseconds > h->milliseconds)
        h->milliseconds = milliseconds;
    poll_at(s, SOON);
}

void slots_set(struct slots *s, int64_t most, bool backoff)
{
    if (!s->most && most > 0)
        s->may = 0;
    s->most = most;
    s->backoff = backoff;
    if (most || backoff)
        poll_at(s, SOON);
    else
        ev_timer_stop(s->relay->loop, &s->poll);
}

struct slots *slots_open(struct relay *r, struct arbiters *arbiters, const char *destination,
                         const struct slots_calls *calls, void *arg)
{
    struct slots *s = mem_zero(sizeof *s);
    s->relay = r;
    s->arbiters = arbiters;
    s->destination = mem_strdup(destination);
    s->connections_key = mem_printf(CONTROL_BUCKET "%s" CONTROL_BUCKET_CONNECTIONS, destination);
    s->backoff_key = mem_printf(CONTROL_BUCKET "%s" CONTROL_BUCKET_BACKOFF, destination);
    s->calls = calls;
    s->arg = arg;
    s->arbiter.node = -1;
    ev_timer_init(&s->poll, on_poll, 0., 0.);
    s->poll.data = s;
    return s;
}

void slots_close(struct slots *s)
{
    ev_timer_stop(s->relay->loop, &s->poll);
    s->closed = true;
    if (s->open)
        return;
    free(s->destination);
    free(s->connections_key);
    free(s->backoff_key);
    free(s);
}
