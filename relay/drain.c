#include "drain.h"

#include <stdlib.h>
#include <string.h>

#include "hand.h"
#include "log.h"
#include "mem.h"
#include "metrics.h"
#include "mail.h"
#include "owners.h"
#include "stillness.h"

#define TAKE_BYTES (1024 * 1024)             /* one answer; a larger entry comes alone */
#define DESTINATION_BYTES (32 * 1024 * 1024) /* in hand for one next hop, beyond which no more is taken */
#define HAND_BYTES (256 * 1024 * 1024)       /* in hand for all */
#define PAUSE 1.                             /* after an error */

TAILQ_HEAD(want_list, destination);

struct drain {
    struct relay *relay;
    struct want_list want;
    ev_timer pause; /* active: TAKE was refused */
    bool full;      /* HAND_BYTES was the reason to stop */
};

struct take {
    struct relay *relay;
    struct lane *lane;
    struct destination *destination;
    unsigned told;
};

void drain_want(struct destination *d)
{
    if (d->wanted)
        return;
    d->wanted = true;
    TAILQ_INSERT_TAIL(&d->relay->drain->want, d, want);
}

static void want_one(struct destination *d, void *arg)
{
    if (!TAILQ_EMPTY(&d->lanes))
        drain_want(d);
}

void drain_want_all(struct relay *r)
{
    destinations_each(r, want_one, NULL);
}

/* ---- what comes out of TAKE ---- */

static bool well_formed(const redisReply *e)
{
    if (e->type != REDIS_REPLY_ARRAY || e->elements < 7)
        return false;
    for (size_t i = 0; i < 7; i++) {
        int want = i == 1 || i >= 5 ? REDIS_REPLY_STRING : REDIS_REPLY_INTEGER;
        if (e->element[i]->type != want)
            return false;
    }
    return true;
}

/* true when the entry is in hand now, or was; false: it is to be given back. */
static bool take_entry(struct relay *r, struct lane *lane, long long lease, redisReply *e)
{
    const redisReply *id = e->element[1], *meta = e->element[5];
    struct entry *held = id->len == ENTRYID_LEN ? hand_find(r, (unsigned char *)id->str) : NULL;
    if (held && held->lane == lane) {
        /* Its lease ended with a connection or by time, and we go on with it: only the number is new. */
        held->lease = lease;
        held->generation = owners_generation(r);
        return true;
    }
    if (held || id->len != ENTRYID_LEN || r->stopping || lane->ownership != OWNERSHIP_OURS ||
        stillness_now(r))
        return false;
    redisReply *body = e->element[6];
    struct entry *entry = hand_add(r, lane, (unsigned char *)id->str, body);
    e->element[6] = NULL;
    entry->lease = lease;
    entry->generation = owners_generation(r);
    entry->revision = (uint32_t)e->element[2]->integer;
    entry->failed_leases = e->element[3]->integer;
    metric_add(relay_taken, 1);
    mail_begin(entry, meta->str, (size_t)meta->len);
    return true;
}

/* Why an entry that we do not want goes back for how long: one that we can never deliver is not asked for
 * again and again. */
static int64_t back_for(struct relay *r, const struct lane *lane, const redisReply *e)
{
    if (e->element[1]->len == ENTRYID_LEN) {
        bool elsewhere = hand_find(r, (unsigned char *)e->element[1]->str) != NULL;
        return elsewhere ? r->config->retry_first : 0;
    }
    log_error("lane=%s: an entry without an id of %d bytes (sequence %lld) is not ours, left alone",
              lane->name, ENTRYID_LEN, e->element[0]->integer);
    return r->config->retry_most;
}

static size_t take_lane(struct relay *r, struct lane *lane, const redisReply *l)
{
    if (l->type != REDIS_REPLY_ARRAY || l->elements < 3 || l->element[1]->type != REDIS_REPLY_INTEGER ||
        l->element[2]->type != REDIS_REPLY_ARRAY)
        return 0;
    long long lease = l->element[1]->integer;
    const redisReply *list = l->element[2];
    for (size_t i = 0; i < list->elements; i++) {
        redisReply *e = list->element[i];
        if (!well_formed(e)) {
            log_error("lane=%s: TAKE gave an entry that does not follow docs/lane-commands.md", lane->name);
            continue;
        }
        if (take_entry(r, lane, lease, e))
            continue;
        metric_add(relay_given_back, 1);
        lane->waiting = true;
        owners_return_taken(r, lane, lease, e->element[0]->integer, back_for(r, lane, e));
    }
    return list->elements;
}

static void on_pause_over(struct ev_loop *loop, ev_timer *t, int events)
{
    struct relay *r = t->data;
    drain_want_all(r);
}

static void on_take(struct wire *w, redisReply *reply, void *arg)
{
    struct take t = *(struct take *)arg;
    free(arg);
    t.lane->taking = t.destination->taking = false;
    if (!reply)
        return; /* lanes.c asks for everything anew when the connection is back */
    if (reply->type != REDIS_REPLY_ARRAY) {
        log_warning("lane=%s: TAKE was refused: %s", t.lane->name, reply->str ? reply->str : "no list");
        ev_timer_stop(t.relay->loop, &t.relay->drain->pause);
        ev_timer_set(&t.relay->drain->pause, PAUSE, 0.);
        ev_timer_start(t.relay->loop, &t.relay->drain->pause);
        return;
    }
    size_t n = 0;
    for (size_t i = 0; i < reply->elements; i++)
        n += take_lane(t.relay, t.lane, reply->element[i]);
    if (!n && t.lane->told == t.told)
        t.lane->waiting = false;
    drain_want(t.destination);
}

/* ---- credit ---- */

static bool may_take(struct relay *r)
{
    struct drain *drain = r->drain;
    drain->full = hand_bytes(r) >= HAND_BYTES;
    return !r->stopping && !drain->full && !ev_is_active(&drain->pause) && !stillness_now(r) &&
           owners_ready(r) && !owners_refused(r);
}

/* How many more may be taken for it now. A TAKE for a last free place or two would cost as much as one for
 * many, so a quarter of the places must be free unless the hand is nearly empty. */
static int64_t credit(const struct destination *d)
{
    int64_t most = d->relay->config->destination_in_flight, left = most - (int64_t)d->in_hand;
    if (d->down || d->taking || d->in_hand_bytes >= DESTINATION_BYTES)
        return 0;
    return left >= (most + 3) / 4 ? left : 0;
}

/* The next lane in turn that may have something. */
static struct lane *next_lane(struct destination *d)
{
    struct lane *lane;
    TAILQ_FOREACH(lane, &d->lanes, beside)
    {
        /* An ordered lane has one mail in flight, else a later one could overtake one that is deferred. */
        if (lane->ownership == OWNERSHIP_OURS && lane->waiting && !lane->taking &&
            !(lane->parsed.generation && lane->in_hand))
            break;
    }
    if (lane) {
        TAILQ_REMOVE(&d->lanes, lane, beside);
        TAILQ_INSERT_TAIL(&d->lanes, lane, beside);
    }
    return lane;
}

static void take(struct destination *d, int64_t n)
{
    struct lane *lane = next_lane(d);
    if (!lane)
        return;
    struct take *t = mem_alloc(sizeof *t);
    *t = (struct take){d->relay, lane, d, lane->told};
    if (lane->parsed.generation)
        n = 1;
    if (!wire_sendf(owners_wire(d->relay), on_take, t, "LANE.TAKE 1 %b COUNT %lld BYTES %d LEASE %d",
                    lane->name, lane->name_len, (long long)n, TAKE_BYTES, OWNERS_LEASE)) {
        free(t);
        return;
    }
    lane->taking = d->taking = true;
}

void drain_run(struct relay *r)
{
    struct destination *d;
    bool was_full = r->drain->full, may = may_take(r);
    if (was_full && !r->drain->full)
        drain_want_all(r);
    while ((d = TAILQ_FIRST(&r->drain->want))) {
        TAILQ_REMOVE(&r->drain->want, d, want);
        d->wanted = false;
        int64_t n = may ? credit(d) : 0;
        if (n > 0)
            take(d, n);
    }
}

/* ---- is it worth a probe ---- */

struct length {
    struct lane *lane;
    unsigned told;
};

static void on_length(struct wire *w, redisReply *reply, void *arg)
{
    struct length *l = arg;
    l->lane->commands--;
    if (reply && reply->type == REDIS_REPLY_INTEGER && !reply->integer && l->lane->told == l->told)
        l->lane->waiting = false;
    free(l);
}

bool drain_waits(struct destination *d)
{
    bool waits = d->queued > 0;
    struct lane *lane;
    TAILQ_FOREACH(lane, &d->lanes, beside)
    {
        if (lane->ownership != OWNERSHIP_OURS || !lane->waiting)
            continue;
        waits = true;
        if (!owners_ready(d->relay))
            continue;
        struct length *l = mem_alloc(sizeof *l);
        *l = (struct length){lane, lane->told};
        lane->commands++;
        if (!wire_sendf(owners_wire(d->relay), on_length, l, "LANE.LEN %b", lane->name, lane->name_len)) {
            lane->commands--;
            free(l);
        }
    }
    return waits;
}

struct drain *drain_open(struct relay *r)
{
    struct drain *drain = mem_zero(sizeof *drain);
    drain->relay = r;
    TAILQ_INIT(&drain->want);
    ev_timer_init(&drain->pause, on_pause_over, 0., 0.);
    drain->pause.data = r;
    return drain;
}

void drain_close(struct drain *drain)
{
    ev_timer_stop(drain->relay->loop, &drain->pause);
    free(drain);
}
