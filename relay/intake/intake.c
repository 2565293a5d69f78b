#include "relay/intake/intake.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "relay/intake/batch_window.h"
#include "relay/tables/inflight.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/metrics.h"
#include "relay/delivery/mail.h"
#include "lib/base/number.h"
#include "relay/acks/owners.h"
#include "relay/tables/lane_pause.h"
#include "relay/tables/poison.h"
#include "relay/intake/ordered_lanes.h"
#include "relay/intake/spill_to_postfix.h"
#include "relay/intake/stall.h"
#include "relay/cluster/cluster_view.h"
#include "relay/tables/classes.h"
#include "relay/tables/destinations.h"
#include "relay/cluster/whole_sets.h"
#include "relay/shape/gate.h"

#define TAKE_BYTES (1024 * 1024) /* one answer; a larger entry comes alone */
/* in flight for one next hop, beyond which no more is taken */
#define DESTINATION_BYTES (32 * 1024 * 1024)
/* in flight for all; beyond, a next hop gets more only when it has none */
#define INFLIGHT_BYTES (256 * 1024 * 1024)
#define PAUSE 1.  /* after an error */
#define LATER 0.1 /* seconds */
/* milliseconds until a suspect is taken again when there is another one in flight */
#define SUSPECT_AGAIN 200

struct intake {
    struct relay *relay;
    ev_timer pause; /* active: TAKE was refused */
    ev_timer later; /* active: a lane's `later` is set */
    struct batch_window batch_window;
    bool full;    /* INFLIGHT_BYTES was the reason to stop */
    bool looking; /* a TAKE that may bring a suspect is under way */
};

struct take {
    struct relay *relay;
    struct lane *lane;
    struct destination *destination;
    unsigned told;
    size_t asked;
    double at; /* when it was sent: clock_boottime() */
    bool careful;
    bool lost;   /* the server was emptied, and nobody has noticed yet */
    bool unsent; /* its end is the answer to LANE.WHOLE */
};

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

/* Whether an entry under suspicion may be taken: alone. */
static bool alone(struct relay *r, struct lane *lane, size_t in_reply)
{
    if (in_reply == 1 && !lane->in_flight && !inflight_has_suspect(r))
        return true;
    lane->careful = true;
    return false;
}

/* true when the entry is in flight now, or was; false: it is to be given back. */
static bool take_entry(struct relay *r, struct lane *lane, long long lease, redisReply *e,
                       size_t in_reply, double asked_at)
{
    const redisReply *id = e->element[1], *meta = e->element[5];
    struct entry *known =
        id->len == ENTRYID_LEN ? inflight_find(r, (unsigned char *)id->str) : NULL;
    if (known && known->lane == lane) {
        /* Its lease ended with a connection or by time, and we go on with it: only the number is
         * new. */
        known->lease = lease;
        known->generation = owners_generation(r);
        poison_excuse(r, known->id, e->element[3]->integer - known->failed_leases);
        known->failed_leases = e->element[3]->integer;
        return true;
    }
    if (known || id->len != ENTRYID_LEN || r->stopping || lane->ownership != OWNERSHIP_OURS ||
        stall_now(r))
        return false;
    enum poison_verdict verdict = poison_judge(r, (unsigned char *)id->str, e->element[3]->integer);
    if (verdict == POISON_LEAVE || (verdict != POISON_NO && !alone(r, lane, in_reply)))
        return false;
    redisReply *body = e->element[6];
    struct entry *entry = inflight_add(r, lane, (unsigned char *)id->str, body);
    e->element[6] = NULL;
    entry->lease = lease;
    entry->generation = owners_generation(r);
    entry->revision = (uint32_t)e->element[2]->integer;
    entry->failed_leases = e->element[3]->integer;
    entry->stored_at = asked_at - (double)e->element[4]->integer / 1000.;
    if (verdict != POISON_NO)
        inflight_suspect(entry);
    else if (in_reply == 1)
        lane->careful = false;
    metric_add(relay_taken, 1);
    mail_begin(entry, meta->str, (size_t)meta->len);
    return true;
}

/* Why an entry that we do not want goes back for how long: one that we can never deliver is not
 * asked for again and again. */
static int64_t back_for(struct relay *r, const struct lane *lane, const redisReply *e)
{
    if (e->element[1]->len == ENTRYID_LEN) {
        bool elsewhere = inflight_find(r, (unsigned char *)e->element[1]->str) != NULL;
        enum poison_verdict verdict =
            poison_judge(r, (unsigned char *)e->element[1]->str, e->element[3]->integer);
        if (verdict == POISON_LEAVE) {
            char hex[ENTRYID_HEX];
            entryid_hex((unsigned char *)e->element[1]->str, hex);
            log_error("lane=%s, id=%s: the relay died %lld times with it in hand, also when it "
                      "gave it to Postfix's hold queue; left in its lane",
                      lane->name, hex, e->element[3]->integer);
            metric_add(relay_poison_left, 1);
            return r->config->retry_most;
        }
        return elsewhere                                         ? r->config->retry_first
               : verdict != POISON_NO && inflight_has_suspect(r) ? SUSPECT_AGAIN
                                                                 : 0;
    }
    log_of(LOG_LEVEL_ERROR, LOG_FIELD_lane, lane->name,
           "an entry without an id of %d bytes (sequence %lld) is not ours, left alone",
           ENTRYID_LEN, e->element[0]->integer);
    return r->config->retry_most;
}

struct taken {
    size_t n, bytes;
    bool back; /* some of it was given back */
};

/* An ordered lane of a server that was emptied begins with what came since: what was before it
 * has the other owners, and goes first. */
static void give_all_back(struct relay *r, struct lane *lane, const redisReply *l)
{
    if (l->type != REDIS_REPLY_ARRAY || l->elements < 3 ||
        l->element[1]->type != REDIS_REPLY_INTEGER || l->element[2]->type != REDIS_REPLY_ARRAY)
        return;
    for (size_t i = 0; i < l->element[2]->elements; i++)
        if (well_formed(l->element[2]->element[i]))
            owners_return_taken(r, lane, l->element[1]->integer,
                                l->element[2]->element[i]->element[0]->integer, 0);
    /* By then the beats have said so, and this node returns; or there is nobody who has what is
     * lost, and it goes on. */
    lane_pause(lane, 2. * (double)r->config->beat / 1000.);
    cluster_wake(r);
}

static struct taken take_lane(struct relay *r, struct lane *lane, const redisReply *l,
                              double asked_at)
{
    struct taken taken = {0};
    if (l->type != REDIS_REPLY_ARRAY || l->elements < 3 ||
        l->element[1]->type != REDIS_REPLY_INTEGER || l->element[2]->type != REDIS_REPLY_ARRAY)
        return taken;
    long long lease = l->element[1]->integer;
    const redisReply *list = l->element[2];
    for (size_t i = 0; i < list->elements; i++) {
        redisReply *e = list->element[i];
        if (!well_formed(e)) {
            log_of(LOG_LEVEL_ERROR, LOG_FIELD_lane, lane->name,
                   "TAKE gave an entry that does not follow docs/lane-commands.md");
            continue;
        }
        taken.bytes += (size_t)e->element[5]->len + (size_t)e->element[6]->len;
        if (take_entry(r, lane, lease, e, list->elements, asked_at))
            continue;
        taken.back = true;
        metric_add(relay_given_back, 1);
        lane->waiting = true;
        int64_t back = back_for(r, lane, e);
        if (lane->parsed.generation && back == SUSPECT_AGAIN) {
            lane_pause(lane, SUSPECT_AGAIN / 1000.); /* a delay would let those behind it out */
            back = 0;
        }
        owners_return_taken(r, lane, lease, e->element[0]->integer, back);
    }
    taken.n = list->elements;
    return taken;
}

/* ---- the TAKE that can wait ---- */

static void now_after_all(struct destination *d, void *arg)
{
    struct lane *lane;
    TAILQ_FOREACH (lane, &d->lanes, beside)
        if (lane->later) {
            lane->later = false;
            destination_want(d);
        }
}

static void on_later(struct ev_loop *loop, ev_timer *t, int events)
{
    destinations_each(t->data, now_after_all, NULL);
}

static void wait_with(struct lane *lane, struct relay *r)
{
    lane->later = true;
    if (!ev_is_active(&r->intake->later)) {
        ev_timer_set(&r->intake->later, LATER, 0.);
        ev_timer_start(r->loop, &r->intake->later);
    }
}

static void on_pause_over(struct ev_loop *loop, ev_timer *t, int events)
{
    struct relay *r = t->data;
    destinations_want_all(r);
}

static void on_take(struct wire *w, redisReply *reply, void *arg)
{
    struct take t = *(struct take *)arg;
    free(arg);
    ASSERT(t.lane->taking && t.destination->taking);
    t.lane->taking = t.destination->taking = false;
    if (t.careful) {
        t.relay->intake->looking = false;
        destinations_want_all(t.relay);
    }
    if (!reply)
        return; /* lanes.c asks for everything anew when the connection is back */
    if (reply->type != REDIS_REPLY_ARRAY) {
        log_of(LOG_LEVEL_WARNING, LOG_FIELD_lane, t.lane->name, "TAKE was refused: %s",
               reply->str ? reply->str : "no list");
        metric_add(relay_takes_refused, 1);
        ev_timer_stop(t.relay->loop, &t.relay->intake->pause);
        ev_timer_set(&t.relay->intake->pause, PAUSE, 0.);
        ev_timer_start(t.relay->loop, &t.relay->intake->pause);
        return;
    }
    struct taken all = {0};
    for (size_t i = 0; t.lost && i < reply->elements; i++)
        give_all_back(t.relay, t.lane, reply->element[i]);
    if (t.lost)
        return;
    for (size_t i = 0; i < reply->elements; i++) {
        struct taken one = take_lane(t.relay, t.lane, reply->element[i], t.at);
        all = (struct taken){all.n + one.n, all.bytes + one.bytes, all.back || one.back};
    }
    bool behind = all.n >= t.asked || all.bytes >= TAKE_BYTES / 2 || t.lane->parsed.generation;
    ev_set_io_collect_interval(t.relay->loop, batch_window_took(&t.relay->intake->batch_window,
                                                                all.n, behind, clock_monotonic())
                                                  ? BATCH_WINDOW
                                                  : 0.);
    if (!all.n)
        t.lane->careful = false;
    if (!all.n && t.lane->parsed.generation)
        ordered_emptied(t.lane);
    if (!all.n && t.lane->told == t.told)
        t.lane->waiting = false;
    if (all.n && all.n < t.asked && all.bytes < TAKE_BYTES / 2 && !all.back &&
        t.lane->told == t.told && t.lane->in_flight > t.lane->leaving)
        wait_with(t.lane, t.relay);
    destination_want(t.destination);
}

static void on_whole(struct wire *w, redisReply *reply, void *arg)
{
    struct take *t = arg;
    if (t->unsent) {
        free(t);
        return;
    }
    ASSERT(t->lane->parsed.generation);
    bool whole = reply && whole_sets_says(&t->lane->parsed, reply);
    t->lost =
        reply && !whole && (t->lane->whole || whole_sets_believed(t->relay, &t->lane->parsed));
    t->lane->whole = whole;
}

/* ---- credit ---- */

static bool may_take(struct relay *r)
{
    struct intake *intake = r->intake;
    intake->full = inflight_bytes(r) >= INFLIGHT_BYTES;
    return !r->stopping && !spill_draining(r) && !ev_is_active(&intake->pause) && !stall_now(r) &&
           owners_ready(r) && !owners_refused(r);
}

/* How many more may be taken for it now. A TAKE for a last free place or two would cost as much
 * as one for many, so a quarter of the places must be free unless nearly nothing is in flight. */
static int64_t credit(struct destination *d)
{
    int64_t most = (int64_t)gate_in_hand(d, destination_in_hand_most(d)),
            left = most - (int64_t)d->in_flight;
    if (destination_is_away(d) || d->taking || d->in_hand_bytes >= DESTINATION_BYTES)
        return 0;
    /* Slow next hops may hold all there is room for: the others go on, with one TAKE's worth in
     * flight. */
    if (d->relay->intake->full && d->in_flight)
        return 0;
    return most && left >= (most + 3) / 4 ? left : 0;
}

/* An ordered lane has one mail in flight, else a later one could overtake one that is deferred.
 * What is acked was delivered; what is given back is in its place before the TAKE is read. */
static bool busy(const struct lane *lane)
{
    return lane->careful             ? lane->in_flight
           : lane->parsed.generation ? lane->in_flight > lane->leaving
                                     : false;
}

/* Whether it may have something that may be taken now. */
static bool is_ready(struct lane *lane)
{
    const struct relay *r = lane->destination->relay;
    return lane->ownership == OWNERSHIP_OURS && lane->waiting && !lane->taking && !lane->later &&
           !busy(lane) && !(lane->careful && (inflight_has_suspect(r) || r->intake->looking)) &&
           ordered_may_take(lane);
}

/* The next lane in turn that may have something. */
static struct lane *next_lane(struct destination *d)
{
    struct lane *lane;
    TAILQ_FOREACH (lane, &d->lanes, beside)
        if (is_ready(lane))
            break;
    return lane;
}

/* ---- classes ---- */

struct class_look {
    struct lane *next; /* the next lane in turn, of this class */
    size_t in_flight;
};

/* Returns the classes that have, or may have, something in lanes or in flight. */
static unsigned look_at_classes(struct destination *d, struct class_look look[CLASS_SHARES_MOST])
{
    unsigned wanting = 0;
    struct lane *lane;
    TAILQ_FOREACH (lane, &d->lanes, beside) {
        struct class_look *l = &look[lane->class];
        l->in_flight += lane->in_flight;
        if (!l->next && is_ready(lane))
            l->next = lane;
        if (lane->in_flight || l->next)
            wanting |= 1u << lane->class;
    }
    return wanting;
}

/* The next lane where mail of several classes waits: of the class that has the least in flight for
 * its weight, with its part of the credit. What other classes have does not count, or the lightest
 * of them could fill all the room: so there may be up to twice as much in flight, for as long as
 * one that came later fills its part. */
static struct lane *next_by_class(struct destination *d, int64_t *n_r)
{
    struct class_look look[CLASS_SHARES_MOST] = {0};
    size_t most = gate_in_hand(d, destination_in_hand_most(d)), best = CLASS_SHARES_MOST;
    bool crowded = d->relay->intake->full || d->in_hand_bytes >= DESTINATION_BYTES;
    const double *weight = classes_weights(d);
    if (destination_is_away(d) || d->taking || !most || (most == 1 && d->in_flight))
        return NULL;
    unsigned wanting = look_at_classes(d, look);
    for (size_t c = 0; c < CLASS_SHARES_MOST; c++) {
        const struct class_look *l = &look[c];
        size_t part = class_shares_part(most, (unsigned)c, wanting, weight);
        if (!l->next || l->in_flight + (part + 3) / 4 > part || (crowded && l->in_flight))
            continue;
        if (best < CLASS_SHARES_MOST &&
            (double)l->in_flight / weight[c] >= (double)look[best].in_flight / weight[best])
            continue;
        best = c;
        *n_r = (int64_t)(part - l->in_flight);
    }
    return best < CLASS_SHARES_MOST ? look[best].next : NULL;
}

static bool send_take(struct take *t)
{
    char count[NUMBER_TEXT], bytes[NUMBER_TEXT], lease[NUMBER_TEXT];
    const char *v[] = {"LANE.TAKE", "1",   t->lane->name, "COUNT", count,
                       "BYTES",     bytes, "LEASE",       lease};
    size_t len[] = {9,
                    1,
                    t->lane->name_len,
                    5,
                    number_text(count, t->asked),
                    5,
                    number_text(bytes, TAKE_BYTES),
                    5,
                    number_text(lease, OWNERS_LEASE)};
    return wire_send(owners_wire(t->relay), on_take, t, 9, v, len);
}

static void take(struct destination *d, struct lane *lane, int64_t n)
{
    struct take *t = mem_alloc(sizeof *t);
    ASSERT(n > 0 && !d->taking && !lane->taking && !lane->frozen);
    TAILQ_REMOVE(&d->lanes, lane, beside);
    TAILQ_INSERT_TAIL(&d->lanes, lane, beside);
    if (lane->parsed.generation || lane->careful)
        n = 1;
    *t = (struct take){.relay = d->relay,
                       .lane = lane,
                       .destination = d,
                       .told = lane->told,
                       .asked = (size_t)n,
                       .at = clock_boottime(),
                       .careful = lane->careful};
    bool checked = lane->parsed.generation && d->relay->heartbeat &&
                   wire_sendf(owners_wire(d->relay), on_whole, t, "LANE.WHOLE");
    if (!send_take(t)) {
        t->unsent = true;
        if (!checked)
            free(t);
        return;
    }
    lane->taking = d->taking = true;
    if (t->careful)
        d->relay->intake->looking = true;
}

void intake_run(struct relay *r)
{
    struct destination *d;
    bool was_full = r->intake->full, may = may_take(r);
    if (was_full && !r->intake->full)
        destinations_want_all(r);
    while ((d = destinations_wanted(r))) {
        struct lane *lane = NULL;
        int64_t n = may && !d->classes ? credit(d) : 0;
        if (may && d->classes)
            lane = next_by_class(d, &n);
        else if (n > 0)
            lane = next_lane(d);
        if (lane)
            take(d, lane, n);
    }
}

struct intake *intake_open(struct relay *r)
{
    struct intake *intake = mem_zero(sizeof *intake);
    intake->relay = r;
    ev_timer_init(&intake->pause, on_pause_over, 0., 0.);
    intake->pause.data = r;
    ev_timer_init(&intake->later, on_later, 0., 0.);
    intake->later.data = r;
    return intake;
}

void intake_close(struct intake *intake)
{
    ev_timer_stop(intake->relay->loop, &intake->pause);
    ev_timer_stop(intake->relay->loop, &intake->later);
    free(intake);
}
