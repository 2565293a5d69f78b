/* lost_lanes - lists the own server's lanes, chooses the new owners of those that lost one, and
 * leaves out for a while what was tried in vain. */
#include "relay/repair/lost_lanes.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "relay/cluster/cluster_view.h"
#include "relay/repair/lane_scan.h"
#include "relay/repair/resync.h"
#include "relay/tables/inflight.h"
#include "relay/tables/lane_pause.h"

#define ASIDE_MOST 16   /* times compare_every */
#define STEPS_MOST 5000 /* sets of owners that are looked at for one lane */

/* A lane that was tried in vain: each attempt sends its bodies, so it is left out for a while,
 * longer each time. What came of it lies on the others until they compare. */
struct aside {
    struct aside *next;
    char *name;
    size_t len;
    double wait, until;
};

/* Also of one that is interrupted: what was moved is moved. */
static void lost_lane_free(struct lost_lane *j)
{
    if (j->ordered)
        lane_freeze(j->ordered, false);
    if (j->moved)
        log_of(LOG_LEVEL_INFO, LOG_FIELD_lane, j->name,
               "node %s is lost for good: %zu of %zu mails were copied, and lie in %s now", j->lost,
               j->moved, j->n, j->to_name);
    free(j->name);
    free(j->to_name);
    free(j->lost);
    free(j->wanted);
    free(j);
}

void lost_lanes_drop(struct lost_lanes *l)
{
    struct lost_lane *j = l->first;
    l->first = j->next;
    lost_lane_free(j);
}

void lost_lanes_clear(struct lost_lanes *l)
{
    while (l->first)
        lost_lanes_drop(l);
}

static struct aside *find_aside(const struct lost_lanes *l, const char *name, size_t len)
{
    struct aside *a = l->asides;
    while (a && (a->len != len || memcmp(a->name, name, len)))
        a = a->next;
    return a;
}

void lost_lanes_forget_asides(struct lost_lanes *l)
{
    while (l->asides) {
        struct aside *a = l->asides;
        l->asides = a->next;
        free(a->name);
        free(a);
    }
}

void lost_lanes_set_aside(struct lost_lanes *l, const char *why)
{
    const struct lost_lane *j = l->first;
    double first = (double)l->relay->config->compare_every / 1000.;
    struct aside *a = find_aside(l, j->name, j->len);
    if (!a) {
        log_of(LOG_LEVEL_WARNING, LOG_FIELD_lane, j->name,
               "node %s is lost for good: %s; it stays on fewer than `copies` nodes "
               "until that is otherwise, and is tried again now and then",
               j->lost, why);
        a = mem_zero(sizeof *a);
        a->name = mem_strndup(j->name, j->len);
        a->len = j->len;
        a->wait = first / 2.;
        a->next = l->asides;
        l->asides = a;
    }
    a->wait = a->wait < ASIDE_MOST * first ? 2. * a->wait : a->wait;
    a->until = clock_monotonic() + a->wait;
}

static bool is_in(const struct lost_lane *j, size_t node)
{
    for (size_t i = 0; i < j->nowners; i++)
        if (j->owner[i] == node)
            return true;
    return false;
}

bool lost_lane_fits(const struct lost_lanes *l, const struct lost_lane *j)
{
    const struct config *c = l->relay->config;
    const char *name[LANENAME_OWNERS_MAX];
    double now = clock_monotonic();
    for (size_t i = 0; i < j->nowners; i++)
        name[i] = c->node[j->owner[i]].name;
    for (size_t i = 0; i < j->nowners; i++) {
        bool own = !strcmp(name[i], l->relay->node);
        if ((!own && !cluster_mutual(l->relay, j->owner[i], now)) ||
            !resync_wire(l->relay, j->owner[i]) ||
            !resync_node_is_whole(l->relay, j->owner[i], name, j->nowners))
            return false;
    }
    return true;
}

static size_t domains_of(const struct config *c, const struct lost_lane *j, int over)
{
    size_t n = 0;
    for (size_t i = 0; i < j->nowners; i++) {
        bool again = false;
        for (size_t k = 0; k < i && !again; k++)
            again = config_domain(c, j->owner[k], over) == config_domain(c, j->owner[i], over);
        n += !again;
    }
    return n;
}

struct filling {
    size_t n; /* owners in the end */
    int over;
    size_t domains; /* so many different ones */
    long steps;     /* that are left */
};

/* The nodes behind this one in the file, one after the other, for each place that is free. */
static bool fill_places(struct lost_lanes *l, struct lost_lane *j, struct filling *f, size_t from)
{
    const struct config *c = l->relay->config;
    if (domains_of(c, j, f->over) + (f->n - j->nowners) < f->domains)
        return false;
    if (j->nowners == f->n)
        return lost_lane_fits(l, j);
    size_t self = (size_t)config_node_index(c, l->relay->node);
    for (size_t k = from; k < c->nnodes; k++) {
        size_t node = (self + k) % c->nnodes;
        if (is_in(j, node) || !cluster_mutual(l->relay, node, clock_monotonic()))
            continue;
        if (--f->steps < 0)
            return false;
        j->owner[j->nowners++] = node;
        if (fill_places(l, j, f, k + 1))
            return true;
        j->nowners--;
    }
    return false;
}

/* The survivors in their order, then those that take the places of the lost ones: in as many
 * zones or sites as can be, and rather in too few of them than on too few nodes. */
static bool choose(struct lost_lanes *l, struct lost_lane *j, const struct lanename *lane)
{
    const struct config *c = l->relay->config;
    struct filling f = {
        .n = lane->nowners,
        .over = config_placement(c, config_destination(c, lane->destination)).over,
        .steps = STEPS_MOST,
    };
    bool found = false;
    for (size_t i = 0; i < lane->nowners; i++) {
        int node = config_node_index(c, lane->owner[i]);
        if (!cluster_lost_for_good(l->relay, node, clock_monotonic()))
            j->owner[j->nowners++] = (size_t)node;
        else if (!j->lost)
            j->lost = mem_strdup(lane->owner[i]);
    }
    for (f.domains = f.n; j->lost && !found && f.domains > 0; f.domains--)
        found = fill_places(l, j, &f, 1);
    return found;
}

/* The first mails of an ordered lane must not be in one lane, and those behind them in another:
 * both would be delivered at a time. */
static bool hold_ordered(struct lost_lanes *l, struct lost_lane *j)
{
    struct lane *lane = lanes_get(l->relay, j->name, j->len);
    /* One that vanished and came again meanwhile is listed twice. */
    if (lane->ownership != OWNERSHIP_OURS || lane->frozen || !lane_is_quiet(lane))
        return false;
    j->ordered = lane;
    lane_freeze(lane, true);
    return true;
}

static void *on_lane(const char *name, size_t len, const struct lanename *parsed, void *arg)
{
    struct lost_lanes *l = arg;
    const char *owner[LANENAME_OWNERS_MAX];
    size_t place;
    const struct aside *aside = find_aside(l, name, len);
    if (cluster_judge(l->relay, parsed, &place) != OWNERSHIP_OURS ||
        (aside && clock_monotonic() < aside->until))
        return NULL;
    struct lost_lane *j = mem_zero(sizeof *j);
    if (!choose(l, j, parsed)) {
        if (j->lost && !l->said) {
            log_warning("node %s is lost for good: its mail stays on fewer than `copies` nodes, "
                        "since no other node is alive and whole",
                        j->lost);
            l->said = true;
        }
        lost_lane_free(j);
        return NULL;
    }
    for (size_t i = 0; i < j->nowners; i++)
        owner[i] = l->relay->config->node[j->owner[i]].name;
    j->name = mem_strndup(name, len);
    j->len = len;
    j->to_name = lanename_make(parsed->destination, owner, j->nowners, parsed->origin,
                               parsed->generation, parsed->class);
    j->to_len = strlen(j->to_name);
    if (parsed->generation && !hold_ordered(l, j)) {
        lost_lane_free(j);
        return NULL;
    }
    j->next = l->first;
    l->first = j;
    return j;
}

/* What is younger than settle may be undecided: it comes with the next round. */
static void on_ids(void *lane, const struct scanned_entry *e, size_t n, void *arg)
{
    struct lost_lanes *l = arg;
    struct lost_lane *j = lane;
    for (size_t i = 0; i < n; i++, j->place++) {
        if (e[i].age < l->relay->config->settle || inflight_find(l->relay, e[i].id)) {
            j->unfit = true;
            continue;
        }
        if (j->n == j->size) {
            j->size = j->size ? 2 * j->size : 256;
            j->wanted = mem_grow(j->wanted, j->size * sizeof *j->wanted);
        }
        j->wanted[j->n] =
            (struct missing_entry){e[i].sequence, e[i].revision, (uint32_t)j->place, {0}};
        memcpy(j->wanted[j->n++].id, e[i].id, ENTRYID_LEN);
    }
}

/* Ordered lanes come first: nothing is taken from them meanwhile. */
static void sort_lanes(struct lost_lanes *l)
{
    struct lost_lane *ordered = NULL, *others = NULL, **last = &ordered, **end = &others;
    for (struct lost_lane *j = l->first; j; j = j->next) {
        struct lost_lane ***to = j->ordered ? &last : &end;
        **to = j;
        *to = &j->next;
    }
    *end = NULL;
    *last = others;
    l->first = ordered;
}

static void drop_unfit(struct lost_lanes *l)
{
    for (struct lost_lane **at = &l->first; *at;) {
        struct lost_lane *j = *at;
        bool large = j->n > (size_t)l->relay->config->refill_block;
        if (!j->ordered || !(j->unfit || large)) {
            at = &j->next;
            continue;
        }
        if (large && !l->said)
            log_of(LOG_LEVEL_WARNING, LOG_FIELD_lane, j->name,
                   "node %s is lost for good: its %zu mails stay on fewer than `copies` "
                   "nodes until they are at most refill_block = %lld. An ordered lane is copied as "
                   "a whole",
                   j->lost, j->n, (long long)l->relay->config->refill_block);
        l->said |= large;
        *at = j->next;
        lost_lane_free(j);
    }
}

static void on_listed(const char *trouble, void *arg)
{
    struct lost_lanes *l = arg;
    l->scan = NULL;
    if (!trouble) {
        drop_unfit(l);
        sort_lanes(l);
    }
    l->listed(trouble, l->arg);
}

void lost_lanes_list(struct lost_lanes *l, struct wire *own)
{
    static const struct lane_scan_calls calls = {on_lane, on_ids, on_listed};
    l->scan = lane_scan_open(own, &calls, l);
}

void lost_lanes_close(struct lost_lanes *l)
{
    if (l->scan)
        lane_scan_close(l->scan);
    l->scan = NULL;
    lost_lanes_clear(l);
}

bool lost_lane_is_lost(const struct lost_lanes *l, const struct lost_lane *j)
{
    struct lanename lane;
    bool gone = true;
    if (!lanename_parse(j->name, j->len, &lane))
        return false;
    for (size_t i = 0; i < lane.nowners; i++) {
        int node = config_node_index(l->relay->config, lane.owner[i]);
        gone &= (node >= 0 && is_in(j, (size_t)node)) ||
                cluster_lost_for_good(l->relay, node, clock_monotonic());
    }
    lanename_free(&lane);
    return gone;
}
