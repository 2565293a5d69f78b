/* questions - a table by user, and one request to a worker for all that is asked of him. */
#include "dovecot-plugin/replicator/users/questions_internal.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/metrics.h"
#include "dovecot-plugin/replicator/lanes/outbox.h"
#include "dovecot-plugin/replicator/site/ledger.h"

#define FORGOTTEN 100.  /* seconds after a question was asked last: three times a relay's wait */
#define LOOK_AGAIN 300. /* seconds after which what a worker found is asked of one again */
#define EVERY 10.       /* seconds */
/* seconds after which a mail process's question is put again: to a worker, to the other sites */
#define WAITER_LOOKS 0.1 /* twice as long each time, so often: */
#define WAITER_DOUBLED 5
#define WAITER_ASKS 0.5
#define DETAIL '+' /* in an address: LMTP delivers without what follows */

/* ---- what counts ---- */

static bool counts(const struct questions *t, size_t peer)
{
    return !t->r->group.peer[peer].removed;
}

/* By the userdb's word this user's mail is not to be at that site. */
static bool is_apart(const struct user *u, size_t peer)
{
    return u && u->peer[peer].apart;
}

/* This site and others that have it on the disk are enough. A user who is replicated with fewer
 * sites than are wanted has it on all of his: there will be no more. Not where the group itself is
 * too small, or a site was taken out of it: that is to be mended. A mail process wants another site
 * than this one, whatever the userdb says. */
static bool is_enough(struct questions *t, const struct question *q)
{
    const struct user *u = user_find(t->r->users, q->asker->name, strlen(q->asker->name));
    unsigned n = 1, apart = 0, all = 1;
    for (size_t i = 0; i < t->r->group.npeers; i++) {
        n += q->confirmed[i] != 0 && counts(t, i);
        apart += counts(t, i) && is_apart(u, i);
        all += counts(t, i);
    }
    return n >= q->is.sites || (!q->waiter && all >= q->is.sites && n >= all - apart);
}

/* That site is heard with this epoch: what it confirmed in another one does not count any more. */
static void hear(struct asker *a, size_t peer, uint64_t epoch)
{
    struct question *q;
    if (a->heard[peer] == epoch)
        return;
    a->heard[peer] = epoch;
    for (int i = 0; i < TODOS; i++)
        TAILQ_FOREACH (q, &a->list[i], in_asker)
            q->confirmed[peer] = 0;
}

/* This site's state is another one than before: nobody has confirmed anything to it. */
static void begin_anew(struct questions *t, struct asker *a, uint64_t epoch)
{
    if (a->epoch != 0 && a->epoch != epoch) {
        a->number = questions_random();
        for (size_t i = 0; i < t->r->group.npeers; i++)
            hear(a, i, 0);
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

static void send_guids(struct questions *t, struct asker *a, size_t peer, struct orset_buf *guids)
{
    struct replicator *r = t->r;
    struct orset_buf body = {.alloc = &replicator_heap};
    const struct parcel_guids g = {
        .asked = a->number, .n = guids->len / PARCEL_GUID, .guid = guids->data};
    if (g.n > 0 && !guids->failed)
        parcel_put_guids(&body, PARCEL_ASK_DISK, &g);
    if (body.len > 0 && !body.failed) {
        const struct frame_parcel f = {.site = r->group.peer[peer].site,
                                       .kind = PARCEL_ASK_DISK,
                                       .body = {body.data, body.len}};
        (void)outbox_send(r->outbox, a->name, peer, &f);
    }
    guids->len = 0;
    orset_buf_free(&body);
}

static void ask_site(struct questions *t, struct asker *a, size_t peer)
{
    struct replicator *r = t->r;
    const struct user *u = user_find(r->users, a->name, strlen(a->name));
    struct orset_buf guids = {.alloc = &replicator_heap};
    const struct question *q;
    if (!counts(t, peer) || (u && user_keeps_from(&u->peer[peer])) ||
        !outbox_ready(r->outbox, peer) || !outbox_may_try(r->outbox, peer))
        return;
    TAILQ_FOREACH (q, &a->list[ASK], in_asker) {
        if (q->confirmed[peer] == 0)
            put_guid(&guids, q->is.guid);
        if (guids.len == PARCEL_GUIDS_MAX * PARCEL_GUID)
            send_guids(t, a, peer, &guids);
    }
    send_guids(t, a, peer, &guids);
    orset_buf_free(&guids);
}

void questions_run(struct questions *t)
{
    struct asker *a;
    struct question *q;
    while ((a = TAILQ_FIRST(&t->asking))) {
        TAILQ_REMOVE(&t->asking, a, in_asking);
        a->asking = false;
        for (size_t i = 0; i < t->r->group.npeers; i++)
            ask_site(t, a, i);
        while ((q = TAILQ_FIRST(&a->list[ASK]))) {
            q->sent_at = clock_monotonic();
            question_set(t, q, NOTHING);
        }
    }
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
    if (q->waiter) {
        question_tell(t, q, safe ? DISK_SAFE : DISK_UNKNOWN);
        return;
    }
    asked_answer(t->r->asked, &q->is, q->asker->epoch, safe);
    question_drop(t, q);
}

/* What a worker found of it. */
static void found(struct questions *t, struct question *q, const char *word)
{
    question_set(t, q, NOTHING);
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
    question_let_go(t, q);
    if (q->here)
        question_set(t, q, ASK);
    if (q->is.sites > t->r->group.npeers + 1 && replicator_may_say(&t->said_sites, 60.))
        log_warning("a relay of %s wants mails on %u sites, and the group has %zu: it is not "
                    "answered",
                    q->is.node, q->is.sites, t->r->group.npeers + 1);
}

/* Root may ask for all. */
static bool may_ask(const struct inquiry *l, const struct question *q)
{
    return !q->waiter || q->waiter->uid == 0 || (l->owned && l->owner == q->waiter->uid);
}

/* The rows before those of the mails: "epoch HEX", "owner UID". */
static bool on_head(struct inquiry *l, const char *text)
{
    static const char epoch[] = "epoch ", owner[] = "owner ";
    if (!strncmp(text, owner, sizeof owner - 1)) {
        l->owned = true;
        l->owner = (uint32_t)strtoul(text + sizeof owner - 1, NULL, 10);
        user_is_owned(l->request.user, l->owner);
        return true;
    }
    if (strncmp(text, epoch, sizeof epoch - 1) != 0)
        return false;
    l->epoch = strtoull(text + sizeof epoch - 1, NULL, 16);
    begin_anew(l->all, l->asker, l->epoch);
    return true;
}

/* Or "GUID WORD". */
static void on_row(struct admin_request *request, struct text row)
{
    struct inquiry *l = (struct inquiry *)request;
    char text[64];
    if (!l->asker || row.n >= sizeof text)
        return;
    memcpy(text, row.p, row.n);
    text[row.n] = '\0';
    char *word = strchr(text, ' ');
    if (on_head(l, text) || !word || word - text != DISK_GUID_HEX - 1 || l->epoch == 0)
        return;
    *word++ = '\0';
    for (struct question *q = LIST_FIRST(questions_of_guid(l->all, text)), *next; q; q = next) {
        next = LIST_NEXT(q, in_guid);
        if (q->todo != LOOKING || !question_is_of(q, l->asker, text))
            continue;
        if (may_ask(l, q))
            found(l->all, q, word);
        else
            question_tell(l->all, q, DISK_STRANGER);
    }
}

/* What Dovecot calls him is known by now: his parcels come under that name. */
static struct asker *rename_asker(struct questions *t, struct asker *a, const char *name)
{
    struct question *q;
    if (!strcmp(a->name, name))
        return a;
    struct asker *to = asker_get(t, name);
    if (a->epoch != 0)
        begin_anew(t, to, a->epoch);
    for (int i = 0; i < TODOS; i++)
        while ((q = TAILQ_FIRST(&a->list[i]))) {
            TAILQ_REMOVE(&a->list[i], q, in_asker);
            TAILQ_INSERT_TAIL(&to->list[i], q, in_asker);
            q->asker = to;
            memset(q->confirmed, 0, t->r->group.npeers * sizeof *q->confirmed);
            question_set(t, q, q->todo); /* it asks under that name */
        }
    asker_drop(t, a);
    return to;
}

/* Of what the worker did not say nothing is known; the relay asks again. */
static void unsaid(struct questions *t, struct asker *a)
{
    struct question *q;
    while ((q = TAILQ_FIRST(&a->list[LOOKING]))) {
        question_let_go(t, q);
        question_set(t, q, NOTHING);
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
        look(t, a);
        asker_drop(t, a);
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

static bool of_a_relay(const struct asker *a)
{
    const struct question *q;
    for (int i = 0; i < TODOS; i++)
        TAILQ_FOREACH (q, &a->list[i], in_asker)
            if (!q->waiter)
                return true;
    return false;
}

/* He cannot be opened here. absent: by the userdb's word there will be no mail of his; else an admin
 * has to do something first, and nothing is said. */
static void nobody(struct questions *t, struct asker *a, bool absent)
{
    char *other = without_detail(a->name);
    struct question *q;
    if (other) {
        a = rename_asker(t, a, other);
        while ((q = TAILQ_FIRST(&a->list[NOTHING])))
            question_set(t, q, LOOK);
        look(t, a);
        free(other);
        return;
    }
    if (of_a_relay(a) && replicator_may_say(&t->said, 60.))
        log_warning("user=%s: a relay asks for a mail of his, and he is not replicated here: it is "
                    "%s",
                    a->name, absent ? "told that the mail is not known" : "not answered");
    a->epoch = 0; /* there is no state of his */
    for (int i = 0; i < TODOS; i++)
        while ((q = TAILQ_FIRST(&a->list[i]))) {
            if (absent) {
                answer(t, q, false);
                continue;
            }
            question_forget(t, q);
        }
    asker_drop(t, a);
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
            nobody(l->all, a, request->user->absent);
    }
    free_look(l);
}

/* One request at a time for what is to be looked for. */
static void look(struct questions *t, struct asker *a)
{
    static const struct admin_calls calls = {on_row, on_done, on_failed};
    struct replicator *r = t->r;
    struct question *q = TAILQ_FIRST(&a->list[LOOK]);
    struct user *u;
    /* NULL: too many are in memory; it is asked again */
    if (!q || a->look || t->closing || !(u = user_get(r->users, a->name, strlen(a->name))))
        return;
    struct inquiry *l = a->look = mem_zero(sizeof *l);
    l->all = t;
    l->asker = a;
    l->request.user = u;
    l->request.calls = &calls;
    l->request.arg[l->request.n++] = mem_strdup(ON_DISK_VERB);
    for (; (q = TAILQ_FIRST(&a->list[LOOK])) && l->request.n <= ON_DISK_GUIDS;) {
        l->request.arg[l->request.n++] = mem_strdup(q->is.guid);
        question_set(t, q, LOOKING);
    }
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
    struct asker *a = asker_get(t, u->name);
    struct question *q = question_same(t, a, is);
    if (!q && t->n >= QUESTIONS_MAX)
        questions_drop_oldest(t); /* if that was his last one, he is another one now */
    a = asker_get(t, u->name);
    q = q ? q : question_add(t, a, is);
    q->is = *is; /* sites may be another number than before */
    q->leased = true;
    question_asked(t, q);
    if (q->todo == LOOKING)
        return;
    if (q->here && now - q->looked_at < LOOK_AGAIN && !is_enough(t, q)) {
        question_let_go(t, q);
        question_set(t, q, ASK);
        return;
    }
    question_set(t, q, LOOK);
    look(t, a);
}

const struct asked_calls questions_from_asked = {came};

static void hex_of(const uint8_t *guid, char hex[DISK_GUID_HEX])
{
    for (size_t i = 0; i < PARCEL_GUID; i++)
        snprintf(hex + 2 * i, 3, "%02x", guid[i]);
}

/* A relay lets go of the mail, so the own disk is looked at once more; a mail process waits. */
static void confirmed(struct questions *t, struct question *q, size_t peer, uint64_t epoch)
{
    q->confirmed[peer] = epoch;
    if (q->todo == LOOKING || !is_enough(t, q))
        return;
    if (q->waiter && q->here)
        question_tell(t, q, DISK_SAFE);
    else
        question_set(t, q, LOOK);
}

static void on_disk(struct questions *t, struct asker *a, const struct parcel_in_flight *p)
{
    const struct user *u = user_find(t->r->users, a->name, strlen(a->name));
    struct parcel_guids g;
    struct question *q, *next;
    char hex[DISK_GUID_HEX];
    if (u && user_keeps_from(&u->peer[p->peer]))
        return;
    if (parcel_guids(PARCEL_ON_DISK, p->body, &g) < 0 || g.epoch == 0 || g.asked != a->number)
        return; /* it is to another process's question, or of another epoch */
    hear(a, p->peer, g.epoch);
    for (size_t i = 0; i < g.n; i++) {
        hex_of(g.guid + i * PARCEL_GUID, hex);
        for (q = LIST_FIRST(questions_of_guid(t, hex)); q; q = next) {
            next = LIST_NEXT(q, in_guid);
            if (question_is_of(q, a, hex))
                confirmed(t, q, p->peer, g.epoch);
        }
    }
    look(t, a);
    asker_drop(t, a);
}

bool questions_heard(struct questions *t, struct text user, const struct parcel_in_flight *p)
{
    struct frame_origin from;
    struct asker *a = t->n > 0 ? asker_find(t, (const char *)user.p, user.n) : NULL;
    if (p->kind == PARCEL_ON_DISK) {
        if (a)
            on_disk(t, a, p);
        return true;
    }
    if (a && parcel_sender(p->kind, p->body, &from) && from.site == t->r->group.peer[p->peer].site)
        hear(a, p->peer, from.epoch);
    return false;
}

/* ---- mail processes ---- */

void questions_await(struct questions *t, const struct user *u, const char *guid,
                     struct disk_waiter *w)
{
    struct disk_question is = {.sites = 2};
    snprintf(is.guid, sizeof is.guid, "%s", guid);
    if (t->n >= QUESTIONS_MAX)
        questions_drop_oldest(t);
    struct question *q = question_add(t, asker_get(t, u->name), &is);
    q->waiter = w;
    LIST_INSERT_HEAD(&w->open, q, in_waiter);
    question_asked(t, q);
    question_set(t, q, LOOK);
}

void questions_again(struct questions *t, struct disk_waiter *w)
{
    double now = clock_monotonic();
    struct question *q;
    LIST_FOREACH (q, &w->open, in_waiter) {
        double wait = q->here ? WAITER_ASKS : WAITER_LOOKS * (1 << q->looks);
        bool again = now - (q->here ? q->sent_at : q->looked_at) >= wait;
        question_asked(t, q); /* however long a worker takes */
        if (q->todo == NOTHING && again) {
            q->looks += q->looks < WAITER_DOUBLED;
            question_set(t, q, q->here ? ASK : LOOK);
        }
        if (q->todo == LOOK)
            look(t, q->asker);
    }
}

void questions_end(struct questions *t, struct disk_waiter *w)
{
    struct question *q;
    while ((q = LIST_FIRST(&w->open))) {
        struct asker *a = q->asker;
        question_drop(t, q);
        asker_drop(t, a);
    }
}

/* ---- all of it ---- */

static void on_every(struct ev_loop *loop, ev_timer *timer, int events)
{
    struct questions *t = timer->data;
    double now = clock_monotonic();
    (void)events;
    while (t->n > 0 && now - TAILQ_FIRST(&t->all)->asked_at > FORGOTTEN)
        questions_drop_oldest(t);
    if (t->n == 0)
        ev_timer_stop(loop, timer);
}

struct questions *questions_open(struct replicator *r)
{
    struct questions *t = mem_zero(sizeof *t);
    t->r = r;
    t->seed = questions_random();
    TAILQ_INIT(&t->all);
    TAILQ_INIT(&t->asking);
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
        question_forget(t, q);
        if (a->look)
            free_look(a->look);
        asker_drop(t, a);
    }
    free(t);
}
