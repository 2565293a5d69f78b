/* A request's way: submitted, placed, answered, taken back. */
#include "lib/base/assert.h"
#include "lib/store/store_work.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/base/clock.h"
#include "lib/base/program_name.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/metrics.h"

#define POLL_AGAIN 0.05 /* seconds between two looks at an entry being revoked */
#define UNSENT_LEAST (32 << 20)
#define VAIN 20      /* times what a search for owners in vain took, it is not repeated */
#define VAIN_MOST 2. /* seconds of that, at most */

/* CLOCK_BOOTTIME goes on while the machine sleeps: a promise must not outlive a suspended laptop
 * or VM either. */
static int64_t boottime_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Every destination's entry has the body. */
static size_t request_bytes(const struct store_request *r)
{
    return r->body_len * r->nentries;
}

/* ---- a work's life ---- */

void work_unref(struct work *w)
{
    ASSERT(w->refs > 0);
    if (--w->refs)
        return;
    ASSERT(!w->request); /* the caller has gone on */
    for (size_t i = 0; i < w->nentries; i++)
        free(w->entry[i].lane);
    free(w);
}

void store_reason(struct entry_work *e, const char *format, ...)
{
    if (!e->entry)
        return;
    char text[sizeof e->entry->reason];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    memcpy(e->entry->reason, text, sizeof text);
}

static void stop_timers(struct work *w, bool limit_too)
{
    struct ev_loop *loop = w->store->loop;
    ev_timer_stop(loop, &w->deadline);
    ev_timer_stop(loop, &w->again);
    if (limit_too)
        ev_timer_stop(loop, &w->limit);
}

static void enter_live(struct work *w)
{
    struct store *s = w->store;
    w->live_prev = NULL;
    w->live_next = s->live;
    if (s->live)
        s->live->live_prev = w;
    s->live = w;
}

static void leave_live(struct work *w)
{
    if (w->live_next)
        w->live_next->live_prev = w->live_prev;
    if (w->live_prev)
        w->live_prev->live_next = w->live_next;
    else
        w->store->live = w->live_next;
    w->live_next = w->live_prev = NULL;
}

static void tell_caller(struct work *w)
{
    leave_live(w);
    w->request->done(w->request);
}

/* The caller is told when no entry is on its way to an outcome any more. The limit timer lives
 * on while something is stored and the caller still waits for another entry; afterwards the
 * caller's own look at the clock guards the promise. */
void store_entry_done(struct entry_work *e, enum store_outcome outcome)
{
    struct work *w = e->work;
    ASSERT(e->entry && (outcome == STORE_STORED) == (e->phase == PHASE_HELD));
    if (e->phase != PHASE_HELD)
        e->phase = PHASE_DONE;
    e->entry->outcome = outcome;
    if (outcome == STORE_STORED)
        metric_add(store_held, 1);
    for (size_t i = 0; i < w->nentries; i++)
        if (w->entry[i].phase == PHASE_STORING || w->entry[i].phase == PHASE_REVOKING)
            return;
    stop_timers(w, true);
    tell_caller(w);
}

static void revoke_held(struct work *w, const char *why)
{
    w->refs++;
    for (size_t i = 0; i < w->nentries; i++) {
        struct entry_work *e = &w->entry[i];
        if (e->phase != PHASE_HELD)
            continue;
        if (why)
            store_reason(e, "%s", why);
        store_revoke_start(e);
    }
    work_unref(w);
}

static void late_reason(struct entry_work *e)
{
    char text[120] = "";
    for (size_t i = 0; i < e->ncopies; i++)
        if (e->copy[i].state != COPY_ACKED)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", *text ? ", " : "",
                     node_name(e->copy[i].link->node));
    store_reason(e, "no answer in time from %s", *text ? text : "a restarted node");
}

static void count_late(const struct entry_work *e)
{
    for (size_t i = 0; i < e->ncopies; i++)
        if (e->copy[i].state != COPY_ACKED)
            store_count_refusal(e->copy[i].link, "timeout");
}

static void on_deadline(struct ev_loop *loop, ev_timer *t, int events)
{
    (void)loop, (void)events;
    struct work *w = t->data;
    w->refs++;
    for (size_t i = 0; i < w->nentries; i++)
        if (w->entry[i].phase == PHASE_STORING) {
            metric_add(store_refused, 1);
            late_reason(&w->entry[i]);
            count_late(&w->entry[i]);
            store_revoke_start(&w->entry[i]);
        }
    work_unref(w);
}

static void on_limit(struct ev_loop *loop, ev_timer *t, int events)
{
    (void)loop, (void)events;
    revoke_held(t->data, "another recipient's copy took too long");
}

static void on_again(struct ev_loop *loop, ev_timer *t, int events)
{
    (void)loop, (void)events;
    struct work *w = t->data;
    w->refs++;
    store_revoke_poll(w);
    work_unref(w);
}

void work_poll_later(struct work *w)
{
    if (ev_is_active(&w->again))
        return;
    ev_timer_set(&w->again, POLL_AGAIN, 0.);
    ev_timer_start(w->store->loop, &w->again);
}

/* ---- submission ---- */

/* What keeps the mail from being placed, where enough nodes can be used. */
static void why_not(struct store *s, const struct config_placement *p, bool bulk, char *out,
                    size_t size)
{
    static const char *const kind[] = {"nodes", "zones", "sites"};
    size_t domains = store_domains(s, p->over, bulk), most = 0;
    for (size_t i = 0; i < s->config->nnodes && p->kept; i++)
        most += store_node_usable(s, i, bulk) && store_watch_retains_most(s, i);
    if (most)
        snprintf(out, size, " (memory: %zu of them retain as much as replicated_memory allows)",
                 most);
    else if (p->over != SPREAD_OVER_NODE && domains < p->least)
        snprintf(out, size, " in %zu %s, spread_least = %zu,", domains, kind[p->over], p->least);
    else if (s->heard) /* takeover = automatic */
        snprintf(out, size,
                 " (but not together: they do not all hear each other yet, or are not whole)");
}

static void refuse_all(struct work *w, const struct config_placement *p, bool bulk)
{
    struct store *s = w->store;
    size_t usable = store_usable(s, bulk);
    char why[128] = "";
    if (usable >= (size_t)s->config->copies)
        why_not(s, p, bulk, why, sizeof why);
    else if (s->heard)
        snprintf(why, sizeof why, " (by their beats)");
    w->refs++;
    for (size_t i = 0; i < w->nentries; i++) {
        store_reason(&w->entry[i], "%zu of %zu nodes can be used%s, copies = %lld", usable,
                     s->config->nnodes, why, (long long)s->config->copies);
        store_entry_done(&w->entry[i], STORE_REFUSED);
    }
    work_unref(w);
}

static void owners_text(struct store_request *r, struct link *const *owner, size_t n)
{
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        const char *name = node_name(owner[i]->node);
        size_t k = strlen(name);
        if (len + k + 2 > sizeof r->owners)
            break;
        if (i)
            r->owners[len++] = '>';
        memcpy(r->owners + len, name, k);
        len += k;
    }
    r->owners[len] = '\0';
}

static bool is_ordered(const struct store *s, const struct store_entry *e)
{
    return config_destination(s->config, e->destination)->placement == PLACEMENT_ORDERED;
}

static bool any_ordered(const struct work *w)
{
    for (size_t i = 0; i < w->nentries; i++)
        if (is_ordered(w->store, w->entry[i].entry))
            return true;
    return false;
}

/* One list of owners for all of its entries: that of the strictest. */
static struct config_placement placement_of(const struct work *w)
{
    const struct config *c = w->store->config;
    struct config_placement all = {.site = "", .zone = ""};
    for (size_t i = 0; i < w->nentries; i++) {
        struct config_placement p =
            config_placement(c, config_destination(c, w->entry[i].entry->destination));
        if (i == 0)
            all = p;
        else
            config_placement_meet(&all, &p);
    }
    return all;
}

static void start_timers(struct work *w, double far)
{
    struct store *s = w->store;
    ev_now_update(s->loop);
    double gone = (double)(boottime_ns() - w->begun) / 1e9;
    size_t bytes = request_bytes(w->request);
    double limit = (double)config_promise(s->config, bytes) / 1000. - gone,
           acked = config_acked(s->config, bytes, far) - gone;
    ev_timer_set(&w->limit, limit > 0. ? limit : 0., 0.);
    ev_timer_set(&w->deadline, acked > 0. ? acked : 0., 0.);
    ev_timer_start(s->loop, &w->limit);
    ev_timer_start(s->loop, &w->deadline);
}

/* store_deadline for the farthest of the owners, seconds. */
static double farthest(const struct store *s, struct link *const *owner, size_t n)
{
    double most = 0.;
    for (size_t i = 0; i < n; i++) {
        double wanted = store_watch_time(s, owner[i]->index, FAR_STORE_DEADLINE);
        most = wanted > most ? wanted : most;
    }
    return most;
}

static void start_work(struct work *w)
{
    struct store *s = w->store;
    struct link *owner[LANENAME_OWNERS_MAX];
    const char *name[LANENAME_OWNERS_MAX];
    size_t n = (size_t)s->config->copies;
    enter_live(w);
    bool ordered = any_ordered(w), bulk = request_bytes(w->request) > (size_t)s->config->bulk_entry;
    struct config_placement p = placement_of(w);
    if (clock_monotonic() < s->search_at || /* not even the least could be met */
        !(ordered ? store_order_place(s, &p, bulk, owner) : store_place(s, &p, bulk, owner))) {
        refuse_all(w, &p, bulk || ordered);
        return;
    }
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++)
            ASSERT(owner[i]->index != owner[k]->index); /* each copy is on a node of its own */
    owners_text(w->request, owner, n);
    for (size_t i = 0; i < n; i++)
        name[i] = node_name(owner[i]->node);
    start_timers(w, farthest(s, owner, n));
    for (size_t i = 0; i < w->nentries; i++) {
        struct entry_work *e = &w->entry[i];
        e->generation = ordered && is_ordered(s, e->entry) ? store_order_generation(s) : 0;
        e->lane = lanename_make(e->entry->destination, name, n, store_order_origin(s),
                                e->generation, is_ordered(s, e->entry) ? NULL : e->entry->class);
        e->ncopies = n;
        metric_add(store_entries, 1);
        for (size_t k = 0; k < n; k++) {
            e->copy[k] =
                (struct copy){.entry = e, .link = owner[k], .born = node_life(owner[k]->node)};
            store_push_queue(&e->copy[k]);
        }
    }
}

static void do_queued(struct store *s)
{
    struct work *w = s->queue, *next;
    s->queue = NULL;
    s->queue_last = &s->queue;
    for (; w; w = next) {
        next = w->next;
        if (!w->request) { /* store_finish */
            work_unref(w);
        } else if (!w->submitted) {
            w->submitted = true;
            start_work(w);
        } else { /* store_revoke */
            enter_live(w);
            revoke_held(w, NULL);
        }
    }
    store_push_flush(s);
}

/* Until nothing is left: a refusal is answered at once, and the caller's next step may be queued
 * by that. */
static void on_turn(struct ev_loop *loop, ev_prepare *p, int events)
{
    (void)loop, (void)events;
    struct store *s = p->data;
    while (s->queue)
        do_queued(s);
}

static void queue(struct work *w)
{
    struct store *s = w->store;
    w->next = NULL;
    *s->queue_last = w;
    s->queue_last = &w->next;
    ev_feed_event(s->loop, &s->turn, EV_CUSTOM);
}

void store_submit(struct store *s, struct store_request *r)
{
    struct work *w = mem_zero(sizeof *w + r->nentries * sizeof w->entry[0]);
    w->store = s;
    w->request = r;
    w->refs = 1;
    w->nentries = r->nentries;
    w->begun = boottime_ns();
    w->answer_limit = w->begun + config_promise(s->config, request_bytes(r)) * 1000000;
    ev_init(&w->deadline, on_deadline);
    ev_init(&w->limit, on_limit);
    ev_init(&w->again, on_again);
    w->deadline.data = w->limit.data = w->again.data = w;
    for (size_t i = 0; i < r->nentries; i++) {
        struct store_entry *e = &r->entry[i];
        entryid_make(e->id);
        e->outcome = STORE_PENDING;
        e->reason[0] = '\0';
        w->entry[i].work = w;
        w->entry[i].entry = e;
        memcpy(w->entry[i].id, e->id, ENTRYID_LEN);
    }
    r->owners[0] = '\0';
    r->state = w;
    queue(w);
}

static bool anything_stored(const struct store_request *r)
{
    for (size_t i = 0; i < r->nentries; i++)
        if (r->entry[i].outcome == STORE_STORED)
            return true;
    return false;
}

/* False: in time, or nothing is promised. */
static bool too_late(struct store_request *r)
{
    struct work *w = r->state;
    if (!anything_stored(r) || boottime_ns() <= w->answer_limit)
        return false;
    for (size_t i = 0; i < r->nentries; i++)
        if (r->entry[i].outcome == STORE_STORED)
            snprintf(r->entry[i].reason, sizeof r->entry[i].reason,
                     "this process stood still for too long");
    return true;
}

bool store_check(struct store *s, struct store_request *r)
{
    (void)s;
    bool late = too_late(r);
    if (late)
        queue(r->state);
    return !late;
}

bool store_revoke(struct store *s, struct store_request *r)
{
    (void)s;
    bool held = anything_stored(r);
    if (held)
        queue(r->state);
    return held;
}

void store_finish(struct store *s, struct store_request *r)
{
    (void)s;
    struct work *w = r->state;
    if (!w)
        return;
    r->state = NULL;
    w->request = NULL;
    for (size_t i = 0; i < w->nentries; i++) {
        ASSERT(w->entry[i].entry);
        w->entry[i].entry = NULL;
    }
    queue(w);
}

/* ---- opening ---- */

static void on_node(struct node *n, bool ready, bool new_life, void *arg)
{
    (void)n;
    struct link *l = arg;
    if (!ready)
        return;
    if (new_life && !l->bulk)
        store_watch_restarted(l->store, l->index);
    /* Revocations first: an id that is taken back must not be stored again by what follows. */
    store_revoke_again(l);
    store_push_again(l);
}

/* Of many nodes that do not fit together a search in vain looks at very many sets: it has one part
 * in VAIN of the time. */
static bool can_place(struct store *s)
{
    struct link *owner[LANENAME_OWNERS_MAX];
    double began = clock_monotonic();
    if (began < s->search_at || store_usable(s, false) < (size_t)s->config->copies)
        return false;
    bool able = store_place(s, &s->least, false, owner);
    double now = clock_monotonic(), wait = VAIN * (now - began);
    s->search_at = able ? 0. : now + (wait < VAIN_MOST ? wait : VAIN_MOST);
    return able;
}

static void on_watch(struct ev_loop *loop, ev_timer *t, int events)
{
    (void)loop, (void)events;
    struct store *s = t->data;
    size_t owed = 0;
    for (size_t i = 0; i < s->nlinks; i++)
        owed += s->link[i].nowed;
    atomic_store(&s->owed, owed);
    store_watch_look(s);
    store_look_behind(s);
    store_order_look(s);
    bool able = can_place(s);
    atomic_store(&s->able, able);
    metric_set(store_able, able);
    atomic_fetch_add(&s->beat, 1);
}

/* Where not even this can be met, no mail can be stored. */
static struct config_placement least_placement(const struct config *c)
{
    struct config_placement least = config_placement(c, &c->other);
    for (size_t i = 0; i < c->ndestinations; i++) {
        struct config_placement p = config_placement(c, &c->destination[i]);
        if (p.over < least.over || (p.over == least.over && p.least < least.least))
            least = p;
    }
    least.kept = false;
    return least;
}

static void open_links(struct store *s)
{
    s->nlinks = 2 * s->config->nnodes;
    s->link = mem_zero(s->nlinks * sizeof *s->link);
    for (size_t i = 0; i < s->nlinks; i++) {
        struct link *l = &s->link[i];
        l->store = s;
        l->bulk = i & 1;
        l->index = i / 2;
        l->outbox_last = &l->outbox;
        l->owed_last = &l->owed;
        struct node_options o = {
            .name = s->config->node[l->index].name,
            .link = config_node_link(s->config, l->index),
            .purpose = l->bulk ? "store-bulk" : "store",
            .ping_every = l->bulk ? 0 : NODE_PING,
            .settle = s->config->settle,
            .state = on_node,
            .arg = l,
        };
        l->node = node_open(s->loop, &o);
    }
}

/* All copies of what the program holds at one time count against its memory, so one node's share
 * is no more than a part. What waits beyond that was given up at its deadline, and its
 * connection has not taken it yet: nothing else bounds that. */
static size_t unsent_most(const struct config *c)
{
    int64_t all = strcmp(program_name(), "dovelane-proxy") ? c->milter_memory : c->proxy_memory,
            share = all / c->copies;
    return (size_t)(share > UNSENT_LEAST ? share : UNSENT_LEAST);
}

struct store *store_open_on(struct ev_loop *loop, const struct config *c, const char *origin,
                            char **error_r)
{
    if (origin && config_node_index(c, origin) < 0) {
        *error_r = mem_printf("there is no node %s in the config", origin);
        return NULL;
    }
    struct store *s = mem_zero(sizeof *s);
    s->config = c;
    s->origin = origin ? config_node_index(c, origin) : -1;
    s->loop = loop;
    s->unsent_most = unsent_most(c);
    s->least = least_placement(c);
    s->full_until = mem_zero((c->nnodes + 1) * sizeof *s->full_until);
    s->behind = mem_zero((c->nnodes + 1) * sizeof *s->behind);
    s->queue_last = &s->queue;
    ev_prepare_init(&s->turn, on_turn);
    /* Never started, but fed with the lowest priority: behind all that the loop has in hand in
     * this turn. What runs in the prepare watchers' own turn comes too late: connections write
     * in theirs, and one that is started by then waits for the next event. */
    ev_set_priority(&s->turn, EV_MINPRI);
    s->turn.data = s;
    ev_timer_init(&s->watch, on_watch, 0.05, 0.1);
    s->watch.data = s;
    ev_timer_start(s->loop, &s->watch);
    open_links(s);
    store_watch_open(s);
    store_order_open(s);
    return s;
}

void store_gauges(struct store *s)
{
    for (size_t i = 0; i < s->config->nnodes; i++) {
        double rtt = s->config->node[i].dropped ? -1. : store_watch_rtt(s, i);
        metric_series_set(metric_series(METRIC_node_rtt_seconds, s->config->node[i].name, NULL),
                          rtt < 0. ? METRIC_UNKNOWN : (long long)(rtt * 1e6));
        metric_series_set(metric_series(METRIC_node_usable, s->config->node[i].name, NULL),
                          s->config->node[i].dropped ? METRIC_UNKNOWN
                                                     : store_node_usable(s, i, false));
    }
}

bool store_able(struct store *s)
{
    return atomic_load(&s->able);
}

size_t store_pending_revokes(struct store *s)
{
    return atomic_load(&s->owed);
}

unsigned long store_tick(struct store *s)
{
    return atomic_load(&s->beat);
}
