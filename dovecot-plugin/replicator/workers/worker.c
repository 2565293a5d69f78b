/* worker - one connection: questions and answers, and its end. */
#include "dovecot-plugin/replicator/workers/worker_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "dovecot-plugin/replicator/users/confirm.h"
#include "dovecot-plugin/replicator/users/holders.h"
#include "dovecot-plugin/replicator/site/ledger.h"
#include "dovecot-plugin/replicator/workers/forget.h"
#include "dovecot-plugin/replicator/workers/hello.h"
#include "lib/base/log.h"
#include "lib/base/metrics.h"
#include "dovecot-plugin/replicator/users/pace.h"
#include "dovecot-plugin/replicator/users/progress.h"
#include "dovecot-plugin/store/reserve.h"
#include "dovecot-plugin/replicator/users/sched.h"
#include "dovecot-plugin/replicator/lanes/outbox.h"
#include "dovecot-plugin/replicator/lanes/inbox.h"
#include "dovecot-plugin/replicator/users/sweep.h"
#include "dovecot-plugin/replicator/users/turn.h"
#include "dovecot-plugin/replicator/users/unproven.h"

#define READ_SIZE 65536
#define CONNECT_AGAIN 1. /* seconds */
#define ASK_DOUBLED 9    /* times at most, where no answer came */
/* an exchange that was lost with its worker's memory begins anew after so long */
#define ASK_AGAIN 1.

enum loss {
    GONE,  /* its connection ended */
    WRONG, /* it says what it may not */
    SILENT /* it owed an answer for all of worker_timeout */
};

static bool owes(const struct worker *w)
{
    return w->state != IDLE && w->state != WARM && w->state != ENDING;
}

/* ---- sending ---- */

void worker_flush(struct worker *w)
{
    while (w->sent < w->out.len) {
        ssize_t n =
            send(w->fd, w->out.data + w->sent, w->out.len - w->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            /* A connection that is gone is seen by the reader. */
            if (errno == EAGAIN)
                ev_io_start(w->all->r->loop, &w->wr);
            return;
        }
        w->sent += (size_t)n;
    }
    ev_io_stop(w->all->r->loop, &w->wr);
    w->sent = w->out.len = w->reserved = 0;
    if (w->out.room > 1024 * 1024)
        orset_buf_free(&w->out);
}

static void on_writable(struct ev_loop *loop, ev_io *io, int events)
{
    (void)loop, (void)events;
    worker_flush(io->data);
}

void worker_set_patience(struct worker *w, int64_t ms)
{
    struct ev_loop *loop = w->all->r->loop;
    ev_timer_stop(loop, &w->patience);
    ev_timer_set(&w->patience, seconds(ms), 0.);
    ev_timer_start(loop, &w->patience);
}

/* false: it does not fit into a frame (nothing was sent). */
static bool say(struct worker *w, const struct frame *f)
{
    return frame_encode(&w->out, f) == 0;
}

void worker_ask(struct worker *w, enum state state, const struct frame *f)
{
    say(w, f);
    w->state = state;
    w->told_origins = false;
    if (w->user)
        w->user->asked_at = clock_monotonic();
    worker_set_patience(w, w->all->r->config->worker_timeout);
}

void worker_tell_retired(struct worker *w, const struct user *u)
{
    struct orset_buf b = {.alloc = &replicator_heap};
    ledger_get_retired(w->all->r->ledger, u->name, &b);
    if (b.len > 0)
        say(w, &(struct frame){.type = FRAME_RETIRED, .u.origins = {b.data, b.len}});
    orset_buf_free(&b);
}

void worker_ask_close(struct worker *w)
{
    turn_leave(w->user);
    worker_ask(w, CLOSING, &(struct frame){.type = FRAME_CLOSE});
}

/* ---- without a user ---- */

/* What it knew of its user's exchanges is lost. */
static void forget_exchanges(struct worker *w)
{
    struct user *u = w->user;
    struct replicator *r = w->all->r;
    if (!u)
        return;
    turn_forget(u);
    for (size_t i = 0; i < r->group.npeers; i++) {
        /* It was closed before it was answered. */
        struct user_peer *p = &u->peer[i];
        unsigned doubled = p->cut_offs < ASK_DOUBLED ? p->cut_offs : ASK_DOUBLED;
        double soon = clock_monotonic() + ASK_AGAIN * (double)(1U << doubled);
        p->cut_offs += p->asking;
        if (p->asking && (p->exchange_at == 0 || p->exchange_at > soon))
            p->exchange_at = soon;
        p->cut_off = p->cut_off || p->asking;
        p->asking = false;
    }
    user_drop_answers(u);
}

/* Its user can have another worker. */
static void part(struct worker *w)
{
    struct user *u = w->user;
    w->user = NULL;
    w->state = IDLE;
    if (!u)
        return;
    holders_remove(u);
    u->worker = NULL;
    u->asked_at = 0;
    confirm_closed(u);
    user_plan(u);
}

/* Its user is closed. */
static void release(struct worker *w)
{
    forget_exchanges(w);
    /* Where users have ids of their own, an idle process is one that its user can stop, and the
     * next user would wait for it. */
    w->old = w->old || (w->credentials != 0 && w->all->several);
    ev_timer_stop(w->all->r->loop, &w->patience);
    if (w->old && w->user && !w->root)
        w->state = ENDING;
    else
        part(w);
}

void worker_free(struct worker *w)
{
    struct workers *ws = w->all;
    ev_io_stop(ws->r->loop, &w->rd);
    ev_io_stop(ws->r->loop, &w->wr);
    ev_timer_stop(ws->r->loop, &w->patience);
    if (w->fd >= 0)
        close(w->fd);
    ASSERT(w->root || ws->n > 0);
    TAILQ_REMOVE(&ws->list, w, link);
    if (w->root)
        ws->root = NULL;
    else
        metric_set(replicator_workers, (long long)--ws->n);
    buf_free(&w->in);
    orset_buf_free(&w->out);
    free(w);
}

void worker_end(struct worker *w, bool judged)
{
    struct workers *ws = w->all;
    struct user *u = w->user;
    int fd = w->fd;
    if (w->credentials == 0 || ws->r->stopping) {
        part(w);
        worker_free(w);
        return;
    }
    if (u) {
        u->worker = NULL;
        confirm_closed(u);
    }
    w->fd = -1;
    worker_free(w);
    endings_add(ws->endings, fd, u, judged);
}

/* The user's next attempt waits, longer each time. */
static void user_failed(struct user *u, const char *why, size_t n)
{
    metric_add(replicator_failures, 1);
    u->open_after = user_backoff(&u->open_wait);
    if (user_may_say(u))
        log_of(LOG_LEVEL_WARNING, LOG_FIELD_user, u->name, "%.*s; again in %g s", (int)n, why,
               u->open_wait);
    user_trim_parcels(u, inbox_crowded(u->r->inbox));
}

/* Takes why. */
static void unreachable(struct workers *ws, char *why)
{
    free(ws->unreachable);
    ws->unreachable = why;
    ws->connect_after = clock_monotonic() + CONNECT_AGAIN;
    if (replicator_may_say(&ws->said, 30.))
        log_warning("%s", why);
}

static void lost(struct worker *w, const char *why, enum loss how)
{
    struct user *u = w->user;
    struct workers *ws = w->all;
    double owed = u && u->asked_at != 0
                      ? clock_monotonic() - (u->asked_at > w->heard_at ? u->asked_at : w->heard_at)
                      : 0;
    /* One that was never heard is no process of Dovecot's yet: the user has held nothing. */
    bool judged = u && w->state != LOOKING && w->heard;
    if (judged && (how == SILENT || owed >= USER_LENGTHY_AFTER))
        user_is(u, USER_SLOW);
    else if (judged)
        user_held(u); /* who says a word before he ends it has held it no less */
    if (u && !w->heard) {
        /* Dovecot's master has no process for us, it seems. */
        /* or it is this user whom no worker survives */
        u->open_after = user_backoff(&u->open_wait);
        unreachable(ws, mem_printf("%s: %s before a worker answered: Dovecot's log says why none "
                                   "starts; or is process_limit of service dovelane-worker not "
                                   "above replicator_workers?",
                                   ws->path, why));
    } else if (u && (w->state == WARM || ws->r->stopping)) {
        /* Dovecot ends it, as with each reload; the user is closed by the worker itself */
        job_again(&w->job, u);
    } else if (u) {
        metric_add(replicator_workers_lost, 1);
        job_again(&w->job, u);
        user_failed(u, why, strlen(why));
    } else if (w->state == LISTING) {
        sweep_listed(ws->r->sweep, false);
    } else if (replicator_may_say(&ws->said, 10.)) {
        log_debug("worker: %s", why);
    }
    forget_exchanges(w);
    if (how != GONE) {
        worker_end(w, how == SILENT);
        return;
    }
    part(w);
    worker_free(w);
}

/* ---- answers ---- */

static void on_credentials(struct worker *w, const struct frame *f)
{
    struct workers *ws = w->all;
    uint64_t number = f->u.credentials.number;
    if (user_is_another(w->user, (const char *)f->u.credentials.user.p, f->u.credentials.user.n)) {
        job_unknown(w->user);
        release(w);
        return;
    }
    w->user->credentials = number;
    if (ws->credentials == 0)
        ws->credentials = number;
    ws->several = ws->several || number != ws->credentials;
    if (w->user->ask_userdb)
        forget_living(w->user);
    release(w);
}

static void on_ready(struct worker *w, const struct frame *f)
{
    struct user *u = w->user;
    struct replicator *r = w->all->r;
    bool first = false;
    u->open_wait = 0;
    u->opened_at = clock_monotonic();
    u->tick_kept = u->tick_at != 0;
    u->elsewhere = false;
    u->unknown_until = 0;
    unproven_end(u);
    u->joins = f->u.ready.exchange;
    if (u->joins)
        progress_joins(u, FRAME_JOINING);
    w->state = WARM;
    u->stirred = true;
    ev_timer_stop(r->loop, &w->patience);
    for (size_t i = 0; i < r->group.npeers; i++) {
        struct user_peer *p = &u->peer[i];
        if (r->group.peer[i].removed)
            continue;
        /* At once, and again while it lasts: a question or its answer may be lost. */
        double now = clock_monotonic();
        if ((f->u.ready.created || f->u.ready.exchange) && p->exchange_at == 0) {
            bool lately = p->exchange_asked != 0 && now - p->exchange_asked < ASK_AGAIN;
            first = first || p->exchange_asked == 0;
            if (!lately && user_may_ask(u, i))
                p->want |= 1u << FRAME_SHIP_EXCHANGE;
            if (!lately)
                p->exchange_asked = now;
            p->exchange_at = now + (lately ? ASK_AGAIN : p->exchange_wait);
        }
        if (f->u.ready.unconfirmed && p->resend_at == 0)
            p->resend_at = clock_monotonic() + p->resend_wait;
    }
    if (f->u.ready.exchange && first)
        log_of(LOG_LEVEL_INFO, LOG_FIELD_user, u->name,
               "the state got a new epoch: it exchanges with the other replicas first");
}

static void on_fail(struct worker *w, const struct frame *f)
{
    struct user *u = w->user;
    struct text t = f->u.fail.text;
    if (!u) {
        if (w->state == LISTING)
            sweep_listed(w->all->r->sweep, false);
        w->state = IDLE;
        return;
    }
    char *why = mem_strndup((const char *)t.p, t.n < 500 ? t.n : 500);
    if (w->state == OPENING && w->existing) {
        /* What else came meanwhile has him opened with whatever is to be made. */
        user_fail_reads(u, *why ? why : "the user cannot be opened", !f->u.fail.permanent);
        free(why);
        release(w);
        return;
    }
    job_failed(&w->job, why);
    job_again(&w->job, u);
    if (f->u.fail.nobody)
        forget_nobody(u);
    u->absent = f->u.fail.nobody || f->u.fail.unwanted;
    /* An admin would wait for nothing. */
    user_fail_requests(u, *why ? why : "the user cannot be opened", !f->u.fail.permanent);
    if (f->u.fail.permanent) {
        if (f->u.fail.unwanted)
            log_of(LOG_LEVEL_DEBUG, LOG_FIELD_user, u->name, "%s", why);
        else if (user_may_say(u))
            log_of(LOG_LEVEL_WARNING, LOG_FIELD_user, u->name, "cannot be replicated here: %s",
                   why);
        job_unknown(u);
    } else {
        user_failed(u, why, strlen(why));
    }
    free(why);
    release(w);
}

/* The user is looked up again, and opened by another one. */
static void on_elsewhere(struct worker *w)
{
    struct user *u = w->user;
    u->credentials = 0;
    /* again: a userdb that says another thing each time starts a process each time */
    if (u->elsewhere)
        u->open_after = user_backoff(&u->open_wait);
    u->elsewhere = true;
    w->old = true;
    release(w);
}

static void on_done(struct worker *w, const struct frame *f)
{
    struct user *u = w->user;
    struct replicator *r = w->all->r;
    metric_add(replicator_jobs, 1);
    if (w->state == LISTING) {
        sweep_listed(r->sweep, f->u.done.result == FRAME_OK);
        release(w);
        return;
    }
    if (w->state == CLOSING) { /* it says nothing of the user: the wish for a tick stands */
        release(w);
        return;
    }
    ev_timer_stop(w->all->r->loop, &w->patience);
    user_done(u, &f->u.done);
    const struct parcel_in_flight *parcel = w->job.kind == JOB_PARCEL ? w->job.parcel : NULL;
    if (turn_answered(u, parcel, &f->u.done, sched_is_next(r->sched, u)))
        worker_set_patience(w, (int64_t)(turn_hold_for(r) * 1000));
    job_done(&w->job, u, &f->u.done);
    w->state = WARM;
    w->used = clock_monotonic();
    user_plan(u);
}

static void on_reply(struct worker *w, const struct frame *f)
{
    if (w->state == LISTING)
        sweep_name(w->all->r->sweep, f->u.reply.text);
    else
        job_reply(&w->job, f->u.reply.text);
}

/* A worker waits for each answer. One that asks on and reads none would have all of them kept
 * here, and main, who waits for the disk with each, do nothing else: so one is asked in a turn
 * of its loop. */
static bool reads_answers(const struct worker *w)
{
    return w->sent >= w->reserved;
}

/* Which record it is about is no matter of the worker's: each user has one. */
static void on_reserve(struct worker *w, const struct frame *f)
{
    struct replicator *r = w->all->r;
    uint8_t key[16];
    reserve_user_key(w->user->name, key);
    w->user->epoch = f->u.reserve.epoch;
    w->user->counter = f->u.reserve.counter;
    struct frame a = {.type = FRAME_RESERVED};
    int got = -1;
    switch (f->u.reserve.what) {
    case FRAME_RESERVE_CHECK:
        got = reserve_check(r->reserve, key, f->u.reserve.epoch, f->u.reserve.counter);
        break;
    case FRAME_RESERVE_RAISE:
        got = reserve_raise(r->reserve, key, f->u.reserve.epoch, f->u.reserve.counter);
        break;
    case FRAME_RESERVE_NOTE: got = reserve_note(r->reserve, key, f->u.reserve.counter); break;
    case FRAME_RESERVE_CLEAN:
        got = reserve_clean(r->reserve, key, f->u.reserve.epoch, f->u.reserve.counter);
        break;
    }
    if (got < 0 && replicator_may_say(&w->all->said, 10.))
        log_of(LOG_LEVEL_ERROR, LOG_FIELD_user, w->user ? w->user->name : "",
               "the file of reserved numbers: %s", strerror(errno));
    a.u.reserved.ok = got >= 0;
    a.u.reserved.new_epoch = got == RESERVE_NEW_EPOCH && f->u.reserve.what == FRAME_RESERVE_CHECK;
    say(w, &a);
    w->reserved = w->out.len;
}

static void on_note(struct worker *w, const struct frame *f)
{
    static const enum log_level level[] = {LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO,
                                           LOG_LEVEL_DEBUG};
    log_line(level[f->u.note.level], "user=%s: %.*s", w->user ? w->user->name : "",
             (int)f->u.note.text.n, (const char *)f->u.note.text.p);
}

/* In which states an answer may come. */
static bool in_place(const struct worker *w, enum frame_type type)
{
    switch (type) {
    case FRAME_READY: return w->state == OPENING;
    case FRAME_ELSEWHERE: return w->state == OPENING;
    case FRAME_CREDENTIALS: return w->state == LOOKING;
    case FRAME_FAIL: return owes(w);
    case FRAME_DONE: return w->state == BUSY || w->state == CLOSING || w->state == LISTING;
    case FRAME_SEND: return w->user && owes(w);
    case FRAME_REPLY: return w->state == LISTING || (w->state == BUSY && w->job.kind == JOB_ADMIN);
    /* also of one that is warm and ended by Dovecot's master */
    case FRAME_RESERVE: return w->user && w->state != ENDING && reads_answers(w);
    case FRAME_APART: return w->user && (w->state == OPENING || w->state == BUSY);
    case FRAME_ORIGINS:
        return w->user && !w->told_origins && (w->state == OPENING || w->state == BUSY);
    case FRAME_NOTE: return true;
    default: return false;
    }
}

/* A word now and then would keep a worker for ever: where others need it, the last wait is not
 * begun anew. */
static bool is_overlong(const struct worker *w)
{
    const struct replicator *r = w->all->r;
    return w->user && w->user->asked_at != 0 &&
           clock_monotonic() - w->user->asked_at > seconds(r->config->worker_timeout) &&
           holders_are_beyond(r, USER_LENGTHY) && sched_waiting(r->sched) > 0;
}

static void answered(struct worker *w)
{
    struct user *u = w->user;
    if (w->state != LOOKING)
        user_held(u);
    u->asked_at = 0;
}

/* false: the worker is not what it should be. */
static bool on_frame(struct worker *w, const struct frame *f)
{
    if (!in_place(w, f->type))
        return false;
    w->heard = true;
    w->heard_at = clock_monotonic();
    if (w->user && (f->type == FRAME_READY || f->type == FRAME_FAIL || f->type == FRAME_DONE ||
                    f->type == FRAME_CREDENTIALS))
        answered(w);
    switch (f->type) {
    case FRAME_READY: on_ready(w, f); break;
    case FRAME_FAIL: on_fail(w, f); break;
    case FRAME_DONE: on_done(w, f); break;
    case FRAME_SEND:
        if (f->u.send.kind == PARCEL_QUESTION)
            w->user->turn.asked_on = true;
        confirm_sends(w->user, &f->u.send);
        pace_send(w->all->r->pace, w->user, &f->u.send);
        break;
    case FRAME_REPLY: on_reply(w, f); break;
    case FRAME_RESERVE: on_reserve(w, f); break;
    case FRAME_ELSEWHERE: on_elsewhere(w); break;
    case FRAME_CREDENTIALS: on_credentials(w, f); break;
    case FRAME_ORIGINS:
        w->told_origins = true;
        ledger_set_origins(w->all->r->ledger, w->user->name, f->u.origins);
        break;
    case FRAME_APART: user_apart(w->user, f->u.apart); break;
    default: on_note(w, f); break;
    }
    if (owes(w) && !is_overlong(w))
        worker_set_patience(w, w->all->r->config->worker_timeout);
    return true;
}

/* false: the connection is to be ended, *why says why. */
static bool frames(struct worker *w, const char **why)
{
    size_t at = 0, len;
    int whole;
    while ((whole = frame_split((uint8_t *)w->in.data + at, w->in.len - at, &len)) == 1) {
        struct frame f;
        if (frame_decode(&f, (uint8_t *)w->in.data + at, len) < 0 || !on_frame(w, &f)) {
            log_of(LOG_LEVEL_ERROR, LOG_FIELD_user, w->user ? w->user->name : "",
                   "worker: a frame of type %u that is malformed or out of place",
                   (unsigned)(uint8_t)w->in.data[at + FRAME_HEADER]);
            *why = "the worker does not follow the protocol";
            return false;
        }
        at += len;
    }
    if (at)
        buf_consume(&w->in, at);
    *why = "the worker sent what is no frame";
    return whole == 0;
}

static void on_readable(struct ev_loop *loop, ev_io *io, int events)
{
    (void)loop, (void)events;
    struct worker *w = io->data;
    const char *why;
    buf_reserve(&w->in, READ_SIZE);
    ssize_t n = recv(w->fd, w->in.data + w->in.len, READ_SIZE, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        lost(w, n ? strerror(errno) : "the worker went away", GONE);
        return;
    }
    w->in.len += (size_t)n;
    if (!frames(w, &why))
        lost(w, why, WRONG);
}

static void on_patience(struct ev_loop *loop, ev_timer *t, int events)
{
    (void)loop, (void)events;
    struct worker *w = t->data;
    if (w->state == WARM && w->user->turn.asking && sched_waiting(w->all->r->sched) == 0 &&
        sched_in_turn(w->all->r->sched) == 0)
        worker_set_patience(w, (int64_t)(turn_hold_for(w->all->r) * 1000));
    else if (w->state == WARM)
        worker_ask_close(w); /* idle for long enough */
    else if (owes(w) && outbox_full(w->all->r->outbox))
        /* it is not read (workers_flush): it may have answered */
        worker_set_patience(w, w->all->r->config->worker_timeout);
    else if (owes(w))
        lost(w, "the worker did not answer within worker_timeout", SILENT);
}

/* ---- connecting ---- */

struct worker *worker_connect(struct workers *ws, bool root)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    snprintf(a.sun_path, sizeof a.sun_path, "%s", ws->path);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) < 0) {
        int error = errno;
        const char *help =
            error == EAGAIN ? "no worker takes what waits there: Dovecot's log says why none starts"
                            : "no worker can be reached: service dovelane-worker needs a "
                              "unix_listener dovelane-worker that this user may open "
                              "(user = that of service dovelane-replicator)";
        if (fd >= 0)
            close(fd);
        unreachable(ws, mem_printf("%s: %s: %s", ws->path, strerror(error), help));
        return NULL;
    }
    struct worker *w = mem_zero(sizeof *w);
    w->all = ws;
    w->fd = fd;
    w->out.alloc = &replicator_heap;
    ev_io_init(&w->rd, on_readable, fd, EV_READ);
    ev_io_init(&w->wr, on_writable, fd, EV_WRITE);
    ev_timer_init(&w->patience, on_patience, 0., 0.);
    w->rd.data = w->wr.data = w->patience.data = w;
    ev_io_start(ws->r->loop, &w->rd);
    TAILQ_INSERT_TAIL(&ws->list, w, link);
    w->root = root;
    if (root)
        ws->root = w;
    else
        metric_set(replicator_workers, (long long)++ws->n);
    hello_encode(&w->out, ws->r);
    return w;
}
