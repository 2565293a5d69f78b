/* admin - serves the socket: reads a request, asks workers where needed, writes the reply. */
#include "dovecot-plugin/replicator/admin/admin.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dovecot-plugin/replicator/admin/answers.h"
#include "dovecot-plugin/replicator/admin/verbs.h"
#include "dovecot-plugin/replicator/site/ledger.h"
#include "lib/base/assert.h"
#include "lib/base/log.h"
#include "dovecot-plugin/replicator/users/pace.h"
#include "dovecot-plugin/replicator/users/retire.h"
#include "dovecot-plugin/replicator/users/sweep.h"
#include "dovecot-plugin/replicator/lanes/claims.h"
#include "dovecot-plugin/replicator/lanes/inbox.h"
#include "dovecot-plugin/replicator/workers/worker.h"

#define LINE_MAX_SIZE 65536
#define CLIENTS_MAX 100
#define AT_ONCE 8             /* users asked at one time for "*" */
#define OUT_MAX (1024 * 1024) /* bytes that a client does not read */

/* Exit codes (sysexits). */
enum { DONE_OK = 0, DONE_REFUSED = 1, DONE_USAGE = 64, DONE_NO_USER = 67, DONE_NOT_NOW = 75 };

struct client {
    TAILQ_ENTRY(client) link;
    struct admin *admin;
    int fd;
    ev_io rd, wr;
    struct buf in, out;
    bool closing; /* ends when all is written */

    /* the request under way */
    bool busy, titled, all;
    size_t open; /* users asked, of each a part */
    LIST_HEAD(, part) parts;
    int code;
    bool named;  /* all: there is a user */
    bool cut;    /* not all of the answer could be kept for one who reads it slowly */
    char *after; /* all: last user asked; NULL: no more of them */
    char *line;  /* the request, its fields ended by NUL */
    size_t nfields;
    char *field[FRAME_ARGS_MAX + 1];
};
TAILQ_HEAD(clients, client);

struct admin {
    struct replicator *r;
    size_t n;
    double said; /* that somebody was sent away */
    struct clients clients;
};

/* Of one user. */
struct part {
    struct admin_request request;
    struct client *client; /* NULL: went away */
    LIST_ENTRY(part) in_client;
    /* all users: written when it has ended, so that a user's rows stand together */
    struct buf rows;
    bool cut; /* there were too many */
};

/* ---- writing ---- */

static void client_free(struct client *c);
static void next_users(struct client *c);
static void end_if_done(struct client *c);

static void on_writable(struct ev_loop *loop, ev_io *io, int events)
{
    struct client *c = io->data;
    (void)events;
    while (c->out.len) {
        ssize_t n = send(c->fd, c->out.data, c->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0) {
            client_free(c);
            return;
        }
        buf_consume(&c->out, (size_t)n);
    }
    ev_io_stop(loop, io);
    if (c->busy && c->after) {
        next_users(c);
        end_if_done(c);
    }
    if (c->closing && !c->busy && !c->out.len)
        client_free(c);
}

static void put(struct client *c, const char *bytes, size_t n)
{
    c->cut = c->cut || c->out.len > OUT_MAX;
    if (c->cut)
        return; /* it does not read, or is told more than it can: finish() says so */
    buf_add(&c->out, bytes, n);
    ev_io_start(c->admin->r->loop, &c->wr);
}

static void add_escaped(struct buf *b, const char *s)
{
    for (; *s; s++) {
        switch (*s) {
        case '\001': buf_add(b, "\0011", 2); break;
        case '\t': buf_add(b, "\001t", 2); break;
        case '\n': buf_add(b, "\001n", 2); break;
        case '\r': buf_add(b, "\001r", 2); break;
        default: buf_add(b, s, 1);
        }
    }
}

static void put_escaped(struct client *c, const char *s)
{
    struct buf b = {0};
    add_escaped(&b, s);
    put(c, b.data, b.len);
    buf_free(&b);
}

static void titles(struct client *c, const char *tab_separated)
{
    if (c->titled)
        return;
    c->titled = true;
    put(c, "#\t", 2);
    if (c->all)
        put(c, "user\t", 5);
    put(c, tab_separated, strlen(tab_separated));
    put(c, "\n", 1);
}

static void error(struct client *c, const char *user, const char *text, int code)
{
    put(c, "-", 1);
    if (user) {
        put(c, "user ", 5);
        put_escaped(c, user);
        put(c, ": ", 2);
    }
    put_escaped(c, text);
    put(c, "\n", 1);
    c->code = code;
}

/* ---- a user's part of a request ---- */

static void next_line(struct client *c);

static void finish(struct client *c)
{
    if (c->cut) {
        c->cut = false; /* the end is told in any case: a program waits for it */
        static const char cut[] = "-the answer is longer than is kept for one who reads slowly: it "
                                  "is cut here; ask for fewer users (-u)\n";
        buf_add(&c->out, cut, sizeof cut - 1);
        c->code = DONE_NOT_NOW;
    }
    char end[16];
    int n = snprintf(end, sizeof end, "=\t%d\n", c->code);
    buf_add(&c->out, end, (size_t)n);
    ev_io_start(c->admin->r->loop, &c->wr);
    free(c->line);
    free(c->after);
    c->line = c->after = NULL;
    c->busy = false;
}

static struct part *part_of(struct admin_request *q)
{
    return (struct part *)((char *)q - offsetof(struct part, request));
}

static void part_free(struct part *p)
{
    if (p->client)
        LIST_REMOVE(p, in_client);
    for (size_t i = 0; i < p->request.n; i++)
        free(p->request.arg[i]);
    buf_free(&p->rows);
    free(p);
}

static void put_rows(struct part *p)
{
    if (p->client && p->rows.len)
        put(p->client, p->rows.data, p->rows.len);
    if (p->client && p->cut)
        error(p->client, p->request.user->name,
              "more rows than are kept of one among all users: ask for this one alone (-u)",
              DONE_NOT_NOW);
    buf_free(&p->rows);
}

static void ended(struct part *p)
{
    struct client *c = p->client;
    put_rows(p);
    part_free(p);
    if (!c)
        return;
    ASSERT(c->open > 0);
    c->open--;
    next_users(c);
    end_if_done(c);
}

/* What could not be written yet has the next users asked when it is. */
static void end_if_done(struct client *c)
{
    if (!c->busy || c->open || c->after)
        return;
    finish(c);
    next_line(c);
}

static void on_row(struct admin_request *q, struct text t)
{
    struct part *p = part_of(q);
    struct client *c = p->client;
    char mark = t.n && strchr("+#-", t.p[0]) ? (char)t.p[0] : '+';
    if (!c || (c->all && verb_leaves_out(q->arg[0], t)) || memchr(t.p, '\n', t.n) ||
        (mark == '#' && c->titled))
        return;
    if (t.n && mark == (char)t.p[0]) {
        t.p++;
        t.n--;
    }
    struct buf line = {0};
    buf_add(&line, &mark, 1);
    if (mark == '#') {
        c->titled = true;
        if (c->all)
            buf_add(&line, "\tuser", 5);
    } else if (c->all) {
        add_escaped(&line, q->user->name);
        buf_add(&line, mark == '+' ? "\t" : ": ", mark == '+' ? 1 : 2);
    }
    buf_add(&line, (const char *)t.p, t.n);
    buf_add(&line, "\n", 1);
    if (mark == '#' || !c->all)
        put(c, line.data, line.len);
    else if (p->rows.len <= OUT_MAX)
        buf_add(&p->rows, line.data, line.len);
    else
        p->cut = true;
    if (verb_differs(q->arg[0], t))
        c->code = DONE_REFUSED;
    buf_free(&line);
}

/* What else a verb that succeeded sets going. */
static void follow_up(const struct admin_request *q)
{
    struct user *u = q->user;
    struct replicator *r = u->r;
    bool exchange = verb_exchanges(q->arg[0]);
    if (q->reads || !strcmp(q->arg[0], "forget"))
        return;
    for (size_t i = 0; exchange && i < r->group.npeers; i++)
        if (!r->group.peer[i].removed)
            u->peer[i].want |= 1u << FRAME_SHIP_EXCHANGE;
    user_look(u, "", "", 0);
}

static void on_done(struct admin_request *q, const struct frame_done *d)
{
    struct part *p = part_of(q);
    struct client *c = p->client;
    if (d->result == FRAME_OK)
        follow_up(q);
    else if (c && d->text.n) {
        put_rows(p);
        char *text = mem_strndup((const char *)d->text.p, d->text.n);
        error(c, q->user->name, text, DONE_REFUSED);
        free(text);
    }
    if (c && d->result != FRAME_OK)
        c->code = d->result == FRAME_TEMPORARY ? DONE_NOT_NOW : DONE_REFUSED;
    ended(p);
}

static void on_failed(struct admin_request *q, const char *why, bool later)
{
    struct part *p = part_of(q);
    put_rows(p);
    if (p->client)
        error(p->client, q->user->name, why, later ? DONE_NOT_NOW : DONE_NO_USER);
    ended(p);
}

/* ---- what is answered here ---- */

static void answer(struct client *c, const char *(*of)(struct replicator *, struct buf *))
{
    struct buf rows = {0};
    titles(c, of(c->admin->r, &rows));
    put(c, rows.data, rows.len);
    buf_free(&rows);
}

static void status(struct client *c)
{
    answer(c, answer_status);
    const char *trouble = claims_trouble(c->admin->r->claims);
    if (trouble)
        error(c, NULL, trouble, DONE_REFUSED);
}

typedef const char *answer_of_user(struct replicator *, const char *name, const char *before,
                                   struct buf *rows);

static void answer_user(struct client *c, answer_of_user *of, const char *name)
{
    static const char unheard_of[] =
        "is not known here: nothing named him yet, and the userdb does not list him "
        "(iterate_query?); doveadm dovelane resync -u looks at him";
    struct buf before = {0}, rows = {0};
    if (c->all) {
        add_escaped(&before, name);
        buf_addc(&before, '\t');
    }
    const char *columns = of(c->admin->r, name, before.data ? before.data : "", &rows);
    if (columns) {
        titles(c, columns);
        put(c, rows.data, rows.len);
    } else {
        error(c, name, unheard_of, DONE_NO_USER);
    }
    buf_free(&before);
    buf_free(&rows);
}

static void unwanted(struct user *u, void *arg)
{
    size_t peer = *(size_t *)arg;
    pace_forget(u->r->pace, u, peer);
    memset(&u->peer[peer], 0, sizeof u->peer[peer]);
}

static void peers(struct client *c)
{
    struct replicator *r = c->admin->r;
    if (c->nfields >= 4 && !strcmp(c->field[2], "--remove")) {
        char *end;
        unsigned long long site = strtoull(c->field[3], &end, 10);
        int i = *end ? -1 : group_peer(&r->group, site);
        if (i < 0) {
            char *text = mem_printf(
                "--remove %s: no other replica in dovelane.conf has that id; a replica is removed "
                "while its section is still there: see doveadm dovelane peers",
                c->field[3]);
            error(c, NULL, text, DONE_USAGE);
            free(text);
            return;
        }
        size_t index = (size_t)i;
        log_warning("replica %s (site %llu) is removed for ever, by an admin: nothing is kept for "
                    "it, its site number must not be used again",
                    r->group.peer[i].name, site);
        r->group.peer[i].removed = true;
        if (!ledger_remove_peer(r->ledger, site)) {
            char *text = mem_printf(
                "replica %s (site %llu) is removed, but %s/replicator.db cannot be written now: "
                "see that there is room; until then a restart brings it back",
                r->group.peer[i].name, site, r->directory);
            error(c, NULL, text, DONE_NOT_NOW);
            free(text);
        }
        inbox_remove_peer(r->inbox, index);
        users_each(r->users, unwanted, &index);
        retire_remove_peer(r->retire);
        workers_renew(r->workers);
    } else if (c->nfields > 2) {
        error(c, NULL, "usage: doveadm dovelane peers [--remove <site id>]", DONE_USAGE);
        return;
    }
    answer(c, answer_peers);
}

/* ---- what a worker answers ---- */

static void ask_user(struct client *c, const char *name)
{
    const char *none = workers_unreachable(c->admin->r->workers);
    if (none) {
        error(c, c->all ? NULL : name, none, DONE_NOT_NOW);
        free(c->after); /* the others would be told the same */
        c->after = NULL;
        return;
    }
    struct user *u = user_get(c->admin->r->users, name, strlen(name));
    if (!u) {
        error(c, name, "too many users are in memory", DONE_NOT_NOW);
        return;
    }
    static const struct admin_calls calls = {on_row, on_done, on_failed};
    struct part *p = mem_zero(sizeof *p);
    struct admin_request *q = &p->request;
    p->client = c;
    LIST_INSERT_HEAD(&c->parts, p, in_client);
    q->user = u;
    q->calls = &calls;
    q->reads = frame_verb_reads((struct text){(const uint8_t *)c->field[0], strlen(c->field[0])});
    q->arg[q->n++] = mem_strdup(c->field[0]);
    for (size_t i = 2; i < c->nfields && q->n < FRAME_ARGS_MAX; i++)
        q->arg[q->n++] = mem_strdup(c->field[i]);
    c->open++;
    u->open_after = 0; /* somebody waits for the answer, also a failure */
    if (!strcmp(q->arg[0], "forget")) {
        TAILQ_INSERT_TAIL(&u->forgets, q, link);
        user_ask_userdb(u);
    } else {
        TAILQ_INSERT_TAIL(&u->admin, q, link);
        if (!strcmp(q->arg[0], "resync")) /* what it says of him may be another thing now */
            user_ask_userdb(u);
        else
            user_plan(u);
    }
}

static void for_user(struct client *c, const char *name)
{
    if (!strcmp(c->field[0], "lag"))
        answer_user(c, answer_lag_user, name);
    else if (verb_is_join_status(c->field, c->nfields))
        answer_user(c, answer_join_user, name);
    else
        ask_user(c, name);
}

static void on_name(void *arg, const char *name, uint64_t ops, int64_t since)
{
    struct client *c = arg;
    (void)ops, (void)since;
    free(c->after);
    c->after = mem_strdup(name);
    c->named = true;
    for_user(c, name);
}

/* Of "*": the next ones, when few are under way. */
static void next_users(struct client *c)
{
    while (c->after && c->open < AT_ONCE && c->out.len <= OUT_MAX / 2)
        if (ledger_users(c->admin->r->ledger, c->after, 1, on_name, c) == 0) {
            free(c->after);
            c->after = NULL;
        }
}

static void for_users(struct client *c)
{
    const char *user = c->field[1];
    if (strcmp(c->field[0], "lag") && !verb_is_known(c->field[0])) {
        error(c, NULL, "no such verb", DONE_USAGE);
    } else if (!strcmp(c->field[0], "forget") && verb_is_forget_wrong(c->field, c->nfields)) {
        error(c, NULL, "usage: doveadm dovelane forget [-u <user> [--force]]", DONE_USAGE);
    } else if (!strcmp(user, "*")) {
        c->all = true;
        c->after = mem_strdup("");
        next_users(c);
        if (!c->after && !c->named)
            error(c, NULL,
                  sweep_running(c->admin->r->sweep)
                      ? "no user is known yet, the userdb's users are being listed: ask again in "
                        "some seconds"
                      : "no user is known: none had a change yet, and the userdb lists none "
                        "(iterate_query?). Or all are refused here, and Dovecot's log says why. "
                        "Users that have mail: doveadm dovelane resync -u USER, once for each",
                  DONE_NO_USER);
    } else if (!frame_user_ok((const uint8_t *)user, strlen(user))) {
        error(c, NULL, "no user has such a name", DONE_NO_USER);
    } else {
        for_user(c, user);
    }
}

static void surplus(struct client *c)
{
    char *text =
        mem_printf("join --status: %s: no word may follow; usage: doveadm dovelane join --status "
                   "[-u <user> | -A]",
                   c->field[3]);
    error(c, NULL, text, DONE_USAGE);
    free(text);
}

static void begin(struct client *c)
{
    const char *verb = c->field[0];
    c->busy = true;
    c->titled = c->all = c->named = c->cut = false;
    c->code = DONE_OK;
    if (c->nfields < 2)
        error(c, NULL, "a request is verb, user and arguments, separated by tabs", DONE_USAGE);
    else if (verb_is_join_status(c->field, c->nfields) && c->nfields > 3)
        surplus(c);
    else if (*c->field[1])
        for_users(c);
    else if (!strcmp(verb, "status"))
        status(c);
    else if (!strcmp(verb, "lag"))
        answer(c, answer_lag);
    else if (verb_is_join_status(c->field, c->nfields))
        answer(c, answer_join);
    else if (!strcmp(verb, "peers"))
        peers(c);
    else if (!strcmp(verb, "forget") && c->nfields == 2)
        answer(c, answer_forget);
    else
        error(c, NULL, verb_is_known(verb) ? "needs a user (-u) or all (-A)" : "no such verb",
              DONE_USAGE);
    if (!c->open && !c->after)
        finish(c);
}

/* ---- clients ---- */

static void next_line(struct client *c)
{
    char *lf;
    while (!c->busy && c->in.len && (lf = memchr(c->in.data, '\n', c->in.len))) {
        size_t n = (size_t)(lf - c->in.data);
        c->line = mem_strndup(c->in.data, n);
        buf_consume(&c->in, n + 1);
        c->nfields = 0;
        for (char *at = c->line; at && c->nfields < sizeof c->field / sizeof *c->field;) {
            char *tab = strchr(at, '\t');
            if (tab)
                *tab++ = '\0';
            c->field[c->nfields++] = at;
            at = tab;
        }
        for (size_t i = 0; i < c->nfields; i++)
            verb_unescape(c->field[i]);
        begin(c);
    }
}

static void client_free(struct client *c)
{
    struct admin *a = c->admin;
    struct part *p;
    while ((p = LIST_FIRST(&c->parts))) { /* which its user's worker may have in flight */
        LIST_REMOVE(p, in_client);
        p->client = NULL;
    }
    ev_io_stop(a->r->loop, &c->rd);
    ev_io_stop(a->r->loop, &c->wr);
    close(c->fd);
    TAILQ_REMOVE(&a->clients, c, link);
    a->n--;
    buf_free(&c->in);
    buf_free(&c->out);
    free(c->line);
    free(c->after);
    free(c);
}

static void on_readable(struct ev_loop *loop, ev_io *io, int events)
{
    struct client *c = io->data;
    char bytes[4096];
    (void)events;
    ssize_t n = recv(c->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0 || c->in.len + (size_t)n > LINE_MAX_SIZE) {
        /* One who has said all may still wait for the answer. */
        ev_io_stop(loop, io);
        c->closing = true;
        if (n != 0 || (!c->busy && !c->out.len))
            client_free(c);
        return;
    }
    buf_add(&c->in, bytes, (size_t)n);
    next_line(c);
}

/* Root, and this program's own user, whatever the socket's mode is: an admin's word removes
 * mail. */
static bool is_admin(struct admin *a, int fd)
{
    struct ucred peer = {.uid = (uid_t)-1};
    socklen_t len = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 &&
        (peer.uid == 0 || peer.uid == geteuid()))
        return true;
    if (replicator_may_say(&a->said, 60.))
        log_warning(
            "uid %d, process %d, connected to the admin's socket and was sent away: it is for root",
            (int)peer.uid, (int)peer.pid);
    return false;
}

void admin_client(struct admin *a, int fd)
{
    if (a->n >= CLIENTS_MAX || !is_admin(a, fd)) {
        close(fd);
        return;
    }
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    struct client *c = mem_zero(sizeof *c);
    c->admin = a;
    c->fd = fd;
    ev_io_init(&c->rd, on_readable, fd, EV_READ);
    ev_io_init(&c->wr, on_writable, fd, EV_WRITE);
    c->rd.data = c->wr.data = c;
    ev_io_start(a->r->loop, &c->rd);
    TAILQ_INSERT_TAIL(&a->clients, c, link);
    a->n++;
}

static void one_that_waits(struct user *u, void *arg)
{
    struct user **found = arg;
    if (!*found && !(TAILQ_EMPTY(&u->admin) && TAILQ_EMPTY(&u->forgets)))
        *found = u;
}

void admin_run(struct admin *a)
{
    const char *none;
    struct user *u;
    /* What ends may ask for more users, which are refused then: so this ends, too. */
    while (a->n && (none = workers_unreachable(a->r->workers)) &&
           (u = NULL, users_each(a->r->users, one_that_waits, &u), u))
        user_fail_requests(u, none, true);
}

struct admin *admin_open(struct replicator *r)
{
    struct admin *a = mem_zero(sizeof *a);
    a->r = r;
    TAILQ_INIT(&a->clients);
    return a;
}

void admin_close(struct admin *a)
{
    if (!a)
        return;
    while (!TAILQ_EMPTY(&a->clients))
        client_free(TAILQ_FIRST(&a->clients));
    free(a);
}
