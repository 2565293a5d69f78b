/* link - the connection with main: frames in and out. Main asks one thing at a time, so reading
 * may block while an answer is waited for; between questions the ioloop waits. */
#include "dovecot-plugin/worker/worker.h"

#include <ioloop.h>
#include <net.h>
#include <write-full.h>

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

struct link {
    int fd;
    struct io *io;
    struct mail_storage_service_ctx *storage_service;
    void (*ended)(void);
    buffer_t *in;
    struct orset_buf out;
    struct group group;
    pool_t group_pool;
    struct session *session;
    timer_t watch;
    struct timeout *beat;
    unsigned beat_secs; /* it puts the end off by so long */
    /* seconds without a frame after which a question will never be answered; 0: not told */
    unsigned patience;
    bool watched, broken;
};

static struct link *the_link;

/* --- a question that has no end, a process that is stopped ---
 *
 * A user can make a file of his a FIFO; whoever opens it, Dovecot's library or we, waits for
 * ever, with the user's lock. Main gives up after worker_timeout, but cannot end another user's
 * process, and a few such users would take all workers. No signal that has a handler will do:
 * the library's calls go on behind it. A user can also stop a process that has his id (SIGSTOP),
 * with a question or without one; Dovecot starts no more than process_limit of them. */

#define ALIVE_LEAST 5 /* seconds; as FRAME_ALIVE_MOST, where worker_timeout is short */

static void watch(struct link *l, unsigned secs)
{
    const struct itimerspec when = {.it_value.tv_sec = secs};
    if (l->watched && timer_settime(l->watch, 0, &when, NULL) < 0)
        i_error("timer_settime(): %m");
}

static void watch_begin(struct link *l)
{
    struct sigevent end = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
    l->watched = timer_create(CLOCK_MONOTONIC, &end, &l->watch) == 0;
    if (!l->watched)
        i_error("timer_create(): %m; a user whose files cannot be read takes a worker for ever");
}

/* Without a user there is nothing that takes long: not even a stopped process stays. */
static bool is_at_rest(const struct link *l)
{
    return credentials_kept() != 0 && l->session == NULL;
}

static unsigned alive_secs(const struct link *l)
{
    if (is_at_rest(l))
        return FRAME_ENDS_WITHIN;
    if (l->patience == 0 || l->patience > FRAME_ALIVE_MOST)
        return FRAME_ALIVE_MOST;
    return l->patience < ALIVE_LEAST ? ALIVE_LEAST : l->patience;
}

/* Puts off the end. */
static void alive(struct link *l)
{
    watch(l, alive_secs(l));
}

static void keep_alive(struct link *l)
{
    unsigned secs = alive_secs(l);
    if (secs != l->beat_secs) {
        timeout_remove(&l->beat);
        l->beat = timeout_add_short(secs * 1000 / 3, alive, l);
        l->beat_secs = secs;
    }
    alive(l);
}

/* --- bytes ------------------------------------------------------------------------------------ */

/* Main has ended its half of the connection: it heeds nothing more, and waits for this process to
 * end (replicator/workers/ending.h). Then no word puts off the end any more. */
static bool is_unheard(const struct link *l)
{
    struct pollfd p = {.fd = l->fd, .events = POLLRDHUP};
    return poll(&p, 1, 0) > 0;
}

int link_send(struct link *l, const struct frame *f)
{
    bool last = is_at_rest(l) &&
                (f->type == FRAME_DONE || f->type == FRAME_FAIL || f->type == FRAME_ELSEWHERE);
    l->out.len = 0;
    if (last) /* before the word: its user may stop this process right behind it */
        watch(l, FRAME_ENDS_WITHIN);
    if (l->broken || is_unheard(l) || frame_encode(&l->out, f) < 0 ||
        write_full(l->fd, l->out.data, l->out.len) < 0) {
        l->broken = TRUE;
        return -1;
    }
    if (!last)
        watch(l, l->patience);
    return 0;
}

/* 1: a whole frame is in l->in; 0: not yet; -1: the connection ended or speaks something else. */
static int have_frame(struct link *l, size_t *len_r)
{
    int r = frame_split(l->in->data, l->in->used, len_r);
    if (r < 0)
        i_error("main sent what is no frame");
    return r;
}

static int read_some(struct link *l)
{
    void *to = buffer_append_space_unsafe(l->in, 65536);
    ssize_t n = read(l->fd, to, 65536);
    buffer_set_used_size(l->in, l->in->used - 65536 + (n > 0 ? (size_t)n : 0));
    return n > 0 ? 0 : -1;
}

int link_reserve(struct link *l, enum frame_reserve what, uint64_t epoch, uint64_t counter,
                 bool *new_epoch_r)
{
    struct frame f = {.type = FRAME_RESERVE};
    size_t len;
    int r;
    f.u.reserve.what = what;
    f.u.reserve.epoch = epoch;
    f.u.reserve.counter = counter;
    if (link_send(l, &f) < 0)
        return -1;
    /* The question in work was taken out of the buffer; what comes next is the answer. */
    while ((r = have_frame(l, &len)) == 0) {
        if (read_some(l) < 0) {
            r = -1; /* main is gone */
            break;
        }
    }
    if (r < 0 || frame_decode(&f, l->in->data, len) < 0 || f.type != FRAME_RESERVED) {
        l->broken = TRUE;
        return -1;
    }
    buffer_delete(l->in, 0, len);
    if (new_epoch_r != NULL)
        *new_epoch_r = f.u.reserved.new_epoch;
    return f.u.reserved.ok ? 0 : -1;
}

/* --- HELLO ------------------------------------------------------------------------------------ */

static const char *text_dup(pool_t pool, struct text t)
{
    return p_strndup(pool, t.p, t.n);
}

static void take_hello(struct link *l, const struct frame_hello *h)
{
    static const char here[] = "the process is there";
    struct group *g = &l->group;
    if (h->version != FRAME_VERSION) {
        i_error("dovelane-replicator speaks version %u of the frames, this worker %d: restart "
                "Dovecot, so that both are of one version",
                h->version, FRAME_VERSION);
        l->broken = TRUE;
        return;
    }
    i_zero(g);
    p_clear(l->group_pool);
    g->known = TRUE;
    g->self = h->self;
    g->nsites = (unsigned)h->nsites;
    memcpy(g->site, h->site, h->nsites * sizeof h->site[0]);
    g->nnamespaces = (unsigned)h->nnamespaces;
    for (unsigned i = 0; i < g->nnamespaces; i++)
        g->ns[i] = text_dup(l->group_pool, h->ns[i]);
    g->public_user = "";
    g->brake_count = 20;
    g->brake_percent = 10;
    g->brake_wait = 2000;
    for (size_t i = 0; i < h->nsettings; i++) {
        const char *key = t_strndup(h->setting[i].key.p, h->setting[i].key.n);
        const char *value = text_dup(l->group_pool, h->setting[i].value);
        unsigned n;
        if (strcmp(key, "public_user") == 0)
            g->public_user = value;
        else if (strcmp(key, "brake_count") == 0 && str_to_uint(value, &n) == 0)
            g->brake_count = n;
        else if (strcmp(key, "brake_percent") == 0 && str_to_uint(value, &n) == 0)
            g->brake_percent = n;
        else if (strcmp(key, "worker_timeout") == 0 && str_to_uint(value, &n) == 0)
            l->patience = frame_patience(n);
        else if (strcmp(key, "brake_wait") == 0 && str_to_uint(value, &n) == 0)
            g->brake_wait = n;
        else if (strcmp(key, "nice") == 0 && str_to_uint(value, &n) == 0 &&
                 setpriority(PRIO_PROCESS, 0, (int)n) < 0)
            i_warning("setpriority(%u): %m", n);
    }
    keep_alive(l);
    const struct text text = {(const uint8_t *)here, strlen(here)};
    /* While it is root's: a process that its user stops before its first word would be taken for
     * one that Dovecot did not start. */
    if (credentials_kept() == 0)
        (void)link_send(l, &(struct frame){.type = FRAME_NOTE, .u.note = {NOTE_DEBUG, text}});
}

/* --- questions -------------------------------------------------------------------------------- */

static void send_fail(struct link *l, bool permanent, const char *text)
{
    struct frame f = {.type = FRAME_FAIL};
    f.u.fail.permanent = permanent;
    f.u.fail.text = (struct text){(const uint8_t *)text, I_MIN(strlen(text), FRAME_TEXT_MAX)};
    (void)link_send(l, &f);
}

/* The last frame: this process ends. */
static void send_elsewhere(struct link *l)
{
    (void)link_send(l, &(struct frame){.type = FRAME_ELSEWHERE});
    l->broken = TRUE;
}

#define UNPLACED_AGAIN 10000 /* milliseconds */

/* What main shows an admin, and adds up. */
static void say_progress(struct session *s, struct frame_done *d)
{
    count_waiting(s);
    d->unplaced = s->unplaced;
    d->held = s->quarantined;
    d->joins = s->exchange_first      ? FRAME_JOINING
               : s->unasked           ? FRAME_UNASKED
               : peers_are_reading(s) ? FRAME_READING
                                      : FRAME_JOINED;
    d->placed = s->placed;
    d->placed_bytes = s->placed_bytes;
    s->placed = s->placed_bytes = 0;
}

static void send_done(struct link *l, enum frame_result result)
{
    struct session *s = l->session;
    struct frame f = {.type = FRAME_DONE};
    struct frame_done *d = &f.u.done;
    const char *text = result == FRAME_OK ? "" : session_error(s);
    uint64_t counter = orset_vector_get(s->os, orset_self(s->os));
    d->result = result;
    d->text = (struct text){(const uint8_t *)text, I_MIN(strlen(text), FRAME_TEXT_MAX)};
    for (unsigned i = 0; i < s->npeers; i++) {
        const struct peer *p = &s->peer[i];
        d->site[d->nsites++] =
            (struct frame_site){.site = p->site,
                                .unconfirmed = counter > p->confirmed ? counter - p->confirmed : 0,
                                .behind = p->behind,
                                .owed = p->owed,
                                .more = p->more,
                                .asking = p->exchange != NULL};
    }
    say_progress(s, d);
    /* Their bodies were asked for by another question than this one, perhaps of a session that
     * was closed since. */
    d->tick = s->tick == 0 && s->unplaced > 0 && s->npeers > 0 ? UNPLACED_AGAIN : s->tick;
    /* The word that it has read may be lost, and main is told when nobody waits for it any
     * longer. */
    uint64_t read = d->joins == FRAME_READING ? peers_read_within(s) : 0;
    d->tick = read > 0 && (d->tick == 0 || read < d->tick) ? read : d->tick;
    (void)link_send(l, &f);
}

static void look_up(struct link *l, struct text user)
{
    struct frame f = {.type = FRAME_CREDENTIALS};
    const char *error = "this worker has opened somebody: ask another one";
    const char *name = NULL;
    bool permanent = FALSE;
    if (credentials_kept() == 0)
        f.u.credentials.number = user_credentials(l->storage_service, t_strndup(user.p, user.n),
                                                  &name, &permanent, &error);
    if (f.u.credentials.number == 0) {
        send_fail(l, permanent, error);
        return;
    }
    f.u.credentials.user = (struct text){(const uint8_t *)name, strlen(name)};
    if (frame_user_ok(f.u.credentials.user.p, f.u.credentials.user.n))
        (void)link_send(l, &f);
    else
        send_fail(l, TRUE,
                  "the userdb gives him a name that cannot be replicated: empty, too long, or with "
                  "control characters or a slash");
}

static void open_user(struct link *l, struct text user, uint64_t credentials)
{
    struct frame f = {.type = FRAME_READY};
    const char *error;
    bool permanent;
    uint64_t lowest;
    l->session = session_open(l, &l->group, l->storage_service, t_strndup(user.p, user.n),
                              credentials, &permanent, &error);
    if (l->session == NULL && error == NULL) {
        send_elsewhere(l);
        return;
    }
    if (l->session == NULL) {
        send_fail(l, permanent, error);
        return;
    }
    f.u.ready.created = l->session->created;
    f.u.ready.exchange = l->session->exchange_first;
    (void)orset_out(l->session->os, &f.u.ready.unconfirmed, &lowest);
    (void)link_send(l, &f);
}

static enum frame_result result_of(int r)
{
    return r < 0 ? FRAME_TEMPORARY : FRAME_OK;
}

void link_reply(struct link *l, const char *fmt, ...)
{
    struct frame f = {.type = FRAME_REPLY};
    va_list va;
    va_start(va, fmt);
    const char *text = t_strdup_vprintf(fmt, va);
    va_end(va);
    f.u.reply.more = TRUE;
    f.u.reply.text = (struct text){(const uint8_t *)text, I_MIN(strlen(text), FRAME_TEXT_MAX)};
    (void)link_send(l, &f);
}

/* ADMIN "users" without an open user: all that the userdb lists. */
static void list_users(struct link *l)
{
    struct frame f = {.type = FRAME_DONE};
    const char *user;
    int r;
    if (credentials_kept() != 0) {
        f.u.done.result = FRAME_REFUSED;
        (void)link_send(l, &f);
        return;
    }
    /* Auth lists for root alone: where the service is not root's, this cannot be had. Not "":
     * 2.4 compares it with the names of a passwd-file, and lists none. */
    mail_storage_service_all_init_mask(l->storage_service, "*");
    while ((r = mail_storage_service_all_next(l->storage_service, &user)) > 0)
        link_reply(l, "%s", user);
    if (r < 0)
        f.u.done.result = FRAME_REFUSED;
    (void)link_send(l, &f);
}

static enum frame_result run_admin(struct session *s, const struct frame *f)
{
    const char *args[FRAME_ARGS_MAX + 1];
    for (size_t i = 0; i < f->u.admin.n; i++)
        args[i] = t_strndup(f->u.admin.arg[i].p, f->u.admin.arg[i].n);
    args[f->u.admin.n] = NULL;
    return admin(s, args);
}

/* A retry's own trouble is in the log and in "unplaced", it is no failure of the question. What
 * was to be looked at again when the user was last closed is not known: all mailboxes are, once. */
static enum frame_result tick(struct session *s, bool first)
{
    const struct frame_ingest all = {.n = 0};
    int r = s->exchange_first || s->scan_again || first ? ingest(s, &all) : apply(s, 0);
    give_rest(s);
    return result_of(peer_exchanges_run(s) < 0 || uid_rounds_run(s) < 0 || r < 0 ? -1 : 0);
}

/* The user anew, before anything is concluded from files that are not there any more. */
static bool reopen(struct link *l)
{
    const char *user = t_strdup(l->session->user->username), *error;
    bool permanent;
    session_close(&l->session);
    l->session = session_open(l, &l->group, l->storage_service, user, 0, &permanent, &error);
    if (l->session == NULL)
        send_fail(l, permanent,
                  error != NULL
                      ? error
                      : "the user has other credentials than before: a new worker will open it");
    return l->session != NULL;
}

/* Other questions that come between do not put off when the mailboxes are looked at again. */
static void keep_look(struct session *s)
{
    struct timespec now;
    if (!s->scan_again) {
        s->scan_due = 0;
        return;
    }
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    if (s->scan_due == 0)
        s->scan_due = ms + (s->tick != 0 ? s->tick : 1000);
    session_want_tick(s, s->scan_due > ms ? (unsigned)(s->scan_due - ms) : 1);
}

static void serve_user(struct link *l, const struct frame *f)
{
    if (session_replaced(l->session) && !reopen(l))
        return;
    struct session *s = l->session;
    enum frame_result result = FRAME_OK;
    s->tick = 0;
    s->send_room = OUTBOX_MOST;
    str_truncate(s->error, 0);
    switch (f->type) {
    case FRAME_INGEST: result = result_of(ingest(s, &f->u.ingest)); break;
    case FRAME_PARCEL: result = peer_parcel(s, &f->u.parcel); break;
    case FRAME_SHIP:
        result = result_of(ship(s, f->u.ship.site, f->u.ship.how, f->u.ship.from));
        break;
    case FRAME_TICK: result = tick(s, !s->scanned); break;
    case FRAME_ADMIN: result = run_admin(s, f); break;
    default: i_unreached();
    }
    s->scanned = s->scanned || f->type == FRAME_INGEST || f->type == FRAME_TICK;
    if (peers_say_read(s) < 0)
        result = FRAME_TEMPORARY;
    /* Whatever was found by the way: a flag set while others were applied, a mailbox compared
     * again. */
    if (send_new_ops(s) < 0 && result == FRAME_OK)
        result = FRAME_TEMPORARY;
    uid_rounds_wanted(s);
    peer_join_waits(s);
    keep_look(s);
    if (array_count(&s->pending_wants) > 0)
        session_want_tick(s, 1); /* whatever was asked in between */
    send_done(l, result);
}

static void close_user(struct link *l)
{
    struct frame f = {.type = FRAME_DONE};
    session_close(&l->session);
    (void)link_send(l, &f);
}

static void serve(struct link *l, const struct frame *f)
{
    switch (f->type) {
    case FRAME_HELLO: take_hello(l, &f->u.hello); return;
    case FRAME_OPEN:
        if (l->group.known && l->session == NULL) {
            open_user(l, f->u.open.user, f->u.open.credentials);
            return;
        }
        break;
    case FRAME_LOOKUP:
        if (l->group.known && l->session == NULL) {
            look_up(l, f->u.lookup.user);
            return;
        }
        break;
    case FRAME_INGEST:
    case FRAME_PARCEL:
    case FRAME_SHIP:
    case FRAME_TICK:
    case FRAME_ADMIN:
        if (l->session != NULL) {
            serve_user(l, f);
            return;
        }
        if (f->type == FRAME_ADMIN && f->u.admin.n == 1 && f->u.admin.arg[0].n == 5 &&
            memcmp(f->u.admin.arg[0].p, "users", 5) == 0) {
            list_users(l);
            return;
        }
        break;
    case FRAME_CLOSE:
        if (l->session != NULL) {
            close_user(l);
            return;
        }
        break;
    default: break;
    }
    i_error("main sent frame %d out of turn", f->type);
    l->broken = TRUE;
}

static void link_input(struct link *l)
{
    size_t len;
    int r;
    if (read_some(l) < 0)
        l->broken = TRUE;
    while (!l->broken && (r = have_frame(l, &len)) != 0) {
        struct frame f;
        if (r < 0) {
            l->broken = TRUE;
            break;
        }
        /* The bytes are the question's until it is answered: RESERVED is read behind them. */
        buffer_t *question = buffer_create_dynamic(default_pool, len);
        buffer_append(question, l->in->data, len);
        buffer_delete(l->in, 0, len);
        T_BEGIN
        {
            if (frame_decode(&f, question->data, question->used) < 0) {
                i_error("main sent a malformed frame");
                l->broken = TRUE;
            } else {
                watch(l, l->patience);
                serve(l, &f);
            }
        }
        T_END;
        buffer_free(&question);
    }
    keep_alive(l);
    if (l->broken) {
        void (*ended)(void) = l->ended;
        link_destroy();
        ended();
    }
}

/* --- life ------------------------------------------------------------------------------------- */

void link_create(int fd, struct mail_storage_service_ctx *storage_service, void (*ended)(void))
{
    i_assert(the_link == NULL);
    struct link *l = the_link = i_new(struct link, 1);
    l->fd = fd;
    net_set_nonblock(fd, FALSE);
    l->storage_service = storage_service;
    l->ended = ended;
    l->in = buffer_create_dynamic(default_pool, 65536);
    l->out.alloc = session_alloc();
    l->group_pool = pool_alloconly_create("group", 1024);
    watch_begin(l);
    keep_alive(l);
    l->io = io_add(fd, IO_READ, link_input, l);
}

void link_destroy(void)
{
    struct link *l = the_link;
    if (l == NULL)
        return;
    the_link = NULL;
    watch(l, l->patience);
    if (l->session != NULL)
        session_close(&l->session);
    timeout_remove(&l->beat);
    io_remove(&l->io);
    if (credentials_kept() != 0) {
        /* A process that was a user's ends now, or its user stops it: nobody but root could end
         * it then. Main waits for that end (replicator/workers/ending.h): the exit closes the
         * connection. */
        watch(l, FRAME_ENDS_WITHIN);
    } else {
        if (l->watched)
            (void)timer_delete(l->watch);
        i_close_fd(&l->fd);
    }
    buffer_free(&l->in);
    orset_buf_free(&l->out);
    pool_unref(&l->group_pool);
    i_free(l);
}
