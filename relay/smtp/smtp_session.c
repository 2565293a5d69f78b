/* Bytes and time of a session. The rules of this file:
 *  - writing is tried at once and the write watcher is only started when the socket is full;
 *  - a write that fails does not end the session by itself: the reason ("552 too large", "421
 *  closing") may
 * be waiting to be read;
 *  - a time limit is a stamp; the timer is only moved when it would come too late. */
#include "relay/smtp/smtp_session.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/log.h"

#define READ_SIZE 16384

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
    smtp_body_clear(&s->body);
    smtp_policy_release(s->policy);
    buf_free(&s->out);
    free(s->xclient);
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
    ASSERT(s->busy > 0);
    if (--s->busy == 0 && s->phase == SMTP_CLOSED)
        free_session(s);
}

static void disconnect(struct smtp_session *s)
{
    ev_io_stop(s->loop, &s->reading);
    ev_io_stop(s->loop, &s->writing);
    tls_close(s->tls);
    s->tls = NULL;
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
}

void smtp_session_trouble(struct smtp_session *s, const char *dsn)
{
    snprintf(s->trouble, sizeof s->trouble, "4%s", dsn + 1);
}

void smtp_session_close(struct smtp_session *s, const char *why)
{
    if (s->phase == SMTP_CLOSED)
        return;
    ASSERT(!s->mail); /* it has its results by now */
    ev_timer_stop(s->loop, &s->timer);
    disconnect(s);
    s->phase = SMTP_CLOSED;
    smtp_session_enter(s);
    s->events->closed(s, why);
    smtp_session_leave(s);
}

/* ---- output ---- */

/* The commands that may leave, and behind the last of them the message. */
static int gather(struct smtp_session *s, struct iovec *out)
{
    int n = 0;
    if (s->out_done < s->out_allowed)
        out[n++] = (struct iovec){s->out.data + s->out_done, s->out_allowed - s->out_done};
    if (s->out_allowed == s->out.len)
        n += smtp_body_next(&s->body, out + n);
    return n;
}

static void took(struct smtp_session *s, size_t n)
{
    size_t commands = s->out_allowed - s->out_done;
    if (commands > n)
        commands = n;
    s->out_done += commands;
    ASSERT(s->out_done <= s->out_allowed && s->out_allowed <= s->out.len);
    if (n > commands) {
        smtp_body_sent(&s->body, n - commands);
        smtp_client_await(s);
    }
}

static ssize_t put(struct smtp_session *s, struct iovec *iov, int n)
{
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = (size_t)n};
    return s->tls ? tls_writev(s->tls, iov, n) : sendmsg(s->fd, &msg, MSG_NOSIGNAL);
}

void smtp_session_flush(struct smtp_session *s)
{
    struct iovec iov[1 + SMTP_BODY_PARTS];
    int n;
    while (!s->broken && (n = gather(s, iov))) {
        ssize_t sent = put(s, iov, n);
        if (sent >= 0) {
            took(s, (size_t)sent);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            ev_io_start(s->loop, &s->writing);
            return;
        } else if (errno != EINTR) {
            s->broken = true;
            ev_feed_event(s->loop, &s->reading, EV_READ);
        }
    }
    ev_io_stop(s->loop, &s->writing);
    if (!s->broken && smtp_body_over(&s->body) && !s->message_out)
        smtp_client_written(s);
}

/* ---- input ---- */

static ssize_t get(struct smtp_session *s, void *data, size_t size)
{
    return s->tls ? tls_read(s->tls, data, size) : recv(s->fd, data, size, 0);
}

/* false when there is no more to read now. */
static bool read_some(struct smtp_session *s)
{
    static char input[READ_SIZE];
    ssize_t n = get(s, input, sizeof input);
    s->error = n < 0 ? errno : 0;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
        if (s->broken && errno != EINTR)
            smtp_client_lost(s, "lost connection");
        else if (s->tls && tls_wants_write(s->tls))
            ev_io_start(s->loop, &s->writing);
        return false;
    }
    if (n <= 0) {
        smtp_client_lost(s, "lost connection");
        return false;
    }
    const struct tls *tls = s->tls;
    for (size_t at = 0, used; at < (size_t)n && s->phase != SMTP_CLOSED && s->tls == tls;
         at += used) {
        enum smtp_reply_status status =
            smtp_reply_feed(&s->reply, input + at, (size_t)n - at, &used);
        s->input_left = (size_t)n - at - used;
        s->input = input + at + used;
        if (status == SMTP_REPLY_DONE)
            smtp_client_reply(s);
        else if (status == SMTP_REPLY_BAD)
            smtp_client_lost(s, "no SMTP reply from host");
    }
    /* A piece of a reply that nobody asked for: the next mail must not meet the rest of it. */
    if (s->phase == SMTP_READY && smtp_reply_begun(&s->reply))
        smtp_session_close(s, "said something while idle");
    return s->phase >= SMTP_TALKING && s->phase != SMTP_CLOSED &&
           ((size_t)n == sizeof input || s->broken || s->tls);
}

static void handshake(struct smtp_session *s)
{
    int done = tls_handshake(s->tls);
    if (done) {
        ev_io_stop(s->loop, &s->writing);
        smtp_hello_handshake(s, done > 0 ? NULL : tls_error(s->tls));
    } else if (tls_wants_write(s->tls)) {
        ev_io_start(s->loop, &s->writing);
    } else {
        ev_io_stop(s->loop, &s->writing);
    }
}

static void connected(struct smtp_session *s)
{
    int e = 0;
    socklen_t len = sizeof e;
    getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &e, &len);
    if (e) {
        smtp_client_lost(s, strerror(e));
        return;
    }
    ev_io_stop(s->loop, &s->writing);
    ev_io_start(s->loop, &s->reading);
    smtp_client_connected(s);
}

/* With TLS either direction may be what the other one waits for. */
static void on_io(struct ev_loop *loop, ev_io *io, int events)
{
    struct smtp_session *s = io->data;
    smtp_session_enter(s);
    if (s->phase == SMTP_CONNECTING) {
        connected(s);
    } else if (s->phase == SMTP_HANDSHAKE) {
        handshake(s);
    } else {
        if (io == &s->reading || s->tls)
            while (read_some(s))
                ;
        if ((io == &s->writing || s->tls) && s->phase >= SMTP_TALKING && s->phase != SMTP_CLOSED)
            smtp_session_flush(s);
    }
    smtp_session_leave(s);
}

void smtp_session_tls(struct smtp_session *s)
{
    s->tls = tls_open(s->policy->peer, s->fd);
    s->phase = SMTP_HANDSHAKE;
    smtp_session_wait(s, s->policy->limit[SMTP_LIMIT_STARTTLS]);
    handshake(s);
}

/* Also of what could not even begin. */
static const char *timeout_text(const struct smtp_session *s)
{
    if (s->phase != SMTP_CONNECTING)
        return "timed out";
    return s->policy->unusable ? s->policy->unusable : s->error ? strerror(s->error) : "timed out";
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
    if (s->phase >= SMTP_TALKING)
        read_some(s);
    if (s->phase == SMTP_CLOSED || s->deadline != limit)
        ;
    else if (s->phase == SMTP_READY)
        smtp_quit(s);
    else if (s->phase == SMTP_HANDSHAKE)
        smtp_hello_handshake(s, "timed out");
    else
        smtp_client_lost(s, timeout_text(s));
    smtp_session_leave(s);
}

/* ---- begin ---- */

/* false: errno says why there is no connection then. As smtp(8), a wrong one is warned of. */
static bool bind_source(const struct smtp_session *s)
{
    int one = 1;
    if (!s->from.sa.ss_family)
        return true;
    /* The port is chosen at connect(2): as many connections as to different servers at once. */
    setsockopt(s->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
    if (bind(s->fd, (const struct sockaddr *)&s->from.sa, s->from.len) == 0)
        return true;
    int error = errno;
    log_warning("%s: cannot connect from %s (smtp_bind_address or inet_interfaces in main.cf): %s",
                s->name, s->from.text, strerror(error));
    errno = error;
    return !s->from_enforced;
}

/* errno, 0 when it is under way. */
static int start_connect(struct smtp_session *s)
{
    const struct socket_address *a = &s->address;
    bool local = a->sa.ss_family == AF_UNIX;
    int one = 1;
    s->fd = socket(a->sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s->fd < 0)
        return errno;
    if (!local)
        setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (!bind_source(s))
        return errno;
    /* A UNIX socket with a full backlog says EAGAIN and does not go on connecting. */
    if (connect(s->fd, (const struct sockaddr *)&a->sa, a->len) < 0 &&
        (errno != EINPROGRESS || local))
        return errno;
    ev_io_set(&s->reading, s->fd, EV_READ);
    ev_io_set(&s->writing, s->fd, EV_WRITE);
    ev_io_start(s->loop, &s->writing);
    return 0;
}

static void begin(struct smtp_session *s)
{
    s->phase = SMTP_CONNECTING;
    s->broken = false;
    s->error = s->policy->unusable ? 0 : start_connect(s);
    /* What went wrong is said by the timer: closed() is never called from within smtp_open. */
    bool wrong = s->error || s->policy->unusable;
    smtp_session_wait(s, wrong ? 0. : s->policy->limit[SMTP_LIMIT_CONNECT]);
}

void smtp_session_again(struct smtp_session *s)
{
    disconnect(s);
    smtp_reply_free(&s->reply);
    s->reply = (struct smtp_reply){0};
    s->input_left = 0;
    free(s->xclient);
    s->xclient = NULL;
    begin(s);
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
    s->address = *o->address;
    if (o->from)
        s->from = *o->from;
    s->from_enforced = o->from_enforced;
    s->policy = o->policy;
    s->policy->users++;
    s->fd = -1;
    s->opened = clock_monotonic();
    smtp_session_trouble(s, "4.4.1");
    ev_init(&s->reading, on_io);
    ev_init(&s->writing, on_io);
    ev_init(&s->timer, on_timer);
    s->reading.data = s->writing.data = s->timer.data = s;
    begin(s);
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

const char *smtp_trouble(const struct smtp_session *s)
{
    return s->trouble;
}

unsigned smtp_mails(const struct smtp_session *s)
{
    return s->mails;
}
