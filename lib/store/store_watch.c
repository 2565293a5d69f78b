/* Who may be owner of a new mail, with takeover = automatic (docs/takeover/return.md, "Return"):
 * the nodes' beats are read from every server, with what each is whole for. A milter leaves no
 * beats itself.
 *
 * Ages are by CLOCK_BOOTTIME. A clock that stands still in a suspended host would make old
 * beats young after it. */
#include "lib/store/store_work.h"

#include <stdlib.h>
#include <string.h>

#include "lib/redis/beat_reader.h"
#include "lib/base/clock.h"
#include "lib/cluster/liveness.h"
#include "lib/cluster/nearness.h"
#include "lib/base/mem.h"

#define BEATS_MOST 300 /* in one answer */
#define EASED 5        /* percent below spill_above, where a node counts as before */

struct watched {
    struct store *store;
    size_t index;
    struct beat_reader reader;
    bool asked;
    double asked_at; /* CLOCK_BOOTTIME */
    double sent_at;  /* the same moment by CLOCK_MONOTONIC: a way is no longer for our sleep */
    struct nearness nearness;
    bool filling;        /* its memory */
    unsigned generation; /* of the liveness, when it was asked */
    size_t nwhole;
    char **whole; /* sets of owners, as its server said last */
};

struct store_watch {
    struct liveness *liveness;
    struct watched *node;
    double looked_at;
};

static void forget_whole(struct watched *w)
{
    for (size_t i = 0; i < w->nwhole; i++)
        free(w->whole[i]);
    free(w->whole);
    w->whole = NULL;
    w->nwhole = 0;
}

/* Above spill_above its relay already empties lanes into Postfix's queue. */
static void look_at_memory(struct watched *w)
{
    const struct store *s = w->store;
    const struct beat *b = liveness_beat(s->heard->liveness, w->index);
    int64_t above = s->config->spill_above - (w->filling ? EASED : 0);
    w->filling = b && b->memory > above;
}

static void read_whole(struct watched *w, const redisReply *list)
{
    forget_whole(w);
    if (list->type != REDIS_REPLY_ARRAY)
        return;
    w->whole = mem_zero((list->elements + 1) * sizeof *w->whole);
    for (size_t i = 0; i + 1 < list->elements; i += 2)
        w->whole[w->nwhole++] = mem_strdup(list->element[i]->str ? list->element[i]->str : "");
}

static void read_beats(struct watched *w, const redisReply *list)
{
    struct liveness_news news[BEATS_MOST];
    size_t n = 0;
    double now = clock_boottime(), under_way = now - w->asked_at;
    for (size_t i = 0; list->type == REDIS_REPLY_ARRAY && i < list->elements && n < BEATS_MOST;
         i++) {
        const redisReply *b = list->element[i];
        if (b->type != REDIS_REPLY_ARRAY || b->elements < 5 ||
            b->element[0]->type != REDIS_REPLY_STRING ||
            b->element[1]->type != REDIS_REPLY_STRING ||
            b->element[2]->type != REDIS_REPLY_INTEGER || b->element[4]->type != REDIS_REPLY_STRING)
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
        /* the answer may have been on its way ever since it was asked for */
        news[n - 1].age += under_way;
    }
    liveness_update(w->store->heard->liveness, w->index, w->generation, news, n, now);
}

static void on_beat(struct wire *wire, redisReply *reply, void *arg);

static void ask(struct watched *w, struct wire *wire)
{
    w->generation = liveness_generation(w->store->heard->liveness);
    w->asked_at = clock_boottime();
    w->sent_at = clock_monotonic();
    w->asked = wire_sendf(wire, on_beat, w, beat_reader_command(&w->reader));
}

static void on_beat(struct wire *wire, redisReply *reply, void *arg)
{
    struct watched *w = arg;
    w->asked = false;
    if (reply) {
        nearness_add(&w->nearness, clock_monotonic() - w->sent_at);
        liveness_suspect(w->store->heard->liveness, w->index,
                         store_watch_time(w->store, w->index, FAR_SUSPECT_AFTER));
    }
    if (reply &&
        beat_reader_turns(&w->reader, reply->type == REDIS_REPLY_ERROR ? reply->str : NULL)) {
        ask(w, wire);
        return;
    }
    if (!reply || reply->type != REDIS_REPLY_ARRAY || reply->elements < 2) {
        /* Whatever it was whole for, it may have been restarted. With another path it may only
         * be on its way there, which is not known yet while open requests fail; it is not used
         * unless it arrives soon (node_turning), and a restart shows then
         * (store_watch_restarted). */
        if (reply || !node_has_standby(w->store->link[2 * w->index].node))
            forget_whole(w);
        return;
    }
    read_beats(w, reply->element[0]);
    read_whole(w, reply->element[1]);
}

void store_watch_look(struct store *s)
{
    struct store_watch *h = s->heard;
    double now = clock_boottime();
    if (!h)
        return;
    if (now - h->looked_at >= (double)s->config->suspect_after / 1000.)
        liveness_begin(h->liveness, now); /* what lies in our sockets is of before */
    h->looked_at = now;
    for (size_t i = 0; i < s->config->nnodes; i++) {
        struct watched *w = &h->node[i];
        struct node *node = s->link[2 * i].node;
        look_at_memory(w);
        if (w->asked || !node_ready(node) || now - w->asked_at < (double)s->config->beat / 1000.)
            continue;
        ask(w, node_wire(node));
    }
}

void store_watch_restarted(struct store *s, size_t node)
{
    if (s->heard)
        forget_whole(&s->heard->node[node]);
}

static bool whole_for(const struct watched *w, const char *set)
{
    for (size_t i = 0; i < w->nwhole; i++)
        if (!strcmp(w->whole[i], set))
            return true;
    return false;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

bool store_watch_fit(const struct store *s, const size_t *node, size_t n, bool all)
{
    const struct store_watch *h = s->heard;
    const char *name[LANENAME_OWNERS_MAX];
    double now = clock_boottime();
    if (!h)
        return true;
    for (size_t i = 0; i < n; i++) {
        name[i] = s->config->node[node[i]].name;
        /* Whole for nobody: no set of them all need be looked for. */
        if (!h->node[node[i]].nwhole ||
            liveness_state_for_placement(h->liveness, node[i], now) != STATE_ALIVE)
            return false;
        for (size_t k = 0; k < n; k++)
            if (k != i && (liveness_reported_state(h->liveness, node[i], node[k]) != STATE_ALIVE ||
                           liveness_has_taken_over(h->liveness, node[i], node[k])))
                return false;
    }
    if (!all)
        return true;
    struct buf set = {0};
    bool whole = true;
    qsort(name, n, sizeof *name, by_name);
    for (size_t i = 0; i < n; i++)
        buf_printf(&set, "%s%s", i ? "+" : "", name[i]);
    for (size_t i = 0; i < n; i++)
        whole &= whole_for(&h->node[node[i]], set.data);
    buf_free(&set);
    return whole;
}

int store_watch_distance(const struct store *s, size_t node)
{
    return s->heard ? nearness_class(&s->heard->node[node].nearness) : NEARNESS_UNKNOWN;
}

double store_watch_rtt(const struct store *s, size_t node)
{
    return s->heard ? nearness_rtt(&s->heard->node[node].nearness) : -1.;
}

double store_watch_time(const struct store *s, size_t node, enum config_far which)
{
    struct far_time time = config_far_time(s->config, which);
    return s->heard ? nearness_time(&s->heard->node[node].nearness, &time) : time.least;
}

bool store_watch_retains_most(const struct store *s, size_t node)
{
    const struct beat *b = s->heard ? liveness_beat(s->heard->liveness, node) : NULL;
    return b && b->retains_most;
}

bool store_watch_filling(const struct store *s, size_t node)
{
    return s->heard && s->heard->node[node].filling;
}

bool store_watch_known(const struct store *s, const size_t *node, size_t n)
{
    bool known = true;
    for (size_t i = 0; s->heard && i < n; i++)
        for (size_t k = 0; k < s->config->nnodes; k++)
            known &= k == node[i] || liveness_knows(s->heard->liveness, node[i], k);
    return known;
}

void store_watch_open(struct store *s)
{
    const struct config *c = s->config;
    if (c->takeover != TAKEOVER_AUTOMATIC)
        return;
    const char **name = mem_alloc((c->nnodes + 1) * sizeof *name);
    s->heard = mem_zero(sizeof *s->heard);
    s->heard->node = mem_zero((c->nnodes + 1) * sizeof *s->heard->node);
    for (size_t i = 0; i < c->nnodes; i++) {
        name[i] = c->node[i].name;
        s->heard->node[i].store = s;
        s->heard->node[i].index = i;
    }
    struct liveness_times times = {(double)c->suspect_after / 1000., (double)c->dead_after / 1000.,
                                   (double)c->return_max / 1000.};
    s->heard->looked_at = clock_boottime();
    s->heard->liveness = liveness_open(name, c->nnodes, -1, times, s->heard->looked_at);
    free(name);
}
