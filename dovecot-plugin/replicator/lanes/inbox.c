/* inbox - waits with READY, takes, hands parcels to the users, and acks what was done. */
#include "dovecot-plugin/replicator/lanes/inbox.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/metrics.h"
#include "lib/redis/node.h"
#include "dovecot-plugin/replicator/lanes/claims.h"

#define BLOCK 10000  /* ms; READY then says "nothing", so that a dead connection is found */
#define PATIENCE 5.  /* seconds beyond that */
#define AGAIN 1.     /* seconds after an error */
#define LEASE 600000 /* ms */
#define COUNT 256
#define PARCEL_COSTS 512 /* bytes, besides its body: at least what one takes in memory */
#define TAKE_BYTES (2 * 1024 * 1024)
/* memory of one answer: a TAKE's bytes, a parcel, what COUNT of them cost */
#define REPLY_MOST (32 * 1024 * 1024)
/* ACKs that a peer's node does not take: nothing more is taken from it */
#define UNSENT_MOST (1024 * 1024)
#define TRIM_ABOVE (8 * 1024 * 1024)
#define WAITING_SHARE 8 /* of the hand: one of so many parts is of those that wait, at most */
#define ACKS_MAX 1000   /* ids of one ACK */
#define BUCKETS 16384

LIST_HEAD(in_flight_list, parcel_in_flight);

struct from {
    struct inbox *inbox;
    size_t peer;
    struct node *ready, *drain;
    char cursor[32];
    bool asked;
    ev_timer patience;
    bool waiting[LANES];  /* the lane may hold something */
    unsigned told[LANES]; /* how often READY said so */
    bool taking;
    double pause; /* until */
    double heard, said, said_digest;
    bool foreign;           /* what was taken last was of another group */
    struct buf acks[LANES]; /* ids, 16 bytes each */
};

struct inbox {
    struct replicator *r;
    const struct inbox_calls *calls;
    size_t bytes;       /* in flight */
    size_t waiting;     /* of them: acked (take_waits) */
    size_t coming;      /* that were asked for */
    size_t bulk;        /* of both: from bulk lanes */
    size_t next;        /* the peer of whom is taken first */
    uint8_t secret[16]; /* a site that chose all of one bucket would have main search it for each */
    bool swollen; /* it had more than TRIM_ABOVE in flight, and memory was not given back since */
    struct in_flight_list bucket[BUCKETS];
    ev_timer again;
    struct from from[];
};

struct request {
    struct from *from;
    int lane;
    unsigned told;
    size_t bytes;
};

/* ---- in flight ---- */

static struct in_flight_list *bucket_of(struct inbox *t, const void *id)
{
    uint8_t key[sizeof t->secret + 16];
    memcpy(key, t->secret, sizeof t->secret);
    memcpy(key + sizeof t->secret, id, 16);
    return &t->bucket[orset_hash(key, sizeof key).lo % BUCKETS];
}

static const struct parcel_in_flight *held(struct inbox *t, size_t peer, const void *id)
{
    const struct parcel_in_flight *p;
    LIST_FOREACH (p, bucket_of(t, id), in_hash)
        if (p->peer == peer && !memcmp(p->id, id, sizeof p->id))
            return p;
    return NULL;
}

static void ack(struct from *f, int lane, const void *id)
{
    /* Acks that cannot be sent are not kept: the lease has ended with the connection, and the
     * parcel comes again. */
    if (f->drain && node_ready(f->drain))
        buf_add(&f->acks[lane], id, 16);
}

/* The C library keeps what was freed for the next inbox that is as full, which may come in
 * weeks. */
static void give_back(struct inbox *t)
{
    if (!t->swollen || t->bytes > t->waiting)
        return;
    t->swollen = false;
#ifdef __GLIBC__
    (void)malloc_trim(0);
#endif
}

bool take_may_wait(const struct inbox *t)
{
    return t->waiting < (size_t)t->r->config->replicator_memory / WAITING_SHARE &&
           !inbox_crowded(t);
}

void take_waits(struct inbox *t, struct parcel_in_flight *p)
{
    if (p->acked)
        return;
    ack(&t->from[p->peer], p->lane, p->id);
    p->acked = true;
    t->waiting += p->body.n + PARCEL_COSTS;
}

void inbox_done(struct inbox *t, struct parcel_in_flight *p)
{
    ASSERT(t->bytes >= p->body.n + PARCEL_COSTS && t->waiting <= t->bytes);
    if (p->acked)
        t->waiting -= p->body.n + PARCEL_COSTS;
    else
        ack(&t->from[p->peer], p->lane, p->id);
    LIST_REMOVE(p, in_hash);
    t->bytes -= p->body.n + PARCEL_COSTS;
    t->bulk -= p->lane == LANE_BULK ? p->body.n + PARCEL_COSTS : 0;
    metric_set(replicator_in_hand_bytes, (long long)t->bytes);
    freeReplyObject(p->reply);
    free(p);
    give_back(t);
}

static void on_acked(struct wire *w, redisReply *reply, void *arg)
{
    (void)w;
    struct from *f = arg;
    if (reply && reply->type == REDIS_REPLY_ERROR && replicator_may_say(&f->said, 60.))
        log_warning("replica %s: ACK was refused: %s", f->inbox->r->group.peer[f->peer].name,
                    reply->str);
}

static void flush_lane(struct from *f, int lane)
{
    struct buf *b = &f->acks[lane];
    const char *argv[4 + ACKS_MAX];
    size_t len[4 + ACKS_MAX];
    char count[24];
    for (size_t at = 0; at < b->len && f->drain && node_ready(f->drain);) {
        size_t n = (b->len - at) / 16 < ACKS_MAX ? (b->len - at) / 16 : ACKS_MAX;
        const char *key = f->inbox->r->group.peer[f->peer].in[lane];
        snprintf(count, sizeof count, "%zu", n);
        argv[0] = "LANE.ACK";
        argv[1] = key;
        argv[2] = "IDS";
        argv[3] = count;
        for (size_t i = 0; i < 4; i++)
            len[i] = strlen(argv[i]);
        for (size_t i = 0; i < n; i++) {
            argv[4 + i] = b->data + at + 16 * i;
            len[4 + i] = 16;
        }
        wire_send(node_wire(f->drain), on_acked, f, (int)(4 + n), argv, len);
        at += 16 * n;
    }
    b->len = 0;
}

void inbox_flush(struct inbox *t)
{
    for (size_t i = 0; i < t->r->group.npeers; i++)
        for (int l = 0; l < LANES; l++)
            if (t->from[i].acks[l].len)
                flush_lane(&t->from[i], l);
}

/* ---- what is trusted ---- */

/* NULL: it is from whom it says and for us. Else why not. */
static const char *foreign(struct from *f, const struct parcel *m)
{
    const struct group *g = &f->inbox->r->group;
    const struct peer *p = &g->peer[f->peer];
    if (m->version != PARCEL_VERSION)
        return "it is of another version: install the same one everywhere";
    f->foreign = memcmp(m->group, g->digest, sizeof g->digest) != 0;
    if (f->foreign) {
        char theirs[DIGEST_HEX], ours[DIGEST_HEX];
        group_hex(m->group, theirs);
        group_hex(g->digest, ours);
        if (replicator_may_say(&f->said_digest, 60.))
            log_error("replica %s is of another group: its digest is %s, ours is %s, of %s (each "
                      "site logs its own at its start). Replica ids and "
                      "replicate_namespaces must be the same on all: it is not listened to",
                      p->name, theirs, ours, g->made_of);
        return "";
    }
    if (m->from != p->site)
        return "it says it is from another replica than the lane it came by";
    if (m->to != g->self)
        return "it is for another replica";
    return NULL;
}

/* ---- TAKE ---- */

static bool well_formed(const redisReply *e)
{
    if (e->type != REDIS_REPLY_ARRAY || e->elements < 7)
        return false;
    return e->element[1]->type == REDIS_REPLY_STRING && e->element[1]->len == 16 &&
           e->element[5]->type == REDIS_REPLY_STRING && e->element[6]->type == REDIS_REPLY_STRING;
}

bool inbox_crowded(const struct inbox *t)
{
    return t->bytes > (size_t)t->r->config->replicator_memory / 2;
}

/* It is in flight from now on. */
static struct parcel_in_flight *keep(struct inbox *t, const struct parcel_in_flight *came)
{
    struct parcel_in_flight *p = mem_dup(came, sizeof *came);
    t->bytes += p->body.n + PARCEL_COSTS;
    t->bulk += p->lane == LANE_BULK ? p->body.n + PARCEL_COSTS : 0;
    t->swollen = t->swollen || t->bytes > TRIM_ABOVE;
    metric_set(replicator_in_hand_bytes, (long long)t->bytes);
    LIST_INSERT_HEAD(bucket_of(t, p->id), p, in_hash);
    return p;
}

static void take_entry(struct from *f, int lane, redisReply *e)
{
    struct inbox *t = f->inbox;
    const redisReply *id = e->element[1], *meta = e->element[5];
    redisReply *body = e->element[6];
    struct parcel m;
    const struct parcel_in_flight *same = held(t, f->peer, id->str);
    if (same) { /* its lease ended with a connection or by time, and we go on with it */
        if (same->acked)
            ack(f, lane, id->str);
        return;
    }
    const char *why = parcel_decode(&m, (const uint8_t *)meta->str, (size_t)meta->len) < 0
                          ? "its meta part is malformed"
                          : foreign(f, &m);
    if (!why && (size_t)body->len > PARCEL_MAX)
        why = "it is too large";
    if (why) {
        metric_add(replicator_foreign, 1);
        if (*why && replicator_may_say(&f->said, 60.))
            log_error("replica %s: a parcel is dropped: %s", t->r->group.peer[f->peer].name, why);
        ack(f, lane, id->str);
        return;
    }
    metric_add(replicator_taken, 1);
    struct text whole = {(const uint8_t *)body->str, (size_t)body->len};
    struct parcel_in_flight came = {.peer = f->peer,
                                    .taken = clock_monotonic(),
                                    .lane = lane,
                                    .kind = m.kind,
                                    .reply = body,
                                    .body = whole,
                                    .first =
                                        m.kind == PARCEL_BATCH ? parcel_batch_first(whole) : 0};
    memcpy(came.id, id->str, sizeof came.id);
    struct user *u = t->calls->came(t->r, m.user, &came);
    if (!u) {
        metric_add(replicator_dropped, 1);
        ack(f, lane, id->str);
        return;
    }
    e->element[6] = NULL;
    t->calls->took(u, keep(t, &came));
}

static void on_take(struct wire *w, redisReply *reply, void *arg)
{
    (void)w;
    struct request q = *(struct request *)arg;
    struct from *f = q.from;
    free(arg);
    f->taking = false;
    f->inbox->coming -= q.bytes;
    f->inbox->bulk -= q.lane == LANE_BULK ? q.bytes : 0;
    if (!reply)
        return;
    if (reply->type != REDIS_REPLY_ARRAY) {
        f->pause = clock_monotonic() + AGAIN;
        if (replicator_may_say(&f->said, 60.))
            log_warning("replica %s: TAKE was refused: %s", f->inbox->r->group.peer[f->peer].name,
                        reply->str ? reply->str : "no list");
        return;
    }
    /* else it got something after it was found empty */
    if (reply->elements == 0 && q.told == f->told[q.lane])
        f->waiting[q.lane] = false;
    if (f->inbox->r->stopping)
        return; /* the lease ends with the connection */
    for (size_t i = 0; i < reply->elements; i++) {
        redisReply *l = reply->element[i];
        if (l->type != REDIS_REPLY_ARRAY || l->elements < 3 ||
            l->element[2]->type != REDIS_REPLY_ARRAY)
            continue;
        f->heard = clock_monotonic();
        for (size_t k = 0; k < l->element[2]->elements; k++) {
            redisReply *e = l->element[2]->element[k];
            if (well_formed(e))
                take_entry(f, q.lane, e);
            else if (replicator_may_say(&f->said, 60.))
                log_error("replica %s: an entry that is no parcel (sequence %lld) stays in its "
                          "lane, leased",
                          f->inbox->r->group.peer[f->peer].name,
                          e->type == REDIS_REPLY_ARRAY && e->elements ? e->element[0]->integer : 0);
        }
    }
}

/* room: bytes. One parcel more may come. */
static void take_lane(struct from *f, int lane, size_t room)
{
    struct request *q = mem_alloc(sizeof *q);
    *q = (struct request){f, lane, f->told[lane], room < TAKE_BYTES ? room : TAKE_BYTES};
    const char *key = f->inbox->r->group.peer[f->peer].in[lane];
    f->taking =
        wire_sendf(node_wire(f->drain), on_take, q, "LANE.TAKE 1 %s COUNT %d BYTES %d LEASE %d",
                   key, COUNT, (int)q->bytes, LEASE);
    if (f->taking) {
        f->inbox->coming += q->bytes;
        f->inbox->bulk += lane == LANE_BULK ? q->bytes : 0;
    } else {
        free(q);
    }
}

/* Bulk may fill half of the inbox. It does not wait until live leaves half of it: the parcels of
 * one site would keep what the others answer away for good. */
static void take_from(struct from *f)
{
    struct inbox *t = f->inbox;
    size_t most = (size_t)t->r->config->replicator_memory, had = t->bytes + t->coming;
    size_t room = had < most ? most - had : 0, bulk = t->bulk < most / 2 ? most / 2 - t->bulk : 0;
    if (f->waiting[LANE_LIVE] && room > 0)
        take_lane(f, LANE_LIVE, room);
    else if (!f->waiting[LANE_LIVE] && f->waiting[LANE_BULK] && room > 0 && bulk > 0)
        take_lane(f, LANE_BULK, room < bulk ? room : bulk);
}

/* Who was given room is the last the next time: else the first one who always has something would
 * have all of it. */
void inbox_run(struct inbox *t)
{
    struct replicator *r = t->r;
    double now = clock_monotonic();
    size_t n = r->group.npeers, first = t->next;
    for (size_t k = 0; k < n && !r->stopping; k++) {
        struct from *f = &t->from[(first + k) % n];
        if (!f->drain || f->taking || !node_ready(f->drain) || now < f->pause ||
            !claims_may(r->claims, f->peer) || wire_unsent_bytes(node_wire(f->drain)) > UNSENT_MOST)
            continue;
        take_from(f);
        if (f->taking)
            t->next = (f->peer + 1) % n;
    }
}

/* ---- READY ---- */

static void ask(struct from *);

static void arm(struct from *f, double after)
{
    ev_timer_stop(f->inbox->r->loop, &f->patience);
    ev_timer_set(&f->patience, after, 0.);
    ev_timer_start(f->inbox->r->loop, &f->patience);
}

static void on_patience(struct ev_loop *loop, ev_timer *t, int events)
{
    (void)loop, (void)events;
    struct from *f = t->data;
    if (f->asked)
        node_drop(f->ready, "READY was not answered in time");
    else
        ask(f);
}

static bool copy_cursor(struct from *f, const redisReply *c)
{
    if (c->type == REDIS_REPLY_INTEGER)
        snprintf(f->cursor, sizeof f->cursor, "%lld", c->integer);
    else if (c->type == REDIS_REPLY_STRING && (size_t)c->len < sizeof f->cursor)
        snprintf(f->cursor, sizeof f->cursor, "%s", c->str);
    else
        return false;
    return true;
}

static void on_ready(struct wire *w, redisReply *reply, void *arg)
{
    (void)w;
    struct from *f = arg;
    f->asked = false;
    if (!reply)
        return;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 2 ||
        reply->element[1]->type != REDIS_REPLY_ARRAY || !copy_cursor(f, reply->element[0])) {
        if (replicator_may_say(&f->said, 60.))
            log_warning("replica %s: READY was refused: %s", f->inbox->r->group.peer[f->peer].name,
                        reply->str ? reply->str : "no list");
        arm(f, AGAIN);
        return;
    }
    const redisReply *list = reply->element[1];
    for (size_t i = 0; i < list->elements; i++)
        for (int l = 0; l < LANES; l++)
            if (list->element[i]->type == REDIS_REPLY_STRING &&
                !strcmp(list->element[i]->str, f->inbox->r->group.peer[f->peer].in[l])) {
                f->waiting[l] = true;
                f->told[l]++;
            }
    ask(f);
}

static void ask(struct from *f)
{
    if (f->asked || f->inbox->r->stopping || !node_ready(f->ready))
        return;
    f->asked = wire_sendf(node_wire(f->ready), on_ready, f, "LANE.READY %s BLOCK %d COUNT 1000",
                          f->cursor, BLOCK);
    arm(f, BLOCK / 1000. + PATIENCE);
}

static void on_ready_state(struct node *node, bool ready, bool new_life, void *arg)
{
    (void)node;
    struct from *f = arg;
    f->asked = false;
    ev_timer_stop(f->inbox->r->loop, &f->patience);
    if (ready && new_life)
        snprintf(f->cursor, sizeof f->cursor, "0");
    if (ready)
        ask(f);
}

static void on_drain_state(struct node *node, bool ready, bool new_life, void *arg)
{
    (void)new_life;
    struct from *f = arg;
    claims_node(f->inbox->r->claims, f->peer, ready ? node : NULL);
    f->taking = false;
    f->waiting[LANE_LIVE] = f->waiting[LANE_BULK] = ready;
    f->acks[LANE_LIVE].len = f->acks[LANE_BULK].len = 0;
}

/* ---- all of it ---- */

static void on_again(struct ev_loop *loop, ev_timer *t, int events)
{
    /* Else nothing: the loop's turn looks at pauses that are over. */
    struct inbox *inbox = t->data;
    (void)loop, (void)events;
    if (inbox_crowded(inbox))
        inbox->calls->crowded(inbox->r);
}

static void close_from(struct from *f)
{
    claims_node(f->inbox->r->claims, f->peer, NULL);
    ev_timer_stop(f->inbox->r->loop, &f->patience);
    node_close(f->ready);
    node_close(f->drain);
    f->ready = f->drain = NULL;
    f->waiting[LANE_LIVE] = f->waiting[LANE_BULK] = false;
}

struct inbox *inbox_open(struct replicator *r, const struct inbox_calls *calls)
{
    struct inbox *t = mem_zero(sizeof *t + r->group.npeers * sizeof *t->from);
    t->r = r;
    t->calls = calls;
    if (getrandom(t->secret, sizeof t->secret, 0) != sizeof t->secret)
        log_fatal("getrandom: %s", strerror(errno));
    for (size_t i = 0; i < r->group.npeers; i++) {
        struct from *f = &t->from[i];
        const struct peer *p = &r->group.peer[i];
        *f = (struct from){.inbox = t, .peer = i, .cursor = "0"};
        ev_timer_init(&f->patience, on_patience, 0., 0.);
        f->patience.data = f;
        if (p->removed)
            continue;
        f->ready = node_open(r->loop, &(struct node_options){.name = p->node,
                                                             .link = p->link,
                                                             .purpose = "replicator-ready",
                                                             .reply_most = REPLY_MOST,
                                                             .blocks = true,
                                                             .state = on_ready_state,
                                                             .arg = f});
        f->drain = node_open(r->loop, &(struct node_options){.name = p->node,
                                                             .link = p->link,
                                                             .purpose = "replicator-take",
                                                             .reply_most = REPLY_MOST,
                                                             .ping_every = REPLICATOR_PING,
                                                             .state = on_drain_state,
                                                             .arg = f});
    }
    ev_timer_init(&t->again, on_again, AGAIN, AGAIN);
    t->again.data = t;
    ev_timer_start(r->loop, &t->again);
    return t;
}

void inbox_stop(struct inbox *t)
{
    for (size_t i = 0; i < t->r->group.npeers; i++)
        if (t->from[i].ready) {
            ev_timer_stop(t->r->loop, &t->from[i].patience);
            node_close(t->from[i].ready);
            t->from[i].ready = NULL;
        }
}

void inbox_close(struct inbox *t)
{
    if (!t)
        return;
    inbox_flush(t);
    ev_timer_stop(t->r->loop, &t->again);
    for (size_t i = 0; i < t->r->group.npeers; i++) {
        close_from(&t->from[i]);
        buf_free(&t->from[i].acks[0]);
        buf_free(&t->from[i].acks[1]);
    }
}

void inbox_free(struct inbox *t)
{
    free(t);
}

void inbox_remove_peer(struct inbox *t, size_t peer)
{
    close_from(&t->from[peer]);
}

bool inbox_node(const struct inbox *t, size_t peer)
{
    return t->from[peer].drain && node_ready(t->from[peer].drain);
}

bool inbox_foreign(const struct inbox *t, size_t peer)
{
    return t->from[peer].foreign;
}

double inbox_heard(const struct inbox *t, size_t peer)
{
    return t->from[peer].heard;
}
