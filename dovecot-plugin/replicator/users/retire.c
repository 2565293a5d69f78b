/* retire - tells the other sites who was forgotten, until each has said that it knows. */
#include "dovecot-plugin/replicator/users/retire.h"

#include <stdlib.h>
#include <string.h>

#include "dovecot-plugin/replicator/lanes/outbox.h"
#include "dovecot-plugin/replicator/site/ledger.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/metrics.h"

#define PAGE 200       /* users of whom one site is told at a time */
#define LOOK_EVERY 1.  /* seconds */
#define AGAIN_EVERY 1. /* a site that shows that it does not know */
/* A peer may name so many users as forgotten between two turns of the loop. */
#define HEARD_MOST 1000
#define ROWS_MOST 4000000 /* of retired origins, of all names */
/* Of one name, by peers' words. The rest is for what is said here: no peer can have that go. */
#define TOLD_MOST (PARCEL_ORIGINS_MAX / 4 * 3)

/* What a site told, and is to hear the end of. */
struct heard {
    TAILQ_ENTRY(heard) link;
    char *name;
    size_t peer;
    struct orset_buf origins;
};
TAILQ_HEAD(heards, heard);

struct retire {
    struct replicator *r;
    bool any; /* some site does not know of somebody */
    struct heards heard;
    size_t nheard;
    uint64_t rows;                                     /* of retired origins */
    double wait[FRAME_SITES_MAX], at[FRAME_SITES_MAX]; /* until all is told again */
    char *last[FRAME_SITES_MAX];                       /* so far that goes now; NULL: it does not */
    double said;
    ev_timer look;
};

static void count(struct retire *t)
{
    uint64_t n = ledger_count_untold(t->r->ledger);
    t->any = n > 0;
    metric_set(replicator_untold, (long long)n);
}

/* ---- telling ---- */

static void send(struct replicator *r, const char *name, size_t peer, enum parcel_kind kind,
                 struct text origins)
{
    const struct frame_parcel f = {.site = r->group.peer[peer].site, .kind = kind, .body = origins};
    if (origins.n > 0 && outbox_ready(r->outbox, peer))
        outbox_send(r->outbox, name, peer, &f);
}

static void tell(struct replicator *r, const char *name, size_t peer)
{
    struct orset_buf b = {.alloc = &replicator_heap};
    ledger_get_retired(r->ledger, name, &b);
    send(r, name, peer, PARCEL_RETIRE, (struct text){b.data, b.len});
    orset_buf_free(&b);
}

struct page {
    struct replicator *r;
    size_t peer;
    char *last;
};

static void tell_one(void *arg, const char *name, uint64_t ops, int64_t since)
{
    struct page *p = arg;
    (void)ops, (void)since;
    tell(p->r, name, p->peer);
    free(p->last);
    p->last = mem_strdup(name);
}

static void tell_page(struct retire *t, size_t peer)
{
    struct page p = {t->r, peer, t->last[peer]};
    uint64_t site = t->r->group.peer[peer].site;
    bool more = ledger_each_untold(t->r->ledger, site, p.last, PAGE, tell_one, &p) == PAGE;
    t->last[peer] = p.last;
    if (!more) {
        free(t->last[peer]);
        t->last[peer] = NULL;
    }
}

void retire_resend(struct retire *t, size_t peer)
{
    t->at[peer] = t->wait[peer] = 0;
}

/* A page at a time, since others wait for this loop. While a site does not answer, the more seldom
 * the longer; and not at all while what it was told lies in its lane. */
static void on_look(struct ev_loop *loop, ev_timer *timer, int events)
{
    (void)loop, (void)events;
    struct retire *t = timer->data;
    struct replicator *r = t->r;
    double now = clock_monotonic(), least = seconds(r->config->resend_after),
           most = seconds(r->config->resend_most);
    for (size_t i = 0; t->any && !r->stopping && i < r->group.npeers; i++) {
        if (r->group.peer[i].removed || !outbox_ready(r->outbox, i))
            continue;
        if (!t->last[i]) {
            if (now < t->at[i] || (t->wait[i] > 0 && !outbox_answered(r->outbox, i)))
                continue;
            t->wait[i] = t->wait[i] == 0 ? least : t->wait[i] * 2 < most ? t->wait[i] * 2 : most;
            t->at[i] = now + t->wait[i];
            t->last[i] = mem_strdup("");
        }
        tell_page(t, i);
    }
}

void retire_tell_again(struct user *u, size_t peer)
{
    if (replicator_may_say(&u->peer[peer].told_again, AGAIN_EVERY))
        tell(u->r, u->name, peer);
}

/* ---- who is forgotten ---- */

static void mark_untold(struct retire *t, const char *name, size_t peer, bool untold)
{
    struct replicator *r = t->r;
    struct user *u = user_find(r->users, name, strlen(name));
    uint64_t site = r->group.peer[peer].site, ops;
    int64_t since;
    if (r->group.peer[peer].removed)
        return;
    ledger_untold(r->ledger, site, name, untold);
    ledger_get_unconfirmed(r->ledger, site, name, &ops, &since);
    if (u)
        u->peer[peer].untold = untold;
    if (!u && !untold && ops > 0)
        u = user_get(r->users, name, strlen(name));
    if (u && !untold && ops > 0) /* what had to wait goes now */
        user_want(u, peer, FRAME_SHIP_CONFIRMED);
    else if (u)
        user_plan(u);
}

/* Returns how many are new. */
static size_t write_down(struct retire *t, const char *name, struct text origins)
{
    uint64_t had = ledger_count_retired(t->r->ledger, name);
    size_t anew = ledger_retire(t->r->ledger, name, origins);
    t->rows += ledger_count_retired(t->r->ledger, name) - had;
    return anew;
}

/* but: a site that knows, by its index; npeers: none does */
static void mark_others(struct retire *t, const char *name, size_t but)
{
    for (size_t i = 0; i < t->r->group.npeers; i++)
        if (i != but)
            mark_untold(t, name, i, true);
    count(t);
}

/* Of him alone: of the others they were told. */
static void tell_others(struct retire *t, const char *name, size_t but)
{
    struct replicator *r = t->r;
    double again = clock_monotonic() + seconds(r->config->resend_after);
    for (size_t i = 0; i < r->group.npeers; i++) {
        if (i == but || r->group.peer[i].removed)
            continue;
        if (!outbox_ready(r->outbox, i)) {
            retire_resend(t, i);
            continue;
        }
        tell(r, name, i);
        t->at[i] = t->at[i] < again ? t->at[i] : again;
    }
}

int retire_user(struct user *u)
{
    struct replicator *r = u->r;
    struct orset_buf b = {.alloc = &replicator_heap};
    ledger_get_origins(r->ledger, u->name, &b);
    if (b.len == 0)
        return 0;
    write_down(r->retire, u->name, (struct text){b.data, b.len});
    orset_buf_free(&b);
    mark_others(r->retire, u->name, r->group.npeers);
    if (!ledger_flush(r->ledger))
        return -1;
    tell_others(r->retire, u->name, r->group.npeers);
    return 1;
}

bool retire_gone(struct user *u)
{
    struct replicator *r = u->r;
    if (!ledger_is_retired(r->ledger, u->name))
        return false;
    /* Of the state's vector only this site's own: another one may be of the present user, where
     * that one's ops came here too early. */
    struct orset_buf all = {.alloc = &replicator_heap}, own = {.alloc = &replicator_heap};
    ledger_get_origins(r->ledger, u->name, &all);
    struct text t = {all.data, all.len};
    for (size_t i = 0; i < t.n / FRAME_ORIGIN; i++)
        if (frame_origin_at(t, i).site == r->group.self)
            frame_put_origin(&own, frame_origin_at(t, i));
    if (write_down(r->retire, u->name, (struct text){own.data, own.len}) > 0) {
        mark_others(r->retire, u->name, r->group.npeers);
        tell_others(r->retire, u->name, r->group.npeers);
    }
    orset_buf_free(&all);
    orset_buf_free(&own);
    return true;
}

/* ---- what other sites tell ---- */

static void heard_free(struct retire *t, struct heard *h)
{
    TAILQ_REMOVE(&t->heard, h, link);
    t->nheard--;
    orset_buf_free(&h->origins);
    free(h->name);
    free(h);
}

/* It knows all that is retired here. */
static void knows(struct retire *t, const char *name, size_t peer, struct text told)
{
    struct orset_buf b = {.alloc = &replicator_heap};
    ledger_get_retired(t->r->ledger, name, &b);
    bool all = true;
    struct text here = {b.data, b.len};
    for (size_t i = 0; i < here.n / FRAME_ORIGIN; i++)
        all = all && frame_has_origin(told, frame_origin_at(here, i));
    if (all && ledger_is_untold(t->r->ledger, t->r->group.peer[peer].site, name)) {
        mark_untold(t, name, peer, false);
        log_info("user=%s: that he was forgotten is known to replica %s", name,
                 t->r->group.peer[peer].name);
        count(t);
    }
    orset_buf_free(&b);
}

/* Whether these, too, are remembered. Else they are not confirmed: none goes for them, since a peer
 * that names many could have the true ones forgotten, whose mails would then be the present
 * user's. */
static bool has_room(struct retire *t, const char *name, size_t peer, struct text origins)
{
    struct orset_buf b = {.alloc = &replicator_heap};
    ledger_get_retired(t->r->ledger, name, &b);
    struct text here = {b.data, b.len};
    size_t anew = 0;
    for (size_t i = 0; i < origins.n / FRAME_ORIGIN; i++)
        anew += !frame_has_origin(here, frame_origin_at(origins, i));
    orset_buf_free(&b);
    bool all = t->rows + anew > ROWS_MOST, his = here.n / FRAME_ORIGIN + anew > TOLD_MOST;
    if (anew == 0 || (!all && !his))
        return true;
    if (replicator_may_say(&t->said, 60.))
        log_error("user=%s: replica %s says that more users of %s were forgotten than are "
                  "remembered here, %d origins: they are not taken",
                  name, t->r->group.peer[peer].name, his ? "this name" : "all names",
                  his ? TOLD_MOST : ROWS_MOST);
    return false;
}

void retire_came(struct retire *t, struct text name, const struct parcel_in_flight *p)
{
    size_t n;
    if (parcel_origins(p->body, &n) < 0) {
        if (replicator_may_say(&t->said, 60.))
            log_error("replica %s: a malformed parcel about a user who was forgotten is dropped",
                      t->r->group.peer[p->peer].name);
        return;
    }
    char *user = mem_strndup((const char *)name.p, name.n);
    if (p->kind == PARCEL_RETIRED || t->nheard >= HEARD_MOST) {
        if (p->kind == PARCEL_RETIRED)
            knows(t, user, p->peer, p->body);
        free(user);
        return;
    }
    if (!has_room(t, user, p->peer, p->body)) {
        free(user);
        return;
    }
    struct heard *h = mem_zero(sizeof *h);
    *h = (struct heard){.name = user, .peer = p->peer, .origins = {.alloc = &replicator_heap}};
    orset_buf_put(&h->origins, p->body.p, p->body.n);
    TAILQ_INSERT_TAIL(&t->heard, h, link);
    t->nheard++;
    if (write_down(t, user, p->body) == 0)
        return;
    log_warning("user=%s: was forgotten at replica %s: what is here of him is not replicated any "
                "more",
                user, t->r->group.peer[p->peer].name);
    mark_others(t, user, p->peer);
    tell_others(t, user, p->peer);
    struct user *u = user_find(t->r->users, user, strlen(user));
    if (!u && ledger_knows(t->r->ledger, user))
        u = user_get(t->r->users, user, strlen(user));
    if (u) { /* whether his state is of the one who was forgotten */
        user_look(u, "", "", 0);
        user_ask_userdb(u);
    }
}

void retire_run(struct retire *t)
{
    if (TAILQ_EMPTY(&t->heard))
        return;
    bool written = ledger_flush(t->r->ledger);
    struct heard *h;
    while ((h = TAILQ_FIRST(&t->heard))) {
        if (written) /* else it is told again */
            send(t->r, h->name, h->peer, PARCEL_RETIRED,
                 (struct text){h->origins.data, h->origins.len});
        heard_free(t, h);
    }
}

/* ---- all of it ---- */

void retire_load(struct user *u)
{
    const struct replicator *r = u->r;
    for (size_t i = 0; r->retire->any && i < r->group.npeers; i++)
        u->peer[i].untold = ledger_is_untold(r->ledger, r->group.peer[i].site, u->name);
}

void retire_remove_peer(struct retire *t)
{
    count(t);
}

struct retire *retire_open(struct replicator *r)
{
    struct retire *t = mem_zero(sizeof *t);
    t->r = r;
    TAILQ_INIT(&t->heard);
    t->rows = ledger_count_retired(r->ledger, NULL);
    count(t);
    ev_timer_init(&t->look, on_look, LOOK_EVERY, LOOK_EVERY);
    t->look.data = t;
    ev_timer_start(r->loop, &t->look);
    return t;
}

void retire_close(struct retire *t)
{
    if (!t)
        return;
    while (!TAILQ_EMPTY(&t->heard))
        heard_free(t, TAILQ_FIRST(&t->heard));
    ev_timer_stop(t->r->loop, &t->look);
    for (size_t i = 0; i < FRAME_SITES_MAX; i++)
        free(t->last[i]);
    free(t);
}
