/* outbox - pushes parcels, and tells what a lane did not take. */
#include "dovecot-plugin/replicator/lanes/outbox.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/metrics.h"
#include "lib/redis/node.h"
#include "dovecot-plugin/replicator/lanes/claims.h"

#define BYTES_MAX (32 * 1024 * 1024) /* under way to all, ... */
/* ... and no more than this part of a lane: what is under way when it fills was made for
 * nothing. A worker's next parcel may exceed both */
#define LANE_SHARE 8
#define FULL_FIRST 1. /* seconds until a full lane is tried again; doubling */
#define FULL_MOST 30.
#define STALLED 10.     /* seconds without progress */
#define LENGTH_EVERY 1. /* seconds between two questions for the lanes' lengths, ... */
#define ROOM_EVERY 0.05 /* ... and while one is full */

struct lane_state {
    double full_until, full_wait, said;
    bool unmade[LANES];  /* the node had no memory for it; a PUSH would make it without its bound */
    bool full[LANES];    /* something did not fit, and half of what was there then still is */
    int64_t most[LANES]; /* length since then; -1: not asked yet */
    /* something was not stored, and users who have it marked were not asked since */
    bool dropped;
    bool forgotten;         /* some such users left memory */
    int64_t waiting[LANES]; /* as the node said last; -1: it is not known */
    bool pushed;            /* something was, since the lengths were asked for */
    int64_t stored[LANES];  /* since the length was said */
    /* when the live lane was last seen empty, or with fewer parcels than it had and got */
    double progress;
    /* when either lane was last seen with fewer parcels than it had and got, or both were empty */
    double taken;
    double probed; /* when something was let through though nobody took */
};

struct outbox {
    struct replicator *r;
    const struct outbox_calls *calls;
    struct node *node;
    size_t pending, bytes;
    ev_timer lengths;
    struct lane_state peer[];
};

struct push {
    struct outbox *outbox;
    size_t peer, bytes;
    int lane;
    uint64_t first;
    char user[];
};

/* A question about a lane. */
struct length {
    struct outbox *outbox;
    size_t peer;
    int lane;
};

static void ask_lengths(struct outbox *, size_t peer);
static void make_lane(struct outbox *, size_t peer, int lane);

void outbox_forgotten(struct outbox *s, size_t peer)
{
    s->peer[peer].forgotten = true;
}

/* Something did not come into the lane to that peer. */
static void dropped(struct outbox *s, size_t peer)
{
    metric_add(replicator_unsent, 1);
    s->peer[peer].dropped = true;
}

/* ---- answers ---- */

static void refused(struct outbox *s, size_t peer, int lane, const char *what)
{
    struct lane_state *l = &s->peer[peer];
    double now = clock_monotonic();
    bool first = now >= l->full_until; /* else it is one of those that were under way then */
    if (first) {
        l->full_wait = l->full_wait == 0              ? FULL_FIRST
                       : l->full_wait * 2 < FULL_MOST ? l->full_wait * 2
                                                      : FULL_MOST;
        l->full_until = now + l->full_wait;
    }
    /* Memory that is short, or a command that is not allowed, does not pass when somebody takes
     * from the lane: only the wait does. */
    if (strcmp(what, "FULL") == 0 && (first || !l->full[lane])) {
        l->full[lane] = true;
        l->most[lane] = -1;
        ask_lengths(s, peer);
        s->lengths.repeat = ROOM_EVERY;
        ev_timer_again(s->r->loop, &s->lengths);
    }
    if (replicator_may_say(&l->said, 60.))
        log_warning("lane to replica %s: %s; what is not confirmed is sent again later",
                    s->r->group.peer[peer].name, what);
}

static void on_pushed(struct wire *w, redisReply *reply, void *arg)
{
    (void)w;
    struct push *p = arg;
    struct outbox *s = p->outbox;
    ASSERT(s->pending > 0 && s->bytes >= p->bytes);
    s->pending--;
    s->bytes -= p->bytes;
    const redisReply *answer = NULL;
    if (reply && reply->type == REDIS_REPLY_ARRAY && reply->elements >= 2 &&
        reply->element[1]->type == REDIS_REPLY_ARRAY && reply->element[1]->elements == 1)
        answer = reply->element[1]->element[0];
    bool stored = answer && (answer->type == REDIS_REPLY_INTEGER ||
                             (answer->str && !strcmp(answer->str, "DONE")));
    if (stored) {
        metric_add(replicator_sent, 1);
        s->peer[p->peer].stored[p->lane]++;
        s->peer[p->peer].full_wait = 0;
    } else {
        dropped(s, p->peer);
        if (!s->calls->unsent(s->r, p->user, p->peer, p->first) && p->first)
            outbox_forgotten(s, p->peer);
        if (reply)
            refused(s, p->peer, p->lane,
                    answer && answer->str ? answer->str
                    : reply->str          ? reply->str
                                          : "PUSH gave no list");
    }
    free(p);
}

/* ---- sending ---- */

bool outbox_send(struct outbox *s, const char *user, size_t peer, const struct frame_parcel *send)
{
    struct replicator *r = s->r;
    const struct peer *to = &r->group.peer[peer];
    struct parcel m = {.version = PARCEL_VERSION,
                       .user = {(const uint8_t *)user, strlen(user)},
                       .kind = send->kind,
                       .from = r->group.self,
                       .to = to->site};
    struct orset_buf meta = {.alloc = &replicator_heap};
    unsigned char id[16];
    memcpy(m.group, r->group.digest, sizeof m.group);
    ASSERT(!to->removed);
    if (!outbox_ready(s, peer) || getrandom(id, sizeof id, 0) != sizeof id ||
        parcel_encode(&meta, &m) < 0) {
        orset_buf_free(&meta);
        dropped(s, peer);
        return false;
    }
    struct push *p = mem_alloc(sizeof *p + strlen(user) + 1);
    int lane = send->bulk ? LANE_BULK : LANE_LIVE;
    *p = (struct push){.outbox = s,
                       .peer = peer,
                       .bytes = send->body.n + meta.len,
                       .lane = lane,
                       .first = send->first};
    memcpy(p->user, user, strlen(user) + 1);
    const char *key = to->out[lane];
    const char *argv[] = {"LANE.PUSH",
                          "1",
                          key,
                          "ENTRIES",
                          "1",
                          "1",
                          (char *)id,
                          (char *)meta.data,
                          send->body.n ? (const char *)send->body.p : ""};
    const size_t len[] = {9, 1, strlen(key), 7, 1, 1, sizeof id, meta.len, send->body.n};
    if (s->peer[peer].unmade[lane])
        make_lane(s, peer, lane);
    bool sent = wire_send(node_wire(s->node), on_pushed, p, 9, argv, len);
    if (sent) {
        struct lane_state *l = &s->peer[peer];
        s->pending++;
        s->bytes += p->bytes;
        l->pushed = true;
        if (l->waiting[LANE_LIVE] == 0)
            l->progress = clock_monotonic(); /* it was not asked while nothing could have come */
        if (l->waiting[LANE_LIVE] <= 0 && l->waiting[LANE_BULK] <= 0)
            l->taken = clock_monotonic();
    } else {
        free(p);
        dropped(s, peer);
    }
    orset_buf_free(&meta);
    return sent;
}

/* The own node is there, and no other host runs under this name. */
static bool may_send(const struct outbox *s)
{
    return node_ready(s->node) && claims_may(s->r->claims, CLAIM_OWN);
}

bool outbox_ready(const struct outbox *s, size_t peer)
{
    return may_send(s) && clock_monotonic() >= s->peer[peer].full_until;
}

bool outbox_node(const struct outbox *s)
{
    return node_ready(s->node);
}

struct node *outbox_own(const struct outbox *s)
{
    return s->node;
}

bool outbox_full(const struct outbox *s)
{
    int64_t share = (int64_t)s->r->config->replica_lane / LANE_SHARE;
    return s->bytes > (size_t)(share < BYTES_MAX ? share : BYTES_MAX);
}

size_t outbox_pending(const struct outbox *s)
{
    return s->pending;
}

/* ---- the node ---- */

static void on_created(struct wire *w, redisReply *reply, void *arg)
{
    (void)w;
    struct length q = *(struct length *)arg;
    struct lane_state *l = &q.outbox->peer[q.peer];
    free(arg);
    if (!reply)
        return; /* the next connection makes it */
    l->unmade[q.lane] = reply->type == REDIS_REPLY_ERROR;
    if (l->unmade[q.lane] && replicator_may_say(&l->said, 60.))
        log_error("lane %s cannot be made: %s", q.outbox->r->group.peer[q.peer].out[q.lane],
                  reply->str);
}

static void make_lane(struct outbox *s, size_t peer, int lane)
{
    struct length *q = mem_alloc(sizeof *q);
    *q = (struct length){s, peer, lane};
    if (!wire_sendf(node_wire(s->node), on_created, q, "LANE.CREATE %s MAXBYTES %lld",
                    s->r->group.peer[peer].out[lane], (long long)s->r->config->replica_lane))
        free(q);
}

static void on_state(struct node *node, bool ready, bool new_life, void *arg)
{
    struct outbox *s = arg;
    (void)new_life;
    claims_node(s->r->claims, CLAIM_OWN, ready ? node : NULL);
    for (size_t i = 0; i < s->r->group.npeers; i++) {
        s->peer[i].waiting[LANE_LIVE] = s->peer[i].waiting[LANE_BULK] = -1;
        s->peer[i].progress = s->peer[i].taken = clock_monotonic();
    }
}

void outbox_go(struct outbox *s)
{
    for (size_t i = 0; i < s->r->group.npeers; i++) {
        const struct peer *p = &s->r->group.peer[i];
        if (p->removed)
            continue;
        for (int l = 0; l < LANES; l++)
            make_lane(s, i, l);
        s->peer[i].full_until = s->peer[i].full_wait = 0;
        s->peer[i].full[LANE_LIVE] = s->peer[i].full[LANE_BULK] = false;
        s->peer[i].dropped = true;
        /* What was under way when it went is not known, and a server that was started anew has
         * lost all. */
        s->calls->resend(s->r, i);
    }
}

/* Those of whom something is missing go on, or try. */
static void go_on(struct outbox *s, size_t peer)
{
    s->peer[peer].dropped = false;
    s->calls->room(s->r);
}

/* Half of a lane that was full has been taken: nobody need wait for the next try, nor the peer
 * for what it works on to end. */
static void look_for_room(struct outbox *s, size_t peer, int lane)
{
    struct lane_state *l = &s->peer[peer];
    int64_t n = l->waiting[lane];
    if (n > l->most[lane])
        l->most[lane] = n;
    if (n < 0 || n > l->most[lane] / 2)
        return;
    l->full[lane] = false;
    for (int i = 0; i < LANES; i++)
        if (l->full[i])
            return;
    l->full_until = l->full_wait = 0;
    log_info("lane to replica %s was full and has room again: what is missing in it is sent",
             s->r->group.peer[peer].name);
    go_on(s, peer);
}

static void on_length(struct wire *w, redisReply *reply, void *arg)
{
    (void)w;
    struct length *l = arg;
    struct outbox *outbox = l->outbox;
    struct lane_state *s = &outbox->peer[l->peer];
    int64_t n = reply && reply->type == REDIS_REPLY_INTEGER ? reply->integer : -1;
    bool fewer = s->waiting[l->lane] >= 0 && n < s->waiting[l->lane] + s->stored[l->lane];
    if (l->lane == LANE_LIVE && (n <= 0 || fewer))
        s->progress = clock_monotonic();
    if (fewer)
        s->taken = clock_monotonic();
    s->stored[l->lane] = 0;
    s->waiting[l->lane] = n;
    if (s->full[l->lane])
        look_for_room(outbox, l->peer, l->lane);
    if (s->forgotten && s->waiting[LANE_LIVE] == 0 && outbox_ready(outbox, l->peer)) {
        s->forgotten = false;
        outbox->calls->resend(outbox->r, l->peer);
    }
    free(l);
}

static void ask_lengths(struct outbox *s, size_t peer)
{
    s->peer[peer].pushed = false;
    for (int lane = 0; lane < LANES; lane++) {
        struct length *l = mem_alloc(sizeof *l);
        *l = (struct length){s, peer, lane};
        if (!node_ready(s->node) || !wire_sendf(node_wire(s->node), on_length, l, "LANE.LEN %s",
                                                s->r->group.peer[peer].out[lane])) {
            s->peer[peer].waiting[lane] = -1;
            free(l);
        }
    }
}

/* Nobody has taken anything from the lane to that peer for a while, and it is not empty: what
 * was sent is still there, and sending it again would only fill it. */
static bool stalled(const struct outbox *s, size_t peer)
{
    return s->peer[peer].waiting[LANE_LIVE] > 0 &&
           clock_monotonic() - s->peer[peer].progress > STALLED;
}

static void on_lengths(struct ev_loop *loop, ev_timer *t, int events)
{
    struct outbox *s = t->data;
    bool full = false;
    (void)events;
    for (size_t i = 0; i < s->r->group.npeers; i++) {
        struct lane_state *l = &s->peer[i];
        for (int lane = 0; lane < LANES; lane++)
            full = full || (l->full[lane] && !stalled(s, i));
        /* Nobody else pushes: what was empty is. */
        if (l->pushed || l->forgotten || l->waiting[LANE_LIVE] != 0 || l->waiting[LANE_BULK] != 0)
            ask_lengths(s, i);
        /* the wait for memory, or for a lane from which nobody takes, is over */
        if (l->dropped && outbox_ready(s, i))
            go_on(s, i);
    }
    t->repeat = full ? ROOM_EVERY : LENGTH_EVERY;
    ev_timer_again(loop, t);
}

bool outbox_answered(const struct outbox *s, size_t peer)
{
    const struct lane_state *l = &s->peer[peer];
    bool waits = l->waiting[LANE_LIVE] > 0 || l->waiting[LANE_BULK] > 0;
    return outbox_ready(s, peer) && !(waits && clock_monotonic() - l->taken > STALLED);
}

bool outbox_may_try(struct outbox *s, size_t peer)
{
    double now = clock_monotonic();
    if ((stalled(s, peer) || !outbox_answered(s, peer)) &&
        now < s->peer[peer].probed + OUTBOX_PROBE)
        return false;
    s->peer[peer].probed = now;
    return true;
}

int64_t outbox_waiting(const struct outbox *s, size_t peer)
{
    const int64_t *n = s->peer[peer].waiting;
    return n[0] < 0 || n[1] < 0 ? -1 : n[0] + n[1];
}

struct outbox *outbox_open(struct replicator *r, const struct outbox_calls *calls)
{
    struct outbox *s = mem_zero(sizeof *s + r->group.npeers * sizeof *s->peer);
    s->r = r;
    s->calls = calls;
    for (size_t i = 0; i < r->group.npeers; i++)
        s->peer[i] = (struct lane_state){
            .waiting = {-1, -1}, .progress = clock_monotonic(), .taken = clock_monotonic()};
    ev_timer_init(&s->lengths, on_lengths, LENGTH_EVERY, LENGTH_EVERY);
    s->lengths.data = s;
    ev_timer_start(r->loop, &s->lengths);
    s->node = node_open(r->loop, &(struct node_options){.name = r->group.node,
                                                        .link = r->group.link,
                                                        .purpose = "replicator-push",
                                                        .ping_every = REPLICATOR_PING,
                                                        .state = on_state,
                                                        .arg = s});
    return s;
}

void outbox_close(struct outbox *s)
{
    if (!s)
        return;
    claims_node(s->r->claims, CLAIM_OWN, NULL);
    node_close(s->node);
    ev_timer_stop(s->r->loop, &s->lengths);
    free(s);
}
