/* questions - a table by user, and one request to a worker for all that is asked of him. */
#include "dovecot-plugin/replicator/users/questions.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/metrics.h"
#include "dovecot-plugin/replicator/lanes/outbox.h"
#include "dovecot-plugin/replicator/site/ledger.h"

#define QUESTIONS_MAX 50000 /* in memory; beyond, the one that was asked longest ago goes */
#define FORGOTTEN 100.  /* seconds after a question was asked last: three times a relay's wait */
#define LOOK_AGAIN 300. /* seconds after which what a worker found is asked of one again */
#define EVERY 10.       /* seconds */
#define BUCKETS 4096
#define DETAIL '+' /* in an address: LMTP delivers without what follows */

struct asker;

struct question {
    TAILQ_ENTRY(question) in_asker;
    TAILQ_ENTRY(question) in_all; /* by asked_at */
    struct asker *asker;
    struct disk_question is;
    double asked_at, looked_at;
    bool leased; /* it lies in the lane still */
    bool wanted; /* a worker is to be asked */
    bool sent;   /* ... and is */
    bool here;   /* on this site's disk, as a worker found last */
    /* by peer: the epoch of which it confirmed the mail, 0: it did not */
    uint64_t confirmed[];
};
TAILQ_HEAD(question_list, question);

/* A request to a worker. It outlives its asker. */
struct inquiry {
    struct admin_request request;
    struct questions *all;
    struct asker *asker; /* NULL: nobody asks any more */
    uint64_t epoch;      /* of the state, as the worker said; 0: not yet */
};

/* All that is asked of one user. */
struct asker {
    LIST_ENTRY(asker) in_hash;
    char *name;
    struct question_list questions;
    uint64_t number; /* of its ASK_DISKs */
    uint64_t epoch;  /* of this site's state, as a worker said last; 0: none did */
    struct inquiry *look;
};
LIST_HEAD(asker_list, asker);

struct questions {
    struct replicator *r;
    size_t n;
    struct question_list all;
    struct asker_list bucket[BUCKETS];
    double said, said_sites;
    bool closing;
    ev_timer every;
};

static uint64_t random_number(void)
{
    uint64_t n;
    if (getrandom(&n, sizeof n, 0) != sizeof n)
        log_fatal("getrandom failed");
    return n;
}

/* ---- the table ---- */

static struct asker_list *bucket_of(struct questions *t, const char *name, size_t n)
{
    return &t->bucket[orset_hash(name, n).lo % BUCKETS];
}

static struct asker *find(struct questions *t, const char *name, size_t n)
{
    struct asker *a;
    LIST_FOREACH (a, bucket_of(t, name, n), in_hash)
        if (strlen(a->name) == n && !memcmp(a->name, name, n))
            return a;
    return NULL;
}

static struct asker *get(struct questions *t, const char *name)
{
    struct asker *a = find(t, name, strlen(name));
    if (a)
        return a;
    a = mem_zero(sizeof *a);
    a->name = mem_strdup(name);
    a->number = random_number();
    TAILQ_INIT(&a->questions);
    LIST_INSERT_HEAD(bucket_of(t, name, strlen(name)), a, in_hash);
    return a;
}

/* If nothing is asked of him any more. */
static void drop_asker(struct asker *a)
{
    if (!TAILQ_EMPTY(&a->questions))
        return;
    if (a->look)
        a->look->asker = NULL;
    LIST_REMOVE(a, in_hash);
    free(a->name);
    free(a);
}

static void let_go(struct questions *t, struct question *q)
{
    if (q->leased)
        asked_let_go(t->r->asked, &q->is);
    q->leased = false;
}

/* Its asker stays. */
static void drop(struct questions *t, struct question *q)
{
    ASSERT(t->n > 0);
    TAILQ_REMOVE(&q->asker->questions, q, in_asker);
    TAILQ_REMOVE(&t->all, q, in_all);
    free(q);
    metric_set(replicator_questions_open, (long long)--t->n);
}

static void drop_oldest(struct questions *t)
{
    struct question *q = TAILQ_FIRST(&t->all);
    struct asker *a = q->asker;
    let_go(t, q);
    drop(t, q);
    drop_asker(a);
}

static struct question *same(struct asker *a, const struct disk_question *is)
{
    struct question *q;
    TAILQ_FOREACH (q, &a->questions, in_asker)
        if (!strcmp(q->is.guid, is->guid) && !strcmp(q->is.node, is->node))
            return q;
    return NULL;
}

static struct question *add(struct questions *t, struct asker *a, const struct disk_question *is)
{
    size_t npeers = t->r->group.npeers;
    struct question *q = mem_zero(sizeof *q + npeers * sizeof *q->confirmed);
    q->asker = a;
    q->is = *is;
    TAILQ_INSERT_TAIL(&a->questions, q, in_asker);
    TAILQ_INSERT_TAIL(&t->all, q, in_all);
    metric_set(replicator_questions_open, (long long)++t->n);
    if (!ev_is_active(&t->every))
        ev_timer_again(t->r->loop, &t->every);
    return q;
}

/* ---- what counts ---- */

static bool counts(const struct questions *t, size_t peer)
{
    return !t->r->group.peer[peer].removed;
}

/* This site and others that have it on the disk are enough. */
static bool is_enough(struct questions *t, const struct question *q)
{
    unsigned n = 1;
    for (size_t i = 0; i < t->r->group.npeers; i++)
        n += q->confirmed[i] != 0 && counts(t, i);
    return n >= q->is.sites;
}

/* That site is heard with this epoch: what it confirmed in another one does not count any more. */
static void hear(struct asker *a, size_t peer, uint64_t epoch)
{
    struct question *q;
    TAILQ_FOREACH (q, &a->questions, in_asker)
        if (q->confirmed[peer] != epoch)
            q->confirmed[peer] = 0;
}

/* This site's state is another one than before: nobody has confirmed anything to it. */
static void begin_anew(struct questions *t, struct asker *a, uint64_t epoch)
{
    struct question *q;
    if (a->epoch != 0 && a->epoch != epoch) {
        a->number = random_number();
        TAILQ_FOREACH (q, &a->questions, in_asker)
            memset(q->confirmed, 0, t->r->group.npeers * sizeof *q->confirmed);
    }
    a->epoch = epoch;
}

/* ---- asking the other sites ---- */

static void put_guid(struct orset_buf *b, const char *hex)
{
    for (size_t i = 0; i < PARCEL_GUID; i++) {
        char byte[3] = {hex[2 * i], hex[2 * i + 1], '\0'};
        orset_buf_u8(b, (uint8_t)strtoul(byte, NULL, 16));
    }
}

static void ask_site(struct questions *t, struct asker *a, size_t peer)
{
    struct replicator *r = t->r;
    const struct user *u = user_find(r->users, a->name, strlen(a->name));
    struct orset_buf guids = {.alloc = &replicator_heap}, body = {.alloc = &replicator_heap};
    const struct question *q;
    size_t n = 0;
    if (!counts(t, peer) || (u && user_keeps_from(&u->peer[peer])) ||
        !outbox_ready(r->outbox, peer) || !outbox_may_try(r->outbox, peer))
        return;
    TAILQ_FOREACH (q, &a->questions, in_asker)
        if (q->here && q->confirmed[peer] == 0 && n < PARCEL_GUIDS_MAX) {
            put_guid(&guids, q->is.guid);
            n++;
        }
    if (n > 0 && !guids.failed) {
        const struct parcel_guids g = {.asked = a->number, .n = n, .guid = guids.data};
        parcel_put_guids(&body, PARCEL_ASK_DISK, &g);
        const struct frame_parcel f = {.site = r->group.peer[peer].site,
                                       .kind = PARCEL_ASK_DISK,
                                       .body = {body.data, body.len}};
        if (!body.failed)
            (void)outbox_send(r->outbox, a->name, peer, &f);
    }
    orset_buf_free(&guids);
    orset_buf_free(&body);
}

static void ask_sites(struct questions *t, struct asker *a)
{
    for (size_t i = 0; i < t->r->group.npeers; i++)
        ask_site(t, a, i);
}

/* ---- asking a worker ---- */

static void look(struct questions *t, struct asker *a);

static void free_look(struct inquiry *l)
{
    for (size_t i = 0; i < l->request.n; i++)
        free(l->request.arg[i]);
    if (l->asker)
        l->asker->look = NULL;
    free(l);
}

static void answer(struct questions *t, struct question *q, bool safe)
{
    asked_answer(t->r->asked, &q->is, q->asker->epoch, safe);
    drop(t, q);
}

/* What a worker found of it. */
static void found(struct questions *t, struct question *q, const char *word)
{
    q->sent = false;
    q->looked_at = clock_monotonic();
    q->here = !strcmp(word, ON_DISK_HERE);
    if (!strcmp(word, ON_DISK_REMOVED) || (q->here && is_enough(t, q))) {
        answer(t, q, true);
        return;
    }
    if (!strcmp(word, ON_DISK_UNKNOWN)) {
        answer(t, q, false);
        return;
    }
    let_go(t, q);
    if (q->is.sites > t->r->group.npeers + 1 && replicator_may_say(&t->said_sites, 60.))
        log_warning("a relay of %s wants mails on %u sites, and the group has %zu: it is not "
                    "answered",
                    q->is.node, q->is.sites, t->r->group.npeers + 1);
}

/* "epoch HEX", or "GUID WORD". */
static void on_row(struct admin_request *request, struct text row)
{
    struct inquiry *l = (struct inquiry *)request;
    static const char epoch[] = "epoch ";
    char text[64];
    if (!l->asker || row.n >= sizeof text)
        return;
    memcpy(text, row.p, row.n);
    text[row.n] = '\0';
    char *word = strchr(text, ' ');
    if (!strncmp(text, epoch, sizeof epoch - 1)) {
        l->epoch = strtoull(text + sizeof epoch - 1, NULL, 16);
        begin_anew(l->all, l->asker, l->epoch);
        return;
    }
    if (!word || word - text != DISK_GUID_HEX - 1 || l->epoch == 0)
        return;
    *word++ = '\0';
    for (struct question *q = TAILQ_FIRST(&l->asker->questions), *next; q; q = next) {
        next = TAILQ_NEXT(q, in_asker);
        if (q->sent && !strcmp(q->is.guid, text))
            found(l->all, q, word);
    }
}

/* What Dovecot calls him is known by now: his parcels come under that name. */
static struct asker *rename_asker(struct questions *t, struct asker *a, const char *name)
{
    struct question *q;
    if (!strcmp(a->name, name))
        return a;
    struct asker *to = get(t, name);
    if (a->epoch != 0)
        begin_anew(t, to, a->epoch);
    while ((q = TAILQ_FIRST(&a->questions))) {
        TAILQ_REMOVE(&a->questions, q, in_asker);
        TAILQ_INSERT_TAIL(&to->questions, q, in_asker);
        q->asker = to;
    }
    drop_asker(a);
    return to;
}

/* Of what the worker did not say nothing is known; the relay asks again. */
static void unsaid(struct questions *t, struct asker *a)
{
    struct question *q;
    TAILQ_FOREACH (q, &a->questions, in_asker) {
        if (q->sent)
            let_go(t, q);
        q->sent = false;
    }
}

static void on_done(struct admin_request *request, const struct frame_done *d)
{
    struct inquiry *l = (struct inquiry *)request;
    struct questions *t = l->all;
    struct asker *a = l->asker;
    (void)d;
    if (a) {
        a->look = NULL;
        l->asker = NULL;
        unsaid(t, a);
        a = rename_asker(t, a, request->user->name);
        ask_sites(t, a);
        look(t, a);
        drop_asker(a);
    }
    free_look(l);
}

/* An address with a detail is delivered to the user without it. NULL: it has none. */
static char *without_detail(const char *name)
{
    const char *at = strrchr(name, '@'), *detail = strchr(name, DETAIL);
    if (!detail || detail == name || (at && detail > at))
        return NULL;
    return mem_printf("%.*s%s", (int)(detail - name), name, at ? at : "");
}

/* Nobody here has that name, as far as the userdb says. */
static void nobody(struct questions *t, struct asker *a)
{
    char *other = without_detail(a->name);
    struct question *q;
    if (other) {
        a = rename_asker(t, a, other);
        TAILQ_FOREACH (q, &a->questions, in_asker)
            q->wanted = q->wanted || q->looked_at == 0;
        look(t, a);
        free(other);
        return;
    }
    if (replicator_may_say(&t->said, 60.))
        log_warning("user=%s: a relay asks for a mail of his, and he is not replicated here: it is "
                    "not answered",
                    a->name);
    while ((q = TAILQ_FIRST(&a->questions))) {
        let_go(t, q);
        drop(t, q);
    }
    drop_asker(a);
}

static void on_failed(struct admin_request *request, const char *why, bool later)
{
    struct inquiry *l = (struct inquiry *)request;
    struct asker *a = l->asker;
    (void)why;
    if (a && !l->all->closing) {
        a->look = NULL;
        l->asker = NULL;
        unsaid(l->all, a);
        if (!later)
            nobody(l->all, a);
    }
    free_look(l);
}

/* One request at a time for what is wanted. */
static void look(struct questions *t, struct asker *a)
{
    static const struct admin_calls calls = {on_row, on_done, on_failed};
    struct replicator *r = t->r;
    struct question *q;
    if (a->look || t->closing)
        return;
    struct user *u = NULL;
    struct inquiry *l = NULL;
    TAILQ_FOREACH (q, &a->questions, in_asker) {
        if (!q->wanted || (l && l->request.n > ON_DISK_GUIDS))
            continue;
        if (!l) {
            if (!(u = user_get(r->users, a->name, strlen(a->name))))
                return; /* too many are in memory; it is asked again */
            l = mem_zero(sizeof *l);
            l->all = t;
            l->asker = a;
            l->request.user = u;
            l->request.calls = &calls;
            l->request.arg[l->request.n++] = mem_strdup(ON_DISK_VERB);
        }
        q->wanted = false;
        q->sent = true;
        l->request.arg[l->request.n++] = mem_strdup(q->is.guid);
    }
    if (!l)
        return;
    a->look = l;
    TAILQ_INSERT_TAIL(&u->admin, &l->request, link);
    user_plan(u);
}

/* ---- what comes ---- */

static void came(struct replicator *r, const struct disk_question *is)
{
    struct questions *t = r->questions;
    size_t n = strlen(is->rcpt);
    double now = clock_monotonic();
    struct user *u =
        frame_user_ok((const uint8_t *)is->rcpt, n) ? user_get(r->users, is->rcpt, n) : NULL;
    if (!u) {
        asked_let_go(r->asked, is);
        return;
    }
    if (!r->asked_for) {
        r->asked_for = true;
        ledger_note(r->ledger, LEDGER_ASKED_FOR, 1);
    }
    struct asker *a = get(t, u->name);
    struct question *q = same(a, is);
    if (!q && t->n >= QUESTIONS_MAX)
        drop_oldest(t); /* if that was his last one, he is another one now */
    a = get(t, u->name);
    q = q ? q : add(t, a, is);
    q->is = *is; /* sites may be another number than before */
    q->asked_at = now;
    q->leased = true;
    TAILQ_REMOVE(&t->all, q, in_all);
    TAILQ_INSERT_TAIL(&t->all, q, in_all);
    if (q->here && now - q->looked_at < LOOK_AGAIN && !is_enough(t, q)) {
        let_go(t, q);
        ask_sites(t, a);
        return;
    }
    q->wanted = !q->sent;
    look(t, a);
}

const struct asked_calls questions_from_asked = {came};

static void hex_of(const uint8_t *guid, char hex[DISK_GUID_HEX])
{
    for (size_t i = 0; i < PARCEL_GUID; i++)
        snprintf(hex + 2 * i, 3, "%02x", guid[i]);
}

static void on_disk(struct questions *t, struct asker *a, const struct parcel_in_flight *p)
{
    const struct user *u = user_find(t->r->users, a->name, strlen(a->name));
    struct parcel_guids g;
    struct question *q;
    char hex[DISK_GUID_HEX];
    if (u && user_keeps_from(&u->peer[p->peer]))
        return;
    if (parcel_guids(PARCEL_ON_DISK, p->body, &g) < 0 || g.epoch == 0 || g.asked != a->number)
        return; /* it is to another process's question, or of another epoch */
    hear(a, p->peer, g.epoch);
    for (size_t i = 0; i < g.n; i++) {
        hex_of(g.guid + i * PARCEL_GUID, hex);
        TAILQ_FOREACH (q, &a->questions, in_asker) {
            if (strcmp(q->is.guid, hex) != 0)
                continue;
            q->confirmed[p->peer] = g.epoch;
            q->wanted = q->wanted || (!q->sent && is_enough(t, q));
        }
    }
    look(t, a);
}

bool questions_heard(struct questions *t, struct text user, const struct parcel_in_flight *p)
{
    struct frame_origin from;
    struct asker *a = t->n > 0 ? find(t, (const char *)user.p, user.n) : NULL;
    if (p->kind == PARCEL_ON_DISK) {
        if (a)
            on_disk(t, a, p);
        return true;
    }
    if (a && parcel_sender(p->kind, p->body, &from) && from.site == t->r->group.peer[p->peer].site)
        hear(a, p->peer, from.epoch);
    return false;
}

/* ---- all of it ---- */

static void on_every(struct ev_loop *loop, ev_timer *timer, int events)
{
    struct questions *t = timer->data;
    double now = clock_monotonic();
    (void)events;
    while (t->n > 0 && now - TAILQ_FIRST(&t->all)->asked_at > FORGOTTEN)
        drop_oldest(t);
    if (t->n == 0)
        ev_timer_stop(loop, timer);
}

struct questions *questions_open(struct replicator *r)
{
    struct questions *t = mem_zero(sizeof *t);
    t->r = r;
    TAILQ_INIT(&t->all);
    r->asked_for = ledger_noted(r->ledger, LEDGER_ASKED_FOR) != 0;
    ev_timer_init(&t->every, on_every, EVERY, EVERY);
    t->every.data = t;
    return t;
}

void questions_stop(struct questions *t)
{
    if (t)
        t->closing = true;
}

void questions_close(struct questions *t)
{
    if (!t)
        return;
    ev_timer_stop(t->r->loop, &t->every);
    while (t->n > 0) {
        struct question *q = TAILQ_FIRST(&t->all);
        struct asker *a = q->asker;
        drop(t, q);
        if (TAILQ_EMPTY(&a->questions) && a->look)
            free_look(a->look);
        drop_asker(a);
    }
    free(t);
}
