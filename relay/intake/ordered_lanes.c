#include "relay/intake/ordered_lanes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "relay/tables/destinations.h"
#include "lib/mail/envelope.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "relay/acks/owners.h"
#include "relay/cluster/cluster_view.h"

#define TICK 0.1     /* seconds: how exactly PATIENCE ends */
#define SOON 0.02    /* between two rounds when another lane waits */
#define AGAIN 0.25   /* when the same ones do */
#define PATIENCE 0.5 /* a round ends without the nodes that have not answered by then */
#define HUNG 1.      /* a node that has owed an answer for so long is not asked */
#define LIST_PAGE 1000
#define LOOK_PAGE 50
/* lanes that are looked into in one round; of the others it is only known that they are there */
#define LOOKS_MOST 500
#define LONG_WAIT 60. /* until the log says what a lane waits for */

TAILQ_HEAD(ordered_list, lane);

struct ordered_lanes {
    struct relay *relay;
    struct ordered_list waiting; /* for their turn, until a round takes them */
    struct round *round;         /* under way, or NULL */
    double began;                /* the last one */
    ev_timer begin;              /* the next one */
    ev_timer tick;               /* while a round is under way */
};

/* ---- a round: what of lower generations is there ---- */

/* One lane that waits. */
struct seek {
    struct lane *lane;
    bool blocked;
    char behind[200]; /* by what, for the log */
};

struct asked {
    struct round *round;
    char node[65];
    bool alive;
    /* for all its sets, as its server said while it was asked: it holds what it promised */
    bool whole;
    size_t open; /* commands that it has not answered */
    bool failed; /* one of them */
};

struct round {
    struct relay *relay;
    bool over; /* what still comes is too late */
    size_t open, looks;
    size_t nseeks, nasked;
    struct seek *seek;   /* sorted by series, then generation */
    struct asked *asked; /* the own node, and all that were connected */
};

/* A lane of a lower generation, being looked into. */
struct look {
    struct asked *at;
    size_t seek;
    char *name;
    size_t len;
};

static int compare_series(const struct lanename *a, const struct lanename *b)
{
    int order = strcmp(a->destination, b->destination);
    return order ? order : strcmp(a->origin, b->origin);
}

static int by_series(const void *a, const void *b)
{
    const struct lanename *x = &((const struct seek *)a)->lane->parsed,
                          *y = &((const struct seek *)b)->lane->parsed;
    int order = compare_series(x, y);
    return order ? order : x->generation < y->generation ? -1 : x->generation > y->generation;
}

static void free_round(struct round *r)
{
    for (size_t i = 0; i < r->nseeks; i++) {
        ASSERT(r->seek[i].lane->commands);
        r->seek[i].lane->commands--;
    }
    free(r->seek);
    free(r->asked);
    free(r);
}

static void look_whether_done(struct round *);

static void answered(struct asked *at, bool good)
{
    struct round *r = at->round;
    ASSERT(at->open && r->open >= at->open);
    at->open--;
    at->failed |= !good;
    if (--r->open)
        return;
    if (!r->over)
        look_whether_done(r);
    if (!r->open && r->over)
        free_round(r);
}

static void send_open(struct asked *at)
{
    at->open++;
    at->round->open++;
}

static void block(struct seek *s, const struct asked *at, const char *name, size_t len)
{
    s->blocked = true;
    snprintf(s->behind, sizeof s->behind, "%.*s on node %s", (int)(len < 120 ? len : 120), name,
             at->node);
}

/* Whether those behind it need not wait for this entry: it is delivered, or stepped aside, or an admin has other
 * plans with it, or nobody can ever deliver it. */
static bool passed_by(const redisReply *e)
{
    struct envelope env;
    if (e->type != REDIS_REPLY_ARRAY || e->elements < 6 || e->element[1]->len != ENTRYID_LEN ||
        e->element[5]->type != REDIS_REPLY_STRING ||
        envelope_decode(e->element[5]->str, (size_t)e->element[5]->len, &env))
        return true;
    bool passed = env.marks != 0 || envelope_is_retained(&env);
    envelope_free(&env);
    return passed;
}

static void look_into(struct look *, long long from);

static void on_look(struct wire *w, redisReply *reply, void *arg)
{
    struct look *l = arg;
    struct asked *at = l->at;
    struct seek *s = &at->round->seek[l->seek];
    bool good = reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
                reply->element[0]->type == REDIS_REPLY_INTEGER &&
                reply->element[1]->type == REDIS_REPLY_ARRAY;
    for (size_t i = 0; good && !s->blocked && i < reply->element[1]->elements; i++)
        if (!passed_by(reply->element[1]->element[i]))
            block(s, at, l->name, l->len);
    long long next = good ? reply->element[0]->integer : 0;
    if (good && next && !s->blocked && !at->round->over) {
        look_into(l, next);
    } else {
        free(l->name);
        free(l);
    }
    answered(at, good);
}

static struct wire *wire_of(struct asked *);

static void look_into(struct look *l, long long from)
{
    struct wire *w = wire_of(l->at);
    send_open(l->at);
    if (w && wire_sendf(w, on_look, l, "LANE.READ %b %lld COUNT %d NOBODY", l->name, l->len, from,
                        LOOK_PAGE))
        return;
    l->at->open--;
    l->at->round->open--;
    l->at->failed = true;
    free(l->name);
    free(l);
}

/* A lane that this node has: does one of ours wait for it? */
static void listed(struct asked *at, const char *name, size_t len)
{
    struct round *r = at->round;
    struct lanename parsed;
    if (!lanename_parse(name, len, &parsed))
        return;
    size_t low = 0, high = r->nseeks;
    /* The first of its series with a higher generation: the others behind it wait for that one,
     * or are looked at here, too. */
    while (parsed.generation && low < high) {
        size_t middle = (low + high) / 2;
        const struct lanename *m = &r->seek[middle].lane->parsed;
        int order = compare_series(m, &parsed);
        if (order < 0 || (!order && m->generation <= parsed.generation))
            low = middle + 1;
        else
            high = middle;
    }
    for (size_t i = low; parsed.generation && i < r->nseeks &&
                         lanename_same_series(&r->seek[i].lane->parsed, &parsed);
         i++) {
        struct seek *s = &r->seek[i];
        if (s->blocked)
            continue;
        if (r->looks++ >= LOOKS_MOST) {
            block(s, at, name, len);
            continue;
        }
        struct look *l = mem_alloc(sizeof *l);
        *l = (struct look){at, i, mem_strndup(name, len), len};
        look_into(l, 1);
    }
    lanename_free(&parsed);
}

static void list(struct asked *, const char *cursor);

static void on_list(struct wire *w, redisReply *reply, void *arg)
{
    struct asked *at = arg;
    char cursor[32] = "";
    bool good = reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
                reply->element[1]->type == REDIS_REPLY_ARRAY;
    if (good && reply->element[0]->type == REDIS_REPLY_INTEGER)
        snprintf(cursor, sizeof cursor, "%lld", reply->element[0]->integer);
    else if (good && reply->element[0]->str)
        snprintf(cursor, sizeof cursor, "%s", reply->element[0]->str);
    if (good && !at->round->over) {
        const redisReply *names = reply->element[1];
        for (size_t i = 0; i + 2 < names->elements; i += 3)
            if (names->element[i]->type == REDIS_REPLY_STRING && names->element[i + 1]->integer > 0)
                listed(at, names->element[i]->str, (size_t)names->element[i]->len);
        if (strcmp(cursor, "0"))
            list(at, cursor);
    }
    answered(at, good);
}

static void list(struct asked *at, const char *cursor)
{
    struct wire *w = wire_of(at);
    send_open(at);
    if (w && wire_sendf(w, on_list, at, "LANE.LIST %s MATCH " LANENAME_PREFIX "*|*|* COUNT %d",
                        cursor, LIST_PAGE))
        return;
    at->open--;
    at->round->open--;
    at->failed = true;
}

struct wanted_wire {
    const char *node;
    struct wire *wire;
};

static void is_it(const char *node, struct wire *wire, void *arg)
{
    struct wanted_wire *w = arg;
    if (!strcmp(node, w->node))
        w->wire = wire;
}

/* "mx1+mx2": a set of owners of today's file, of nodes that no admin called dead. A server keeps
 * those of former files, too. */
static bool of_the_living(const struct config *c, const char *set)
{
    char name[65];
    long long n = 0;
    for (const char *end; *set; set = *end ? end + 1 : end, n++) {
        end = set + strcspn(set, "+");
        snprintf(name, sizeof name, "%.*s", (int)(end - set), set);
        if (config_node_index(c, name) < 0 || config_list_has(&c->dead, name))
            return false;
    }
    return n == c->copies;
}

/* How many such sets each of them belongs to. */
static size_t sets_of_the_living(const struct config *c)
{
    size_t others = 0, sets = 1;
    for (size_t i = 0; i < c->nnodes; i++)
        others += !config_list_has(&c->dead, c->node[i].name);
    if (!others--)
        return 0;
    for (size_t k = 1; k < (size_t)c->copies; k++)
        sets = others >= k ? sets * (others - k + 1) / k : 0;
    return sets;
}

/* A beat says what was true a moment ago; a server that was emptied since says so. */
static void on_whole(struct wire *w, redisReply *reply, void *arg)
{
    struct asked *at = arg;
    const struct config *c = at->round->relay->config;
    bool good = reply && reply->type == REDIS_REPLY_ARRAY;
    size_t sets = 0;
    for (size_t i = 0; good && i + 1 < reply->elements; i += 2)
        sets += reply->element[i]->type == REDIS_REPLY_STRING &&
                of_the_living(c, reply->element[i]->str);
    at->whole = good && sets >= sets_of_the_living(c);
    answered(at, good);
}

static void ask_whole(struct asked *at)
{
    struct wire *w = wire_of(at);
    at->whole = !at->round->relay->heartbeat; /* with takeover = manual nobody knows */
    if (at->whole)
        return;
    send_open(at);
    if (w && wire_sendf(w, on_whole, at, "LANE.WHOLE"))
        return;
    at->open--;
    at->round->open--;
    at->failed = true;
}

static struct wire *wire_of(struct asked *at)
{
    struct wanted_wire w = {at->node, NULL};
    owners_each_node(at->round->relay, is_it, &w);
    return w.wire && wire_up(w.wire) ? w.wire : NULL;
}

static void add_node(const char *node, struct wire *wire, void *arg)
{
    struct round *r = arg;
    if (wire_silence(wire) > HUNG)
        return;
    r->asked = mem_grow(r->asked, (r->nasked + 1) * sizeof *r->asked);
    struct asked *at = &r->asked[r->nasked++];
    *at = (struct asked){.round = r, .alive = cluster_alive(r->relay, node)};
    snprintf(at->node, sizeof at->node, "%s", node);
}

static const struct asked *answer_of(const struct round *r, const char *node)
{
    for (size_t i = 0; i < r->nasked; i++)
        if (!strcmp(r->asked[i].node, node))
            return r->asked[i].alive && !r->asked[i].open && !r->asked[i].failed ? &r->asked[i]
                                                                                 : NULL;
    return NULL;
}

/* Enough have answered that one of them holds what any `copies` nodes hold, though copies - 1 of
 * all may be lost. Whom this relay found dead may live beyond a cut, and deliver: only an
 * admin's word makes it less. */
static bool enough(const struct round *r)
{
    const struct config *c = r->relay->config;
    size_t answers = 0, dead = 0, lost = (size_t)c->copies - 1;
    for (size_t i = 0; i < c->nnodes; i++) {
        const struct asked *at = answer_of(r, c->node[i].name);
        bool called = config_list_has(&c->dead, c->node[i].name);
        dead += called;
        answers += at && at->whole && !called;
    }
    return answers + (dead > lost ? dead : lost) >= c->nnodes;
}

/* ---- what comes of it ---- */

static void want_turn(struct ordered_lanes *s, struct lane *lane)
{
    if (lane->turn == TURN_WAITS)
        return;
    ASSERT(lane->turn == TURN_NOT_ASKED);
    lane->ordered_lanes = s;
    lane->turn = TURN_WAITS;
    TAILQ_INSERT_TAIL(&s->waiting, lane, turn_link);
}

static void start_tick(struct ordered_lanes *s)
{
    if (!ev_is_active(&s->tick))
        ev_timer_again(s->relay->loop, &s->tick);
}

static void begin_in(struct ordered_lanes *s, double wait)
{
    double left = s->began + wait - clock_monotonic();
    if (ev_is_active(&s->begin) && ev_timer_remaining(s->relay->loop, &s->begin) <= left)
        return;
    ev_timer_stop(s->relay->loop, &s->begin);
    ev_timer_set(&s->begin, left > 0. ? left : 0., 0.);
    ev_timer_start(s->relay->loop, &s->begin);
}

static void its_turn(struct lane *lane)
{
    double waited = clock_monotonic() - lane->turn_since;
    lane->turn = TURN_HAS;
    if (lane->turn_told)
        log_of(LOG_LEVEL_INFO, LOG_FIELD_lane, lane->name, "its turn has come after %.0f s",
               waited);
    lane->turn_since = 0.;
    lane->turn_told = false;
    if (lane->destination)
        destination_want(lane->destination);
}

static void still_waits(struct ordered_lanes *s, struct seek *k, const char *why)
{
    struct lane *lane = k->lane;
    want_turn(s, lane);
    if (lane->turn_told || clock_monotonic() - lane->turn_since < LONG_WAIT)
        return;
    lane->turn_told = true;
    log_warning("lane=%s waits for its turn: %s", lane->name, why);
}

static void end_round(struct round *r)
{
    struct ordered_lanes *s = r->relay->ordered_lanes;
    bool all = enough(r);
    ASSERT(s->round == r && !r->over);
    r->over = true;
    s->round = NULL;
    for (size_t i = 0; i < r->nseeks; i++) {
        struct seek *k = &r->seek[i];
        char why[300];
        if (k->lane->turn != TURN_ASKED) /* it was lost meanwhile */
            continue;
        k->lane->turn = TURN_NOT_ASKED;
        if (!k->blocked && all) {
            its_turn(k->lane);
            continue;
        }
        if (k->blocked)
            snprintf(why, sizeof why, "%s is not empty", k->behind);
        still_waits(s, k,
                    k->blocked ? why
                               : "too few nodes are alive and whole and say whether they hold what "
                                 "comes before it. If they are gone for good, name them in `dead`");
    }
    if (!TAILQ_EMPTY(&s->waiting))
        begin_in(s, AGAIN);
}

static void look_whether_done(struct round *r)
{
    if (!r->open)
        end_round(r);
}

static bool own_is_asked(const struct round *r)
{
    for (size_t i = 0; i < r->nasked; i++)
        if (!strcmp(r->asked[i].node, r->relay->node))
            return r->asked[i].open;
    return false;
}

static void begin_round(struct ordered_lanes *s)
{
    size_t n = 0;
    struct lane *lane;
    struct round *r = mem_zero(sizeof *r);
    ASSERT(!s->round);
    r->relay = s->relay;
    TAILQ_FOREACH (lane, &s->waiting, turn_link)
        n++;
    r->seek = mem_zero((n + 1) * sizeof *r->seek);
    while ((lane = TAILQ_FIRST(&s->waiting))) {
        TAILQ_REMOVE(&s->waiting, lane, turn_link);
        lane->turn = TURN_ASKED;
        lane->commands++;
        r->seek[r->nseeks++].lane = lane;
    }
    qsort(r->seek, r->nseeks, sizeof *r->seek, by_series);
    s->round = r;
    s->began = clock_monotonic();
    owners_each_node(s->relay, add_node, r);
    start_tick(s);
    r->open++; /* so that it does not end before all were asked */
    for (size_t i = 0; i < r->nasked; i++) {
        list(&r->asked[i], "0");
        ask_whole(&r->asked[i]); /* behind it: whoever was emptied in between says so */
    }
    if (--r->open)
        return;
    end_round(r);
    free_round(r);
}

static void on_begin(struct ev_loop *loop, ev_timer *t, int events)
{
    struct ordered_lanes *s = t->data;
    if (!s->round && !TAILQ_EMPTY(&s->waiting) && !s->relay->stopping)
        begin_round(s);
}

static void on_tick(struct ev_loop *loop, ev_timer *t, int events)
{
    struct ordered_lanes *s = t->data;
    /* Without the own node nothing can be said; what others say later only counts down. */
    if (s->round && clock_monotonic() - s->began >= PATIENCE && !own_is_asked(s->round))
        end_round(s->round);
    if (!s->round)
        ev_timer_stop(loop, t);
}

/* ---- turns ---- */

bool ordered_may_take(struct lane *lane)
{
    struct ordered_lanes *s = lane->destination->relay->ordered_lanes;
    if (!lane->parsed.generation)
        return true;
    if (lane->frozen)
        return false;
    if (lane->turn == TURN_HAS)
        return !lane->paused;
    if (!lane->turn_since)
        lane->turn_since = clock_monotonic();
    if (lane->turn == TURN_NOT_ASKED) {
        want_turn(s, lane);
        begin_in(s, SOON);
    }
    return false;
}

void ordered_emptied(struct lane *lane)
{
    struct ordered_lanes *s = lane->destination->relay->ordered_lanes;
    if (!TAILQ_EMPTY(&s->waiting))
        begin_in(s, SOON);
}

void ordered_forget(struct lane *lane)
{
    if (lane->turn == TURN_WAITS)
        TAILQ_REMOVE(&lane->ordered_lanes->waiting, lane, turn_link);
    lane->turn = TURN_NOT_ASKED;
    lane->whole = lane->turn_told = false;
    lane->turn_since = 0.;
}

struct ordered_lanes *ordered_open(struct relay *r)
{
    struct ordered_lanes *s = mem_zero(sizeof *s);
    s->relay = r;
    TAILQ_INIT(&s->waiting);
    ev_timer_init(&s->begin, on_begin, 0., 0.);
    ev_timer_init(&s->tick, on_tick, TICK, TICK);
    s->begin.data = s->tick.data = s;
    return s;
}

void ordered_close(struct ordered_lanes *s)
{
    ev_timer_stop(s->relay->loop, &s->begin);
    ev_timer_stop(s->relay->loop, &s->tick);
    free(s);
}
