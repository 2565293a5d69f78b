/* rereplicate - copies the lost lanes block by block: clock, store on the new owners, move at home. */
#include "relay/repair/rereplicate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "relay/cluster/takeover_rules.h"
#include "relay/tables/inflight.h"
#include "relay/tables/lanes.h"
#include "relay/repair/lost_lanes.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/metrics.h"
#include "relay/acks/owners.h"
#include "relay/repair/backfill.h"
#include "relay/intake/spill_to_postfix.h"
#include "relay/cluster/cluster_view.h"
#include "relay/repair/resync.h"

#define BLOCK_LEAST 1
#define NOTHING_DUE 1. /* seconds */
#define REST_LEAST .01
#define TOO_LARGE_MAIL \
    "a mail of it cannot be stored on another node in the time that there is for it"
#define TOO_LARGE "its mails cannot be stored on another node in the time that there is for it"

struct rereplicate {
    struct relay *relay;
    struct lost_lanes lanes;
    struct backfill *backfill;
    double not_before, vain; /* seconds until it is tried again */
    double owed;             /* seconds that refill_rate asks for what was copied without a pause */
    ev_timer rest;
    ev_timer late; /* an ordered lane that cannot be moved in time any more */
    bool closing;
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

/* What is known of others may be old (cluster_known_age), and nobody who returned meanwhile may have
 * begun to compare. */
static long long window(const struct rereplicate *p)
{
    const struct config *c = p->relay->config;
    long long known = (long long)(1000. * cluster_known_age(p->relay)),
              ms = c->settle + 2 * c->beat - known, half = c->settle / 2;
    return ms < half ? ms : half;
}

/* ---- when it is tried again ---- */

static void pause_for(struct rereplicate *p, bool vain)
{
    p->vain = !vain ? 0. : p->vain > 0. ? 2 * p->vain : settle(p);
    if (p->vain > 60.)
        p->vain = 60.;
    /* An id that a node removed is not stored there again before settle is over. */
    p->not_before = clock_monotonic() + (p->vain > settle(p) ? p->vain : settle(p));
    ev_timer_stop(p->relay->loop, &p->rest);
    ev_timer_stop(p->relay->loop, &p->late);
    lost_lanes_clear(&p->lanes);
}

static void on_listed(const char *trouble, void *arg)
{
    struct rereplicate *p = arg;
    if (trouble)
        pause_for(p, true);
    else
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
    ev_timer_stop(p->relay->loop, &p->late);
    lost_lanes_set_aside(&p->lanes, why);
    lost_lanes_drop(&p->lanes);
    next_block(p);
}

static size_t block_len(const struct rereplicate *p, const struct lost_lane *j)
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
    struct lost_lane *j = p->lanes.first;
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
    struct lost_lane *j = p->lanes.first;
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
    struct lost_lane *j = p->lanes.first;
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
    if (j->ordered && (ids->len != p->n * ENTRYID_LEN || !lane_is_quiet(j->ordered))) {
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
    ASSERT(wanted < p->n && p->stored[wanted] < p->lanes.first->nowners);
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
    struct lost_lane *j = p->lanes.first;
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
    struct lost_lane *j = p->lanes.first;
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
    if (j->ordered && (!lane_is_quiet(j->ordered) || j->ordered->ownership != OWNERSHIP_OURS)) {
        leave_out(p, "a mail of it is being delivered");
        return;
    }
    if (role_turn(p->relay->role) != p->turn || role_state(p->relay->role) != STATE_ALIVE ||
        !lost_lane_fits(&p->lanes, j)) {
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

static void next_block(struct rereplicate *p)
{
    for (struct lost_lane *j; (j = p->lanes.first) && j->at == j->n;) {
        if (j->skipped)
            lost_lanes_set_aside(&p->lanes, TOO_LARGE_MAIL);
        lost_lanes_drop(&p->lanes);
    }
    if (!p->lanes.first) {
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
    if (!own || !lost_lane_is_lost(&p->lanes, p->lanes.first)) {
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
    struct rereplicate *p = r->rereplicate;
    struct wire *own = resync_wire(r, (size_t)config_node_index(r->config, r->node));
    if (p->lanes.scan || p->lanes.first || p->open || p->backfill || now < p->not_before ||
        r->stopping)
        return;
    if (!own || role_state(r->role) != STATE_ALIVE || !anyone_gone(r, now)) {
        p->not_before = now + NOTHING_DUE;
        p->lanes.said = false;
        lost_lanes_forget_asides(&p->lanes);
        return;
    }
    p->turn = role_turn(r->role);
    lost_lanes_list(&p->lanes, own);
}

struct rereplicate *rereplicate_open(struct relay *r)
{
    struct rereplicate *p = mem_zero(sizeof *p);
    p->relay = r;
    p->lanes = (struct lost_lanes){.relay = r, .listed = on_listed, .arg = p};
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
    lost_lanes_close(&p->lanes);
}

void rereplicate_free(struct rereplicate *p)
{
    free(p->stored);
    buf_free(&p->ids);
    lost_lanes_forget_asides(&p->lanes);
    free(p);
}
