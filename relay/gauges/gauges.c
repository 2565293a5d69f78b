/* gauges - see gauges.h. */
#include "relay/gauges/gauges.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/base/metrics.h"
#include "lib/cluster/liveness.h"
#include "lib/daemon/metrics_http.h"
#include "lib/mail/envelope.h"
#include "lib/mail/lanename.h"
#include "lib/mail/smtp_reply.h"
#include "relay/acks/owners.h"
#include "relay/repair/resync.h"
#include "relay/cluster/cluster_view.h"
#include "relay/tables/destinations.h"
#include "relay/tables/retained.h"
#include "relay/cluster/config_ownership.h"

#define PROGRAM "dovelane-relay"
#define PAGE "1000"
#define INFOS_MOST 2000 /* lanes that are asked for their oldest entry in one go */
#define READS_MOST 1000 /* entries that are looked at for why they wait, in all lanes together */
#define READ_AGAIN 5.   /* seconds until that is done anew: it costs more than the rest */

/* What is under way for one who asked; NULL: nothing is. */
static struct collecting {
    struct relay *relay;
    size_t open;  /* requests without an answer */
    size_t infos; /* how many LANE.INFO were sent */
    size_t reads; /* entries that may yet be looked at */
    bool reasons; /* they are looked at this time */
    bool lost;    /* an answer did not come: nothing is published */
    long long entries, bytes, missing;
} * collecting;

static double reasons_at; /* clock_monotonic; 0: never */

/* ---- lanes ---- */

static const enum metric of_lanes[] = {METRIC_lane_entries, METRIC_lane_bytes,
                                       METRIC_lane_deferred_entries, METRIC_lane_oldest_seconds};

static void publish(const struct collecting *c)
{
    for (size_t i = 0; i < sizeof of_lanes / sizeof *of_lanes; i++)
        metric_publish(of_lanes[i]);
    if (c->reasons) {
        metric_publish(METRIC_lane_deferred_reason_entries);
        reasons_at = clock_monotonic();
    }
    metric_series_set(metric_series(METRIC_node_entries, NULL, NULL), c->entries);
    metric_series_set(metric_series(METRIC_node_bytes, NULL, NULL), c->bytes);
    metric_series_set(metric_series(METRIC_copies_missing, NULL, NULL), c->missing);
}

static void answered(struct collecting *c)
{
    if (--c->open)
        return;
    if (!c->lost)
        publish(c);
    collecting = NULL;
    free(c);
    metrics_http_collected();
}

static long long field(const redisReply *info, const char *name)
{
    for (size_t i = 0; i + 1 < info->elements; i += 2)
        if (info->element[i]->str && !strcmp(info->element[i]->str, name) &&
            info->element[i + 1]->type == REDIS_REPLY_INTEGER)
            return info->element[i + 1]->integer;
    return 0;
}

struct one_lane {
    struct collecting *of;
    char *name, *destination;
    size_t len;
    long long delayed; /* entries, of which no reason was told yet */
};

static void one_lane_free(struct one_lane *l)
{
    free(l->name);
    free(l->destination);
    free(l);
}

static void tell_reason(struct one_lane *l, const char *reason, long long n)
{
    l->delayed -= n;
    if (n > 0)
        metric_gather(metric_series(METRIC_lane_deferred_reason_entries, l->destination, reason),
                      n);
}

/* Of the first recipient that waits after an attempt. */
static void see_reason(struct one_lane *l, const struct envelope *env)
{
    for (size_t i = 0; i < env->nrecipients; i++) {
        const struct recipient *to = &env->recipient[i];
        size_t n = to->text ? smtp_dsn_length(to->text) : 0;
        char dsn[SMTP_DSN_MAX];
        if (to->state != RECIPIENT_WAITING || !n || n >= sizeof dsn)
            continue;
        memcpy(dsn, to->text, n);
        dsn[n] = '\0';
        tell_reason(l, env->marks & ENVELOPE_HELD ? "held" : dsn, 1);
        return;
    }
    tell_reason(l,
                env->marks & ENVELOPE_HELD  ? "held"
                : envelope_is_retained(env) ? "retained"
                                            : "none",
                1);
}

/* An entry is [sequence, id, revision, attempts, age, meta, body, state]. */
static void see_entry(struct one_lane *l, const redisReply *e)
{
    struct envelope env;
    if (e->type != REDIS_REPLY_ARRAY || e->elements < 8 || !e->element[7]->str ||
        strcmp(e->element[7]->str, "delayed") || e->element[5]->type != REDIS_REPLY_STRING ||
        l->delayed <= 0)
        return;
    if (envelope_decode(e->element[5]->str, (size_t)e->element[5]->len, &env))
        return;
    see_reason(l, &env);
    envelope_free(&env);
}

static void on_read(struct wire *w, redisReply *reply, void *arg)
{
    struct one_lane *l = arg;
    (void)w;
    if (!reply)
        l->of->lost = true;
    else if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
             reply->element[1]->type == REDIS_REPLY_ARRAY)
        for (size_t i = 0; i < reply->element[1]->elements; i++)
            see_entry(l, reply->element[1]->element[i]);
    tell_reason(l, "unread", l->delayed);
    answered(l->of);
    one_lane_free(l);
}

/* True: it goes on with the lane. */
static bool ask_reasons(struct one_lane *l, long long entries)
{
    struct collecting *c = l->of;
    long long n = entries < (long long)c->reads ? entries : (long long)c->reads;
    if (!c->reasons || l->delayed <= 0)
        return false;
    if (n > 0 && wire_sendf(owners_wire(c->relay), on_read, l, "LANE.READ %b 0 COUNT %lld NOBODY",
                            l->name, l->len, n)) {
        c->reads -= (size_t)n;
        return true;
    }
    tell_reason(l, "unread", l->delayed);
    return false;
}

static void on_info(struct wire *w, redisReply *reply, void *arg)
{
    struct one_lane *l = arg;
    (void)w;
    if (!reply)
        l->of->lost = true;
    else if (reply->type == REDIS_REPLY_ARRAY) { /* else the lane has become empty */
        l->delayed = field(reply, "delayed");
        metric_gather(metric_series(METRIC_lane_deferred_entries, l->destination, NULL),
                      l->delayed);
        metric_most(metric_series(METRIC_lane_oldest_seconds, l->destination, NULL),
                    field(reply, "oldest-age") * 1000);
        if (ask_reasons(l, field(reply, "length")))
            return;
    }
    answered(l->of);
    one_lane_free(l);
}

static void ask_info(struct collecting *c, const char *name, size_t len, const char *destination)
{
    if (c->infos >= INFOS_MOST)
        return;
    struct one_lane *l = mem_alloc(sizeof *l);
    *l = (struct one_lane){c, mem_dup(name, len), mem_strdup(destination), len, 0};
    c->infos++;
    c->open++;
    if (wire_sendf(owners_wire(c->relay), on_info, l, "LANE.INFO %b", name, len))
        return;
    c->open--;
    c->lost = true;
    one_lane_free(l);
}

static void see_lane(struct collecting *c, const char *name, size_t len, long long entries,
                     long long bytes)
{
    struct lanename parsed;
    size_t place, away = 0;
    c->entries += entries;
    c->bytes += bytes;
    if (!entries || !lanename_parse(name, len, &parsed))
        return;
    if (cluster_judge(c->relay, &parsed, &place) == OWNERSHIP_OURS) {
        for (size_t i = 0; i < parsed.nowners; i++)
            away += strcmp(parsed.owner[i], c->relay->node) &&
                    !cluster_alive(c->relay, parsed.owner[i]);
        c->missing += entries * (long long)away;
        metric_gather(metric_series(METRIC_lane_entries, parsed.destination, NULL), entries);
        metric_gather(metric_series(METRIC_lane_bytes, parsed.destination, NULL), bytes);
        ask_info(c, name, len, parsed.destination);
    }
    lanename_free(&parsed);
}

static void ask_page(struct collecting *, const char *cursor);

static void on_list(struct wire *w, redisReply *reply, void *arg)
{
    struct collecting *c = arg;
    (void)w;
    bool good = reply && reply->type == REDIS_REPLY_ARRAY && reply->elements >= 2 &&
                reply->element[1]->type == REDIS_REPLY_ARRAY;
    c->lost |= !good;
    const redisReply *list = good ? reply->element[1] : NULL;
    for (size_t i = 0; good && i + 2 < list->elements; i += 3)
        if (list->element[i]->type == REDIS_REPLY_STRING &&
            list->element[i + 1]->type == REDIS_REPLY_INTEGER &&
            list->element[i + 2]->type == REDIS_REPLY_INTEGER)
            see_lane(c, list->element[i]->str, (size_t)list->element[i]->len,
                     list->element[i + 1]->integer, list->element[i + 2]->integer);
    if (good) {
        char cursor[32] = "0";
        const redisReply *next = reply->element[0];
        if (next->type == REDIS_REPLY_INTEGER)
            snprintf(cursor, sizeof cursor, "%lld", next->integer);
        else if (next->str && (size_t)next->len < sizeof cursor)
            snprintf(cursor, sizeof cursor, "%s", next->str);
        if (strcmp(cursor, "0"))
            ask_page(c, cursor);
    }
    answered(c);
}

static void ask_page(struct collecting *c, const char *cursor)
{
    c->open++;
    if (!owners_ready(c->relay) ||
        !wire_sendf(owners_wire(c->relay), on_list, c,
                    "LANE.LIST %s MATCH " LANENAME_PREFIX "* COUNT " PAGE, cursor)) {
        c->lost = true;
        c->open--;
    }
}

/* ---- next hops ---- */

static void see_destination(struct destination *d, void *arg)
{
    (void)arg;
    if (d->down)
        metric_gather(metric_series(METRIC_nexthop_down, d->name, d->trouble_dsn), 1);
}

/* ---- nodes ---- */

/* Nothing is told of a node that was forgotten: that it is silent is as it is to be. */
static void see_state(const struct relay *r, size_t node, enum node_state state)
{
    const struct config_node *n = &r->config->node[node];
    for (int s = STATE_UNKNOWN; s <= STATE_LEAVING; s++)
        metric_series_set(
            metric_series(METRIC_node_state, n->name, node_state_word((enum node_state)s)),
            n->dropped ? METRIC_UNKNOWN : (int)state == s);
}

static void see_nodes(struct relay *r)
{
    double now = clock_monotonic();
    const struct cluster_view *v = r->view;
    const struct role_set *set;
    size_t nsets = resync_sets(r, &set);
    for (size_t i = 0; i < v->n && i < r->config->nnodes; i++) {
        bool self = i == v->self, whole = true;
        see_state(r, i, self ? role_state(r->role) : liveness_state(v->liveness, i, now));
        for (size_t s = 0; s < nsets; s++) {
            whole = whole && (!self || set[s].whole);
            for (size_t k = 0; k < set[s].n; k++)
                if (set[s].other[k] == (int)i && set[s].reach[k] != REACH_WHOLE)
                    whole = false;
        }
        metric_series_set(metric_series(METRIC_node_whole, r->config->node[i].name, NULL),
                          r->config->node[i].dropped ? METRIC_UNKNOWN : whole);
    }
}

/* ---- interface ---- */

static void collect(void *arg)
{
    struct relay *r = arg;
    metric_gather_begin(METRIC_nexthop_down);
    destinations_each(r, see_destination, NULL);
    metric_publish(METRIC_nexthop_down);
    metric_series_set(metric_series(METRIC_relay_retained_oldest_seconds, NULL, NULL),
                      (long long)(retained_oldest(r) * 1e6));
    if (r->view && r->role && r->resync)
        see_nodes(r);
    if (collecting) /* its answers are the answers to this, too */
        return;
    struct collecting *c = collecting = mem_zero(sizeof *c);
    for (size_t i = 0; i < sizeof of_lanes / sizeof *of_lanes; i++)
        metric_gather_begin(of_lanes[i]);
    c->relay = r;
    c->reads = READS_MOST;
    c->reasons = reasons_at == 0. || clock_monotonic() - reasons_at >= READ_AGAIN;
    if (c->reasons)
        metric_gather_begin(METRIC_lane_deferred_reason_entries);
    c->open = 1; /* this function's own, so that it does not end within it */
    ask_page(c, "0");
    answered(c);
}

static const char *ready(void *arg)
{
    static char text[128];
    struct relay *r = arg;
    if (r->stopping)
        return "it is being stopped";
    if (!owners_ready(r))
        return "the node's server cannot be reached";
    if (owners_refused(r))
        return "the node's server refuses acks";
    if (!r->role || role_state(r->role) == STATE_ALIVE)
        return NULL;
    snprintf(text, sizeof text, "the node is %s", node_state_word(role_state(r->role)));
    return text;
}

void gauges_open(struct relay *r)
{
    metrics_http_start(
        &(struct metrics_http){
            .loop = r->loop, .program = PROGRAM, .ready = ready, .collect = collect, .arg = r},
        r->config);
}

void gauges_reload(struct relay *r)
{
    metrics_http_reload(r->config);
}

void gauges_close(void)
{
    metrics_http_stop();
}
