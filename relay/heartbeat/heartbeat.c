#include "relay/heartbeat/heartbeat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "relay/intake/lane_watch.h"
#include "relay/intake/memory_pressure.h"
#include "relay/cluster/cluster_view.h"
#include "relay/cluster/takeover_rules.h"
#include "relay/tables/inflight.h"
#include "relay/tables/lanes.h"
#include "relay/tables/retained.h"
#include "lib/cluster/liveness.h"
#include "lib/cluster/nearness.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "relay/heartbeat/membership.h"
#include "lib/base/metrics.h"
#include "relay/acks/owners.h"
#include "relay/acks/peers.h"
#include "relay/repair/rereplicate.h"
#include "relay/repair/resync.h"

#define BEATS_MOST 300 /* in one answer */
/* seconds in which no server tells which nodes there are, until the log says so */
#define UNTOLD_SAID 60.
/* beats that may be missed before the log says that a node is suspected, beyond suspect_after */
#define QUIET_SAID 3

/* What this node has with another one. */
struct peer_state {
    char *name;
    /* when the BEAT was sent that its server has not answered yet; 0: none */
    double asked;
    struct nearness nearness; /* of its server */
    bool suspected;           /* as the log said last */
    bool refused;             /* its server took no beat, and the log said so */
    bool away;                /* as lanes were judged by last */
    bool told;                /* that this node leaves */
};

struct heartbeat {
    struct relay *relay;
    struct cluster_view view; /* the relay's */
    struct peer_state *peer;  /* per node of the config */
    char incarnation[BEAT_INCARNATION];
    char config[CONFIG_DIGEST];
    uint64_t counter;
    struct buf text;
    bool asked_own;
    bool *busy; /* per node, for the rules */
    struct contact *contact;
    bool serving; /* as lanes were judged by last */
    bool doubled, untold;
    const char *outcast; /* NULL, or why this node does nothing any more */
    bool leaving;
    size_t open; /* beats to others that are not answered */
};

/* A BEAT under way. */
struct beating {
    struct heartbeat *v;
    size_t node;
    unsigned generation;
};

static void look(struct heartbeat *);

/* ---- what was heard ---- */

static bool is_text(const redisReply *r)
{
    return r->type == REDIS_REPLY_STRING || r->type == REDIS_REPLY_STATUS;
}

static void read_beats(struct heartbeat *v, size_t server, unsigned generation,
                       const redisReply *list)
{
    struct liveness_news news[BEATS_MOST];
    size_t n = 0;
    for (size_t i = 0; list->type == REDIS_REPLY_ARRAY && i < list->elements && n < BEATS_MOST;
         i++) {
        const redisReply *b = list->element[i];
        if (b->type != REDIS_REPLY_ARRAY || b->elements < 5 || !is_text(b->element[0]) ||
            !is_text(b->element[1]) || b->element[2]->type != REDIS_REPLY_INTEGER ||
            !is_text(b->element[4]))
            continue;
        news[n++] = (struct liveness_news){b->element[0]->str,
                                           b->element[1]->str,
                                           b->element[4]->str,
                                           b->element[0]->len,
                                           b->element[1]->len,
                                           b->element[4]->len,
                                           (uint64_t)b->element[2]->integer,
                                           b->element[3]->type == REDIS_REPLY_INTEGER
                                               ? (double)b->element[3]->integer / 1000.
                                               : 0.};
        if (membership_joining(v->relay) && b->element[3]->integer < v->relay->config->dead_after)
            contact_beat(v->contact, b->element[0]->str, b->element[4]->str,
                         clock_monotonic() - news[n - 1].age, server == v->view.self);
    }
    liveness_update(v->view.liveness, server, generation, news, n, clock_monotonic());
}

/* True when it was an answer. */
static bool heard(struct beating *b, const redisReply *reply)
{
    struct heartbeat *v = b->v;
    if (!reply || reply->type != REDIS_REPLY_ARRAY || reply->elements < 2) {
        if (reply && !v->peer[b->node].refused) {
            v->peer[b->node].refused = true;
            log_warning("node %s: BEAT was refused: %s; %s", v->peer[b->node].name,
                        reply->str ? reply->str : "no list",
                        b->node == v->view.self ? "the others will think that this node is dead"
                                                : "nothing is heard by that server");
        }
        return false;
    }
    if (v->peer[b->node].refused)
        log_info("node %s: BEAT passes again", v->peer[b->node].name);
    v->peer[b->node].refused = false;
    read_beats(v, b->node, b->generation, reply->element[0]);
    resync_told(v->relay, b->node, reply->element[1]);
    return true;
}

/* Its beats come as seldom as a question is answered: it is suspected later. */
static void came_from(struct heartbeat *v, size_t node, double rtt)
{
    struct far_time time = config_far_time(v->relay->config, FAR_SUSPECT_AFTER);
    nearness_add(&v->peer[node].nearness, rtt);
    liveness_suspect(v->view.liveness, node, nearness_time(&v->peer[node].nearness, &time));
}

static void on_peer_beat(struct wire *w, redisReply *reply, void *arg)
{
    struct beating b = *(struct beating *)arg;
    free(arg);
    ASSERT(b.node < b.v->view.n && b.v->open);
    struct peer_state *p = &b.v->peer[b.node];
    if (reply && p->asked > 0.)
        came_from(b.v, b.node, clock_monotonic() - p->asked);
    p->asked = 0.;
    b.v->open--;
    heard(&b, reply);
}

/* ---- what is said ---- */

static bool beat(struct heartbeat *v, struct wire *w, size_t node, wire_reply_fn *fn)
{
    char counter[24];
    struct beating *b = mem_alloc(sizeof *b);
    *b = (struct beating){v, node, liveness_generation(v->view.liveness)};
    const char *argv[] = {"LANE.BEAT", v->peer[v->view.self].name, v->incarnation, counter,
                          v->text.data};
    size_t len[] = {
        9, strlen(v->peer[v->view.self].name), strlen(v->incarnation),
        (size_t)snprintf(counter, sizeof counter, "%llu", (unsigned long long)v->counter),
        v->text.len};
    if (wire_send(w, fn, b, 5, argv, len))
        return true;
    free(b);
    return false;
}

static void tell_peer(struct node *node, void *arg)
{
    struct heartbeat *v = arg;
    for (size_t i = 0; i < v->view.n; i++)
        if (i != v->view.self && (v->peer[i].asked <= 0. || (v->leaving && !v->peer[i].told)) &&
            node_ready(node) && !strcmp(v->peer[i].name, node_name(node)) &&
            beat(v, node_wire(node), i, on_peer_beat)) {
            v->peer[i].asked = clock_monotonic();
            v->peer[i].told = v->leaving;
            v->open++;
        }
}

/* A connection that carries nothing any more, because of a cut that nobody told TCP of, comes
 * back only as a new one. */
static void drop_hung(struct node *node, void *arg)
{
    struct heartbeat *v = arg;
    for (size_t i = 0; i < v->view.n; i++)
        if (v->peer[i].asked > 0. &&
            clock_monotonic() - v->peer[i].asked > (double)v->relay->config->dead_after / 1000. &&
            !strcmp(v->peer[i].name, node_name(node)))
            node_drop(node, "a beat was not answered for dead_after");
}

/* The others hear us only as long as our server answers: a relay without its lanes is no living
 * node. */
static void on_own_beat(struct wire *w, redisReply *reply, void *arg)
{
    struct beating b = *(struct beating *)arg;
    struct heartbeat *v = b.v;
    free(arg);
    v->asked_own = false;
    if (!heard(&b, reply))
        return;
    owners_each_peer(v->relay, tell_peer, v);
    look(v);
}

static void compose(struct heartbeat *v)
{
    struct relay *r = v->relay;
    double now = clock_monotonic();
    struct beat b = {.state = role_state(r->role),
                     .leaving = (double)r->config->return_max / 1000.,
                     .since = role_since(r->role, now),
                     .in_flight = inflight_count(r),
                     .memory = pressure_percent(r, r->node),
                     .retains_most = r->retained->full};
    b.done = (uint64_t)metric_value(relay_removed);
    snprintf(b.run_id, sizeof b.run_id, "%s", owners_run_id(r));
    snprintf(b.config, sizeof b.config, "%s", v->config);
    buf_consume(&v->text, v->text.len);
    beat_encode(&b, v->view.liveness, role_taken(r->role), now, &v->text);
    v->counter++;
}

static void say(struct heartbeat *v)
{
    struct relay *r = v->relay;
    if (v->asked_own || !owners_ready(r) || v->doubled)
        return;
    compose(v);
    v->asked_own = beat(v, owners_wire(r), v->view.self, on_own_beat);
}

/* ---- what follows ---- */

static bool owner_before(const struct lane *lane, const char *self, const char *node)
{
    for (size_t i = 0; i < lane->parsed.nowners && strcmp(lane->parsed.owner[i], self); i++)
        if (!strcmp(lane->parsed.owner[i], node))
            return true;
    return false;
}

static void fill_busy(struct heartbeat *v)
{
    struct relay *r = v->relay;
    for (size_t i = 0; i < v->view.n; i++) {
        v->busy[i] = false;
        if (!role_taken(r->role)[i] ||
            liveness_state(v->view.liveness, i, clock_monotonic()) != STATE_READY)
            continue;
        v->busy[i] = owners_owes(r, v->peer[i].name);
        for (struct entry *e = inflight_first(r); e && !v->busy[i]; e = TAILQ_NEXT(e, taken))
            v->busy[i] = owner_before(e->lane, r->node, v->peer[i].name);
    }
}

static void fill_called_dead(struct heartbeat *v)
{
    for (size_t i = 0; i < v->view.n; i++)
        v->view.called_dead[i] = config_list_has(&v->relay->config->dead, v->peer[i].name);
}

static struct role_view view(struct heartbeat *v)
{
    struct relay *r = v->relay;
    struct role_view see = {.now = clock_monotonic(),
                            .own_up = owners_ready(r),
                            .in_flight = inflight_count(r),
                            .busy = v->busy,
                            .called_dead = v->view.called_dead};
    fill_busy(v);
    see.comparing = resync_comparing(r);
    see.nsets = resync_sets(r, &see.set);
    return see;
}

static void tell(struct heartbeat *v, const struct role_event *e)
{
    struct relay *r = v->relay;
    double now = clock_monotonic(), silence;
    switch (e->kind) {
    case ROLE_RETURNS:
        metric_add(relay_returns, 1);
        log_info("returning (%s): nothing is taken until what is here was compared with the other "
                 "owners%s",
                 e->why,
                 role_damped(r->role) > 0. ? "; more slowly, since this node came and went" : "");
        break;
    case ROLE_READY:
        log_info("ready: compared, and nothing in hand; waiting for the others to give back what "
                 "they took over");
        break;
    case ROLE_ALIVE:
        log_info("alive%s%s", e->why ? ", though not all gave back: " : "", e->why ? e->why : "");
        break;
    case ROLE_TOOK:
        metric_add(relay_takeovers, 1);
        silence = liveness_silence(v->view.liveness, e->node, now);
        if (v->view.called_dead[e->node])
            log_warning("node %s is dead, as the configuration says: its mail is delivered here "
                        "where this is the next owner",
                        v->peer[e->node].name);
        else if (silence >= 0. && silence < (double)r->config->dead_after / 1000.)
            log_warning("node %s is %s for too long: its mail is delivered here where this is the "
                        "next owner",
                        v->peer[e->node].name,
                        node_state_word(liveness_state(v->view.liveness, e->node, now)));
        else
            log_warning("node %s is dead (silent for %.0f s, and nobody hears it): its mail is "
                        "delivered here where this is the next owner",
                        v->peer[e->node].name, silence >= 0. ? silence : role_since(r->role, now));
        break;
    case ROLE_GAVE:
        log_info("node %s is ready to come back: what was taken over is given back",
                 v->peer[e->node].name);
        break;
    case ROLE_SAME: break;
    }
}

/* Nodes that are missed, or are there again: only for the log. */
static void tell_silence(struct heartbeat *v)
{
    double now = clock_monotonic();
    if (!v->untold && !membership_known(v->relay) &&
        role_since(v->relay->role, now) > UNTOLD_SAID) {
        v->untold = true;
        log_warning("still returning: this node's own server has not told which nodes there are "
                    "(membership = learned), or that could not be kept in %s",
                    v->relay->config->state_directory);
    }
    double more = QUIET_SAID * (double)v->relay->config->beat / 1000.;
    for (size_t i = 0; i < v->view.n; i++) {
        double silence = liveness_silence(v->view.liveness, i, now),
               after = liveness_suspect_after(v->view.liveness, i);
        if (i == v->view.self || silence < 0.)
            continue;
        if (!v->peer[i].suspected && silence >= after + more) {
            v->peer[i].suspected = true;
            log_warning("node %s is suspected: no beat for %.1f s; it gets no new mail",
                        v->peer[i].name, silence);
        } else if (v->peer[i].suspected && silence < after) {
            v->peer[i].suspected = false;
            log_info("node %s is heard again: %s", v->peer[i].name,
                     node_state_word(liveness_state(v->view.liveness, i, now)));
        }
    }
}

/* Which lanes are ours depends on these alone. */
static bool changed(struct heartbeat *v)
{
    double now = clock_monotonic();
    bool serving = role_serves(v->relay->role, NULL, 0, v->view.called_dead, now),
         change = serving != v->serving;
    v->serving = serving;
    for (size_t i = 0; i < v->view.n; i++) {
        bool away = i != v->view.self && cluster_away(v->relay, i, now);
        change |= away != v->peer[i].away;
        v->peer[i].away = away;
    }
    return change;
}

static void obey(struct heartbeat *v)
{
    struct relay *r = v->relay;
    if (!changed(v))
        return;
    lane_watch_judge(r);
}

static bool may_work(const struct heartbeat *v)
{
    return owners_ready(v->relay) && !v->doubled && !v->outcast && membership_known(v->relay) &&
           !membership_joining(v->relay);
}

static void look(struct heartbeat *v)
{
    struct relay *r = v->relay;
    if (liveness_duplicate_name(v->view.liveness) && !v->doubled) {
        v->doubled = true;
        log_error("another relay beats as node %s: nothing is taken by either until one is "
                  "stopped, and the other restarted",
                  r->node);
        role_return(r->role, "another relay has this node's name", clock_monotonic());
    }
    bool up = owners_ready(r);
    if (up && !v->view.up)
        role_up(r->role, clock_monotonic());
    v->view.up = up;
    struct role_view see = view(v);
    for (struct role_event e;
         see.own_up = may_work(v), (e = role_next(r->role, &see)).kind != ROLE_SAME;) {
        tell(v, &e);
        fill_busy(v);
    }
    obey(v);
    tell_silence(v);
    resync_tick(r, clock_monotonic());
    rereplicate_tick(r, clock_monotonic());
}

static void on_tick(struct ev_loop *loop, ev_timer *t, int events)
{
    struct heartbeat *v = t->data;
    v->view.awake = false;
    owners_each_peer(v->relay, drop_hung, v);
    look(v);
    say(v);
}

/* ---- the rest of the relay ---- */

struct unmet_node heartbeat_unmet(const struct relay *r)
{
    return r->heartbeat ? contact_unmet(r->heartbeat->contact, r->heartbeat->view.liveness,
                                        clock_monotonic())
                        : (struct unmet_node){NULL};
}

static void on_greeted(struct wire *w, redisReply *reply, void *arg)
{
    if (reply && reply->type == REDIS_REPLY_ERROR)
        log_debug("a beat to a node that joins: %s", reply->str);
}

void heartbeat_greet(struct relay *r, struct wire *w)
{
    struct heartbeat *v = r->heartbeat;
    if (v && v->text.len && !v->doubled)
        wire_sendf(w, on_greeted, NULL, "LANE.BEAT %s %s %llu %b", v->peer[v->view.self].name,
                   v->incarnation, (unsigned long long)v->counter, v->text.data, v->text.len);
}

void heartbeat_exclude(struct relay *r, const char *why)
{
    struct heartbeat *v = r->heartbeat;
    if (!v || !v->outcast == !why)
        return;
    v->outcast = why;
    if (why)
        heartbeat_return(r, why);
    cluster_wake(r);
}

void heartbeat_return(struct relay *r, const char *why)
{
    if (!r->heartbeat)
        return;
    role_return(r->role, why, clock_monotonic());
    cluster_wake(r);
}

void heartbeat_leave(struct relay *r)
{
    if (!r->heartbeat)
        return;
    role_leave(r->role, clock_monotonic());
    log_info("leaving: the others are told that this node is back within %.0f s",
             (double)r->config->return_max / 1000.);
    r->heartbeat->leaving = true;
    r->heartbeat->asked_own = false; /* at once, whatever is under way */
    say(r->heartbeat);
}

bool heartbeat_unanswered(const struct relay *r)
{
    return r->heartbeat && r->heartbeat->leaving && r->heartbeat->open;
}

/* Places for v->view.n nodes. */
static void make_places(struct heartbeat *v, size_t had)
{
#define MORE(array)                                              \
    v->array = mem_grow(v->array, v->view.n * sizeof *v->array); \
    memset(v->array + had, 0, (v->view.n - had) * sizeof *v->array)
    MORE(peer);
    MORE(busy);
    MORE(view.called_dead);
#undef MORE
}

/* Nodes that the config has behind those of before. */
static void add_names(struct heartbeat *v)
{
    const struct config *c = v->relay->config;
    size_t had = v->view.n;
    if (c->nnodes <= had)
        return;
    v->view.n = c->nnodes;
    make_places(v, had);
    for (size_t i = had; i < v->view.n; i++) {
        v->peer[i].name = mem_strdup(c->node[i].name);
        liveness_add(v->view.liveness, v->peer[i].name, clock_monotonic());
        role_add(v->relay->role);
        ASSERT(config_node_index(c, v->peer[i].name) == (int)i);
        log_info("node %s is one of the group now", v->peer[i].name);
    }
}

static void open_names(struct heartbeat *v)
{
    const struct config *c = v->relay->config;
    v->view.n = c->nnodes;
    v->view.self = (size_t)config_node_index(c, v->relay->node);
    make_places(v, 0);
    const char **name = mem_alloc(v->view.n * sizeof *name);
    for (size_t i = 0; i < v->view.n; i++)
        name[i] = v->peer[i].name = mem_strdup(c->node[i].name);
    struct liveness_times times = {(double)c->suspect_after / 1000., (double)c->dead_after / 1000.,
                                   (double)c->return_max / 1000.};
    v->view.liveness = liveness_open(name, v->view.n, (int)v->view.self, times, clock_monotonic());
    free(name);
    liveness_own(v->view.liveness, v->incarnation);
    struct role_times role = {(double)c->beat / 1000.,       times.dead_after,
                              (double)c->settle / 1000.,     (double)c->handover_wait / 1000.,
                              (double)c->alone_wait / 1000., (double)c->restless_most / 1000.};
    v->relay->role = role_open(v->view.liveness, v->view.n, v->view.self, role, clock_monotonic());
    fill_called_dead(v);
}

static void close_names(struct heartbeat *v)
{
    for (size_t i = 0; i < v->view.n; i++)
        free(v->peer[i].name);
    free(v->peer);
    free(v->busy);
    free(v->view.called_dead);
    role_free(v->relay->role);
    liveness_free(v->view.liveness);
}

struct heartbeat *heartbeat_open(struct relay *r)
{
    unsigned char random[8];
    if (r->config->takeover != TAKEOVER_AUTOMATIC)
        return NULL;
    struct heartbeat *v = mem_zero(sizeof *v);
    r->heartbeat = v;
    r->view = &v->view;
    v->relay = r;
    if (getrandom(random, sizeof random, 0) != sizeof random)
        log_warning("getrandom failed");
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(v->incarnation + 2 * i, 3, "%02x", random[i]);
    config_digest(r->config, v->config);
    open_names(v);
    v->contact = contact_open(r);
    r->resync = resync_open(r);
    r->rereplicate = rereplicate_open(r);
    double beat = (double)r->config->beat / 1000.;
    ev_timer_init(&v->view.tick, on_tick, 0., beat);
    v->view.tick.data = v;
    ev_timer_start(r->loop, &v->view.tick);
    return v;
}

void heartbeat_close(struct relay *r)
{
    struct heartbeat *v = r->heartbeat;
    if (!v)
        return;
    ev_timer_stop(r->loop, &v->view.tick);
    r->heartbeat = NULL;
    r->view = NULL;
    rereplicate_close(r->rereplicate);
    resync_close(r->resync);
    rereplicate_free(r->rereplicate);
    close_names(v);
    contact_free(v->contact);
    buf_free(&v->text);
    free(v);
    r->role = NULL;
    r->resync = NULL;
    r->rereplicate = NULL;
}

void heartbeat_reload(struct relay *r)
{
    struct heartbeat *v = r->heartbeat;
    if (!v)
        return;
    config_digest(r->config, v->config);
    add_names(v);
    fill_called_dead(v);
    resync_reload(r);
    cluster_wake(r);
}
