#include "lib/ingress/depth_watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/mail/lanename.h"

#define LOOK 1.         /* seconds between two rounds */
#define ROUND_MOST 1.   /* seconds that a round waits for a node */
#define HURRY .02       /* seconds between two rounds, if somebody is in a hurry; */
#define SHARE 10        /* and so many times as long as a round took */
#define PAGE 1000       /* lanes in one answer */
#define AGES_MOST 1000u /* lanes of a node whose age is asked in one round */

struct asked_node {
    struct depth_watch *all;
    const char *name;
    size_t index;
    struct wire *wire;
    bool asked;  /* in the round that is under way */
    size_t open; /* answers that are owed */
    bool broken; /* this answer will not be whole */
    bool refused;
    size_t *age; /* lanes whose age is asked, in the order of the questions */
    size_t nages, told;
    size_t first_age; /* of the lanes that want it, the one that is asked first: all have a turn */
};

struct depth_watch {
    struct ev_loop *loop;
    struct depth *depth;
    const struct depth_watch_calls *calls;
    ev_async hurry;
    bool under_way;
    double began, took; /* the last round */
    size_t n;
    struct asked_node *node;
};

/* ---- rounds ---- */

static void end_round(struct depth_watch *w)
{
    double now = clock_boottime();
    w->under_way = false;
    w->took = now - w->began;
    depth_end(w->depth, now);
    w->calls->looked();
}

static bool all_told(const struct depth_watch *w)
{
    for (size_t i = 0; i < w->n; i++)
        if (w->node[i].asked && w->node[i].open)
            return false;
    return true;
}

/* One answer more. The last one of a node makes its answer whole, or leaves it broken. */
static void answered(struct asked_node *n, bool good)
{
    struct depth_watch *w = n->all;
    n->broken |= !good;
    if (--n->open)
        return;
    if (n->broken)
        depth_broken(w->depth, n->index);
    else
        depth_heard(w->depth, n->index, clock_boottime());
    free(n->age);
    n->age = NULL;
    if (w->under_way && all_told(w))
        end_round(w);
}

/* ---- ages ---- */

static void on_info(struct wire *wire, redisReply *reply, void *arg)
{
    struct asked_node *n = arg;
    (void)wire;
    size_t lane = n->age[n->told++];
    bool list = reply && reply->type == REDIS_REPLY_ARRAY;
    for (size_t i = 0; list && i + 1 < reply->elements; i += 2)
        if (reply->element[i]->str && !strcmp(reply->element[i]->str, "oldest-age") &&
            reply->element[i + 1]->type == REDIS_REPLY_INTEGER)
            depth_oldest(n->all->depth, n->index, lane,
                         clock_boottime() - (double)reply->element[i + 1]->integer / 1000.);
    /* A lane that is empty by now has no age: an error, and no fault. */
    answered(n, reply != NULL);
}

static size_t *lanes_with_age(struct asked_node *n, size_t *n_r)
{
    const struct depth_watch *w = n->all;
    size_t lanes = depth_lanes(w->depth, n->index), *out = mem_alloc((lanes + 1) * sizeof *out);
    *n_r = 0;
    for (size_t i = 0; i < lanes; i++) {
        struct depth_name name = depth_name(w->depth, n->index, i);
        if (w->calls->wants_age(name.destination, name.class))
            out[(*n_r)++] = i;
    }
    return out;
}

static void ask_ages(struct asked_node *n)
{
    size_t wanting, *lane = lanes_with_age(n, &wanting);
    size_t most = wanting < AGES_MOST ? wanting : AGES_MOST;
    n->age = mem_alloc((most + 1) * sizeof *n->age);
    n->nages = n->told = 0;
    for (size_t i = 0; i < most; i++)
        n->age[n->nages++] = lane[(n->first_age + i) % wanting];
    n->first_age = wanting > AGES_MOST ? (n->first_age + most) % wanting : 0;
    for (size_t i = 0; i < n->nages; i++) {
        struct depth_name name = depth_name(n->all->depth, n->index, n->age[i]);
        if (!wire_sendf(n->wire, on_info, n, "LANE.INFO %b", name.lane, name.len)) {
            n->broken = true;
            break;
        }
        n->open++;
    }
    free(lane);
}

/* ---- lengths ---- */

static void ask_page(struct asked_node *, const char *cursor);

static void see_lanes(struct asked_node *n, const redisReply *list)
{
    for (size_t i = 0; i + 2 < list->elements; i += 3)
        if (list->element[i]->type == REDIS_REPLY_STRING &&
            list->element[i + 1]->type == REDIS_REPLY_INTEGER)
            depth_lane(n->all->depth, n->index, list->element[i]->str,
                       (size_t)list->element[i]->len, list->element[i + 1]->integer);
}

static void complain(struct asked_node *n, const char *why)
{
    if (!n->refused)
        log_warning("node %s does not say how many entries wait in its lanes (%s): accept_entries "
                    "and accept_age do without it. Write its ACL file anew with `dovelane acl`, "
                    "and load it",
                    n->name, why);
    n->refused = true;
}

static void on_list(struct wire *wire, redisReply *reply, void *arg)
{
    struct asked_node *n = arg;
    char cursor[32] = "0";
    (void)wire;
    bool good = reply && reply->type == REDIS_REPLY_ARRAY && reply->elements >= 2 &&
                reply->element[1]->type == REDIS_REPLY_ARRAY;
    if (reply && reply->type == REDIS_REPLY_ERROR)
        complain(n, reply->str);
    if (good) {
        const redisReply *next = reply->element[0];
        n->refused = false;
        see_lanes(n, reply->element[1]);
        if (next->type == REDIS_REPLY_INTEGER)
            snprintf(cursor, sizeof cursor, "%lld", next->integer);
        else if (next->str && (size_t)next->len < sizeof cursor)
            snprintf(cursor, sizeof cursor, "%s", next->str);
        if (strcmp(cursor, "0") != 0)
            ask_page(n, cursor);
        else
            ask_ages(n);
    }
    answered(n, good);
}

static void ask_page(struct asked_node *n, const char *cursor)
{
    if (wire_sendf(n->wire, on_list, n, "LANE.LIST %s MATCH " LANENAME_PREFIX "* COUNT %d", cursor,
                   PAGE))
        n->open++;
    else
        n->broken = true;
}

static void begin_round(struct depth_watch *w)
{
    bool any = false;
    w->began = clock_boottime();
    for (size_t i = 0; i < w->n; i++) {
        struct asked_node *n = &w->node[i];
        n->asked = n->wire && wire_up(n->wire) && !n->open;
        if (!n->asked)
            continue;
        n->broken = false;
        ask_page(n, "0");
        any |= n->open > 0;
    }
    w->under_way = true;
    if (!any)
        end_round(w);
}

/* ---- interface ---- */

void depth_watch_look(struct depth_watch *w)
{
    double since = clock_boottime() - w->began;
    if (w->under_way) {
        if (since > ROUND_MOST)
            end_round(w);
    } else if (w->calls->wanted() && (w->began <= 0. || since >= LOOK * .99)) {
        begin_round(w);
    }
}

static void on_hurry(struct ev_loop *loop, ev_async *a, int events)
{
    struct depth_watch *w = a->data;
    double pause = SHARE * w->took;
    pause = pause < HURRY ? HURRY : pause > LOOK ? LOOK : pause;
    if (!w->under_way && w->calls->wanted() && clock_boottime() - w->began >= pause)
        begin_round(w);
}

void depth_watch_hurry(struct depth_watch *w)
{
    ev_async_send(w->loop, &w->hurry);
}

void depth_watch_node(struct depth_watch *w, size_t node, struct wire *wire)
{
    w->node[node].wire = wire;
}

struct depth_watch *depth_watch_open(const struct config *c, struct ev_loop *loop, struct depth *d,
                                     const struct depth_watch_calls *calls)
{
    struct depth_watch *w = mem_zero(sizeof *w);
    *w = (struct depth_watch){.loop = loop,
                              .depth = d,
                              .calls = calls,
                              .n = c->nnodes,
                              .node = mem_zero((c->nnodes + 1) * sizeof *w->node)};
    for (size_t i = 0; i < c->nnodes; i++)
        w->node[i] = (struct asked_node){.all = w, .index = i, .name = c->node[i].name};
    ev_async_init(&w->hurry, on_hurry);
    w->hurry.data = w;
    ev_async_start(loop, &w->hurry);
    return w;
}
