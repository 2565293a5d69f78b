#include "owners.h"

#include <stdlib.h>
#include <string.h>

#include "delivery_log.h"
#include "discover.h"
#include "drain.h"
#include "log.h"
#include "mem.h"
#include "metrics.h"
#include "mail.h"
#include "peers.h"

#define AGAIN 1.  /* seconds until what was refused is repeated */
#define BATCH 500 /* entries in one META or ACK */
#define META_BYTES 1000000

TAILQ_HEAD(lane_queue, lane);

struct owners {
    struct relay *relay;
    struct node *own;
    unsigned generation;
    struct peers *peers;
    struct lane_queue lanes; /* with metas or acks to send */
    bool refused;
    ev_timer again;
};

/* A META or ACK under way. */
struct batch {
    struct relay *relay;
    struct lane *lane;
    bool ack;
    size_t n;
    struct entry *entry[];
};

bool owners_ready(const struct relay *r)
{
    return node_ready(r->owners->own);
}

struct wire *owners_wire(const struct relay *r)
{
    return node_wire(r->owners->own);
}

int64_t owners_born(const struct relay *r)
{
    return node_born(r->owners->own);
}

unsigned owners_generation(const struct relay *r)
{
    return r->owners->generation;
}

bool owners_refused(const struct relay *r)
{
    return r->owners->refused;
}

size_t owners_peer_requests(const struct relay *r)
{
    return peers_open_requests(r->owners->peers);
}

/* ---- what waits to be sent ---- */

static void list_lane(struct lane *lane, struct owners *o)
{
    if (lane->listed)
        return;
    lane->listed = true;
    TAILQ_INSERT_TAIL(&o->lanes, lane, list);
}

void owners_record(struct entry *e)
{
    e->state = ENTRY_RECORDING;
    TAILQ_INSERT_TAIL(&e->lane->metas, e, queued);
    list_lane(e->lane, e->relay->owners);
}

void owners_ack(struct entry *e)
{
    e->state = ENTRY_ACKING;
    TAILQ_INSERT_TAIL(&e->lane->acks, e, queued);
    list_lane(e->lane, e->relay->owners);
}

/* Refused, or lost with the connection: to be sent again. */
static void queue_again(struct batch *b)
{
    for (size_t i = 0; i < b->n; i++)
        TAILQ_INSERT_TAIL(b->ack ? &b->lane->acks : &b->lane->metas, b->entry[i], queued);
    list_lane(b->lane, b->relay->owners);
}

static void passed(struct owners *o)
{
    if (!o->refused)
        return;
    o->refused = false;
    ev_timer_stop(o->relay->loop, &o->again);
    log_info("node %s takes acks again", o->relay->node);
    drain_want_all(o->relay);
}

static void refuse(struct owners *o, const char *what, const char *why)
{
    if (!o->refused)
        log_error("node %s refuses %s: %s; nothing is taken until it passes", o->relay->node, what, why);
    o->refused = true;
    metric_add(relay_acks_refused, 1);
    ev_timer_stop(o->relay->loop, &o->again);
    ev_timer_set(&o->again, AGAIN, 0.);
    ev_timer_start(o->relay->loop, &o->again);
}

/* That it is not active any more is all that owners_flush waits for. */
static void on_again(struct ev_loop *loop, ev_timer *t, int events)
{
}

/* ---- answers of the own node ---- */

static bool is_word(const redisReply *r, const char *word)
{
    return (r->type == REDIS_REPLY_STRING || r->type == REDIS_REPLY_STATUS) && !strcmp(r->str, word);
}

static void recorded(struct entry *e, const redisReply *answer)
{
    if ((is_word(answer, "MEMORY") || is_word(answer, "FULL")) && !e->lean) {
        /* What counts, who has it, must be kept; why the others have not is in the log. */
        e->lean = true;
        owners_record(e);
        return;
    }
    bool held = !is_word(answer, "ABSENT");
    /* STALE: this META was sent before, over a connection that was lost; or another relay delivers the same
     * entry, which is a configuration with two living first owners. */
    if (!is_word(answer, "OK") && !is_word(answer, "STALE"))
        log_warning("%s: META on node %s: %s", delivery_queue_id(e), e->relay->node,
                    answer->str ? answer->str : "no word");
    mail_recorded(e, held);
}

static void acked(struct batch *b)
{
    peers_ack(b->relay->owners->peers, b->lane, b->entry, b->n);
    metric_add(relay_removed, (long long)b->n);
    for (size_t i = 0; i < b->n; i++) {
        delivery_log_removed(b->entry[i]);
        hand_release(b->entry[i]);
    }
}

static void on_batch(struct wire *w, redisReply *reply, void *arg)
{
    struct batch *b = arg;
    struct owners *o = b->relay->owners;
    b->lane->commands--;
    bool answered = reply && reply->type == REDIS_REPLY_ARRAY && (b->ack || reply->elements == b->n);
    if (!reply) {
        queue_again(b);
    } else if (!answered) {
        queue_again(b);
        refuse(o, b->ack ? "ACK" : "META", reply->str ? reply->str : "no list");
    } else {
        passed(o);
        if (b->ack)
            acked(b);
        for (size_t i = 0; !b->ack && i < b->n; i++)
            recorded(b->entry[i], reply->element[i]);
    }
    free(b);
}

/* ---- sending ---- */

/* The arguments of a META or ACK, the same for every owner. */
struct args {
    size_t n, size; /* used, allocated */
    const char **v;
    size_t *len;
};

static void add_arg(struct args *a, const void *p, size_t len)
{
    if (a->n == a->size) {
        a->size = a->size ? 2 * a->size : 64;
        a->v = mem_grow(a->v, a->size * sizeof *a->v);
        a->len = mem_grow(a->len, a->size * sizeof *a->len);
    }
    a->v[a->n] = p;
    a->len[a->n++] = len;
}

static void send_acks(struct owners *o, struct lane *lane)
{
    struct batch *b = mem_alloc(sizeof *b + BATCH * sizeof *b->entry);
    *b = (struct batch){o->relay, lane, true, 0};
    struct args a = {0};
    char count[24];
    add_arg(&a, "LANE.ACK", 8);
    add_arg(&a, lane->name, lane->name_len);
    add_arg(&a, "IDS", 3);
    add_arg(&a, count, 0);
    struct entry *e;
    while (b->n < BATCH && (e = TAILQ_FIRST(&lane->acks))) {
        TAILQ_REMOVE(&lane->acks, e, queued);
        b->entry[b->n++] = e;
        add_arg(&a, e->id, ENTRYID_LEN);
    }
    a.len[3] = (size_t)snprintf(count, sizeof count, "%zu", b->n);
    lane->commands++;
    if (!wire_send(owners_wire(o->relay), on_batch, b, (int)a.n, a.v, a.len))
        on_batch(NULL, NULL, b);
    free(a.v);
    free(a.len);
}

/* Without what need not be known to go on. Memory is short then, and META that does not grow always passes.
 */
static void encode_lean(const struct envelope *env, struct buf *out)
{
    struct envelope lean = *env;
    lean.recipient = mem_dup(env->recipient, env->nrecipients * sizeof *env->recipient);
    for (size_t i = 0; i < lean.nrecipients; i++) {
        struct recipient *r = &lean.recipient[i];
        r->text = NULL;
        r->code = 0;
        r->last_attempt = 0;
        if (r->attempts > 127)
            r->attempts = 127;
    }
    envelope_encode(&lean, out);
    free(lean.recipient);
}

struct meta_args {
    char revision[16];
    struct buf meta;
};

static void send_metas(struct owners *o, struct lane *lane)
{
    struct batch *b = mem_alloc(sizeof *b + BATCH * sizeof *b->entry);
    struct meta_args *m = mem_zero(BATCH * sizeof *m);
    *b = (struct batch){o->relay, lane, false, 0};
    struct args a = {0};
    char count[24];
    size_t bytes = 0;
    add_arg(&a, "LANE.META", 9);
    add_arg(&a, lane->name, lane->name_len);
    add_arg(&a, count, 0);
    struct entry *e;
    while (b->n < BATCH && bytes < META_BYTES && (e = TAILQ_FIRST(&lane->metas))) {
        TAILQ_REMOVE(&lane->metas, e, queued);
        struct meta_args *one = &m[b->n];
        b->entry[b->n++] = e;
        if (e->dirty)
            e->revision++;
        e->dirty = false;
        if (e->lean)
            encode_lean(&e->envelope, &one->meta);
        else
            envelope_encode(&e->envelope, &one->meta);
        add_arg(&a, e->id, ENTRYID_LEN);
        add_arg(&a, one->revision,
                (size_t)snprintf(one->revision, sizeof one->revision, "%u", (unsigned)e->revision));
        add_arg(&a, one->meta.data, one->meta.len);
        bytes += one->meta.len;
    }
    a.len[2] = (size_t)snprintf(count, sizeof count, "%zu", b->n);
    lane->commands++;
    if (wire_send(owners_wire(o->relay), on_batch, b, (int)a.n, a.v, a.len))
        peers_send(o->peers, lane, b->n, (int)a.n, a.v, a.len);
    else
        on_batch(NULL, NULL, b);
    for (size_t i = 0; i < BATCH; i++)
        buf_free(&m[i].meta);
    free(m);
    free(a.v);
    free(a.len);
}

/* Requests that a lost connection answers with NULL must not be sent again before it is really gone. */
static bool can_send(const struct owners *o)
{
    return node_ready(o->own) && wire_up(node_wire(o->own));
}

void owners_flush(struct relay *r)
{
    struct owners *o = r->owners;
    struct lane *lane;
    if (ev_is_active(&o->again))
        return;
    while (can_send(o) && (lane = TAILQ_FIRST(&o->lanes))) {
        TAILQ_REMOVE(&o->lanes, lane, list);
        lane->listed = false;
        while (!TAILQ_EMPTY(&lane->metas))
            send_metas(o, lane);
        while (!TAILQ_EMPTY(&lane->acks))
            send_acks(o, lane);
    }
}

/* ---- giving back, and leases ---- */

static void on_returned(struct wire *w, redisReply *reply, void *arg)
{
    struct entry *e = arg;
    /* Refused, or the connection is lost: the lease ends by itself, and then it is taken again. */
    if (reply && reply->type == REDIS_REPLY_ERROR)
        log_warning("%s: NACK was refused: %s", delivery_queue_id(e), reply->str);
    e->lane->commands--;
    hand_release(e);
}

void owners_return(struct entry *e, bool retry, int64_t delay)
{
    struct owners *o = e->relay->owners;
    e->state = ENTRY_RETURNING;
    metric_add(relay_given_back, 1);
    e->lane->commands++;
    if (can_send(o) && e->generation == o->generation &&
        wire_sendf(node_wire(o->own), on_returned, e, "LANE.NACK %b %lld %s %lld IDS 1 %b", e->lane->name,
                   e->lane->name_len, e->lease, retry ? "RETRY" : "KEEP", (long long)delay, e->id,
                   (size_t)ENTRYID_LEN))
        return;
    on_returned(NULL, NULL, e);
}

static void ignore(struct wire *w, redisReply *reply, void *arg)
{
    if (reply && reply->type == REDIS_REPLY_ERROR)
        log_warning("%s was refused: %s", (const char *)arg, reply->str);
}

void owners_return_taken(struct relay *r, const struct lane *lane, long long lease, long long sequence,
                         int64_t delay)
{
    wire_sendf(owners_wire(r), ignore, "NACK", "LANE.NACK %b %lld KEEP %lld SEQS 1 %lld", lane->name,
               lane->name_len, lease, (long long)delay, sequence);
}

struct entry *owners_extend(struct entry *e)
{
    struct owners *o = e->relay->owners;
    const struct entry *first = e;
    struct args a = {0};
    char lease[24], ms[24], count[24];
    add_arg(&a, "LANE.EXTEND", 11);
    add_arg(&a, e->lane->name, e->lane->name_len);
    add_arg(&a, lease, (size_t)snprintf(lease, sizeof lease, "%lld", e->lease));
    add_arg(&a, ms, (size_t)snprintf(ms, sizeof ms, "%d", OWNERS_LEASE));
    add_arg(&a, "IDS", 3);
    add_arg(&a, count, 0);
    for (; e && e->lease == first->lease && e->lane == first->lane; e = TAILQ_NEXT(e, taken))
        add_arg(&a, e->id, ENTRYID_LEN);
    a.len[5] = (size_t)snprintf(count, sizeof count, "%zu", a.n - 6);
    /* A lease of an earlier connection has ended with it. */
    if (can_send(o) && first->generation == o->generation)
        wire_send(node_wire(o->own), ignore, "EXTEND", (int)a.n, a.v, a.len);
    free(a.v);
    free(a.len);
    return e;
}

/* ---- the own node ---- */

static void on_state(struct node *node, bool ready, bool new_life, void *arg)
{
    struct owners *o = arg;
    if (!ready)
        return;
    o->generation++;
    discover_list(o->relay);
    drain_want_all(o->relay);
}

void owners_reload(struct relay *r)
{
    peers_reload(r->owners->peers);
}

struct owners *owners_open(struct relay *r)
{
    struct owners *o = mem_zero(sizeof *o);
    o->relay = r;
    TAILQ_INIT(&o->lanes);
    ev_timer_init(&o->again, on_again, 0., 0.);
    const struct config_node *n = &r->config->node[config_node_index(r->config, r->node)];
    o->own = node_open(r->loop, &(struct node_options){.name = r->node,
                                                       .address = n->redis,
                                                       .purpose = "relay",
                                                       .ping = false,
                                                       .settle = r->config->settle,
                                                       .state = on_state,
                                                       .arg = o});
    o->peers = peers_open(r);
    return o;
}

void owners_close(struct relay *r)
{
    struct owners *o = r->owners;
    ev_timer_stop(r->loop, &o->again);
    node_close(o->own);
    peers_close(o->peers);
    free(o);
    r->owners = NULL;
}
