#include "relay/repair/rereplicate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "relay/cluster/takeover_rules.h"
#include "relay/tables/inflight.h"
#include "relay/tables/lanes.h"
#include "relay/repair/lane_scan.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/metrics.h"
#include "relay/acks/owners.h"
#include "relay/repair/backfill.h"
#include "relay/tables/lane_pause.h"
#include "relay/intake/spill_to_postfix.h"
#include "relay/cluster/cluster_view.h"
#include "relay/repair/resync.h"

#define BLOCK_LEAST 1
#define NOTHING_DUE 1. /* seconds */
#define REST_LEAST .01
#define ASIDE_MOST 16 /* times compare_every */
#define TOO_LARGE "its mails cannot be stored on another node in the time that there is for it"

/* A lane that one of its owners is lost of. */
struct job {
    struct job *next;
    char *name, *to_name;
    size_t len, to_len;
    char *lost;                                 /* for the log */
    size_t nowners, owner[LANENAME_OWNERS_MAX]; /* of the new lane: indexes */
    /* of an ordered destination: it is copied as a whole, and nothing is taken from it
     * meanwhile. NULL: it is not */
    struct lane *ordered;
    /* ordered: something of it is young or in flight, so that nothing is copied now */
    bool unfit;
    struct missing_entry *wanted;
    size_t n, size, at, place;
    size_t moved;
    bool skipped; /* a mail of it is too large for the time that there is */
};

/* A lane that was tried in vain: each attempt sends its bodies, so it is left out for a while,
 * longer each time. What came of it lies on the others until they compare. */
struct aside {
    struct aside *next;
    char *name;
    size_t len;
    double wait, until;
};

struct rereplicate {
    struct relay *relay;
    struct lane_scan *scan;
    struct job *jobs;
    struct backfill *backfill;
    double not_before, vain; /* seconds until it is tried again */
    double owed;             /* seconds that refill_rate asks for what was copied without a pause */
    ev_timer rest;
    ev_timer late; /* an ordered lane that cannot be moved in time any more */
    struct aside *asides;
    bool closing, said;
    unsigned turn; /* role_turn() when it began */
    size_t block;  /* entries; fewer when a block came too late */
    /* the block under way */
    size_t n, target; /* of owner[], the next one that it goes to */
    unsigned char *stored;
    long long before;    /* clock-ms of the own server */
    struct buf ids;      /* those that MOVE names */
    unsigned open;       /* commands at the own server */
    struct lane *moving; /* one of them is MOVE, from this lane */
};

static void next_block(struct rereplicate *);

static double settle(const struct rereplicate *p)
{
    return (double)p->relay->config->settle / 1000.;
}

/* What is known of others may be suspect_after old, and nobody who returned meanwhile may have
 * begun to compare. */
static long long window(const struct rereplicate *p)
{
    const struct config *c = p->relay->config;
    long long ms = c->settle + 2 * c->beat - c->suspect_after, half = c->settle / 2;
    return ms < half ? ms : half;
}

/* ---- which lanes ---- */

/* Also of one that is interrupted: what was moved is moved. */
static void free_job(struct job *j)
{
    if (j->ordered)
        lane_freeze(j->ordered, false);
    if (j->moved)
        log_info(
            "lane=%s: node %s is lost for good: %zu of %zu mails were copied, and lie in %s now",
            j->name, j->lost, j->moved, j->n, j->to_name);
    free(j->name);
    free(j->to_name);
    free(j->lost);
    free(j->wanted);
    free(j);
}

static void free_jobs(struct rereplicate *p)
{
    while (p->jobs) {
        struct job *j = p->jobs;
        p->jobs = j->next;
        free_job(j);
    }
}

static struct aside *find_aside(const struct rereplicate *p, const char *name, size_t len)
{
    struct aside *a = p->asides;
    while (a && (a->len != len || memcmp(a->name, name, len)))
        a = a->next;
    return a;
}

static void free_asides(struct rereplicate *p)
{
    while (p->asides) {
        struct aside *a = p->asides;
        p->asides = a->next;
        free(a->name);
        free(a);
    }
}

static void set_aside(struct rereplicate *p, const struct job *j, const char *why)
{
    double first = (double)p->relay->config->compare_every / 1000.;
    struct aside *a = find_aside(p, j->name, j->len);
    if (!a) {
        log_warning("lane=%s: node %s is lost for good: %s; it stays on fewer than `copies` nodes "
                    "until that is otherwise, and is tried again now and then",
                    j->name, j->lost, why);
        a = mem_zero(sizeof *a);
        a->name = mem_strndup(j->name, j->len);
        a->len = j->len;
        a->wait = first / 2.;
        a->next = p->asides;
        p->asides = a;
    }
    a->wait = a->wait < ASIDE_MOST * first ? 2. * a->wait : a->wait;
    a->until = clock_monotonic() + a->wait;
}

static bool is_in(const struct job *j, size_t node)
{
    for (size_t i = 0; i < j->nowners; i++)
        if (j->owner[i] == node)
            return true;
    return false;
}

/* All the others are alive and together with us, and all of them, and we, are whole for these
 * owners: like for new mail. */
static bool fit(const struct rereplicate *p, const struct job *j)
{
    const struct config *c = p->relay->config;
    const char *name[LANENAME_OWNERS_MAX];
    double now = clock_monotonic();
    for (size_t i = 0; i < j->nowners; i++)
        name[i] = c->node[j->owner[i]].name;
    for (size_t i = 0; i < j->nowners; i++) {
        bool own = !strcmp(name[i], p->relay->node);
        if ((!own && !cluster_mutual(p->relay, j->owner[i], now)) ||
            !resync_wire(p->relay, j->owner[i]) ||
            !resync_node_is_whole(p->relay, j->owner[i], name, j->nowners))
            return false;
    }
    return true;
}

/* The nodes behind this one in the file, one after the other, for each place that is free. */
static bool fill_places(struct rereplicate *p, struct job *j, size_t n, size_t from)
{
    const struct config *c = p->relay->config;
    if (j->nowners == n)
        return fit(p, j);
    size_t self = (size_t)config_node_index(c, p->relay->node);
    for (size_t k = from; k < c->nnodes; k++) {
        size_t node = (self + k) % c->nnodes;
        if (is_in(j, node) || !cluster_mutual(p->relay, node, clock_monotonic()))
            continue;
        j->owner[j->nowners++] = node;
        if (fill_places(p, j, n, k + 1))
            return true;
        j->nowners--;
    }
    return false;
}

/* The survivors in their order, then those that take the places of the lost ones. */
static bool choose(struct rereplicate *p, struct job *j, const struct lanename *lane)
{
    const struct config *c = p->relay->config;
    for (size_t i = 0; i < lane->nowners; i++) {
        int node = config_node_index(c, lane->owner[i]);
        if (!cluster_lost_for_good(p->relay, node, clock_monotonic()))
            j->owner[j->nowners++] = (size_t)node;
        else if (!j->lost)
            j->lost = mem_strdup(lane->owner[i]);
    }
    return j->lost && fill_places(p, j, lane->nowners, 1);
}

/* No mail of it is being delivered, and nothing is on its way that could begin with one. */
static bool is_quiet(const struct lane *lane)
{
    return !lane->in_flight && !lane->taking && !lane->commands;
}

/* The first mails of an ordered lane must not be in one lane, and those behind them in another:
 * both would be delivered at a time. */
static bool hold_ordered(struct rereplicate *p, struct job *j)
{
    struct lane *lane = lanes_get(p->relay, j->name, j->len);
    /* One that vanished and came again meanwhile is listed twice. */
    if (lane->ownership != OWNERSHIP_OURS || lane->frozen || !is_quiet(lane))
        return false;
    j->ordered = lane;
    lane_freeze(lane, true);
    return true;
}

static void *on_lane(const char *name, size_t len, const struct lanename *parsed, void *arg)
{
    struct rereplicate *p = arg;
    const char *owner[LANENAME_OWNERS_MAX];
    size_t place;
    const struct aside *aside = find_aside(p, name, len);
    if (cluster_judge(p->relay, parsed, &place) != OWNERSHIP_OURS ||
        (aside && clock_monotonic() < aside->until))
        return NULL;
    struct job *j = mem_zero(sizeof *j);
    if (!choose(p, j, parsed)) {
        if (j->lost && !p->said) {
            log_warning("node %s is lost for good: its mail stays on fewer than `copies` nodes, "
                        "since there is none to take its place that is alive and whole",
                        j->lost);
            p->said = true;
        }
        free_job(j);
        return NULL;
    }
    for (size_t i = 0; i < j->nowners; i++)
        owner[i] = p->relay->config->node[j->owner[i]].name;
    j->name = mem_strndup(name, len);
    j->len = len;
    j->to_name =
        lanename_make(parsed->destination, owner, j->nowners, parsed->origin, parsed->generation);
    j->to_len = strlen(j->to_name);
    if (parsed->generation && !hold_ordered(p, j)) {
        free_job(j);
        return NULL;
    }
    j->next = p->jobs;
    p->jobs = j;
    return j;
}

/* What is younger than settle may be undecided: it comes with the next round. */
static void on_ids(void *lane, const struct scanned_entry *l, size_t n, void *arg)
{
    struct rereplicate *p = arg;
    struct job *j = lane;
    for (size_t i = 0; i < n; i++, j->place++) {
        if (l[i].age < p->relay->config->settle || inflight_find(p->relay, l[i].id)) {
            j->unfit = true;
            continue;
        }
        if (j->n == j->size) {
            j->size = j->size ? 2 * j->size : 256;
            j->wanted = mem_grow(j->wanted, j->size * sizeof *j->wanted);
        }
        j->wanted[j->n] =
            (struct missing_entry){l[i].sequence, l[i].revision, (uint32_t)j->place, {0}};
        memcpy(j->wanted[j->n++].id, l[i].id, ENTRYID_LEN);
    }
}

static void pause_for(struct rereplicate *p, bool vain)
{
    p->vain = !vain ? 0. : p->vain > 0. ? 2 * p->vain : settle(p);
    if (p->vain > 60.)
        p->vain = 60.;
    /* An id that a node removed is not stored there again before settle is over. */
    p->not_before = clock_monotonic() + (p->vain > settle(p) ? p->vain : settle(p));
    ev_timer_stop(p->relay->loop, &p->rest);
    ev_timer_stop(p->relay->loop, &p->late);
    free_jobs(p);
}

/* Ordered lanes come first: nothing is taken from them meanwhile. */
static void sort_jobs(struct rereplicate *p)
{
    struct job *ordered = NULL, *others = NULL, **last = &ordered, **end = &others;
    for (struct job *j = p->jobs; j; j = j->next) {
        struct job ***to = j->ordered ? &last : &end;
        **to = j;
        *to = &j->next;
    }
    *end = NULL;
    *last = others;
    p->jobs = ordered;
}

static void drop_unfit(struct rereplicate *p)
{
    for (struct job **at = &p->jobs; *at;) {
        struct job *j = *at;
        bool large = j->n > (size_t)p->relay->config->refill_block;
        if (!j->ordered || !(j->unfit || large)) {
            at = &j->next;
            continue;
        }
        if (large && !p->said)
            log_warning(
                "lane=%s: node %s is lost for good: its %zu mails stay on fewer than `copies` "
                "nodes until there are at most refill_block = %lld, since a lane of an ordered "
                "destination is copied as a whole",
                j->name, j->lost, j->n, (long long)p->relay->config->refill_block);
        p->said |= large;
        *at = j->next;
        free_job(j);
    }
}

static void on_listed(const char *trouble, void *arg)
{
    struct rereplicate *p = arg;
    p->scan = NULL;
    if (p->closing)
        return;
    if (trouble) {
        pause_for(p, true);
        return;
    }
    drop_unfit(p);
    sort_jobs(p);
    next_block(p);
}

/* ---- a block ---- */

static void give_up(struct rereplicate *p, const char *why)
{
    log_warning(
        "copying what a lost node held to another one was interrupted, and goes on later: %s", why);
    pause_for(p, true);
}

/* Of this lane nothing more is copied now; the others' turn comes. */
static void leave_out(struct rereplicate *p, const char *why)
{
    struct job *j = p->jobs;
    ev_timer_stop(p->relay->loop, &p->late);
    set_aside(p, j, why);
    p->jobs = j->next;
    free_job(j);
    next_block(p);
}

static size_t block_len(const struct rereplicate *p, const struct job *j)
{
    return j->ordered || j->n - j->at < p->block ? j->n - j->at : p->block;
}

/* ---- the old owners ---- */

/* Which of a block are under the new name, now that some could not be moved. */
struct looking {
    struct rereplicate *rereplicate;
    size_t len;
    char name[]; /* the old lane */
};

static void on_there(struct wire *w, redisReply *reply, void *arg)
{
    struct looking *l = arg;
    struct rereplicate *p = l->rereplicate;
    struct buf ids = {0};
    p->open--;
    for (size_t i = 0;
         !p->closing && reply && reply->type == REDIS_REPLY_ARRAY && i < reply->elements; i++) {
        const redisReply *e = reply->element[i];
        if (e->type == REDIS_REPLY_ARRAY && e->elements > 1 &&
            e->element[1]->type == REDIS_REPLY_STRING && e->element[1]->len == ENTRYID_LEN)
            buf_add(&ids, e->element[1]->str, ENTRYID_LEN);
    }
    if (ids.len)
        owners_moved(p->relay, l->name, l->len, ids.data, ids.len / ENTRYID_LEN);
    buf_free(&ids);
    free(l);
}

/* They hold it under the old name. A lost one's server may live on without its relay, whole, and
 * be the witness of that name when the own server was emptied: all of it would come back, and be
 * delivered again. What was not moved may be there only, and is not spoken of. */
static void tell_old(struct rereplicate *p, size_t moved)
{
    struct job *j = p->jobs;
    struct wire *own =
        resync_wire(p->relay, (size_t)config_node_index(p->relay->config, p->relay->node));
    if (moved * ENTRYID_LEN == p->ids.len) {
        owners_moved(p->relay, j->name, j->len, p->ids.data, moved);
        return;
    }
    struct looking *l = mem_alloc(sizeof *l + j->len);
    *l = (struct looking){p, j->len};
    memcpy(l->name, j->name, j->len);
    if (own && wire_sendf(own, on_there, l, "LANE.GET %b PACKED %b NOBODY", j->to_name, j->to_len,
                          p->ids.data, p->ids.len))
        p->open++;
    else
        free(l);
}

/* ---- at home ---- */

static void on_moved(struct wire *w, redisReply *reply, void *arg)
{
    struct rereplicate *p = arg;
    struct job *j = p->jobs;
    ASSERT(p->open && p->moving);
    p->open--;
    p->moving->moving = false;
    p->moving = NULL;
    if (p->closing)
        return;
    if (reply && reply->type == REDIS_REPLY_ERROR && !strncmp(reply->str, "LATE", 4)) {
        if (j->ordered) {
            leave_out(p, TOO_LARGE);
        } else if (p->n <= BLOCK_LEAST) {
            j->skipped = true;
            j->at += p->n;
            next_block(p);
        } else {
            p->block = p->n / 2;
            give_up(p, "a block came too late");
        }
        return;
    }
    if (!reply || reply->type != REDIS_REPLY_ARRAY || reply->elements != 3) {
        give_up(p, reply && reply->str ? reply->str : "the connection to the own node was lost");
        return;
    }
    size_t moved = (size_t)reply->element[0]->integer;
    ASSERT(j->at + p->n <= j->n);
    j->moved += moved;
    metric_add(relay_replaced, (long long)moved);
    if (moved) {
        tell_old(p, moved);
        lanes_get(p->relay, j->to_name, j->to_len)->moved_at = clock_boottime();
        lanes_told(p->relay, j->to_name, j->to_len);
    }
    if (p->block * 2 <= (size_t)p->relay->config->refill_block)
        p->block *= 2;
    j->at += p->n;
    next_block(p);
}

/* In flight by now, without a lease that MOVE would see: what goes to Postfix's queue has none
 * (spill_to_postfix.h), and one may have ended with its connection. Its ack goes to the old lane.
 * */
static bool is_busy(const struct rereplicate *p, const unsigned char *id)
{
    return inflight_find(p->relay, id) || spill_fetches(p->relay, id);
}

static void move(struct rereplicate *p)
{
    struct job *j = p->jobs;
    struct buf *ids = &p->ids;
    ASSERT(!p->moving && !p->backfill && p->target == j->nowners);
    char before[24];
    struct wire *own =
        resync_wire(p->relay, (size_t)config_node_index(p->relay->config, p->relay->node));
    buf_consume(ids, ids->len);
    for (size_t i = 0; i < p->n; i++)
        if (p->stored[i] == j->nowners - 1 && !is_busy(p, j->wanted[j->at + i].id))
            buf_add(ids, j->wanted[j->at + i].id, ENTRYID_LEN);
    ev_timer_stop(p->relay->loop, &p->late);
    if (j->ordered && (ids->len != p->n * ENTRYID_LEN || !is_quiet(j->ordered))) {
        leave_out(p, "not all of its mails can be moved together");
        return;
    }
    if (!ids->len) {
        j->at += p->n;
        next_block(p);
        return;
    }
    snprintf(before, sizeof before, "%lld", p->before);
    if (own && wire_sendf(own, on_moved, p, "LANE.MOVE %b %b BEFORE %s PACKED %b", j->name, j->len,
                          j->to_name, j->to_len, before, ids->data, ids->len)) {
        p->open++;
        p->moving = lanes_get(p->relay, j->name, j->len);
        p->moving->moving = true;
    } else {
        give_up(p, "the connection to the own node was lost");
    }
}

static void store_next(struct rereplicate *p);

static void on_one_stored(size_t wanted, void *arg)
{
    struct rereplicate *p = arg;
    ASSERT(wanted < p->n && p->stored[wanted] < p->jobs->nowners);
    p->stored[wanted]++;
}

static void on_stored(const char *trouble, size_t entries, size_t bytes, void *arg)
{
    struct rereplicate *p = arg;
    p->backfill = NULL;
    p->owed += (double)bytes / (double)p->relay->config->refill_rate;
    if (trouble) {
        give_up(p, trouble);
        return;
    }
    p->target++;
    store_next(p);
}

static void store_next(struct rereplicate *p)
{
    struct job *j = p->jobs;
    const struct config *c = p->relay->config;
    size_t self = (size_t)config_node_index(c, p->relay->node);
    while (p->target < j->nowners && j->owner[p->target] == self)
        p->target++;
    if (p->target == j->nowners) {
        move(p);
        return;
    }
    struct wire *own = resync_wire(p->relay, self),
                *to = resync_wire(p->relay, j->owner[p->target]);
    if (!own || !to) {
        give_up(p, "a connection was lost");
        return;
    }
    p->backfill = backfill_open(&(struct backfill_options){.loop = p->relay->loop,
                                                           .from = own,
                                                           .to = to,
                                                           .lane = j->name,
                                                           .lane_len = j->len,
                                                           .to_lane = j->to_name,
                                                           .to_lane_len = j->to_len,
                                                           .wanted = j->wanted + j->at,
                                                           .n = p->n,
                                                           .stored = on_one_stored,
                                                           .block = c->refill_block,
                                                           .rate = c->refill_rate,
                                                           .settle = settle(p),
                                                           .set = "",
                                                           .token = ""},
                                on_stored, p);
}

/* What is sent now is of no use any more. Its lane is frozen all the time, and everything else
 * waits behind it. */
static void on_late(struct ev_loop *loop, ev_timer *t, int events)
{
    struct rereplicate *p = t->data;
    (void)loop, (void)events;
    if (!p->backfill)
        return;
    backfill_close(p->backfill);
    p->backfill = NULL;
    p->owed += (double)window(p) / 1000.;
    leave_out(p, TOO_LARGE);
}

static void on_clock(struct wire *w, redisReply *reply, void *arg)
{
    struct rereplicate *p = arg;
    struct job *j = p->jobs;
    p->open--;
    if (p->closing)
        return;
    p->before = 0;
    for (size_t i = 0; reply && reply->type == REDIS_REPLY_ARRAY && i + 1 < reply->elements; i += 2)
        if (reply->element[i]->str && !strcmp(reply->element[i]->str, "clock-ms") &&
            reply->element[i + 1]->type == REDIS_REPLY_INTEGER)
            p->before = reply->element[i + 1]->integer + window(p);
    if (!p->before) {
        give_up(p, reply && reply->str ? reply->str : "the own node does not tell its clock");
        return;
    }
    if (j->ordered && (!is_quiet(j->ordered) || j->ordered->ownership != OWNERSHIP_OURS)) {
        leave_out(p, "a mail of it is being delivered");
        return;
    }
    if (role_turn(p->relay->role) != p->turn || role_state(p->relay->role) != STATE_ALIVE ||
        !fit(p, j)) {
        give_up(p, "nodes came or went");
        return;
    }
    p->n = block_len(p, j);
    p->stored = mem_grow(p->stored, p->n);
    memset(p->stored, 0, p->n);
    p->target = 0;
    if (j->ordered) {
        ev_timer_set(&p->late, (double)window(p) / 1000., 0.);
        ev_timer_start(p->relay->loop, &p->late);
    }
    store_next(p);
}

/* Whoever is lost may have come back since the last block. */
static bool still_gone(struct rereplicate *p, const struct job *j)
{
    struct lanename lane;
    bool gone = true;
    if (!lanename_parse(j->name, j->len, &lane))
        return false;
    for (size_t i = 0; i < lane.nowners; i++) {
        int node = config_node_index(p->relay->config, lane.owner[i]);
        gone &= (node >= 0 && is_in(j, (size_t)node)) ||
                cluster_lost_for_good(p->relay, node, clock_monotonic());
    }
    lanename_free(&lane);
    return gone;
}

static void next_block(struct rereplicate *p)
{
    for (struct job *j; (j = p->jobs) && j->at == j->n;) {
        p->jobs = j->next;
        if (j->skipped)
            set_aside(
                p, j,
                "a mail of it cannot be stored on another node in the time that there is for it");
        free_job(j);
    }
    if (!p->jobs) {
        pause_for(p, false);
        return;
    }
    /* Between two blocks: a block must be moved soon after its copies were stored. */
    if (p->owed >= REST_LEAST) {
        ev_timer_set(&p->rest, p->owed, 0.);
        ev_timer_start(p->relay->loop, &p->rest);
        p->owed = 0.;
        return;
    }
    struct wire *own =
        resync_wire(p->relay, (size_t)config_node_index(p->relay->config, p->relay->node));
    if (!own || !still_gone(p, p->jobs)) {
        give_up(p, own ? "it came back" : "the connection to the own node was lost");
        return;
    }
    if (wire_sendf(own, on_clock, p, "LANE.INFO"))
        p->open++;
    else
        give_up(p, "the connection to the own node was lost");
}

static void on_rested(struct ev_loop *loop, ev_timer *t, int events)
{
    (void)loop, (void)events;
    next_block(t->data);
}

/* ---- when ---- */

static bool anyone_gone(const struct relay *r, double now)
{
    for (size_t i = 0; i < r->config->nnodes; i++)
        if (cluster_lost_for_good(r, (int)i, now))
            return true;
    return resync_unknown_owners(r);
}

void rereplicate_tick(struct relay *r, double now)
{
    static const struct lane_scan_calls calls = {on_lane, on_ids, on_listed};
    struct rereplicate *p = r->rereplicate;
    struct wire *own = resync_wire(r, (size_t)config_node_index(r->config, r->node));
    if (p->scan || p->jobs || p->open || p->backfill || now < p->not_before || r->stopping)
        return;
    if (!own || role_state(r->role) != STATE_ALIVE || !anyone_gone(r, now)) {
        p->not_before = now + NOTHING_DUE;
        p->said = false;
        free_asides(p);
        return;
    }
    p->turn = role_turn(r->role);
    p->scan = lane_scan_open(own, &calls, p);
}

struct rereplicate *rereplicate_open(struct relay *r)
{
    struct rereplicate *p = mem_zero(sizeof *p);
    p->relay = r;
    p->block = (size_t)r->config->refill_block;
    ev_init(&p->rest, on_rested);
    ev_init(&p->late, on_late);
    p->rest.data = p->late.data = p;
    return p;
}

void rereplicate_close(struct rereplicate *p)
{
    p->closing = true;
    ev_timer_stop(p->relay->loop, &p->rest);
    ev_timer_stop(p->relay->loop, &p->late);
    if (p->backfill)
        backfill_close(p->backfill);
    p->backfill = NULL;
    if (p->scan)
        lane_scan_close(p->scan);
    free_jobs(p);
}

void rereplicate_free(struct rereplicate *p)
{
    free(p->stored);
    buf_free(&p->ids);
    free_asides(p);
    free(p);
}
