#include "tests/model/apart/apart.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/cluster/nearness.h"

/* The defaults of docs/settings.md. */
#define BEAT 0.5
static const struct liveness_times listening = {2, 15, 60};
static const struct role_times roles = {BEAT, 15, 5, 60, 300, 600};

/* Degrees north and east. */
static const double place[REGIONS][2] = {
    {53.3, -6.3},   {38.9, -77.0}, {35.7, 139.7},  {50.1, 8.7},    {45.5, -122.7}, {37.6, 127.0},
    {37.8, -122.4}, {1.3, 103.8},  {-33.9, 151.2}, {-23.6, -46.6}, {19.1, 72.9},   {59.3, 18.1}};

#define BEATS_KEPT 64
struct beat_sent {
    double at;
    char *text;
};
static struct beat_sent sent[NODES_MOST][BEATS_KEPT];
static char names[NODES_MOST][8];
static int distance[NODES_MOST][NODES_MOST];

struct world w;

static double kilometres(size_t a, size_t b)
{
    double rad = M_PI / 180, p = place[a][0] * rad, q = place[b][0] * rad;
    double c = sin(p) * sin(q) + cos(p) * cos(q) * cos((place[a][1] - place[b][1]) * rad);
    return 6371 * acos(c > 1 ? 1 : c);
}

/* 1 ms and 1.6 ms per 100 km, there and back: within a third of what providers publish. */
double world_rtt(size_t from, size_t to)
{
    if (from == to)
        return 0;
    return 0.001 + kilometres(w.node[from].region, w.node[to].region) * 0.000016;
}

int world_distance(size_t from, size_t to)
{
    return distance[from][to];
}

bool world_in_first_region(size_t node)
{
    return w.node[node].region == 0;
}

bool world_reaches(size_t from, size_t to)
{
    return w.node[from].up && w.node[to].up &&
           (!w.parted || world_in_first_region(from) == world_in_first_region(to));
}

static struct liveness *listener(int self)
{
    const char *name[NODES_MOST];
    for (size_t i = 0; i < w.plan.nodes; i++)
        name[i] = names[i];
    return liveness_open(name, w.plan.nodes, self, listening, 0);
}

void world_begin(const struct plan *plan)
{
    memset(&w, 0, sizeof w);
    w.plan = *plan;
    for (size_t i = 0; i < plan->nodes; i++) {
        snprintf(names[i], sizeof names[i], "mx%zu", i + 1);
        struct node *n = &w.node[i];
        n->region = i % plan->regions;
        n->up = true;
        n->next_beat = BEAT * (double)i / (double)plan->nodes;
    }
    for (size_t i = 0; i < plan->nodes; i++) {
        struct node *n = &w.node[i];
        n->heard = listener((int)i);
        liveness_own(n->heard, names[i]);
        n->role = role_open(n->heard, plan->nodes, i, roles, 0);
        role_up(n->role, 0);
        for (size_t k = 0; k < plan->nodes; k++) {
            struct nearness near = {0};
            nearness_add(&near, world_rtt(i, k));
            distance[i][k] = nearness_class(&near);
        }
    }
    if (plan->outside)
        w.outside = listener(-1);
}

void world_end(void)
{
    for (size_t i = 0; i < w.plan.nodes; i++) {
        role_free(w.node[i].role);
        liveness_free(w.node[i].heard);
        for (size_t k = 0; k < BEATS_KEPT; k++)
            free(sent[i][k].text);
    }
    memset(sent, 0, sizeof sent);
    liveness_free(w.outside);
}

static void say(size_t i)
{
    struct node *n = &w.node[i];
    struct buf text = {0};
    struct beat beat = {.state = role_state(n->role),
                        .since = role_since(n->role, w.now),
                        .run_id = "0123456789abcdef0123456789abcdef01234567",
                        .config = "0123456789abcdef"};
    beat_encode(&beat, n->heard, role_taken(n->role), w.now, &text);
    n->counter++;
    struct beat_sent *b = &sent[i][n->counter % BEATS_KEPT];
    free(b->text);
    *b = (struct beat_sent){w.now, text.data};
    for (size_t k = 0; k < w.plan.nodes; k++)
        if (i != k && world_reaches(i, k))
            w.figures.beat_bytes += (double)text.len + 120;
}

/* The newest beat of a node that has come to that server. */
static uint64_t newest(size_t of, size_t server)
{
    uint64_t last = w.node[of].counter, known = w.node[server].latest[of];
    for (uint64_t c = last; c > known && last - c < BEATS_KEPT; c--)
        if (sent[of][c % BEATS_KEPT].at + world_rtt(of, server) / 2 <= w.now)
            return c;
    return known;
}

static void bring_beats(size_t server)
{
    for (size_t i = 0; i < w.plan.nodes; i++)
        if (i == server || world_reaches(i, server))
            w.node[server].latest[i] = newest(i, server);
}

/* What the listener learns from a server: all beats that lie there. */
static void listen_to(struct liveness *l, size_t server)
{
    struct liveness_news news[NODES_MOST];
    size_t n = 0;
    for (size_t i = 0; i < w.plan.nodes; i++) {
        uint64_t c = w.node[server].latest[i];
        const struct beat_sent *b = &sent[i][c % BEATS_KEPT];
        if (!c || !b->text)
            continue;
        news[n++] =
            (struct liveness_news){names[i],         names[i],        b->text, strlen(names[i]),
                                   strlen(names[i]), strlen(b->text), c,       w.now - b->at};
    }
    liveness_update(l, server, liveness_generation(l), news, n, w.now);
}

/* Each server that a node reaches answers with all beats that lie there. */
static void count_answers(size_t i)
{
    double all = 0;
    for (size_t k = 0; k < w.plan.nodes; k++) {
        const char *text = sent[k][w.node[k].counter % BEATS_KEPT].text;
        all += text ? (double)strlen(text) + 90 : 0;
    }
    for (size_t k = 0; k < w.plan.nodes; k++)
        if (k != i && world_reaches(i, k))
            w.figures.beat_bytes += all;
}

static void decide(size_t i)
{
    struct node *n = &w.node[i];
    for (;;) {
        struct role_view v = {
            .now = w.now, .own_up = true, .busy = n->busy, .called_dead = n->called_dead};
        struct role_event e = role_next(n->role, &v);
        if (e.kind == ROLE_SAME)
            break;
        if (e.kind == ROLE_TOOK && !w.node[e.node].up && w.figures.found_dead == 0)
            w.figures.found_dead = w.now;
    }
}

void world_step(void)
{
    for (size_t i = 0; i < w.plan.nodes; i++) {
        struct node *n = &w.node[i];
        if (!n->up || w.now < n->next_beat)
            continue;
        n->next_beat += BEAT;
        say(i);
        bring_beats(i);
        listen_to(n->heard, i);
        count_answers(i);
        decide(i);
    }
    if (!w.outside || w.now < w.outside_listens)
        return;
    w.outside_listens = w.now + BEAT;
    for (size_t i = 0; i < w.plan.nodes; i++)
        if (w.node[i].up)
            listen_to(w.outside, i);
}

bool world_alive(void)
{
    for (size_t i = 0; i < w.plan.nodes; i++)
        for (size_t k = 0; k < w.plan.nodes; k++)
            if (role_state(w.node[i].role) != STATE_ALIVE ||
                (i != k && (liveness_state(w.node[i].heard, k, w.now) != STATE_ALIVE ||
                            liveness_reported_state(w.node[i].heard, k, i) != STATE_ALIVE)))
                return false;
    return true;
}
