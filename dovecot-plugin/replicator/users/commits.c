/* commits - reads a question, has it asked like a relay's, and says what came of it. */
#include "dovecot-plugin/replicator/users/commits.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/log.h"
#include "lib/base/metrics.h"
#include "dovecot-plugin/protocol/commit.h"
#include "dovecot-plugin/protocol/fetch.h"
#include "dovecot-plugin/replicator/site/ledger.h"
#include "dovecot-plugin/replicator/users/fetches.h"
#include "dovecot-plugin/replicator/users/questions.h"
#include "dovecot-plugin/replicator/users/unproven.h"

#define CLIENTS_MAX 1000
#define QUESTIONS_MAX 20000 /* mails: relays have room for theirs, too (questions.c) */
#define UNPROVEN_MOST 1000  /* names that nobody has known yet, as hints have them (hints.c) */
#define EVERY 0.1           /* seconds */
#define REQUEST_WAIT 5.     /* seconds within which a question has to come */
#define LASTS 305.          /* seconds; the longest dovelane_commit_wait is 300 */
#define OWNER_LASTS 60.     /* seconds for which a worker's word on whose files they are counts */
#define STRANGER_LASTS 60.  /* seconds for which an id that asked for others is sent away */
#define STRANGERS 64        /* such ids that are remembered */

/* What an id may have too much of. */
enum share { CONNECTIONS, MAILS };

struct client {
    struct disk_waiter waits; /* first: told() is given this */
    TAILQ_ENTRY(client) link; /* the one that came first is first */
    struct commits *all;
    int fd;
    ev_io rd;
    double since;  /* it connected, or was answered last, or asked */
    bool asks;     /* a question is open */
    size_t nasked; /* its mails */
    bool told;     /* something is known of it: */
    enum disk_told worst;
    size_t n;
    char line[LINE_COMMIT_MAX];
};
TAILQ_HEAD(clients, client);

struct commits {
    struct replicator *r;
    struct clients clients;
    size_t n;
    size_t nasked; /* mails of all their questions */
    bool told;     /* of some client */
    struct {
        uint32_t uid;
        double until;
    } stranger[STRANGERS];
    double said_stranger, said_crowd, said_malformed;
    ev_timer every;
};

/* Its question is over. */
static void answered(struct client *c)
{
    c->asks = false;
    c->all->nasked -= c->nasked;
    c->nasked = 0;
}

static void end(struct client *c)
{
    struct commits *m = c->all;
    answered(c);
    questions_end(m->r->questions, &c->waits);
    ev_io_stop(m->r->loop, &c->rd);
    if (c->fd >= 0)
        close(c->fd);
    TAILQ_REMOVE(&m->clients, c, link);
    metric_set(replicator_commits_open, (long long)--m->n);
    free(c);
    if (m->n == 0)
        ev_timer_stop(m->r->loop, &m->every);
}

/* It goes away while its question is open: it has waited as long as it may. */
static void gave_up(struct client *c)
{
    if (c->asks)
        metric_add(replicator_commits_late, 1);
    end(c);
}

static bool say(struct client *c, const char *text)
{
    size_t n = strlen(text);
    return send(c->fd, text, n, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)n;
}

/* There is nothing to wait for; the connection is over. */
static void refuse(struct client *c, const char *why)
{
    char *text = mem_printf("-%s\n", why);
    metric_add(replicator_commits_refused, 1);
    (void)say(c, text);
    free(text);
    end(c);
}

/* ---- who takes too much ---- */

static size_t share_of(const struct commits *m, uint32_t uid, enum share of)
{
    const struct client *c;
    size_t n = 0;
    TAILQ_FOREACH (c, &m->clients, link)
        if (c->waits.uid == uid)
            n += of == MAILS ? c->nasked : 1;
    return n;
}

/* Of the other id that has the most, and more than that: its oldest one that has any. NULL: there
 * is no such id. */
static struct client *oldest_of_most(struct commits *m, uint32_t uid, size_t most, enum share of)
{
    struct client *c, *found = NULL;
    TAILQ_FOREACH (c, &m->clients, link) {
        if (c->waits.uid == uid || (of == MAILS && c->nasked == 0) ||
            (found && c->waits.uid == found->waits.uid))
            continue;
        size_t n = share_of(m, c->waits.uid, of);
        if (n > most) {
            most = n;
            found = c;
        }
    }
    return found;
}

/* Of the id that asks for the most mails the oldest questions end, unless that is this one. */
static bool make_room_for_mails(struct client *c, size_t n)
{
    struct commits *m = c->all;
    struct client *other;
    size_t most = share_of(m, c->waits.uid, MAILS) + n;
    while (m->nasked + n > QUESTIONS_MAX &&
           (other = oldest_of_most(m, c->waits.uid, most, MAILS)) != NULL)
        gave_up(other);
    return m->nasked + n <= QUESTIONS_MAX;
}

/* ---- strangers ---- */

static bool is_stranger(struct commits *m, uint32_t uid)
{
    double now = clock_monotonic();
    for (size_t i = 0; i < STRANGERS; i++)
        if (m->stranger[i].uid == uid && m->stranger[i].until > now)
            return true;
    return false;
}

static void refuse_stranger(struct client *c)
{
    struct commits *m = c->all;
    size_t oldest = 0;
    for (size_t i = 1; i < STRANGERS; i++)
        if (m->stranger[i].until < m->stranger[oldest].until)
            oldest = i;
    m->stranger[oldest].uid = c->waits.uid;
    m->stranger[oldest].until = clock_monotonic() + STRANGER_LASTS;
    if (replicator_may_say(&m->said_stranger, 60.))
        log_warning("uid %u asked for mails of a user whose files are not its own, and is sent "
                    "away for %.0f s",
                    (unsigned)c->waits.uid, STRANGER_LASTS);
    refuse(c, "the user's files are not those of who asks");
}

/* ---- a question ---- */

static bool is_replicated(const struct group *g, const char *namespace)
{
    for (size_t i = 0; i < g->nnamespaces; i++)
        if (g->ns[i].n == strlen(namespace) && !memcmp(g->ns[i].p, namespace, g->ns[i].n))
            return true;
    return false;
}

static bool has_peer(const struct replicator *r, const struct user *u)
{
    for (size_t i = 0; i < r->group.npeers; i++)
        if (!r->group.peer[i].removed && !(u && user_keeps_from(&u->peer[i])))
            return true;
    return false;
}

/* Nobody has known him yet: he is looked up, as after a hint. NULL: too many are. */
static struct user *new_user(struct replicator *r, const char *name)
{
    struct user *u = NULL;
    if (ledger_knows(r->ledger, name) || unproven_by_hints(r->unproven) < UNPROVEN_MOST)
        u = user_get(r->users, name, strlen(name));
    if (u)
        user_look(u, "", "", 0);
    return u;
}

static void ask(struct client *c, const struct commit_question *q)
{
    struct replicator *r = c->all->r;
    struct user *u = user_find(r->users, q->user, strlen(q->user));
    if (r->stopping) {
        end(c); /* the next one is asked */
    } else if (!has_peer(r, u)) {
        refuse(c, "the user is replicated with no other site");
    } else if (!is_replicated(&r->group, q->namespace)) {
        refuse(c, "the mailbox's namespace is not replicated (replicate_namespaces)");
    } else if (u && u->unknown_until > clock_monotonic()) {
        refuse(c, "the user is not replicated here");
    } else if (u && c->waits.uid != 0 && u->owner_at != 0 &&
               clock_monotonic() - u->owner_at < OWNER_LASTS && u->owner != c->waits.uid) {
        refuse_stranger(c);
    } else if (!make_room_for_mails(c, q->n)) {
        refuse(c, "too many mails are asked for");
    } else if (!u && !(u = new_user(r, q->user))) {
        refuse(c, "too many users are looked up");
    } else {
        c->asks = true;
        c->nasked = q->n;
        c->all->nasked += q->n;
        c->worst = DISK_SAFE;
        for (size_t i = 0; i < q->n; i++)
            questions_await(r->questions, u, q->guid[i], &c->waits);
        questions_again(r->questions, &c->waits);
    }
}

/* A mail that is named twice is one. */
static void name_each_once(struct commit_question *q)
{
    size_t n = 0;
    for (size_t i = 0; i < q->n; i++) {
        size_t k = 0;
        while (k < n && strcmp(q->guid[k], q->guid[i]) != 0)
            k++;
        if (k == n)
            memmove(q->guid[n++], q->guid[i], sizeof q->guid[i]);
    }
    q->n = n;
}

/* It asks for a mail's bytes, which is not this file's. */
static void hand_over(struct client *c, size_t n)
{
    struct fetches *fetches = c->all->r->fetches;
    char line[LINE_COMMIT_MAX];
    uint32_t uid = c->waits.uid;
    int fd = c->fd;
    memcpy(line, c->line, n);
    c->fd = -1;
    end(c);
    fetches_client(fetches, fd, uid, line, n);
}

static void on_line(struct client *c, size_t n)
{
    struct commit_question q;
    if (n + 1 == c->n && fetch_is_asked(c->line, n)) {
        hand_over(c, n);
        return;
    }
    metric_add(replicator_commits, 1);
    c->since = clock_monotonic();
    if (n + 1 != c->n || !commit_read(c->line, n, &q)) {
        if (replicator_may_say(&c->all->said_malformed, 60.))
            log_warning("uid %u sent something to dovelane-commit that is no question: %.*s",
                        (unsigned)c->waits.uid, (int)(n < 100 ? n : 100), c->line);
        refuse(c, "that is no question");
        return;
    }
    c->n = 0;
    name_each_once(&q);
    ask(c, &q);
}

static void on_readable(struct ev_loop *loop, ev_io *io, int events)
{
    struct client *c = io->data;
    (void)loop, (void)events;
    ssize_t n = recv(c->fd, c->line + c->n, sizeof c->line - c->n, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0 || c->asks) { /* one question at a time */
        gave_up(c);
        return;
    }
    c->n += (size_t)n;
    const char *lf = memchr(c->line, '\n', c->n);
    if (lf)
        on_line(c, (size_t)(lf - c->line));
    else if (c->n == sizeof c->line)
        end(c);
}

/* ---- what comes of it ---- */

/* Said in commits_run(): whoever tells goes through questions, and others of this client's may
 * be next. */
static void told(struct disk_waiter *w, enum disk_told what)
{
    struct client *c = (struct client *)w;
    c->told = c->all->told = true;
    if (what > c->worst)
        c->worst = what;
}

static void say_told(struct client *c)
{
    c->told = false;
    switch (c->worst) {
    case DISK_STRANGER: refuse_stranger(c); return;
    case DISK_UNKNOWN: refuse(c, "the mail is in no mailbox that is replicated here"); return;
    case DISK_FORGOTTEN: refuse(c, "the user cannot be opened, or too much is asked"); return;
    case DISK_SAFE: break;
    }
    if (!LIST_EMPTY(&c->waits.open))
        return;
    answered(c);
    c->since = clock_monotonic();
    metric_add(replicator_commits_safe, 1);
    if (!say(c, "+\n"))
        end(c);
}

void commits_run(struct commits *m)
{
    while (m->told) {
        m->told = false;
        for (struct client *c = TAILQ_FIRST(&m->clients), *next; c; c = next) {
            next = TAILQ_NEXT(c, link);
            if (c->told)
                say_told(c);
        }
    }
}

static void on_every(struct ev_loop *loop, ev_timer *t, int events)
{
    struct commits *m = t->data;
    double now = clock_monotonic();
    (void)loop, (void)events;
    for (struct client *c = TAILQ_FIRST(&m->clients), *next; c; c = next) {
        next = TAILQ_NEXT(c, link);
        if (now - c->since > (c->asks ? LASTS : REQUEST_WAIT))
            gave_up(c);
        else if (c->asks)
            questions_again(m->r->questions, &c->waits);
    }
}

/* ---- who comes ---- */

/* Of the id that has the most connections the oldest one goes, unless that is this one's. */
static bool make_room(struct commits *m, uint32_t uid)
{
    struct client *c = oldest_of_most(m, uid, share_of(m, uid, CONNECTIONS) + 1, CONNECTIONS);
    if (replicator_may_say(&m->said_crowd, 60.))
        log_warning("%zu mail processes wait for another site at a time: replies of others are "
                    "not held back",
                    m->n);
    if (c)
        gave_up(c);
    return c != NULL;
}

void commits_client(struct commits *m, int fd)
{
    static const char away[] =
        "-too many mail processes wait, or this id asked for others' mails\n";
    struct ucred peer = {.uid = (uid_t)-1};
    socklen_t len = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 || is_stranger(m, peer.uid) ||
        (m->n >= CLIENTS_MAX && !make_room(m, peer.uid))) {
        metric_add(replicator_commits_refused, 1);
        (void)send(fd, away, sizeof away - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        close(fd);
        return;
    }
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    struct client *c = mem_zero(sizeof *c);
    c->all = m;
    c->fd = fd;
    c->since = clock_monotonic();
    LIST_INIT(&c->waits.open);
    c->waits.uid = peer.uid;
    c->waits.told = told;
    ev_io_init(&c->rd, on_readable, fd, EV_READ);
    c->rd.data = c;
    ev_io_start(m->r->loop, &c->rd);
    TAILQ_INSERT_TAIL(&m->clients, c, link);
    metric_set(replicator_commits_open, (long long)++m->n);
    if (!ev_is_active(&m->every))
        ev_timer_again(m->r->loop, &m->every);
}

struct commits *commits_open(struct replicator *r)
{
    struct commits *m = mem_zero(sizeof *m);
    m->r = r;
    TAILQ_INIT(&m->clients);
    ev_timer_init(&m->every, on_every, EVERY, EVERY);
    m->every.data = m;
    return m;
}

void commits_close(struct commits *m)
{
    if (!m)
        return;
    while (!TAILQ_EMPTY(&m->clients))
        end(TAILQ_FIRST(&m->clients));
    free(m);
}
