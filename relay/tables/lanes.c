#include "relay/tables/lanes.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "relay/tables/classes.h"
#include "relay/tables/destinations.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/metrics.h"
#include "relay/tables/namehash.h"
#include "relay/tables/lane_pause.h"
#include "relay/cluster/cluster_view.h"

#define BUCKETS 4096 /* a power of two; a node with 10,000 lanes has chains of two or three */
#define REAP 60.     /* seconds between looking for lanes that nobody needs to remember */

TAILQ_HEAD(marked_list, lane);

struct lanes {
    struct relay *relay;
    struct lane *bucket[BUCKETS];
    struct marked_list marked;
    size_t ours;
    void (*forget)(struct lane *);
    ev_timer reap;
};

static unsigned bucket_of(const char *name, size_t len)
{
    return namehash(name, len) & (BUCKETS - 1);
}

/* ---- whose is it ---- */

static void attach(struct lane *lane, struct destination *d)
{
    if (lane->destination == d)
        return;
    if (lane->destination)
        TAILQ_REMOVE(&lane->destination->lanes, lane, beside);
    lane->destination = d;
    if (!d)
        return;
    TAILQ_INSERT_TAIL(&d->lanes, lane, beside);
    classes_expect(d, lane->class);
}

static void forget(struct lanes *lanes, struct lane *lane)
{
    lanes->forget(lane);
    lane_pause_forget(lanes->relay, lane);
}

static void judge(struct relay *r, struct lane *lane)
{
    bool was_ours = lane->ownership == OWNERSHIP_OURS;
    lane->ownership =
        lane->parsed.nowners ? cluster_judge(r, &lane->parsed, &lane->place) : OWNERSHIP_NONE;
    bool ours = lane->ownership == OWNERSHIP_OURS;
    if (ours == was_ours)
        return;
    forget(r->lanes, lane);
    ASSERT(ours || r->lanes->ours);
    r->lanes->ours += ours ? 1 : (size_t)-1;
    metric_set(relay_lanes, (long long)r->lanes->ours);
    if (!ours) {
        if (!r->heartbeat)
            log_of(LOG_LEVEL_INFO, LOG_FIELD_lane, lane->name,
                   "an owner before us is alive, we leave it");
        return;
    }
    struct destination *d = destination_get(r, lane->parsed.destination);
    if (lane->place)
        log_of(LOG_LEVEL_INFO, LOG_FIELD_lane, lane->name,
               "every owner before us is dead, we take over");
    /* It stays attached when we lose it: entries of it may be in flight. */
    attach(lane, d->deliverable ? d : NULL);
}

static struct lane *add(struct relay *r, const char *name, size_t len)
{
    struct lane *lane = mem_zero(sizeof *lane), **bucket = &r->lanes->bucket[bucket_of(name, len)];
    lane->name = mem_strndup(name, len);
    lane->name_len = len;
    TAILQ_INIT(&lane->metas);
    TAILQ_INIT(&lane->acks);
    lane->next = *bucket;
    *bucket = lane;
    lanename_parse(name, len, &lane->parsed);
    lane->class = classes_number(r, lane->parsed.class);
    judge(r, lane);
    if (lane->ownership == OWNERSHIP_NONE)
        log_of(LOG_LEVEL_DEBUG, LOG_FIELD_lane, lane->name, "%s, left alone",
               lane->parsed.nowners ? "this node is not one of its owners"
                                    : "not named by our rule");
    return lane;
}

struct lane *lanes_get(struct relay *r, const char *name, size_t len)
{
    struct lane *lane = r->lanes->bucket[bucket_of(name, len)];
    while (lane && (lane->name_len != len || memcmp(lane->name, name, len)))
        lane = lane->next;
    return lane ? lane : add(r, name, len);
}

void lanes_told(struct relay *r, const char *name, size_t len)
{
    struct lane *lane = lanes_get(r, name, len);
    lane->told++;
    lane->waiting = true;
    lane->later = false;
    if (lane->ownership == OWNERSHIP_OURS && lane->destination)
        destination_want(lane->destination);
}

static void each(struct lanes *lanes, void (*fn)(struct relay *, struct lane *))
{
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct lane *lane = lanes->bucket[i]; lane; lane = lane->next)
            fn(lanes->relay, lane);
}

void lanes_judge(struct relay *r)
{
    each(r->lanes, judge);
}

/* ---- marks ---- */

void lanes_mark(struct relay *r, struct lane *lane)
{
    if (lane->marked)
        return;
    lane->marked = true;
    TAILQ_INSERT_TAIL(&r->lanes->marked, lane, mark_link);
}

struct lane *lanes_marked(struct relay *r)
{
    struct lane *lane = TAILQ_FIRST(&r->lanes->marked);
    if (lane) {
        TAILQ_REMOVE(&r->lanes->marked, lane, mark_link);
        lane->marked = false;
    }
    return lane;
}

/* ---- forgetting ---- */

static void free_lane(struct lanes *lanes, struct lane *lane)
{
    ASSERT(!lane->in_flight && !lane->leaving);
    forget(lanes, lane);
    attach(lane, NULL);
    lanename_free(&lane->parsed);
    free(lane->name);
    free(lane);
}

/* READY names a lane again when it gets something, so an idle one needs no memory. One that others
 * serve is rarely told of while it holds something: it is forgotten likewise, and LIST finds it
 * when it becomes ours.
 */
static bool needed(const struct lane *lane)
{
    bool served = lane->ownership == OWNERSHIP_OURS && lane->destination;
    return lane->in_flight || lane->retained || lane->taking || lane->commands || lane->listed ||
           lane->frozen || lane->moving || lane->marked || (served && lane->waiting);
}

static void reap(struct lanes *lanes)
{
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct lane **at = &lanes->bucket[i]; *at;) {
            struct lane *lane = *at;
            if (needed(lane)) {
                at = &lane->next;
                continue;
            }
            *at = lane->next;
            ASSERT(lane->ownership != OWNERSHIP_OURS || lanes->ours);
            if (lane->ownership == OWNERSHIP_OURS)
                lanes->ours--;
            free_lane(lanes, lane);
        }
    metric_set(relay_lanes, (long long)lanes->ours);
    destinations_reap(lanes->relay);
}

static void on_reap(struct ev_loop *loop, ev_timer *t, int events)
{
    reap(t->data);
}

struct lanes *lanes_open(struct relay *r, void (*forget_lane)(struct lane *))
{
    struct lanes *lanes = mem_zero(sizeof *lanes);
    lanes->relay = r;
    lanes->forget = forget_lane;
    TAILQ_INIT(&lanes->marked);
    ev_timer_init(&lanes->reap, on_reap, REAP, REAP);
    lanes->reap.data = lanes;
    ev_timer_start(r->loop, &lanes->reap);
    return lanes;
}

void lanes_close(struct lanes *lanes)
{
    ev_timer_stop(lanes->relay->loop, &lanes->reap);
    for (size_t i = 0; i < BUCKETS; i++)
        while (lanes->bucket[i]) {
            struct lane *lane = lanes->bucket[i];
            lanes->bucket[i] = lane->next;
            free_lane(lanes, lane);
        }
    free(lanes);
}
