/* Bytes and time of a session. The rules of this file:
 *  - writing is tried at once and the write watcher is only started when the socket is full;
 *  - a write that fails does not end the session by itself: the reason ("552 too large", "421 closing") may
 * be waiting to be read;
 *  - a time limit is a stamp; the timer is only moved when it would come too late. */
#include "smtp_session.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READ_SIZE 16384
#define PIECE_SIZE 65536

/* ---- time ---- */

void smtp_session_wait(struct smtp_session *s, double seconds)
{
    s->deadline = clock_monotonic() + seconds;
    if (ev_is_active(&s->timer) && s->timer_at <= s->deadline)
        return;
    s->timer_at = s->deadline;
    ev_timer_stop(s->loop, &s->timer);
    ev_timer_set(&s->timer, seconds, 0.);
    ev_timer_start(s->loop, &s->timer);
}

/* ---- end ---- */

static void free_session(struct smtp_session *s)
{
    smtp_reply_free(&s->reply);
    buf_free(&s->out);
    free(s->step);
    free(s->helo);
    free(s->name);
    free(s);
}

void smtp_session_enter(struct smtp_session *s)
{
    s->busy++;
}

void smtp_session_leave(struct smtp_session *s)
{
    if (--s->busy == 0 && s->phase == SMTP_CLOSED)
        free_session(s);
}

void smtp_session_close(struct smtp_session *s, const char *why)
{
    if (s->phase == SMTP_CLOSED)
        return;
    ev_io_stop(s->loop, &s->reading);
    ev_io_stop(s->loop, &s->writing);
    ev_timer_stop(s->loop, &s->timer);
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
    s->phase = SMTP_CLOSED;
    smtp_session_enter(s);
    s->events->closed(s, why);
    smtp_session_leave(s);
}

/* ---- output ---- */

/* The next piece of a message that needs dots. */
static void refill(struct smtp_session *s)
{
    const struct smtp_mail *m = s->mail;
    size_t n = m->body_len - s->body_at;
    if (n > PIECE_SIZE)
        n = PIECE_SIZE;
    buf_consume(&s->out, s->out.len);
    s->out_done = 0;
    smtp_dots_add(&s->dots, m->body + s->body_at, n, &s->out);
    s->body_at += n;
    if (s->body_at == m->body_len) {
        smtp_dots_end(&s->dots, &s->out);
        s->body_ended = true;
    }
    s->out_allowed = s->out.len;
}

void smtp_session_body(struct smtp_session *s)
{
    const struct smtp_mail *m = s->mail;
    s->stuffing = !smtp_dots_clean(m->body, m->body_len);
    s->iov_at = s->iov_n = 0;
    if (s->stuffing) {
        buf_consume(&s->out, s->out.len);
        smtp_dots_begin(&s->dots);
        s->body_at = 0;
        s->body_ended = false;
        buf_add(&s->out, m->head, m->head_len);
        s->out_done = 0;
        s->out_allowed = s->out.len;
        return;
    }
    const char *end = smtp_dots_terminator(m->body, m->body_len);
    s->iov[0] = (struct iovec){(void *)m->head, m->head_len};
    s->iov[1] = (struct iovec){(void *)m->body, m->body_len};
    s->iov[2] = (struct iovec){(void *)end, strlen(end)};
    s->iov_n = 3;
}

/* What is to be written next, NULL when there is nothing. */
static struct iovec *next_output(struct smtp_session *s, struct iovec *single, int *n)
{
    if (s->phase == SMTP_BODY && s->stuffing && s->out_done == s->out_allowed && !s->body_ended)
        refill(s);
    if (s->out_done < s->out_allowed) {
        *single = (struct iovec){s->out.data + s->out_done, s->out_allowed - s->out_done};
        *n = 1;
        return single;
    }
    if (s->phase != SMTP_BODY || s->iov_at == s->iov_n)
        return NULL;
    *n = s->iov_n - s->iov_at;
    return s->iov + s->iov_at;
}

static void output_done(struct smtp_session *s, bool single, size_t n)
{
    if (single) {
        s->out_done += n;
        return;
    }
    while (s->iov_at < s->iov_n && n >= s->iov[s->iov_at].iov_len)
        n -= s->iov[s->iov_at++].iov_len;
    if (n) {
        s->iov[s->iov_at].iov_base = (char *)s->iov[s->iov_at].iov_base + n;
        s->iov[s->iov_at].iov_len -= n;
    }
}

void smtp_session_flush(struct smtp_session *s)
{
    struct iovec single, *iov;
    int n;
    while (!s->broken && (iov = next_output(s, &single, &n))) {
        struct msghdr msg = {.msg_iov = iov, .msg_iovlen = (size_t)n};
        ssize_t sent = sendmsg(s->fd, &msg, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            ev_io_start(s->loop, &s->writing);
            return;
        }
        if (sent < 0) {
            s->broken = true;
            ev_io_stop(s->loop, &s->writing);
            ev_feed_event(s->loop, &s->reading, EV_READ);
            return;
        }
        output_done(s, iov == &single, (size_t)sent);
        if (s->phase == SMTP_BODY)
            smtp_session_wait(s, s->limits.command);
    }
    ev_io_stop(s->loop, &s->writing);
    if (s->phase == SMTP_BODY && !s->broken)
        smtp_client_written(s);
}

/* ---- input ---- */

/* false when there is no more to read now. */
static bool read_some(struct smtp_session *s)
{
    static char input[READ_SIZE];
    ssize_t n = recv(s->fd, input, sizeof input, 0);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
        if (s->broken && errno != EINTR)
            smtp_client_lost(s, "lost connection");
        return false;
    }
    if (n <= 0) {
        smtp_client_lost(s, "lost connection");
        return false;
    }
    for (size_t at = 0, used; at < (size_t)n && s->phase != SMTP_CLOSED; at += used) {
        enum smtp_reply_status status = smtp_reply_feed(&s->reply, input + at, (size_t)n - at, &used);
        s->input_left = (size_t)n - at - used;
        if (status == SMTP_REPLY_DONE)
            smtp_client_reply(s);
        else if (status == SMTP_REPLY_BAD)
            smtp_client_lost(s, "no SMTP reply from host");
    }
    return s->phase != SMTP_CLOSED && ((size_t)n == sizeof input || s->broken);
}

static void on_readable(struct ev_loop *loop, ev_io *io, int events)
{
    struct smtp_session *s = io->data;
    smtp_session_enter(s);
    while (read_some(s))
        ;
    smtp_session_leave(s);
}

static void on_writable(struct ev_loop *loop, ev_io *io, int events)
{
    struct smtp_session *s = io->data;
    smtp_session_enter(s);
    if (s->phase == SMTP_CONNECTING) {
        int e = 0;
        socklen_t len = sizeof e;
        getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &e, &len);
        if (e) {
            smtp_client_lost(s, strerror(e));
        } else {
            ev_io_stop(s->loop, &s->writing);
            ev_io_start(s->loop, &s->reading);
            smtp_client_connected(s);
        }
    } else {
        smtp_session_flush(s);
    }
    smtp_session_leave(s);
}

static void on_timer(struct ev_loop *loop, ev_timer *t, int events)
{
    struct smtp_session *s = t->data;
    double left = s->deadline - clock_monotonic();
    if (left > 0.001) {
        smtp_session_wait(s, left);
        return;
    }
    smtp_session_enter(s);
    /* We may have stood still ourselves: what arrived meanwhile counts, and moves the limit. */
    double limit = s->deadline;
    if (s->phase != SMTP_CONNECTING)
        read_some(s);
    if (s->phase == SMTP_CLOSED || s->deadline != limit)
        ;
    else if (s->phase == SMTP_READY)
        smtp_quit(s);
    else
        smtp_client_lost(s, s->connect_error ? strerror(s->connect_error) : "timed out");
    smtp_session_leave(s);
}

/* ---- begin ---- */

static void start_connect(struct smtp_session *s, const struct smtp_address *a)
{
    bool local = a->sa.ss_family == AF_UNIX;
    s->fd = socket(a->sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int one = 1;
    if (s->fd >= 0 && !local)
        setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    /* A UNIX socket with a full backlog says EAGAIN and does not go on connecting. */
    if (s->fd < 0 ||
        (connect(s->fd, (const struct sockaddr *)&a->sa, a->len) < 0 && (errno != EINPROGRESS || local))) {
        /* Said by the timer: closed() is never called from within smtp_open. */
        s->connect_error = errno;
        smtp_session_wait(s, 0.);
        return;
    }
    ev_io_set(&s->reading, s->fd, EV_READ);
    ev_io_set(&s->writing, s->fd, EV_WRITE);
    ev_io_start(s->loop, &s->writing);
    smtp_session_wait(s, s->limits.connect);
}

struct smtp_session *smtp_open(struct ev_loop *loop, const struct smtp_options *o,
                               const struct smtp_events *events)
{
    struct smtp_session *s = mem_zero(sizeof *s);
    s->loop = loop;
    s->events = events;
    s->arg = o->arg;
    s->lmtp = o->lmtp;
    s->helo = mem_strdup(o->helo);
    s->name = o->port ? mem_printf("%s[%s]:%s", o->host, o->address->text, o->port)
                      : mem_printf("localhost[%s]", o->host);
    s->limits = o->limits;
    s->opened = clock_monotonic();
    ev_init(&s->reading, on_readable);
    ev_init(&s->writing, on_writable);
    ev_init(&s->timer, on_timer);
    s->reading.data = s->writing.data = s->timer.data = s;
    start_connect(s, o->address);
    return s;
}

void *smtp_arg(const struct smtp_session *s)
{
    return s->arg;
}

const char *smtp_name(const struct smtp_session *s)
{
    return s->name;
}

bool smtp_was_ready(const struct smtp_session *s)
{
    return s->was_ready;
}

unsigned smtp_mails(const struct smtp_session *s)
{
    return s->mails;
}
