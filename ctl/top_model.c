#include "ctl/top_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/mail/lanename.h"

/* Rates are of the time between two words at least so far apart, in seconds: one mail more within
 * a tenth is no ten mails a second. */
#define RATE_OVER 0.5

struct count {
    double at; /* negative: none */
    long long next, length;
};

struct lane {
    char *name;
    long long length, bytes;
    double age, age_at; /* age negative: not known */
    struct count last;
    double in, out; /* per second, negative: not known */
    bool seen;
};

struct hop {
    char *destination, *why;
};

struct server {
    const char *name, *address;
    bool is_node;
    size_t replica;
    char *why;
    double answered_at; /* negative: never */
    struct top_server said;
    size_t whole;
    struct count done; /* next: of its beat */
    double delivered;
    size_t nlanes, sorted, naway;
    struct lane *lane; /* the first `sorted` by name; behind them those of this listing */
    struct hop *away;
};

struct top {
    const struct config *config;
    struct liveness *liveness;
    size_t n;
    struct server *server;
};

/* ---- servers ---- */

static bool is_known(const struct top *t, const char *address)
{
    for (size_t i = 0; i < t->n; i++)
        if (!strcmp(t->server[i].address, address))
            return true;
    return false;
}

struct top *top_new(const struct config *c)
{
    struct top *t = mem_zero(sizeof *t);
    const char **name = mem_alloc((c->nnodes + 1) * sizeof *name);
    t->config = c;
    t->server = mem_zero((c->nnodes + c->nreplicas + 1) * sizeof *t->server);
    for (size_t i = 0; i < c->nnodes; i++) {
        name[i] = c->node[i].name;
        t->server[t->n++] = (struct server){
            .name = name[i], .address = c->node[i].redis, .is_node = true, .answered_at = -1};
    }
    for (size_t i = 0; i < c->nreplicas; i++) {
        struct config_link link = config_replica_link(c, i);
        if (!is_known(t, link.address))
            t->server[t->n++] = (struct server){.name = c->replica[i].name,
                                                .address = link.address,
                                                .replica = i,
                                                .answered_at = -1};
    }
    for (size_t i = 0; i < t->n; i++) {
        t->server[i].why = mem_strdup("connecting");
        t->server[i].delivered = t->server[i].done.at = -1;
    }
    /* Nobody is dead for whoever only looks: a beat's age is shown. */
    struct liveness_times times = {(double)c->suspect_after / 1000., 1e12, 1e12};
    t->liveness = liveness_open(name, c->nnodes, -1, times, 0.);
    free(name);
    return t;
}

static void free_lane(struct lane *l)
{
    free(l->name);
}

static void free_away(struct server *s)
{
    for (size_t i = 0; i < s->naway; i++) {
        free(s->away[i].destination);
        free(s->away[i].why);
    }
    s->naway = 0;
}

void top_free(struct top *t)
{
    for (size_t i = 0; i < t->n; i++) {
        struct server *s = &t->server[i];
        for (size_t k = 0; k < s->nlanes; k++)
            free_lane(&s->lane[k]);
        free_away(s);
        free(s->lane);
        free(s->away);
        free(s->why);
    }
    liveness_free(t->liveness);
    free(t->server);
    free(t);
}

size_t top_servers(const struct top *t)
{
    return t->n;
}

struct config_link top_server_link(const struct top *t, size_t server)
{
    if (t->server[server].is_node)
        return config_node_link(t->config, server);
    struct config_link l = config_replica_link(t->config, t->server[server].replica);
    l.at = NULL; /* as an admin, not as a replica */
    l.user_file = t->config->node_user_file;
    return l;
}

/* ---- words ---- */

void top_reached(struct top *t, size_t server, const char *why)
{
    struct server *s = &t->server[server];
    free(s->why);
    s->why = mem_strdup(why ? why : "");
}

void top_said(struct top *t, size_t server, const struct top_server *said, double now)
{
    t->server[server].said = *said;
    t->server[server].answered_at = now;
}

void top_whole(struct top *t, size_t server, size_t sets)
{
    t->server[server].whole = sets;
}

static double rate(long long from, long long to, double seconds)
{
    return to > from ? (double)(to - from) / seconds : 0.;
}

void top_beats(struct top *t, size_t server, const struct liveness_news *news, size_t n, double now)
{
    if (!t->server[server].is_node)
        return;
    liveness_update(t->liveness, server, liveness_generation(t->liveness), news, n, now);
    for (size_t i = 0; i < t->config->nnodes; i++) {
        const struct beat *b = liveness_beat(t->liveness, i);
        struct server *s = &t->server[i];
        if (!b || (s->done.at >= 0 && now - s->done.at < RATE_OVER))
            continue;
        long long done = (long long)b->done;
        /* A relay that was started again counts from 0. */
        if (s->done.at >= 0)
            s->delivered = rate(done < s->done.next ? 0 : s->done.next, done, now - s->done.at);
        s->done = (struct count){now, done, 0};
    }
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct lane *)a)->name, ((const struct lane *)b)->name);
}

static struct lane *find(struct server *s, const char *name)
{
    struct lane key = {.name = (char *)name};
    return s->sorted ? bsearch(&key, s->lane, s->sorted, sizeof key, by_name) : NULL;
}

void top_lanes_begin(struct top *t, size_t server)
{
    struct server *s = &t->server[server];
    for (size_t i = 0; i < s->nlanes; i++)
        s->lane[i].seen = false;
}

void top_lane(struct top *t, size_t server, const struct top_lane *said)
{
    struct server *s = &t->server[server];
    struct lane *l = find(s, said->name);
    if (!l) {
        s->lane = mem_grow(s->lane, (s->nlanes + 1) * sizeof *s->lane);
        l = &s->lane[s->nlanes++];
        *l = (struct lane){
            .name = mem_strdup(said->name), .age = -1, .in = -1, .out = -1, .last = {-1, -1, 0}};
    }
    l->length = said->length;
    l->bytes = said->bytes;
    l->seen = true;
}

void top_lanes_end(struct top *t, size_t server, double now)
{
    struct server *s = &t->server[server];
    size_t kept = 0;
    for (size_t i = 0; i < s->nlanes; i++) {
        if (s->lane[i].seen)
            s->lane[kept++] = s->lane[i];
        else
            free_lane(&s->lane[i]);
    }
    s->nlanes = s->sorted = kept;
    if (kept)
        qsort(s->lane, kept, sizeof *s->lane, by_name);
    s->answered_at = now;
}

void top_lane_detail(struct top *t, size_t server, const struct top_lane *said, double now)
{
    struct server *s = &t->server[server];
    struct lane *l = find(s, said->name);
    if (!l)
        return;
    l->length = said->length;
    l->bytes = said->bytes;
    l->age = said->age;
    l->age_at = now;
    struct count *last = &l->last;
    if (said->next < 0 || (last->at >= 0 && now - last->at < RATE_OVER))
        return;
    /* A lane that was emptied and came again counts from the beginning. */
    if (last->at >= 0 && said->next >= last->next) {
        long long stored = said->next - last->next, gone = last->length + stored - said->length;
        l->in = rate(0, stored, now - last->at);
        l->out = rate(0, gone, now - last->at);
    }
    *last = (struct count){now, said->next, said->length};
}

void top_away_begin(struct top *t, size_t server)
{
    free_away(&t->server[server]);
}

void top_away(struct top *t, size_t server, const char *destination, const char *why)
{
    struct server *s = &t->server[server];
    s->away = mem_grow(s->away, (s->naway + 1) * sizeof *s->away);
    s->away[s->naway++] = (struct hop){mem_strdup(destination), mem_strdup(why)};
}

/* ---- lanes ---- */

static bool is_fresh(const struct server *s, double now)
{
    return s->answered_at >= 0 && now - s->answered_at < TOP_FRESH;
}

/* "dovelane:replica:a>b", ":bulk" behind it for large parcels. */
static void split_replicas(struct top_lane_view *v)
{
    const char *names = v->name + strlen(LANENAME_REPLICA), *arrow = strchr(names, '>');
    if (!arrow)
        return;
    const char *colon = strchr(arrow, ':');
    v->from = mem_strndup(names, (size_t)(arrow - names));
    v->to = colon ? mem_strndup(arrow + 1, (size_t)(colon - arrow - 1)) : mem_strdup(arrow + 1);
    v->bulk = colon != NULL;
}

/* One more at the end. */
static struct top_lane_view *new_view(struct top_lanes_view *all, const char *name)
{
    struct lanename parsed;
    all->v = mem_grow(all->v, (all->n + 1) * sizeof *all->v);
    struct top_lane_view *v = &all->v[all->n++];
    *v = (struct top_lane_view){.name = name, .length = -1, .age = -1, .in = -1, .out = -1};
    v->of_replicas = lanename_of_replicas(name);
    if (v->of_replicas)
        split_replicas(v);
    if (!v->of_replicas && lanename_parse(name, strlen(name), &parsed)) {
        v->destination = mem_strdup(parsed.destination);
        v->class = parsed.class ? mem_strdup(parsed.class) : NULL;
        lanename_free(&parsed);
    } else {
        v->destination = mem_strdup("");
    }
    return v;
}

static void add(struct top_lane_view *v, const struct lane *l, double now)
{
    double age = l->age < 0 ? -1 : l->age + (now - l->age_at);
    v->copies++;
    if (age > v->age)
        v->age = age;
    if (l->in > v->in)
        v->in = l->in;
    if (l->out > v->out)
        v->out = l->out;
    if (l->length <= v->length)
        return;
    v->length = l->length;
    v->bytes = l->bytes;
}

static enum top_sort order; /* of the comparisons, which get no argument */

static int by_number(double a, double b)
{
    return a > b ? -1 : a < b;
}

static int by_order(double rate_a, double rate_b, double age_a, double age_b, long long length_a,
                    long long length_b)
{
    int c = order == TOP_BY_RATE  ? by_number(rate_a, rate_b)
            : order == TOP_BY_AGE ? by_number(age_a, age_b)
                                  : 0;
    return c || order == TOP_BY_NAME ? c : by_number((double)length_a, (double)length_b);
}

static int compare_lanes(const void *a, const void *b)
{
    const struct top_lane_view *x = a, *y = b;
    int c = by_order(x->in + x->out, y->in + y->out, x->age, y->age, x->length, y->length);
    return c ? c : strcmp(x->name, y->name);
}

static int by_name_of(const void *a, const void *b)
{
    return by_name(*(const struct lane *const *)a, *(const struct lane *const *)b);
}

/* Of all servers that answer, sorted by name; the number. */
static size_t collect(const struct top *t, bool of_replicas, double now, const struct lane ***out)
{
    size_t n = 0, most = 0;
    for (size_t i = 0; i < t->n; i++)
        most += t->server[i].nlanes;
    *out = mem_alloc((most + 1) * sizeof **out);
    for (size_t i = 0; i < t->n; i++)
        for (size_t k = 0; is_fresh(&t->server[i], now) && k < t->server[i].nlanes; k++) {
            const struct lane *l = &t->server[i].lane[k];
            if (l->length > 0 && lanename_of_replicas(l->name) == of_replicas)
                (*out)[n++] = l;
        }
    qsort(*out, n, sizeof **out, by_name_of);
    return n;
}

struct top_lanes_view top_lanes(const struct top *t, bool of_replicas, enum top_sort by, double now)
{
    struct top_lanes_view all = {0};
    const struct lane **lane;
    size_t n = collect(t, of_replicas, now, &lane);
    for (size_t i = 0; i < n; i++) {
        bool same = i && !by_name_of(&lane[i - 1], &lane[i]);
        add(same ? &all.v[all.n - 1] : new_view(&all, lane[i]->name), lane[i], now);
    }
    free(lane);
    order = by;
    if (all.n)
        qsort(all.v, all.n, sizeof *all.v, compare_lanes);
    return all;
}

void top_lanes_free(struct top_lanes_view *all)
{
    for (size_t i = 0; i < all->n; i++) {
        free(all->v[i].destination);
        free(all->v[i].class);
        free(all->v[i].from);
        free(all->v[i].to);
    }
    free(all->v);
    *all = (struct top_lanes_view){0};
}

/* ---- servers, next hops ---- */

struct top_server_view top_server(const struct top *t, size_t server, double now)
{
    const struct server *s = &t->server[server];
    const struct beat *b = s->is_node ? liveness_beat(t->liveness, server) : NULL;
    struct top_server_view v = {.name = s->name,
                                .address = s->address,
                                .node = s->is_node,
                                .fresh = is_fresh(s, now),
                                .why = s->why,
                                .silent = s->answered_at < 0 ? -1 : now - s->answered_at,
                                .said = s->said,
                                .whole = s->whole,
                                .sets = config_sets(t->config),
                                .has_beat = b != NULL,
                                .beat_age = -1,
                                .delivered = s->delivered,
                                .state = STATE_UNKNOWN};
    if (b) {
        v.beat_age = liveness_silence(t->liveness, server, now);
        v.state = liveness_state_for_placement(t->liveness, server, now);
        v.done = b->done;
        v.in_flight = b->in_flight;
    }
    return v;
}

/* From the end on, where the last one was added. */
static struct top_hop_view *hop_of(struct top_hops_view *all, const char *destination, size_t look)
{
    for (size_t i = 0; i < look; i++)
        if (!strcmp(all->v[all->n - 1 - i].destination, destination))
            return &all->v[all->n - 1 - i];
    all->v = mem_grow(all->v, (all->n + 1) * sizeof *all->v);
    all->v[all->n] = (struct top_hop_view){mem_strdup(destination), 0, 0, -1, -1, -1, "", ""};
    return &all->v[all->n++];
}

static void add_rate(double *sum, double rate)
{
    if (rate >= 0)
        *sum = (*sum < 0 ? 0 : *sum) + rate;
}

static int compare_hops(const void *a, const void *b)
{
    const struct top_hop_view *x = a, *y = b;
    int c = by_order(x->in + x->out, y->in + y->out, x->age, y->age, x->length, y->length);
    return c ? c : strcmp(x->destination, y->destination);
}

struct top_hops_view top_hops(const struct top *t, enum top_sort by, double now)
{
    struct top_hops_view all = {0};
    /* By name those of one next hop are neighbours. */
    struct top_lanes_view lanes = top_lanes(t, false, TOP_BY_NAME, now);
    for (size_t i = 0; i < lanes.n; i++) {
        const struct top_lane_view *l = &lanes.v[i];
        struct top_hop_view *h = *l->destination ? hop_of(&all, l->destination, all.n > 0) : NULL;
        if (!h)
            continue;
        h->length += l->length;
        h->bytes += l->bytes;
        h->age = l->age > h->age ? l->age : h->age;
        add_rate(&h->in, l->in);
        add_rate(&h->out, l->out);
    }
    top_lanes_free(&lanes);
    for (size_t i = 0; i < t->n; i++)
        for (size_t k = 0; is_fresh(&t->server[i], now) && k < t->server[i].naway; k++) {
            struct top_hop_view *h = hop_of(&all, t->server[i].away[k].destination, all.n);
            h->error = t->server[i].away[k].why;
            h->from = t->server[i].name;
        }
    order = by;
    if (all.n)
        qsort(all.v, all.n, sizeof *all.v, compare_hops);
    return all;
}

void top_hops_free(struct top_hops_view *all)
{
    for (size_t i = 0; i < all->n; i++)
        free(all->v[i].destination);
    free(all->v);
    *all = (struct top_hops_view){0};
}
