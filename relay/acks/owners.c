#include "relay/acks/owners.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/metrics.h"
#include "lib/base/number.h"
#include "relay/acks/peers.h"
#include "relay/tables/poison.h"
#include "relay/cluster/cluster_view.h"
#include "relay/tables/destinations.h"

#define AGAIN 1.  /* seconds until what was refused is repeated */
#define BATCH 500 /* entries in one META or ACK */
#define META_BYTES 1000000
/* seconds between two looks; twice that fits into a lease and leaves time for an answer */
#define RENEW (OWNERS_LEASE / 1000. / 4)

TAILQ_HEAD(lane_queue, lane);
TAILQ_HEAD(batch_list, batch);

struct owners {
    struct relay *relay;
    struct node *own;
    unsigned generation;
    struct peers *peers;
    struct lane_queue lanes;  /* with metas or acks to send */
    struct batch_list acking; /* ACKs under way */
    bool refused;
    ev_timer again;
    ev_timer renew; /* of leases */
};

/* A META or ACK under way. */
struct batch {
    struct relay *relay;
    struct lane *lane;
    bool ack;
    TAILQ_ENTRY(batch) under_way;
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

double owners_loaded(const struct relay *r)
{
    return node_loaded(r->owners->own);
}

const char *owners_run_id(const struct relay *r)
{
    return node_run_id(r->owners->own);
}

void owners_each_peer(struct relay *r, void (*fn)(struct node *, void *), void *arg)
{
    peers_each(r->owners->peers, fn, arg);
}

bool owners_owes(const struct relay *r, const char *node)
{
    return peers_owes(r->owners->peers, node);
}

void owners_moved(struct relay *r, const char *lane, size_t len, const char *ids, size_t n)
{
    struct lanename name;
    bool before = true;
    if (!lanename_parse(lane, len, &name))
        return;
    for (size_t i = 0; i < name.nowners; i++) {
        if (strcmp(name.owner[i], r->node))
            peers_moved(r->owners->peers, lane, len, name.owner[i], before, ids, n);
        else
            before = false;
    }
    lanename_free(&name);
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
    ASSERT(e->calls && e->state < ENTRY_ACKING);
    e->state = ENTRY_RECORDING;
    TAILQ_INSERT_TAIL(&e->lane->metas, e, queued);
    list_lane(e->lane, e->relay->owners);
}

void owners_ack(struct entry *e)
{
    ASSERT(e->calls && e->state < ENTRY_ACKING);
    e->state = ENTRY_ACKING;
    inflight_leaving(e);
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
    destinations_want_all(o->relay);
}

static void refuse(struct owners *o, const char *what, const char *why)
{
    if (!o->refused)
        log_error("node %s refuses %s: %s; nothing is taken until it passes", o->relay->node, what,
                  why);
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
    return (r->type == REDIS_REPLY_STRING || r->type == REDIS_REPLY_STATUS) &&
           !strcmp(r->str, word);
}

/* To anybody, once at least. */
static bool was_delivered(const struct envelope *env)
{
    for (size_t i = 0; i < env->nrecipients; i++)
        if (recipient_was_delivered(&env->recipient[i]))
            return true;
    return envelope_is_retained(env);
}

/* Without what need not be known to go on. Memory is short then, and META that does not grow always
 * passes.
 */
static void encode_lean(const struct envelope *env, struct buf *out)
{
    struct envelope lean = *env;
    lean.recipient = mem_dup(env->recipient, env->nrecipients * sizeof *env->recipient);
    /* That it was delivered takes a few bytes more than the milter stored. */
    if (was_delivered(env))
        lean.message_id = lean.tls_cipher = lean.tls_bits = NULL;
    for (size_t i = 0; i < lean.nrecipients; i++) {
        struct recipient *r = &lean.recipient[i];
        r->text = NULL;
        if (!recipient_was_delivered(r))
            r->code = 0;
        r->last_attempt = 0;
        if (r->attempts > 127)
            r->attempts = 127;
    }
    envelope_encode(&lean, out);
    free(lean.recipient);
}

/* With texts of at most so many bytes. */
static void encode_short(const struct envelope *env, size_t most, struct buf *out)
{
    struct envelope brief = *env;
    brief.recipient = mem_dup(env->recipient, env->nrecipients * sizeof *env->recipient);
    for (size_t i = 0; i < brief.nrecipients; i++) {
        const char *text = env->recipient[i].text;
        brief.recipient[i].text = text ? mem_strndup(text, strnlen(text, most)) : NULL;
    }
    envelope_encode(&brief, out);
    for (size_t i = 0; i < brief.nrecipients; i++)
        free(brief.recipient[i].text);
    free(brief.recipient);
}

/* What META says. Many recipients with long addresses, and a next hop that says much about each
 * of them, make more than an envelope may have: no node would take it, and nothing else either.
 * The lean one is never longer than the one that the milter stored. */
static void encode(const struct entry *e, struct buf *out)
{
    static const size_t most[] = {256, 64}; /* 64: code and "unknown-reply" are in it */
    if (!e->lean)
        envelope_encode(&e->envelope, out);
    for (size_t i = 0; i < sizeof most / sizeof *most && out->len > ENVELOPE_SIZE_MAX; i++) {
        buf_consume(out, out->len);
        encode_short(&e->envelope, most[i], out);
    }
    if (!e->lean && out->len <= ENVELOPE_SIZE_MAX)
        return;
    buf_consume(out, out->len);
    encode_lean(&e->envelope, out);
}

/* Somebody wrote a higher revision meanwhile. With our own text it was this META, over a
 * connection that was lost. Else an admin's command wrote its marks (or, in a configuration with
 * two living first owners, another relay its results): the marks are taken over, our results
 * stand, and go out above it. */
static void on_reread(struct wire *w, redisReply *reply, void *arg)
{
    struct entry *e = arg;
    struct envelope theirs;
    struct buf ours = {0};
    ASSERT(e->state == ENTRY_RECORDING && e->lane->commands);
    e->lane->commands--;
    bool held = reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 1 &&
                reply->element[0]->type == REDIS_REPLY_ARRAY && reply->element[0]->elements >= 6 &&
                reply->element[0]->element[5]->type == REDIS_REPLY_STRING;
    if (!held) {
        if (reply && reply->type == REDIS_REPLY_ARRAY)
            e->calls->recorded(e, false);
        else
            owners_record(e); /* lost with the connection, or refused: asked again with the META */
        return;
    }
    const redisReply *revision = reply->element[0]->element[2],
                     *meta = reply->element[0]->element[5];
    encode(e, &ours);
    bool same = ours.len == (size_t)meta->len && !memcmp(ours.data, meta->str, ours.len);
    buf_free(&ours);
    if (same || envelope_decode(meta->str, (size_t)meta->len, &theirs)) {
        e->calls->recorded(e, true);
        return;
    }
    e->envelope.marks =
        (theirs.marks & ENVELOPE_ADMIN) | ((theirs.marks | e->envelope.marks) & ENVELOPE_ASIDE);
    e->revision = (uint32_t)revision->integer;
    e->dirty = true;
    envelope_free(&theirs);
    owners_record(e);
}

static void reread(struct entry *e)
{
    e->lane->commands++;
    if (!wire_sendf(owners_wire(e->relay), on_reread, e, "LANE.GET %b IDS 1 %b NOBODY",
                    e->lane->name, e->lane->name_len, e->id, (size_t)ENTRYID_LEN))
        on_reread(NULL, NULL, e);
}

static void recorded(struct entry *e, const redisReply *answer)
{
    ASSERT(e->state == ENTRY_RECORDING);
    if ((is_word(answer, "MEMORY") || is_word(answer, "FULL")) && !e->lean) {
        /* What counts, who has it, must be kept; why the others have not is in the log. */
        e->lean = true;
        owners_record(e);
        return;
    }
    bool held = !is_word(answer, "ABSENT");
    if (is_word(answer, "STALE")) {
        reread(e);
        return;
    }
    if (!is_word(answer, "OK"))
        log_mail(LOG_LEVEL_WARNING, entry_queue_id(e), "META on node %s: %s", e->relay->node,
                 answer->str ? answer->str : "no word");
    e->calls->recorded(e, held);
}

/* To the other owners, once. */
static void tell_others(struct owners *o, const struct lane *lane, struct entry *const *e, size_t n)
{
    struct entry *untold[BATCH];
    size_t k = 0;
    ASSERT(n <= BATCH);
    for (size_t i = 0; i < n; i++)
        if (!e[i]->told) {
            e[i]->told = true;
            untold[k++] = e[i];
        }
    if (k)
        peers_ack(o->peers, lane, untold, k);
}

/* The own node is away or silent, maybe for good, or takes no ack, and another owner may take
 * over: it must know what is delivered. Where nodes compare nothing comes of it if this program
 * ends before its own node is told: what the others do not hold is dropped there. */
static void tell_meanwhile(struct owners *o)
{
    struct lane *lane;
    struct batch *b;
    struct entry *e, *some[BATCH];
    if (!o->relay->heartbeat)
        return;
    TAILQ_FOREACH (b, &o->acking, under_way)
        tell_others(o, b->lane, b->entry, b->n);
    TAILQ_FOREACH (lane, &o->lanes, list) {
        size_t n = 0;
        TAILQ_FOREACH (e, &lane->acks, queued) {
            if (e->told)
                continue;
            some[n++] = e;
            if (n == BATCH) {
                tell_others(o, lane, some, n);
                n = 0;
            }
        }
        tell_others(o, lane, some, n);
    }
}

static void acked(struct batch *b)
{
    tell_others(b->relay->owners, b->lane, b->entry, b->n);
    metric_add(relay_removed, (long long)b->n);
    for (size_t i = 0; i < b->n; i++) {
        ASSERT(b->entry[i]->state == ENTRY_ACKING && b->entry[i]->told);
        b->entry[i]->calls->removed(b->entry[i]);
        inflight_release(b->entry[i]);
    }
}

static void on_batch(struct wire *w, redisReply *reply, void *arg)
{
    struct batch *b = arg;
    struct owners *o = b->relay->owners;
    ASSERT(b->n && b->lane->commands);
    b->lane->commands--;
    if (b->ack)
        TAILQ_REMOVE(&o->acking, b, under_way);
    bool answered =
        reply && reply->type == REDIS_REPLY_ARRAY && (b->ack || reply->elements == b->n);
    if (!reply) {
        queue_again(b);
    } else if (!answered) {
        queue_again(b);
        refuse(o, b->ack ? "ACK" : "META", reply->str ? reply->str : "no list");
        tell_meanwhile(o);
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
    *b = (struct batch){.relay = o->relay, .lane = lane, .ack = true};
    TAILQ_INSERT_TAIL(&o->acking, b, under_way);
    struct args a = {0};
    char count[NUMBER_TEXT];
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
    a.len[3] = number_text(count, b->n);
    lane->commands++;
    if (!wire_send(owners_wire(o->relay), on_batch, b, (int)a.n, a.v, a.len))
        on_batch(NULL, NULL, b);
    free(a.v);
    free(a.len);
}

struct meta_args {
    char revision[16];
    struct buf meta;
};

static void send_metas(struct owners *o, struct lane *lane)
{
    struct batch *b = mem_alloc(sizeof *b + BATCH * sizeof *b->entry);
    struct meta_args *m = mem_zero(BATCH * sizeof *m);
    *b = (struct batch){.relay = o->relay, .lane = lane};
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
        e->dirty = e->sent = false;
        encode(e, &one->meta);
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

/* Requests that a lost connection answers with NULL must not be sent again before it is really
 * gone. */
static bool can_send(const struct owners *o)
{
    return node_ready(o->own) && wire_up(node_wire(o->own));
}

void owners_silent(struct relay *r)
{
    tell_meanwhile(r->owners);
}

void owners_flush(struct relay *r)
{
    struct owners *o = r->owners;
    struct lane *lane;
    if (ev_is_active(&o->again))
        return;
    if (!can_send(o))
        tell_meanwhile(o);
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
        log_mail(LOG_LEVEL_WARNING, entry_queue_id(e), "NACK was refused: %s", reply->str);
    ASSERT(e->state == ENTRY_RETURNING && e->lane->commands);
    e->lane->commands--;
    inflight_release(e);
}

void owners_return(struct entry *e, int64_t delay)
{
    struct owners *o = e->relay->owners;
    ASSERT(e->state < ENTRY_ACKING);
    e->state = ENTRY_RETURNING;
    inflight_leaving(e);
    metric_add(relay_given_back, 1);
    e->lane->commands++;
    if (e->lease && can_send(o) && e->generation == o->generation &&
        wire_sendf(node_wire(o->own), on_returned, e, "LANE.NACK %b %lld KEEP %lld IDS 1 %b",
                   e->lane->name, e->lane->name_len, e->lease, (long long)delay, e->id,
                   (size_t)ENTRYID_LEN))
        return;
    if (e->lease)
        poison_excuse(e->relay, e->id, 1); /* its lease ended with a connection */
    on_returned(NULL, NULL, e);
}

static void ignore(struct wire *w, redisReply *reply, void *arg)
{
    if (reply && reply->type == REDIS_REPLY_ERROR)
        log_warning("%s was refused: %s", (const char *)arg, reply->str);
}

void owners_return_taken(struct relay *r, const struct lane *lane, long long lease,
                         long long sequence, int64_t delay)
{
    wire_sendf(owners_wire(r), ignore, "NACK", "LANE.NACK %b %lld KEEP %lld SEQS 1 %lld",
               lane->name, lane->name_len, lease, (long long)delay, sequence);
}

/* The lease of the entry, and of those taken after it under the same lease, begins anew. Returns
 * the first one taken later under another. */
static struct entry *extend(struct entry *e)
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
    if (first->lease && can_send(o) && first->generation == o->generation)
        wire_send(node_wire(o->own), ignore, "EXTEND", (int)a.n, a.v, a.len);
    free(a.v);
    free(a.len);
    return e;
}

static void on_renew(struct ev_loop *loop, ev_timer *t, int events)
{
    struct owners *o = t->data;
    struct entry *e = inflight_first(o->relay);
    /* In the order of taking: what is younger than a look ago has time until the next one. */
    while (e && clock_monotonic() - e->taken_at >= RENEW)
        e = extend(e);
}

/* ---- the other owners ---- */

void owners_remind(struct entry *e)
{
    char revision[16];
    struct buf meta = {0};
    if (!e->revision)
        return;
    encode(e, &meta);
    const char *v[] = {"LANE.META", e->lane->name, "1", (const char *)e->id, revision, meta.data};
    size_t len[] = {9,
                    e->lane->name_len,
                    1,
                    ENTRYID_LEN,
                    (size_t)snprintf(revision, sizeof revision, "%u", (unsigned)e->revision),
                    meta.len};
    peers_send(e->relay->owners->peers, e->lane, 0, 6, v, len);
    buf_free(&meta);
}

bool owners_all_reachable(const struct entry *e)
{
    return peers_reachable(e->relay->owners->peers, e->lane);
}

void owners_each(struct relay *r, void (*fn)(struct node *, void *), void *arg)
{
    fn(r->owners->own, arg);
    peers_each(r->owners->peers, fn, arg);
}

struct each_node {
    void (*fn)(const char *, struct wire *, void *);
    void *arg;
};

static void on_each_node(struct node *node, void *arg)
{
    struct each_node *each = arg;
    if (node_ready(node))
        each->fn(node_name(node), node_wire(node), each->arg);
}

void owners_each_node(struct relay *r, void (*fn)(const char *, struct wire *, void *), void *arg)
{
    struct each_node each = {fn, arg};
    on_each_node(r->owners->own, &each);
    peers_each(r->owners->peers, on_each_node, &each);
}

/* ---- the own node ---- */

static void on_state(struct node *node, bool ready, bool new_life, void *arg)
{
    struct owners *o = arg;
    if (!ready)
        return;
    o->generation++;
    cluster_own_server(o->relay, new_life && node_life(node) > 1);
    relay_kick(o->relay, RELAY_LIST);
    destinations_want_all(o->relay);
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
    TAILQ_INIT(&o->acking);
    ev_timer_init(&o->again, on_again, 0., 0.);
    ev_timer_init(&o->renew, on_renew, RENEW, RENEW);
    o->renew.data = o;
    ev_timer_start(r->loop, &o->renew);
    o->own = node_open(r->loop, &(struct node_options){
                                    .name = r->node,
                                    .link = config_node_link(
                                        r->config, (size_t)config_node_index(r->config, r->node)),
                                    .purpose = "relay",
                                    .ping_every = 0,
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
    ev_timer_stop(r->loop, &o->renew);
    node_close(o->own);
    peers_close(o->peers);
    free(o);
    r->owners = NULL;
}
