/* link - the connection with main: frames in and out. Main asks one thing at a time, so reading
 * may block while an answer is waited for; between questions the ioloop waits. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/protocol/frame.h"
#include "dovecot-plugin/worker/session/credentials.h"
#include "dovecot-plugin/worker/session/link.h"
#include "dovecot-plugin/worker/session/session.h"

#include <buffer.h>
#include <ioloop.h>
#include <net.h>
#include <write-full.h>

#include <poll.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

struct link {
    int fd;
    struct io *io;
    const struct link_events *events;
    void *owner;
    buffer_t *in;
    struct orset_buf out;
    uint8_t chunk[65536]; /* what was read last: room in `in` would be made zero before each read */
    timer_t watch;
    struct timeout *beat;
    unsigned beat_secs; /* it puts the end off by so long */
    /* seconds without a frame after which a question will never be answered; 0: not told */
    unsigned patience;
    bool watched, broken;
    bool user_open;
};

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
    return credentials_kept() != 0 && !l->user_open;
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

void link_set_patience(struct link *l, unsigned secs)
{
    l->patience = secs;
    keep_alive(l);
}

void link_set_user_open(struct link *l, bool open)
{
    l->user_open = open;
}

void link_put_off_end(struct link *l)
{
    watch(l, l->patience);
}

void link_break(struct link *l)
{
    l->broken = TRUE;
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
    ssize_t n = read(l->fd, l->chunk, sizeof l->chunk);
    if (n > 0)
        buffer_append(l->in, l->chunk, (size_t)n);
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

/* The bytes are the question's until it is answered: RESERVED is read behind them. */
static void take_frame(struct link *l, size_t len)
{
    struct frame f;
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
            l->events->asked(l->owner, &f);
        }
    }
    T_END;
    buffer_free(&question);
}

static void link_input(struct link *l)
{
    size_t len;
    int r;
    if (read_some(l) < 0)
        l->broken = TRUE;
    while (!l->broken && (r = have_frame(l, &len)) != 0) {
        if (r < 0)
            l->broken = TRUE;
        else
            take_frame(l, len);
    }
    keep_alive(l);
    if (l->broken)
        l->events->ended(l->owner);
}

/* --- life ------------------------------------------------------------------------------------- */

struct link *link_create(int fd, const struct link_events *events, void *owner)
{
    struct link *l = i_new(struct link, 1);
    l->fd = fd;
    net_set_nonblock(fd, FALSE);
    l->events = events;
    l->owner = owner;
    l->in = buffer_create_dynamic(default_pool, 65536);
    l->out.alloc = session_alloc();
    watch_begin(l);
    keep_alive(l);
    l->io = io_add(fd, IO_READ, link_input, l);
    return l;
}

void link_destroy(struct link **_l)
{
    struct link *l = *_l;
    *_l = NULL;
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
    i_free(l);
}
