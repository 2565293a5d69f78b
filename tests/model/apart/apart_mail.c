#include "tests/model/apart/apart.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

/* Bytes that another copy costs beside its mail: its store, its ack, and their answers (what
 * `make bench-geo` finds between nodes). */
#define OF_A_COPY 52
/* Seconds that acks are gathered before they are told. */
#define ACK_GATHERED 0.01
/* How long a next hop takes to answer. */
#define NEXT_HOP 0.05
#define LATENCIES 20000 /* in tenths of a millisecond */

/* The mails that one gateway stored in one step, on the same owners. */
struct batch {
    size_t owner[COPIES];
    double mails, stored_at, due;
    unsigned copies, times; /* copies that are left; how often it was delivered */
    unsigned uses;
};

struct copy {
    struct batch *batch;
    size_t at;      /* which owner this is */
    double gone_at; /* when the word comes that it was delivered; 0: not told */
    double telling; /* who delivered it tells this node from then on; 0: nobody has */
    size_t by;
};

static double latency[LATENCIES], to_send[NODES_MOST + 1];

void mail_begin(void)
{
    memset(latency, 0, sizeof latency);
    memset(to_send, 0, sizeof to_send);
}

static void unuse(struct batch *b)
{
    if (--b->uses == 0)
        free(b);
}

void mail_end(void)
{
    for (size_t i = 0; i < w.plan.nodes; i++) {
        for (size_t k = 0; k < w.node[i].ncopies; k++)
            unuse(w.node[i].copies[k].batch);
        free(w.node[i].copies);
    }
    double all = 0, seen = 0;
    for (size_t i = 0; i < LATENCIES; i++)
        all += latency[i];
    for (size_t i = 0; i < LATENCIES; i++) {
        if (seen < all / 2 && seen + latency[i] >= all / 2)
            w.figures.latency50 = (double)i / 1e4;
        if (seen < all * 0.99 && seen + latency[i] >= all * 0.99)
            w.figures.latency99 = (double)i / 1e4;
        seen += latency[i];
    }
}

double mail_waiting(void)
{
    double all = 0;
    for (size_t i = 0; i < w.plan.nodes; i++)
        for (size_t k = 0; k < w.node[i].ncopies; k++)
            all += w.node[i].copies[k].batch->mails;
    return all;
}

/* ---- placing ---- */

/* Who places: a gateway beside a node, or the one outside (home: w.plan.nodes). */
static const struct liveness *ears(size_t home)
{
    return home < w.plan.nodes ? w.node[home].heard : w.outside;
}

static bool hears(size_t home, size_t node)
{
    return node == home || liveness_state_for_placement(ears(home), node, w.now) == STATE_ALIVE;
}

/* Both live and hear each other alive, as the gateway is told. */
static bool fit(const void *arg, const size_t *node, size_t n, bool all)
{
    size_t home = *(const size_t *)arg;
    (void)all;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n; k++)
            if (i != k && node[i] != home &&
                liveness_reported_state(ears(home), node[i], node[k]) != STATE_ALIVE)
                return false;
    return true;
}

static int rank(size_t home, size_t node)
{
    if (node == home)
        return -1;
    return w.plan.near && home < w.plan.nodes ? world_distance(home, node) : 0;
}

static bool choose(size_t home, size_t owner[COPIES])
{
    size_t node[NODES_MOST], domain[NODES_MOST], n = 0;
    size_t first = home < w.plan.nodes ? home : 0;
    for (size_t k = 0; k < w.plan.nodes; k++) {
        size_t i = (first + k) % w.plan.nodes, at = n;
        if (!hears(home, i))
            continue;
        for (; at && rank(home, node[at - 1]) > rank(home, i); at--)
            node[at] = node[at - 1];
        node[at] = i;
        n++;
    }
    for (size_t i = 0; i < n; i++)
        domain[i] = w.plan.spread ? w.node[node[i]].region : node[i];
    struct placement p = {.n = n,
                          .node = node,
                          .domain = domain,
                          .copies = COPIES,
                          .least = w.plan.least,
                          .fit = fit,
                          .arg = &home};
    return placement_choose(&p, owner);
}

static void keep_copy(struct batch *b, size_t at)
{
    struct node *n = &w.node[b->owner[at]];
    if (n->ncopies == n->room) {
        n->room = n->room ? 2 * n->room : 256;
        n->copies = mem_grow(n->copies, n->room * sizeof *n->copies);
    }
    n->copies[n->ncopies++] = (struct copy){.batch = b, .at = at};
    b->copies++;
    b->uses++;
}

static bool reaches_all(size_t home, const size_t owner[COPIES])
{
    for (size_t k = 0; k < COPIES; k++)
        if (home < w.plan.nodes ? !world_reaches(home, owner[k]) : !w.node[owner[k]].up)
            return false;
    return true;
}

static double slowest(size_t home, const size_t owner[COPIES])
{
    double most = 0;
    for (size_t k = 0; k < COPIES && home < w.plan.nodes; k++)
        if (world_rtt(home, owner[k]) > most)
            most = world_rtt(home, owner[k]);
    return most;
}

static void store(size_t home, const size_t owner[COPIES], double mails)
{
    struct batch *b = mem_zero(sizeof *b);
    double wait = slowest(home, owner);
    memcpy(b->owner, owner, sizeof b->owner);
    b->mails = mails;
    b->stored_at = w.now + wait;
    b->due = w.now + w.plan.in_lane;
    w.figures.stored += mails;
    latency[wait * 1e4 < LATENCIES ? (size_t)(wait * 1e4) : LATENCIES - 1] += mails;
    for (size_t k = 0; k < COPIES; k++) {
        keep_copy(b, k);
        if (owner[k] == home)
            continue;
        w.node[owner[k]].held_of_others += mails;
        w.figures.bytes += mails * (w.plan.size + OF_A_COPY);
    }
}

static void offer(size_t home, double mails)
{
    size_t owner[COPIES];
    w.figures.offered += mails;
    /* Who is not answered in time by all is kept in Postfix's queue, as is what has no owners. */
    if (choose(home, owner) && reaches_all(home, owner))
        store(home, owner, mails);
    else
        w.figures.queued += mails;
}

static void offer_all(void)
{
    size_t gateways = w.plan.outside ? 1 : w.plan.nodes;
    for (size_t g = 0; g < gateways; g++) {
        size_t home = w.plan.outside ? w.plan.nodes : g;
        if (home < w.plan.nodes && !w.node[home].up)
            continue;
        to_send[home] += w.plan.offered / (double)gateways * STEP;
        double mails = (double)(long)to_send[home];
        to_send[home] -= mails;
        if (mails > 0)
            offer(home, mails);
    }
}

/* ---- delivering ---- */

/* Whoever delivered it tells the others, when it reaches them. */
static void tell(struct copy *c, size_t node)
{
    if (c->telling == 0 || c->gone_at != 0 || w.now < c->telling || !world_reaches(c->by, node))
        return;
    c->gone_at = w.now + world_rtt(c->by, node) / 2;
}

static void owe_the_others(const struct batch *b, size_t by)
{
    for (size_t k = 0; k < COPIES; k++) {
        struct node *other = &w.node[b->owner[k]];
        for (size_t i = 0; b->owner[k] != by && i < other->ncopies; i++)
            if (other->copies[i].batch == b && other->copies[i].telling == 0) {
                other->copies[i].telling = w.now + NEXT_HOP + ACK_GATHERED;
                other->copies[i].by = by;
            }
    }
}

static bool serves(size_t node, const struct copy *c)
{
    int before[COPIES];
    for (size_t k = 0; k < c->at; k++)
        before[k] = (int)c->batch->owner[k];
    return role_serves(w.node[node].role, before, c->at, w.node[node].called_dead, w.now);
}

static void deliver(size_t node, struct copy *c)
{
    struct batch *b = c->batch;
    w.node[node].tokens -= b->mails;
    if (b->times++ == 0)
        w.figures.delivered += b->mails;
    else
        w.figures.twice += b->mails;
    if (!w.node[b->owner[0]].up)
        w.figures.recovery = w.now + NEXT_HOP;
    owe_the_others(b, node);
}

/* True when the copy is done with. */
static bool look_at(size_t node, struct copy *c)
{
    tell(c, node);
    if (c->gone_at != 0 && c->gone_at <= w.now)
        return true;
    if (c->batch->due > w.now || w.node[node].tokens < 0 || !serves(node, c))
        return false;
    deliver(node, c);
    return true;
}

static void serve(size_t node)
{
    struct node *n = &w.node[node];
    size_t left = 0;
    n->tokens += w.plan.capacity * STEP;
    if (n->tokens > w.plan.capacity * STEP)
        n->tokens = w.plan.capacity * STEP;
    for (size_t i = 0; i < n->ncopies; i++) {
        struct copy c = n->copies[i];
        if (look_at(node, &c)) {
            c.batch->copies--;
            unuse(c.batch);
        } else
            n->copies[left++] = c;
    }
    n->ncopies = left;
}

void mail_step(void)
{
    offer_all();
    for (size_t i = 0; i < w.plan.nodes; i++)
        if (w.node[i].up)
            serve(i);
}

/* The node is lost with all that it holds. What nobody answered yet was not promised. */
void mail_lose(size_t node)
{
    struct node *n = &w.node[node];
    n->up = false;
    for (size_t i = 0; i < n->ncopies; i++) {
        struct batch *b = n->copies[i].batch;
        b->copies--;
        if (!b->copies && !b->times && b->stored_at <= w.now)
            w.figures.lost += b->mails;
        unuse(b);
    }
    n->ncopies = 0;
}
