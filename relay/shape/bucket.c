#include "relay/shape/bucket.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/metrics.h"
#include "relay/shape/scripts.h"

/* seconds: all relays together fetch no more at once than a rate's tokens of that time. It covers
 * the round trip to a node that is far away */
#define SLICE 0.2
#define QUICK 0.05 /* seconds: who uses all tokens so quickly fetches more of them next time */
/* seconds after which tokens that nothing used are forgotten; of a low rate, so long as the next one
 * takes, at most */
#define UNUSED 0.5
#define UNUSED_MOST 30.
#define SOON 1.    /* seconds: a connection may be opened so long before it is needed */
#define ANSWER 0.6 /* seconds: an answer that takes longer is not waited for */
#define LOOK 0.2   /* seconds, of a rate of 1/s: then it is looked who counts, while one waits */
#define LOOK_MOST 30.
#define LEAST 0.001   /* seconds between two questions */
#define WAIT_MOST 1e6 /* seconds; the longest of a rate that can be said is of this size */
#define BYTES_MOST 1e15
#define REFUSED 5. /* seconds until a server that refused is asked again */

struct bucket {
    struct relay *relay;
    struct arbiters *arbiters;
    char *destination, *key;
    const struct bucket_calls *calls;
    void *arg;
    struct bucket_rates rates;
    struct arbiter arbiter;

    double tokens;      /* mails that may leave */
    double bytes;       /* granted for them and before; below 0: so many left beyond that */
    double granted_at;  /* clock_monotonic */
    double coming;      /* tokens that count from `due` on; 0: none are booked */
    double due, booked; /* clock_monotonic; when they were booked */
    double
        promised; /* when the first node that booked them would have let them count; 0: none did */
    double batch; /* tokens that are fetched at once */

    unsigned asked; /* questions so far: an answer to an older one does not count */
    bool asking;    /* the last one is not answered */
    size_t open;    /* questions without an answer, also those that do not count any more */
    bool closed;    /* it goes with the last of them */
    ev_timer again; /* then it is worth to ask, or the answer is not waited for any more */

    double refused_until; /* clock_monotonic: no node counts for us, and we do it ourselves */
    double counted;       /* by when */
};

struct asked {
    struct bucket *bucket;
    unsigned number;
};

static bool has_token(const struct bucket *b)
{
    return b->tokens > 0.999;
}

static void again_in(struct bucket *b, double seconds)
{
    ev_timer_stop(b->relay->loop, &b->again);
    ev_timer_set(&b->again, seconds < LEAST ? LEAST : seconds, 0.);
    ev_timer_start(b->relay->loop, &b->again);
}

/* Who counts may change while a token is waited for. The higher the rate, the sooner that has to be
 * seen. */
static void wait_for_due(struct bucket *b)
{
    double left = b->due - clock_monotonic(),
           look = b->rates.rate > 0. ? LOOK / b->rates.rate : left;
    look = look < LOOK ? LOOK : look > LOOK_MOST ? LOOK_MOST : look;
    again_in(b, left < look ? left : look);
}

static void forget_booking(struct bucket *b)
{
    b->coming = b->promised = 0.;
}

static void grant(struct bucket *b, double mails)
{
    b->tokens += mails;
    b->granted_at = clock_monotonic();
    b->calls->filled(b->arg);
}

/* ---- by our own clock ---- */

/* A relay's part, when no server counts for the group. */
static void count_alone(struct bucket *b)
{
    double now = clock_monotonic(), passed = now - b->counted,
           nodes = (double)b->relay->config->nnodes, rate = b->rates.rate / nodes,
           bytes = b->rates.byte_rate / nodes, wait = 0.;
    b->counted = now;
    if (passed > 1.)
        passed = 1.;
    b->tokens += rate > 0. ? rate * passed : 1.;
    b->bytes += bytes * passed;
    if (bytes > 0. && b->bytes <= 0.) {
        wait = (1. - b->bytes) / bytes;
        b->tokens = 0.;
    } else if (rate > 0. && !has_token(b)) {
        wait = (1. - b->tokens) / rate;
    }
    if (wait > 0.)
        again_in(b, wait);
    else
        grant(b, 0.);
}

static void refuse(struct bucket *b, const char *why)
{
    double now = clock_monotonic();
    if (b->refused_until <= 0.)
        log_warning("the rate to %s cannot be counted for the group, and each relay uses its part "
                    "of it: %s. `dovelane acl` again, into the nodes' aclfile, and ACL LOAD",
                    b->destination, why);
    b->refused_until = now + REFUSED;
    b->counted = now;
    again_in(b, LEAST);
}

/* ---- by the arbiter ---- */

/* Nodes that take turns as the one that counts must not put a mail off for ever: one token's time
 * behind the first word is the most. */
static void book(struct bucket *b, double mails, double wait)
{
    b->coming = mails;
    b->booked = clock_monotonic();
    b->due = b->booked + wait;
    if (b->promised <= 0.)
        b->promised = b->due;
    if (b->rates.rate > 0. && b->due > b->promised + 1. / b->rates.rate)
        b->due = b->promised + 1. / b->rates.rate;
    wait_for_due(b);
}

/* Another node counts since then, and knows nothing of what was booked. */
static bool is_from_before(struct bucket *b)
{
    double part;
    return b->rates.rate > 0. && arbiter_choose(b->arbiters, &b->arbiter, b->destination, &part) &&
           arbiter_known(b->arbiters, &b->arbiter) < clock_monotonic() - b->booked;
}

static void on_grant(struct bucket *b, const redisReply *reply)
{
    double mails = (double)reply->element[0]->integer, bytes = strtod(reply->element[1]->str, NULL),
           wait = strtod(reply->element[2]->str, NULL) / 1e6;
    b->refused_until = 0.;
    /* Somebody else's script may have written into the key: no number of it is believed blindly. */
    if (bytes > 0. && bytes < BYTES_MOST)
        b->bytes += bytes;
    if (!(wait <= WAIT_MOST))
        wait = WAIT_MOST;
    if (wait < LEAST) {
        b->promised = 0.;
        ev_timer_stop(b->relay->loop, &b->again);
        grant(b, mails);
        return;
    }
    metric_add(relay_shape_waits, 1);
    book(b, mails, wait);
}

static bool is_grant(const redisReply *r)
{
    return r->type == REDIS_REPLY_ARRAY && r->elements == 3 &&
           r->element[0]->type == REDIS_REPLY_INTEGER && r->element[0]->integer > 0 &&
           r->element[1]->type == REDIS_REPLY_STRING && r->element[2]->type == REDIS_REPLY_STRING;
}

static void on_answer(struct wire *w, redisReply *reply, void *arg)
{
    struct asked a = *(struct asked *)arg;
    struct bucket *b = a.bucket;
    free(arg);
    b->open--;
    if (b->closed) {
        if (!b->open)
            bucket_close(b);
        return;
    }
    if (a.number != b->asked || !b->asking)
        return;
    b->asking = false;
    if (!reply)
        again_in(b, LEAST); /* the next node may answer at once */
    else if (is_grant(reply))
        on_grant(b, reply);
    else
        refuse(b, reply->str ? reply->str : "no list");
}

/* No more than can be used at once: the others could use it meanwhile. */
static size_t slice(struct bucket *b, size_t waiting)
{
    double most = (double)waiting,
           part = 1. + b->rates.rate * SLICE / (double)b->relay->config->nnodes;
    if (b->rates.rate > 0. && most > part)
        most = part;
    if (most > b->batch)
        most = b->batch;
    return (size_t)most;
}

static bool send_question(struct bucket *b, struct wire *w, double part,
                          const struct bucket_need *need)
{
    size_t n = slice(b, need->mails);
    double rate = b->rates.rate * part, byte_rate = b->rates.byte_rate * part;
    char number[8][32];
    const char *v[12] = {"EVAL", SHAPE_TAKE, "1", b->key};
    size_t len[12];
    double value[8] = {rate,      b->rates.burst,
                       byte_rate, b->rates.byte_burst,
                       (double)n, need->bytes * (double)n / (double)need->mails,
                       -b->bytes, arbiter_known(b->arbiters, &b->arbiter)};
    for (int i = 0; i < 8; i++) {
        snprintf(number[i], sizeof number[i], "%.9g", value[i]);
        v[4 + i] = number[i];
    }
    for (int i = 0; i < 12; i++)
        len[i] = strlen(v[i]);
    struct asked *a = mem_alloc(sizeof *a);
    *a = (struct asked){b, b->asked + 1};
    if (!wire_send(w, on_answer, a, 12, v, len)) {
        free(a);
        return false;
    }
    b->asked++;
    b->open++;
    return true;
}

static void ask(struct bucket *b)
{
    double now = clock_monotonic(), part;
    struct bucket_need need = {0};
    b->calls->need(b->arg, &need);
    if (!need.mails || b->relay->stopping) {
        b->promised = 0.;
        return;
    }
    if (b->refused_until > now) {
        count_alone(b);
        return;
    }
    b->tokens = 0.;
    struct wire *w = arbiter_choose(b->arbiters, &b->arbiter, b->destination, &part);
    if (!w || !send_question(b, w, part, &need)) {
        again_in(b, SLICE);
        return;
    }
    b->bytes = 0.;
    b->asking = true;
    again_in(b, ANSWER);
}

static void on_again(struct ev_loop *loop, ev_timer *t, int events)
{
    struct bucket *b = t->data;
    double coming = b->coming;
    bool again = coming > 0. && is_from_before(b);
    b->asking = false; /* a late answer is to a question that does not count any more */
    if (coming > 0. && !again && b->due - clock_monotonic() > LEAST) {
        wait_for_due(b);
        return;
    }
    b->coming = 0.;
    if (coming > 0. && !again) {
        b->promised = 0.;
        grant(b, coming);
    } else if (!has_token(b)) {
        ask(b);
    }
}

/* ---- interface ---- */

/* A connection may have to be opened first. */
static double unused_most(const struct bucket *b)
{
    double most = b->rates.rate > 0. ? 1. / b->rates.rate : UNUSED;
    return most < UNUSED ? UNUSED : most > UNUSED_MOST ? UNUSED_MOST : most;
}

static void expire(struct bucket *b, double now)
{
    if (b->tokens > 0. && now - b->granted_at > unused_most(b) && b->refused_until <= now) {
        b->tokens = 0.;
        b->batch = 1.;
    }
}

bool bucket_opens(struct bucket *b)
{
    if (b->rates.rate <= 0. && b->rates.byte_rate <= 0.)
        return true;
    expire(b, clock_monotonic());
    if (has_token(b))
        return true;
    if (!b->asking && !ev_is_active(&b->again))
        ask(b);
    return has_token(b);
}

bool bucket_opens_soon(struct bucket *b)
{
    return bucket_opens(b) || (b->coming > 0. && b->due - clock_monotonic() <= SOON);
}

void bucket_passed(struct bucket *b, size_t bytes)
{
    if (b->rates.rate <= 0. && b->rates.byte_rate <= 0.)
        return;
    b->tokens -= 1.;
    b->bytes -= (double)bytes;
    if (!has_token(b) && clock_monotonic() - b->granted_at < QUICK && b->batch < 1e6)
        b->batch *= 2.;
}

void bucket_set(struct bucket *b, const struct bucket_rates *rates)
{
    bool same = !memcmp(&b->rates, rates, sizeof *rates);
    b->rates = *rates;
    if (!same && b->coming > 0.) { /* it was booked by what counted before */
        forget_booking(b);
        again_in(b, LEAST);
    }
    if (rates->byte_rate <= 0.)
        b->bytes = 0.;
    if (b->rates.rate <= 0. && b->rates.byte_rate <= 0.) {
        ev_timer_stop(b->relay->loop, &b->again);
        b->asking = false;
    }
}

struct bucket *bucket_open(struct relay *r, struct arbiters *arbiters, const char *destination,
                           const struct bucket_calls *calls, void *arg)
{
    struct bucket *b = mem_zero(sizeof *b);
    b->relay = r;
    b->arbiters = arbiters;
    b->destination = mem_strdup(destination);
    b->key = mem_printf(CONTROL_BUCKET "%s", destination);
    b->calls = calls;
    b->arg = arg;
    b->batch = 1.;
    b->arbiter.node = -1;
    ev_timer_init(&b->again, on_again, 0., 0.);
    b->again.data = b;
    return b;
}

void bucket_close(struct bucket *b)
{
    ev_timer_stop(b->relay->loop, &b->again);
    b->closed = true;
    if (b->open)
        return;
    free(b->destination);
    free(b->key);
    free(b);
}
