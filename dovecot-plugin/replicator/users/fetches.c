/* fetches - one question a connection; while it is open, a worker's answer is asked for at times
 * that grow, and when the bytes came. */
#include "dovecot-plugin/replicator/users/fetches.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/metrics.h"
#include "dovecot-plugin/protocol/fetch.h"
#include "dovecot-plugin/protocol/parcel.h"
#include "dovecot-plugin/replicator/site/ledger.h"
#include "dovecot-plugin/replicator/users/user.h"

#define FETCHES_MAX 200
#define FIRST_PAUSE 0.01 /* seconds between two questions to a worker, doubling */
#define LAST_PAUSE 1.0
#define QUESTIONS_A_SECOND 100.0 /* of all that wait for long: each may cost opening a user */

struct fetch {
    TAILQ_ENTRY(fetch) link; /* the one that came first is first */
    struct fetches *all;
    struct fetch_question is;
    struct inquiry *open; /* a worker is being asked; NULL: none is */
    int fd;
    uint32_t uid;
    double since, pause;
    ev_io rd; /* it goes away, or says more, which it may not */
    ev_timer again;
    char last[200];  /* what a worker said last */
    char state[160]; /* and what the next one is told of it */
};
TAILQ_HEAD(fetch_list, fetch);

/* A request to a worker. It outlives who asks. */
struct inquiry {
    struct admin_request request;
    struct fetch *of; /* NULL: nobody waits any more */
    bool owned;       /* the user's files are those of who asks */
    enum { NOTHING, HERE, ASKED, NEVER } said;
};

struct fetches {
    struct replicator *r;
    struct fetch_list list;
    size_t n;
    bool stopping;
    double said_crowd, said_stranger;
};

static void end(struct fetch *f)
{
    struct fetches *t = f->all;
    if (f->open)
        f->open->of = NULL;
    ev_io_stop(t->r->loop, &f->rd);
    ev_timer_stop(t->r->loop, &f->again);
    close(f->fd);
    TAILQ_REMOVE(&t->list, f, link);
    metric_set(replicator_fetches_open, (long long)--t->n);
    free(f);
}

static void reply(struct fetch *f, bool here, const char *why)
{
    char *line = here ? mem_strdup("+\n") : mem_printf("-%s\n", why);
    if (here)
        metric_add(replicator_fetches_done, 1);
    else
        metric_add(replicator_fetches_failed, 1);
    (void)send(f->fd, line, strlen(line), MSG_NOSIGNAL | MSG_DONTWAIT);
    free(line);
    end(f);
}

static double wait_most(const struct fetches *t)
{
    return seconds(t->r->config->on_demand_wait);
}

static double longest_pause(const struct fetches *t)
{
    double crowded = (double)t->n / QUESTIONS_A_SECOND;
    return crowded > LAST_PAUSE ? crowded : LAST_PAUSE;
}

static void ask_later(struct fetch *f)
{
    double most = longest_pause(f->all);
    double left = f->since + wait_most(f->all) - clock_monotonic();
    if (left <= 0) {
        char *why = mem_printf("no answer within %.0f s; %s", wait_most(f->all),
                               *f->last ? f->last : "the user could not be opened");
        reply(f, false, why);
        free(why);
        return;
    }
    ev_timer_set(&f->again, f->pause < left ? f->pause : left, 0.);
    ev_timer_start(f->all->r->loop, &f->again);
    f->pause = f->pause * 2 < most ? f->pause * 2 : most;
}

/* ---- a worker ---- */

static bool begins(const char *text, const char *word)
{
    return !strncmp(text, word, strlen(word));
}

static void keep(char *to, size_t size, const char *text)
{
    snprintf(to, size, "%.*s", (int)size - 1, text);
}

static void on_row(struct admin_request *request, struct text row)
{
    struct inquiry *q = (struct inquiry *)request;
    char text[sizeof q->of->last + 16];
    if (!q->of)
        return;
    size_t n = row.n < sizeof text - 1 ? row.n : sizeof text - 1;
    memcpy(text, row.p, n);
    text[n] = '\0';
    if (begins(text, "owner "))
        q->owned = q->of->uid == 0 || strtoul(text + 6, NULL, 10) == q->of->uid;
    else if (begins(text, "here"))
        q->said = HERE;
    else if (begins(text, "asked ") || begins(text, "never ")) {
        q->said = *text == 'a' ? ASKED : NEVER;
        keep(q->of->last, sizeof q->of->last, text + 6);
    } else if (begins(text, "state "))
        keep(q->of->state, sizeof q->of->state, text + 6);
}

static void free_inquiry(struct inquiry *q)
{
    for (size_t i = 0; i < q->request.n; i++)
        free(q->request.arg[i]);
    free(q);
}

static void refuse_stranger(struct fetch *f)
{
    if (replicator_may_say(&f->all->said_stranger, 60.))
        log_warning("uid %u asked for the text of a mail of user %s, whose files are not its own",
                    (unsigned)f->uid, f->is.user);
    reply(f, false, "the user's files are not those of who asks");
}

static void on_done(struct admin_request *request, const struct frame_done *d)
{
    struct inquiry *q = (struct inquiry *)request;
    struct fetch *f = q->of;
    (void)d;
    if (f) {
        f->open = NULL;
        if (q->said != NOTHING && !q->owned)
            refuse_stranger(f);
        else if (q->said == HERE)
            reply(f, true, NULL);
        else if (q->said == NEVER)
            reply(f, false, f->last);
        else
            ask_later(f);
    }
    free_inquiry(q);
}

static void on_failed(struct admin_request *request, const char *why, bool later)
{
    struct inquiry *q = (struct inquiry *)request;
    struct fetch *f = q->of;
    if (f) {
        f->open = NULL;
        if (f->all->stopping || later)
            ask_later(f);
        else
            reply(f, false, why);
    }
    free_inquiry(q);
}

static void ask(struct fetch *f)
{
    static const struct admin_calls calls = {on_row, on_done, on_failed};
    struct replicator *r = f->all->r;
    struct user *u = user_get(r->users, f->is.user, strlen(f->is.user));
    if (!u || f->all->stopping) { /* too many are in memory */
        ask_later(f);
        return;
    }
    struct inquiry *q = f->open = mem_zero(sizeof *q);
    q->of = f;
    q->request.user = u;
    q->request.calls = &calls;
    q->request.reads = true;
    q->request.arg[q->request.n++] = mem_strdup(FETCH_VERB);
    q->request.arg[q->request.n++] = mem_strdup(f->is.guid);
    q->request.arg[q->request.n++] = mem_strdup(f->is.sha256);
    q->request.arg[q->request.n++] = mem_strdup(f->is.size);
    if (*f->state)
        q->request.arg[q->request.n++] = mem_strdup(f->state);
    TAILQ_INSERT_TAIL(&u->admin, &q->request, link);
    user_plan(u);
}

static void on_again(struct ev_loop *loop, ev_timer *timer, int events)
{
    struct fetch *f = timer->data;
    (void)loop, (void)events;
    if (clock_monotonic() - f->since >= wait_most(f->all))
        ask_later(f); /* that says so */
    else
        ask(f);
}

/* ---- what came ---- */

struct arrival {
    struct fetches *all;
    const char *user;
};

static void ask_soon(void *arg, const uint8_t sha256[32])
{
    const struct arrival *a = arg;
    char hex[LINE_SHA256_HEX];
    struct fetch *f;
    for (size_t i = 0; i < 32; i++)
        snprintf(hex + 2 * i, 3, "%02x", sha256[i]);
    TAILQ_FOREACH (f, &a->all->list, link) {
        if (f->open || strcmp(f->is.sha256, hex) != 0 || strcmp(f->is.user, a->user) != 0)
            continue;
        ev_timer_stop(a->all->r->loop, &f->again);
        ev_timer_set(&f->again, 0., 0.);
        ev_timer_start(a->all->r->loop, &f->again);
    }
}

void fetches_came(struct fetches *t, const char *user, unsigned kind, struct text body)
{
    struct arrival a = {t, user};
    if (!TAILQ_EMPTY(&t->list))
        parcel_each_text(kind, body, ask_soon, &a);
}

/* ---- who asks ---- */

static void on_readable(struct ev_loop *loop, ev_io *io, int events)
{
    (void)loop, (void)events;
    end(io->data);
}

static void refuse(int fd, const char *text)
{
    metric_add(replicator_fetches_failed, 1);
    (void)send(fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT);
    close(fd);
}

static size_t share_of(const struct fetches *t, uint32_t uid)
{
    const struct fetch *f;
    size_t n = 0;
    TAILQ_FOREACH (f, &t->list, link)
        n += f->uid == uid;
    return n;
}

/* Of the id that asks for the most, the one that has asked for the longest is told that it is too
 * much: so no id locks others out. */
static void make_room(struct fetches *t)
{
    struct fetch *f, *first = NULL;
    size_t most = 0;
    if (t->n < FETCHES_MAX)
        return;
    TAILQ_FOREACH (f, &t->list, link) {
        size_t n = !first || f->uid != first->uid ? share_of(t, f->uid) : 0;
        if (n > most) {
            most = n;
            first = f;
        }
    }
    if (replicator_may_say(&t->said_crowd, 60.))
        log_warning("%zu mail processes wait for mails' texts from other sites at a time: the "
                    "first ones of uid %u get errors",
                    t->n, (unsigned)first->uid);
    reply(first, false, "too many mails are fetched at a time");
}

/* Who has a stub is known: others' names, and made-up ones, make no users. */
static bool is_known(struct replicator *r, const char *user)
{
    return user_find(r->users, user, strlen(user)) || ledger_knows(r->ledger, user);
}

void fetches_client(struct fetches *t, int fd, uint32_t uid, const char *line, size_t n)
{
    struct fetch_question is;
    metric_add(replicator_fetches, 1);
    if (!fetch_read(line, n, &is)) {
        refuse(fd, "-that is no question\n");
        return;
    }
    if (t->stopping) {
        close(fd); /* the next one is asked */
        return;
    }
    if (!is_known(t->r, is.user)) {
        refuse(fd, "-the user is not replicated here\n");
        return;
    }
    make_room(t);
    struct fetch *f = mem_zero(sizeof *f);
    f->all = t;
    f->is = is;
    f->fd = fd;
    f->uid = uid;
    f->since = clock_monotonic();
    f->pause = FIRST_PAUSE;
    ev_io_init(&f->rd, on_readable, fd, EV_READ);
    f->rd.data = f;
    ev_io_start(t->r->loop, &f->rd);
    ev_timer_init(&f->again, on_again, 0., 0.);
    f->again.data = f;
    TAILQ_INSERT_TAIL(&t->list, f, link);
    metric_set(replicator_fetches_open, (long long)++t->n);
    ask(f);
}

struct fetches *fetches_open(struct replicator *r)
{
    struct fetches *t = mem_zero(sizeof *t);
    t->r = r;
    TAILQ_INIT(&t->list);
    return t;
}

/* They see that the connection is lost, and ask the next one. */
void fetches_stop(struct fetches *t)
{
    t->stopping = true;
    while (!TAILQ_EMPTY(&t->list))
        end(TAILQ_FIRST(&t->list));
}

void fetches_close(struct fetches *t)
{
    if (!t)
        return;
    fetches_stop(t);
    free(t);
}
