#include "relay/retained/retained_looks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/metrics.h"
#include "relay/acks/owners.h"
#include "relay/delivery/connections.h"
#include "relay/delivery/delivery_log.h"
#include "relay/delivery/mail.h"
#include "relay/delivery/retry.h"
#include "relay/intake/memory_pressure.h"
#include "relay/intake/stall.h"
#include "relay/retained/site_links.h"
#include "relay/tables/destinations.h"
#include "relay/tables/retained.h"

#define TICK 0.1 /* seconds */
#define MEMORY_EVERY 1.
#define EASED 95         /* percent of its part, where a destination is below it again */
#define LET_GO_MOST 1000 /* at one time */
#define BATCH 100        /* entries looked at with one GET */
#define OPEN_MOST 4      /* GETs under way */
#define SOON 1.          /* seconds until what could not be done now is looked at again */
/* So often a state that has not lost its disk says "unknown" of a mail that was delivered there
 * twice, each time to another question. Some may be of before the second delivery: one in the lane,
 * one at a worker, and one that was taken and whose ACK was lost. */
#define DOUBTS_ENOUGH 5
#define MOVES_MOST 50 /* mails that are delivered anew at one time */

struct retained_looks {
    struct relay *relay;
    ev_timer tick;
    size_t open, moving;
    double ticked, memory_at;
    double never_told; /* the log says what mail that is never known may be */
    /* since when this relay has not stood still: before that it knows nothing of silence */
    double steady;
};

struct look {
    struct relay *relay;
    struct lane *lane;
    size_t n;
    unsigned char id[BATCH][ENTRYID_LEN];
};

/* One that is fetched with its body, to be delivered anew. */
struct redo {
    struct relay *relay;
    struct lane *lane;
    unsigned char id[ENTRYID_LEN];
    size_t n; /* recipients */
    unsigned char *what, *hop;
};

static const struct config_destination *settings_of(const struct relay *r, const struct retained *k)
{
    return config_destination(r->config, k->lane->parsed.destination);
}

/* ---- asking ---- */

static void ask(struct relay *r, struct retained *k)
{
    for (size_t i = 0; i < k->nrecipients; i++) {
        struct retained_recipient *to = &k->recipient[i];
        struct disk_question q = {.sites = (unsigned)settings_of(r, k)->sites};
        if (to->safe || to->unknown || to->never)
            continue;
        to->asked = true;
        memcpy(q.guid, to->guid, sizeof q.guid);
        snprintf(q.node, sizeof q.node, "%s", r->node);
        snprintf(q.rcpt, sizeof q.rcpt, "%s", to->address);
        site_links_ask(r, to->site, &q);
    }
}

static void observe(const struct retained_recipient *to)
{
    double passed = (double)(clock_wall() - to->delivered) / 1e6;
    if (to->delivered)
        metric_observe(metric_series(METRIC_safe_seconds, to->of->lane->parsed.destination, NULL),
                       passed);
}

/* The site has the mail with a 250, twice, and its disk was not lost in between: it is where no
 * replicator looks, or without its id. To deliver it again and again would help nobody. */
static bool is_never_known(struct relay *r, struct retained_recipient *to,
                           const struct disk_answer *a)
{
    if (!to->lost || to->lost_site != a->site || to->lost_epoch != a->epoch)
        return false;
    if (!to->asked)
        return true;
    to->asked = false;
    if (++to->doubts < DOUBTS_ENOUGH)
        return true;
    to->never = true;
    metric_add(relay_never_known, 1);
    double now = clock_monotonic();
    if (r->retained_looks->never_told && now - r->retained_looks->never_told < 60.)
        return true;
    r->retained_looks->never_told = now;
    log_warning("site %s took mail twice and does not know it, for <%s> and maybe others. It is "
                "let go, and is there without Dovelane's id, or where nothing is replicated. See "
                "dovelane_group_key_file, Sieve, recipient_delimiter",
                site_links_name(r, to->site), to->address);
    return true;
}

static void hear(struct relay *r, struct retained_recipient *to, const struct disk_answer *a)
{
    if (to->safe || (!a->safe && (to->unknown || to->never || to->site != a->site)))
        return;
    if (a->safe) {
        to->safe = true;
        observe(to);
    } else if (is_never_known(r, to, a)) {
        if (!to->never)
            return;
    } else {
        to->unknown = to->lost = true;
        to->lost_site = a->site;
        to->lost_epoch = a->epoch;
        metric_add(relay_site_lost, 1);
        if (site_links_may_tell(r, to->site))
            log_warning("site %s does not have mail that it took, for <%s> and maybe others: it is "
                        "delivered anew. Has it lost its disk, or no dovelane_group_key_file?",
                        site_links_name(r, to->site), to->address);
    }
    if (!to->of->looking && (to->unknown || retained_is_done(to->of)))
        retained_look_in(r, to->of, 0.);
}

/* A client may have named one recipient twice. */
static void on_answer(struct relay *r, const struct disk_answer *a)
{
    struct retained_recipient *to = retained_by_guid(r, a->guid);
    for (; to; to = retained_same_guid(to))
        hear(r, to, a);
}

/* ---- is its site away? ---- */

static bool link_is_away(const struct relay *r, uint32_t site, double wait)
{
    return site_links_silence(r, site) >= wait;
}

static bool host_is_away(struct destination *at, double wait)
{
    if (!at->down)
        destination_try(at); /* nobody may have needed it for long */
    return at->down && clock_monotonic() - at->down_since >= wait;
}

static bool is_away(struct relay *r, const struct retained *k, uint32_t site, double wait)
{
    unsigned n;
    struct destination *at = destination_at_site(k->lane->destination, site, &n);
    return link_is_away(r, site, wait) || (at && host_is_away(at, wait));
}

/* The next host of the list behind that of a site, whose own site is there. */
static bool next_host(struct relay *r, const struct retained *k, uint32_t site, double wait,
                      unsigned char *hop_r)
{
    struct destination *all = k->lane->destination, *at;
    unsigned from = 0, n = 0;
    while (destination_hop(all, n))
        n++;
    if (!destination_at_site(all, site, &from))
        from = n - 1;
    for (unsigned i = 1; i <= n; i++) {
        unsigned hop = (from + i) % n;
        at = destination_hop(all, hop);
        uint32_t there = destination_site(at);
        if (!there || there == site || at->further || !destination_may_answer(at) ||
            link_is_away(r, there, wait))
            continue;
        *hop_r = (unsigned char)hop;
        return true;
    }
    return false;
}

/* ---- delivering anew ---- */

static void free_redo(struct redo *m)
{
    m->relay->retained_looks->moving--;
    m->lane->commands--;
    free(m->what);
    free(m->hop);
    free(m);
}

/* What was moved out of the reply into an entry (into_flight) is NULL there. */
static bool well_formed(const redisReply *e)
{
    return e->type == REDIS_REPLY_ARRAY && e->elements >= 8 &&
           e->element[1]->type == REDIS_REPLY_STRING && e->element[1]->len == ENTRYID_LEN &&
           e->element[5] && e->element[5]->type == REDIS_REPLY_STRING && e->element[7]->str;
}

/* An entry that was read, and not taken. */
static struct entry *into_flight(struct relay *r, struct lane *lane, redisReply *e, size_t holder)
{
    struct entry *entry =
        inflight_add(r, lane, (unsigned char *)e->element[1]->str, e->element[holder]);
    e->element[holder] = NULL;
    entry->generation = owners_generation(r);
    entry->revision = (uint32_t)e->element[2]->integer;
    entry->failed_leases = e->element[3]->integer;
    entry->stored_at = clock_boottime() - (double)e->element[4]->integer / 1000.;
    return entry;
}

static bool may_begin(const struct relay *r, const struct lane *lane)
{
    return !r->stopping && !stall_now(r) && lane->ownership == OWNERSHIP_OURS &&
           lane->destination && !lane->moving;
}

static void on_fetched(struct wire *w, redisReply *reply, void *arg)
{
    struct redo *m = arg;
    struct relay *r = m->relay;
    struct retained *k = retained_find(r, m->id);
    redisReply *e = reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 1
                        ? reply->element[0]
                        : NULL;
    if (k && k->looking)
        retained_look_in(r, k, SOON);
    if (k && e && well_formed(e) && e->element[6]->type == REDIS_REPLY_STRING &&
        !memcmp(e->element[1]->str, m->id, ENTRYID_LEN) && may_begin(r, m->lane) &&
        !inflight_find(r, m->id)) {
        char *meta = mem_dup(e->element[5]->str, (size_t)e->element[5]->len);
        size_t len = (size_t)e->element[5]->len;
        struct entry *entry = into_flight(r, m->lane, e, 6);
        entry->redo = m->what;
        entry->hop = m->hop;
        entry->nredo = m->n;
        m->what = m->hop = NULL;
        mail_begin(entry, meta, len);
        free(meta);
    }
    free_redo(m);
}

static void fetch(struct relay *r, struct redo *m)
{
    if (!wire_sendf(owners_wire(r), on_fetched, m, "LANE.GET %b IDS 1 %b", m->lane->name,
                    m->lane->name_len, m->id, (size_t)ENTRYID_LEN))
        on_fetched(NULL, NULL, m);
}

/* By the schedule of a mail that was deferred: a site that never has what it took, for whatever
 * reason, is not flooded. Seconds. */
static double due_in(const struct relay *r, const struct retained *k,
                     const struct retained_recipient *to, const struct envelope *env)
{
    struct retry_policy p = {r->config->retry_first * 1000, r->config->retry_most * 1000};
    int64_t age = to->delivered > env->arrived ? to->delivered - env->arrived : 0;
    int64_t due = to->delivered + retry_wait(&p, k->id, age, to->attempts), now = clock_wall();
    return !to->delivered || due <= now ? 0.
           : due - now > p.most         ? (double)p.most / 1e6
                                        : (double)(due - now) / 1e6;
}

static void tell_away(struct relay *r, uint32_t site, double wait)
{
    if (site_links_may_tell(r, site))
        log_warning("site %s is away for more than %.0f s: the next host gets what it took, too",
                    site_links_name(r, site), wait);
}

/* Whether anything is to be delivered anew; where it is too early for that, *later_r says when, in
 * seconds. */
static bool choose(struct relay *r, const struct retained *k, const struct envelope *env,
                   struct redo *m, double *later_r)
{
    double wait = (double)settings_of(r, k)->replicated_wait / 1000., now = clock_monotonic();
    double since = k->moved_at > k->since ? k->moved_at : k->since;
    bool patient = now - since < wait || now - r->retained_looks->steady < wait, any = false;
    for (size_t i = 0; i < k->nrecipients; i++) {
        const struct retained_recipient *to = &k->recipient[i];
        double due = to->unknown ? due_in(r, k, to, env) : 0.;
        if (to->safe || to->never)
            continue;
        if (due > *later_r)
            *later_r = due;
        if (to->unknown) {
            m->what[to->index] = due > 0. ? REDO_NONE : REDO_LOST;
        } else if (!patient && is_away(r, k, to->site, wait) &&
                   next_host(r, k, to->site, wait, &m->hop[to->index])) {
            m->what[to->index] = REDO_AWAY;
            tell_away(r, to->site, wait);
        }
        any |= m->what[to->index] != REDO_NONE;
    }
    return any;
}

static bool has_room(struct relay *r, struct destination *to)
{
    return r->retained_looks->moving <= MOVES_MOST &&
           to->in_flight < (size_t)r->config->destination_in_flight && !destination_is_away(to);
}

/* True: it is begun with, or has to wait for that, and is not asked for meanwhile. */
static bool redo(struct relay *r, struct retained *k, const struct envelope *env)
{
    double later = 0.;
    struct redo *m = mem_zero(sizeof *m);
    *m = (struct redo){.relay = r, .lane = k->lane, .n = env->nrecipients};
    memcpy(m->id, k->id, ENTRYID_LEN);
    m->what = mem_zero(env->nrecipients);
    m->hop = mem_zero(env->nrecipients);
    m->lane->commands++;
    r->retained_looks->moving++;
    bool any = choose(r, k, env, m, &later);
    if (any && has_room(r, k->lane->destination)) {
        for (size_t i = 0; i < m->n; i++)
            if (m->what[i] == REDO_AWAY) {
                k->moved_at = clock_monotonic();
                metric_add(relay_site_away, 1);
            }
        fetch(r, m);
        return true;
    }
    free_redo(m);
    if (!any && later <= 0.)
        return false;
    retained_look_in(r, k, any ? SOON : later);
    return true;
}

/* ---- looking ---- */

static void end_it(struct relay *r, struct retained *k, redisReply *e)
{
    /* The META is what is known of it: there is no body. */
    char *meta = mem_dup(e->element[5]->str, (size_t)e->element[5]->len);
    size_t len = (size_t)e->element[5]->len;
    struct lane *lane = k->lane;
    retained_look_in(r, k, SOON);
    struct entry *entry = into_flight(r, lane, e, 5);
    entry->bodyless = true;
    mail_begin(entry, meta, len);
    free(meta);
}

/* What an admin wants with a retained mail: deleting it is all that there is. */
static bool is_marked(struct relay *r, struct retained *k, const struct envelope *env)
{
    if (!(env->marks & ENVELOPE_DELETED))
        return false;
    lanes_mark(r, k->lane);
    retained_look_in(r, k, retained_interval(settings_of(r, k)));
    return true;
}

static void no_more_replicated(const struct relay *r, struct retained *k)
{
    if (settings_of(r, k)->until == UNTIL_REPLICATED || k->let_go)
        return;
    k->let_go = "until";
}

static void judge(struct relay *r, struct retained *k, redisReply *e)
{
    struct envelope env;
    if (!strcmp(e->element[7]->str, "leased")) { /* by this relay, in a moment */
        retained_look_in(r, k, SOON);
        return;
    }
    if (envelope_decode(e->element[5]->str, (size_t)e->element[5]->len, &env)) {
        retained_drop(r, k);
        return;
    }
    if (!envelope_is_retained(&env) || !retained_see(r, k, &env)) {
        retained_drop(r, k); /* it waits again, or another relay changed it: TAKE brings it */
    } else if (k->looking && !is_marked(r, k, &env)) {
        no_more_replicated(r, k);
        if (retained_is_done(k))
            end_it(r, k, e);
        else if ((env.marks & ENVELOPE_HELD) || !redo(r, k, &env)) {
            ask(r, k);
            retained_look_in(r, k, retained_interval(settings_of(r, k)));
        }
    }
    envelope_free(&env);
}

static redisReply *answer_about(const redisReply *reply, const unsigned char *id)
{
    for (size_t i = 0; i < reply->elements; i++)
        if (well_formed(reply->element[i]) &&
            !memcmp(reply->element[i]->element[1]->str, id, ENTRYID_LEN))
            return reply->element[i];
    return NULL;
}

/* The answers are in the order of the questions, without those that are not held. */
static void on_look(struct wire *w, redisReply *reply, void *arg)
{
    struct look *l = arg;
    struct relay *r = l->relay;
    bool good = reply && reply->type == REDIS_REPLY_ARRAY;
    r->retained_looks->open--;
    l->lane->commands--;
    for (size_t i = 0; i < l->n; i++) {
        struct retained *k = retained_find(r, l->id[i]);
        redisReply *e = good ? answer_about(reply, l->id[i]) : NULL;
        if (!k || !k->looking)
            continue;
        if (!good || inflight_find(r, l->id[i]) || r->stopping || stall_now(r) || l->lane->moving)
            retained_look_in(r, k, SOON);
        else if (!e || l->lane->ownership != OWNERSHIP_OURS || !l->lane->destination)
            retained_drop(r, k); /* gone, or another relay's: it asks */
        else
            judge(r, k, e);
    }
    free(l);
}

static bool may_look(struct relay *r)
{
    return !r->stopping && r->retained_looks->open < OPEN_MOST && owners_ready(r) &&
           !owners_refused(r) && !stall_now(r);
}

/* Those of one lane, of what is due. */
static bool look(struct relay *r)
{
    double now = clock_monotonic();
    struct retained *k = retained_next(r, now);
    if (!k)
        return false;
    struct look *l = mem_alloc(sizeof *l);
    *l = (struct look){.relay = r, .lane = k->lane};
    do
        memcpy(l->id[l->n++], k->id, ENTRYID_LEN);
    while (l->n < BATCH && (k = retained_next(r, now)) && k->lane == l->lane);
    if (l->n < BATCH && k)
        retained_look_in(r, k, 0.);
    const char *v[5 + BATCH] = {"LANE.GET", l->lane->name, "IDS"};
    size_t len[5 + BATCH] = {8, l->lane->name_len, 3};
    char count[24];
    len[3] = (size_t)snprintf(count, sizeof count, "%zu", l->n);
    v[3] = count;
    for (size_t i = 0; i < l->n; i++) {
        v[4 + i] = (const char *)l->id[i];
        len[4 + i] = ENTRYID_LEN;
    }
    v[4 + l->n] = "NOBODY";
    len[4 + l->n] = 6;
    r->retained_looks->open++;
    l->lane->commands++;
    if (!wire_send(owners_wire(r), on_look, l, (int)(5 + l->n), v, len)) {
        on_look(NULL, NULL, l);
        return false;
    }
    return true;
}

void retained_looks_run(struct relay *r)
{
    struct retained *k;
    if (!r->retained->count || r->stopping)
        return;
    while ((k = retained_fresh(r))) {
        ask(r, k);
        retained_look_in(r, k, retained_interval(settings_of(r, k)));
    }
    while (may_look(r) && look(r))
        ;
    site_links_flush(r);
}

/* ---- memory ---- */

struct held {
    const struct relay *relay;
    long long most; /* maxmemory of the own node */
    bool let_go;    /* some destination is above its part, and lets go */
    bool full;      /* or keeps: the ways in are to divert no more of that kind here */
};

/* Each of an owner's `copies` places among the owners is another relay's: so many share its
 * memory. */
static long long part_of(const struct relay *r, const struct config_destination *d, long long most)
{
    return most / 100 * d->replicated_memory / r->config->copies;
}

static void see_memory(struct destination *d, void *arg)
{
    struct held *h = arg;
    const struct config_destination *settings = config_destination(h->relay->config, d->name);
    const struct lane *lane;
    long long bytes = 0;
    TAILQ_FOREACH (lane, &d->lanes, beside)
        bytes += (long long)lane->retained_bytes;
    long long part = part_of(h->relay, settings, h->most), over = bytes - part;
    d->retained_over = over > 0 ? over : 0;
    if (settings->replicated_away == AWAY_KEEP)
        h->full |= bytes > (d->retained_told ? part / 100 * EASED : part);
    if (bytes <= part / 100 * EASED)
        d->retained_told = false;
    if (!d->retained_over)
        return;
    h->let_go |= settings->replicated_away == AWAY_LET_GO;
    if (!d->retained_told)
        log_warning("destination %s: more mail is retained than replicated_memory = %lld%% allows: "
                    "%s",
                    d->name, (long long)settings->replicated_memory,
                    settings->replicated_away == AWAY_LET_GO
                        ? "the oldest is let go"
                        : "is a site away? Postfix's queue takes new mail until there is room");
    d->retained_told = true;
}

/* Those that have waited for long enough, oldest first. */
static void let_go(struct relay *r)
{
    double now = clock_monotonic();
    size_t n = 0;
    for (struct retained *k = TAILQ_FIRST(&r->retained->oldest), *next; k && n < LET_GO_MOST;
         k = next) {
        const struct config_destination *d = settings_of(r, k);
        struct destination *to = k->lane->destination;
        next = TAILQ_NEXT(k, by_age);
        if (k->let_go || !to || to->retained_over <= 0 || d->replicated_away != AWAY_LET_GO ||
            now - k->since < (double)d->replicated_wait / 1000.)
            continue;
        to->retained_over -= (long long)k->bytes;
        k->let_go = "away";
        n++;
        if (!k->looking)
            retained_look_in(r, k, 0.);
    }
}

static void look_at_memory(struct relay *r)
{
    struct held h = {.relay = r, .most = pressure_own_most(r)};
    if (r->retained->count && h.most)
        destinations_each(r, see_memory, &h);
    r->retained->full = h.full;
    if (h.let_go)
        let_go(r);
}

/* ---- opening ---- */

static void on_tick(struct ev_loop *loop, ev_timer *t, int events)
{
    struct retained_looks *s = t->data;
    double now = clock_monotonic();
    if (now - s->ticked > (double)s->relay->config->suspect_after / 1000.)
        s->steady = now;
    s->ticked = now;
    if (now - s->memory_at < MEMORY_EVERY)
        return;
    s->memory_at = now;
    look_at_memory(s->relay);
}

void retained_looks_reload(struct relay *r)
{
    site_links_reload(r);
}

void retained_looks_open(struct relay *r)
{
    struct retained_looks *s = mem_zero(sizeof *s);
    r->retained_looks = s;
    s->relay = r;
    s->ticked = s->steady = clock_monotonic();
    ev_timer_init(&s->tick, on_tick, TICK, TICK);
    s->tick.data = s;
    ev_timer_start(r->loop, &s->tick);
    site_links_open(r, on_answer);
}

void retained_looks_close(struct relay *r)
{
    ev_timer_stop(r->loop, &r->retained_looks->tick);
    site_links_close(r);
    free(r->retained_looks);
    r->retained_looks = NULL;
}
