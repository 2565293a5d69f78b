/* The rounds of the comparison, one step after the other, and what begins them. The steps stand
 * in resync.h. */
#include "relay/repair/resync_work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "lib/base/clock.h"
#include "relay/repair/lane_scan.h"
#include "lib/base/log.h"
#include "relay/repair/backfill.h"
#include "relay/cluster/cluster_view.h"
#include "relay/cluster/whole_sets.h"

#define AGAIN_FIRST 0.5 /* seconds until a round that was in vain is repeated; doubled each time */
#define AGAIN_MOST 30.

static const char *const steps[] = {"idle",       "discover",  "ask",   "list here",
                                    "list there", "ask again", "fetch", "ask at last",
                                    "revise",     "drop",      "end"};

/* ---- for the rest of the relay ---- */

void resync_told(struct relay *r, size_t node, const redisReply *list)
{
    if (node < r->resync->nsites)
        resync_read_said(&r->resync->site[node], list);
}

size_t resync_sets(struct relay *r, const struct role_set **out)
{
    struct resync *w = r->resync;
    size_t n = 0;
    resync_update_sets(w);
    for (struct set *s = w->sets; s; s = s->next)
        n++;
    if (n > w->nview)
        w->view = mem_grow(w->view, n * sizeof *w->view);
    w->nview = n > w->nview ? n : w->nview;
    n = 0;
    for (struct set *s = w->sets; s; s = s->next) {
        bool fresh = !s->ever && !s->lanes_here && !s->stale;
        /* A set that is new to us is no reason to return: JOIN makes us whole for it, unless
         * others have entries of it. */
        if (fresh && !s->whole && role_state(r->role) == STATE_ALIVE)
            continue;
        w->view[n++] = (struct role_set){s->name, s->n, s->other, s->reach, s->whole, s->checked};
    }
    *out = w->view;
    return n;
}

bool resync_comparing(const struct relay *r)
{
    return (r->resync->phase != IDLE && r->resync->mode == RETURN) || !r->resync->compared;
}

/* ---- the end of a round ---- */

static void tell(const struct resync *w, const struct set *s)
{
    const char *with = s->witness >= 0 ? w->relay->config->node[s->witness].name : "all its owners";
    if (!s->fetched && !s->dropped && !s->revised) {
        log_debug("%s: compared with %s: the same", s->name, with);
        return;
    }
    log_info("%s: compared with %s: %zu entries fetched (%.1f MB), %zu dropped that were delivered "
             "or never promised, %zu results taken over, in %.2f s",
             s->name, with, s->fetched, (double)s->bytes / 1e6, s->dropped, s->revised,
             clock_monotonic() - w->began);
}

static bool open_sets(const struct resync *w)
{
    for (const struct set *s = w->sets; s; s = s->next)
        if (!s->whole || !s->checked)
            return true;
    return false;
}

static void finish(struct resync *w)
{
    double now = clock_monotonic();
    bool vain = w->abandoned;
    for (struct set *s = w->sets; s; s = s->next) {
        if (s->active && !s->failed && !w->abandoned)
            tell(w, s);
        vain |= s->active && s->failed;
        s->active = false;
    }
    resync_free_lists(w);
    w->phase = IDLE;
    if (w->mode == RETURN && !w->abandoned)
        w->compared = true;
    if (w->mode == PERIODIC)
        w->periodic_at = now + (double)w->relay->config->compare_every / 1000.;
    w->again = !vain ? AGAIN_FIRST : 2 * w->again < AGAIN_MOST ? 2 * w->again : AGAIN_MOST;
    w->not_before = now + w->again;
    w->abandoned = false;
    cluster_wake(w->relay);
}

void resync_fail_set(struct set *s, const char *why)
{
    if (!s->failed)
        log_warning("%s: the comparison was in vain: %s", s->name, why);
    s->failed = true;
}

void resync_site_failed(struct resync *w, size_t site, const char *why)
{
    char text[300];
    snprintf(text, sizeof text, "node %s: %s", w->relay->config->node[site].name, why);
    for (struct set *s = w->sets; s; s = s->next)
        if (site == w->self ? s->active : resync_uses(s, site))
            resync_fail_set(s, text);
    if (site == w->self)
        w->abandoned = true;
}

/* ---- DISCOVER ---- */

static void *lane_watch_lane(const char *name, size_t len, const struct lanename *parsed, void *arg)
{
    struct site *site = arg;
    struct set *s = resync_set_of_lane(site->w, parsed);
    if (s) {
        s->seen = true;
        s->lanes_here |= site->index == site->w->self;
    }
    return NULL;
}

static void on_discovered(const char *trouble, void *arg)
{
    struct site *site = arg;
    struct resync *w = site->w;
    site->failed = trouble != NULL;
    if (trouble && site->index == w->self)
        w->abandoned = true;
    resync_answered(w);
    resync_advance(w);
}

static void discover(struct resync *w)
{
    static const struct lane_scan_calls calls = {lane_watch_lane, NULL, on_discovered};
    for (struct set *s = w->sets; s; s = s->next)
        s->seen = s->lanes_here = false;
    for (size_t i = 0; i < w->nsites; i++) {
        struct site *site = &w->site[i];
        site->failed =
            !node_ready(site->node) || !lane_scan_open(node_wire(site->node), &calls, site);
        w->open += !site->failed;
    }
    if (w->site[w->self].failed)
        w->abandoned = true;
}

/* ---- ASK ---- */

static void on_whole(struct wire *wire, redisReply *reply, void *arg)
{
    struct site *site = arg;
    struct resync *w = site->w;
    if (reply && reply->type == REDIS_REPLY_ARRAY)
        resync_read_said(site, reply);
    else
        site->failed = true;
    resync_answered(w);
    resync_advance(w);
}

static void ask(struct resync *w)
{
    for (size_t i = 0; i < w->nsites; i++) {
        struct site *site = &w->site[i];
        if (site->failed)
            continue;
        if (wire_sendf(node_wire(site->node), on_whole, site, "LANE.WHOLE"))
            w->open++;
        else
            site->failed = true;
    }
    if (w->site[w->self].failed)
        w->abandoned = true;
}

static void on_begun(struct wire *wire, redisReply *reply, void *arg)
{
    struct resync *w = arg;
    if (!reply || reply->type == REDIS_REPLY_ERROR)
        w->abandoned = true;
    resync_answered(w);
    resync_advance(w);
}

static bool wants(const struct resync *w, const struct set *s)
{
    switch (w->mode) {
    case RETURN: return !s->whole || !s->checked;
    case PERIODIC: return s->whole;
    case JOIN: return !s->whole && !s->ever && !s->lanes_here && !s->stale;
    }
    return false;
}

static void begin(struct resync *w)
{
    unsigned char random[16];
    if (getrandom(random, sizeof random, 0) != sizeof random)
        log_warning("getrandom failed");
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(w->token + 2 * i, 3, "%02x", random[i]);
    resync_forget_sets(w);
    resync_update_sets(w);
    for (struct set *s = w->sets; s; s = s->next) {
        s->active = wants(w, s);
        s->failed = s->young = s->unite = false;
        s->witness = -1;
        s->fetched = s->bytes = s->dropped = s->revised = s->held = 0;
        if (!s->active || w->mode == PERIODIC)
            continue;
        if (wire_sendf(node_wire(w->site[w->self].node), on_begun, w, "LANE.WHOLE BEGIN %s %s",
                       s->name, w->token))
            w->open++;
        else
            w->abandoned = true;
    }
}

/* A witness, or all the others; but for those of whom an admin says that they are dead, and
 * those in nobody's table. */
static void choose(struct resync *w)
{
    for (struct set *s = w->sets; s; s = s->next) {
        bool all = true;
        for (size_t i = 0; i < s->n && s->active; i++) {
            struct site *site = s->other[i] < 0 ? NULL : &w->site[s->other[i]];
            bool reached = site && !site->failed && node_ready(site->node);
            const char *token = reached ? resync_said(site, s->name) : NULL;
            s->without[i] = !reached && (s->other[i] < 0 ||
                                         config_list_has(&w->relay->config->dead,
                                                         w->relay->config->node[s->other[i]].name));
            all &= reached || s->without[i];
            if (token && s->witness < 0) {
                s->witness = s->other[i];
                snprintf(s->token, sizeof s->token, "%s", token);
            }
        }
        s->unite = s->witness < 0 && all && !s->whole;
        s->active &= s->witness >= 0 || s->unite;
    }
}

/* ---- ASK_AGAIN, ASK_LAST ---- */

static void judge(struct resync *w)
{
    for (struct set *s = w->sets; s; s = s->next) {
        if (!s->active || s->failed)
            continue;
        if (w->mode == PERIODIC && !s->held) {
            s->active = false;
            continue;
        }
        const char *token = s->witness >= 0 ? resync_said(&w->site[s->witness], s->name) : NULL;
        if (s->witness >= 0 && (w->site[s->witness].failed || !token || strcmp(token, s->token)))
            resync_fail_set(s, "the other owner is not whole any more");
        else if (w->mode == PERIODIC && !s->whole)
            resync_fail_set(s, "this node is not whole any more");
    }
    for (struct other_lane *t = w->there; t; t = t->next)
        if (w->mode == JOIN && t->place) {
            t->set->stale = true;
            t->set->active = false;
        }
}

/* ---- END ---- */

struct ending {
    struct resync *w;
    struct set *set;
};

static void on_end(struct wire *wire, redisReply *reply, void *arg)
{
    struct ending *e = arg;
    struct resync *w = e->w;
    if (!reply || reply->type != REDIS_REPLY_INTEGER)
        resync_fail_set(e->set, reply && reply->str ? reply->str
                                                    : "the connection to the own node was lost");
    else if (!reply->integer)
        resync_fail_set(e->set, "the own node lost what it held meanwhile");
    else
        e->set->checked = !e->set->young;
    free(e);
    resync_answered(w);
    resync_advance(w);
}

static void end(struct resync *w)
{
    for (struct set *s = w->sets; s && w->mode != PERIODIC; s = s->next) {
        if (!s->active || s->failed)
            continue;
        struct ending *e = mem_alloc(sizeof *e);
        *e = (struct ending){w, s};
        if (wire_sendf(node_wire(w->site[w->self].node), on_end, e, "LANE.WHOLE END %s %s", s->name,
                       w->token)) {
            w->open++;
            continue;
        }
        free(e);
        w->abandoned = true;
    }
    /* What follows from it is what the server says then. */
    struct site *own = &w->site[w->self];
    resync_ask_since(w); /* answered before the next one */
    if (wire_sendf(node_wire(own->node), on_whole, own, "LANE.WHOLE"))
        w->open++;
}

/* ---- one step after the other ---- */

static void enter(struct resync *w)
{
    switch (w->phase) {
    case DISCOVER: discover(w); break;
    case ASK:
        begin(w);
        ask(w);
        break;
    case LIST_HERE:
        choose(w);
        resync_list_here(w);
        break;
    case LIST_THERE: resync_list_there(w); break;
    case ASK_AGAIN: ask(w); break;
    case FETCH:
        judge(w);
        w->fetching = w->there;
        resync_fetch_next(w);
        break;
    case ASK_LAST: ask(w); break;
    case REVISE:
        judge(w);
        resync_reorder(w);
        resync_revise(w);
        break;
    case DROP: resync_drop(w); break;
    case END: end(w); break;
    case IDLE: break;
    }
}

void resync_advance(struct resync *w)
{
    while (!w->open && !w->closing && w->phase != IDLE) {
        if (w->abandoned || w->phase == END) {
            finish(w);
            return;
        }
        w->phase++;
        log_debug("comparing: %s", steps[w->phase]);
        w->open = 1; /* answers that come at once must not begin the next phase from within */
        enter(w);
        w->open--;
    }
}

static void start(struct resync *w, enum mode mode)
{
    const struct config *c = w->relay->config;
    w->mode = mode;
    w->began = clock_monotonic();
    w->min_age = mode == PERIODIC && c->compare_every > c->settle ? c->compare_every : c->settle;
    w->phase = IDLE + 1;
    w->open = 1;
    enter(w);
    resync_answered(w);
    resync_advance(w);
}

void resync_tick(struct relay *r, double now)
{
    struct resync *w = r->resync;
    struct role *d = r->role;
    if (role_turn(d) != w->turn) {
        w->turn = role_turn(d);
        w->compared = false;
        w->again = AGAIN_FIRST;
        w->not_before = 0.;
        w->abandoned = w->phase != IDLE;
        for (struct set *s = w->sets; s; s = s->next)
            s->checked = s->stale = false;
    }
    for (size_t i = 0; i < w->nsites; i++)
        if (node_ready(w->site[i].node) &&
            wire_standstill(node_wire(w->site[i].node)) > (double)r->config->dead_after / 1000.)
            node_drop(w->site[i].node, "no answer for dead_after");
    if (w->phase == IDLE && w->renamed) {
        w->renamed = false;
        resync_find_owners(w);
        resync_configure_sets(w);
        resync_update_sets(w);
    }
    if (w->phase != IDLE || now < w->not_before || !node_ready(w->site[w->self].node))
        return;
    if (role_state(d) == STATE_RETURNING) {
        if (role_settled(d, now) && (!w->compared || open_sets(w)))
            start(w, RETURN);
        return;
    }
    if (role_state(d) != STATE_ALIVE)
        return;
    bool joins = false;
    for (struct set *s = w->sets; s; s = s->next) {
        bool reached = true;
        for (size_t i = 0; i < s->n; i++)
            reached &= s->reach[i] != REACH_NOT;
        joins |= !s->whole && !s->ever && !s->lanes_here && !s->stale && reached;
    }
    if (joins)
        start(w, JOIN);
    else if (now >= w->periodic_at)
        start(w, PERIODIC);
}

/* A link to another node came back: what it was not told is compared soon. */
static void link_back(struct relay *r, double now)
{
    double soon = now + (double)r->config->settle / 1000.;
    if (r->resync->periodic_at > soon)
        r->resync->periodic_at = soon;
}

/* ---- sites ---- */

static void on_state(struct node *node, bool ready, bool new_life, void *arg)
{
    struct site *site = arg;
    /* What the own server is whole for is told with each beat, too: a connection alone that
     * broke is no FLUSHALL. */
    if (site->index != site->w->self || new_life)
        resync_forget_said(site);
    if (site->index == site->w->self && new_life)
        whole_sets_said(site->w->relay, NULL, 0);
    resync_update_sets(site->w);
    if (ready && site->index == site->w->self)
        resync_ask_since(site->w);
    if (ready && site->index != site->w->self)
        link_back(site->w->relay, clock_monotonic());
}

/* Of the nodes that the config has behind those of before. */
static void open_sites(struct resync *w)
{
    struct relay *r = w->relay;
    const struct config *c = r->config;
    while (w->nsites < c->nnodes) {
        size_t i = w->nsites++;
        struct site *site = &w->site[i];
        site->w = w;
        site->index = i;
        site->failed = true; /* for a comparison that is under way */
        site->node = node_open(r->loop, &(struct node_options){.name = c->node[i].name,
                                                               .link = config_node_link(c, i),
                                                               .purpose = "relay-compare",
                                                               .ping_every = NODE_PING,
                                                               .settle = c->settle,
                                                               .state = on_state,
                                                               .arg = site});
    }
}

void resync_close(struct resync *w)
{
    w->closing = true;
    if (w->backfill)
        backfill_close(w->backfill);
    w->backfill = NULL;
    for (size_t i = 0; i < w->nsites; i++) {
        node_close(w->site[i].node);
        resync_forget_said(&w->site[i]);
    }
    free(w->site);
    resync_free_lists(w);
    while (w->sets) {
        struct set *s = w->sets;
        w->sets = s->next;
        resync_free_set(s);
    }
    free(w->view);
    free(w);
}

void resync_reload(struct relay *r)
{
    open_sites(r->resync);
    r->resync->renamed = true;
}

struct resync *resync_open(struct relay *r)
{
    struct resync *w = mem_zero(sizeof *w);
    w->relay = r;
    w->again = AGAIN_FIRST;
    w->periodic_at = clock_monotonic() + (double)r->config->compare_every / 1000.;
    w->self = (size_t)config_node_index(r->config, r->node);
    /* answers on their way know their places */
    w->site = mem_zero(CONFIG_NODES_MAX * sizeof *w->site);
    open_sites(w);
    resync_configure_sets(w);
    return w;
}
