#include "proxy/next.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/log.h"
#include "proxy/proxy.h"
#include "lib/base/resolve.h"
#include "lib/mail/smtp_dots.h"
#include "lib/mail/smtp_reply.h"

/* What is still to be answered, in order. After EHLO all of ENVELOPE leaves at once if
 * PIPELINING is offered (RFC 2920), else one by one. */
enum phase {
    PHASE_CONNECT,
    PHASE_GREETING,
    PHASE_HELLO,
    PHASE_ENVELOPE,
    PHASE_CONTENT,
    PHASE_DOT,
    PHASE_OVER
};

struct next {
    next_fn *fn;
    void *arg;
    /* while the name of proxy_next is looked up: a number in all sane configurations */
    struct resolve *lookup;
    int fd;
    ev_io reading, writing;
    ev_timer patience;
    char trouble[200]; /* why it cannot connect */
    enum phase phase;
    struct smtp_reply reply;
    struct smtp_dots dots;
    struct buf out;
    char *xforward[XFORWARD_ATTRIBUTES];
    char **command; /* XFORWARD?, MAIL, RCPT+, DATA */
    size_t ncommands, sent, answered;
    bool pipelining;
    bool was_full;
    char refusal[600]; /* the first of the envelope's */
    /* the caller hears of events on the loop's next turn: it may close us then */
    ev_timer telling;
    enum next_event event;
    char said[600];
    bool unsure;
};

/* ---- over ---- */

static void stop(struct next *n)
{
    resolve_cancel(n->lookup);
    n->lookup = NULL;
    ev_io_stop(proxy.loop, &n->reading);
    ev_io_stop(proxy.loop, &n->writing);
    ev_timer_stop(proxy.loop, &n->patience);
    if (n->fd >= 0)
        close(n->fd);
    n->fd = -1;
}

void next_close(struct next *n)
{
    if (!n)
        return;
    stop(n);
    ev_timer_stop(proxy.loop, &n->telling);
    smtp_reply_free(&n->reply);
    buf_free(&n->out);
    for (size_t i = 0; i < n->ncommands; i++)
        free(n->command[i]);
    free(n->command);
    for (int i = 0; i < XFORWARD_ATTRIBUTES; i++)
        free(n->xforward[i]);
    free(n);
}

static void on_telling(struct ev_loop *loop, ev_timer *t, int events)
{
    struct next *n = t->data;
    n->fn(n->arg, n->event, n->said, n->unsure);
}

static void tell(struct next *n, enum next_event event)
{
    n->event = event;
    ev_timer_set(&n->telling, 0., 0.);
    ev_timer_start(proxy.loop, &n->telling);
}

static void finish(struct next *n, enum next_event event, const char *reply, bool unsure)
{
    ASSERT(n->phase != PHASE_OVER); /* nothing follows */
    n->phase = PHASE_OVER;
    stop(n);
    snprintf(n->said, sizeof n->said, "%s", reply);
    n->unsure = unsure;
    tell(n, event);
}

static void lost(struct next *n, const char *why)
{
    static const char *const at[] = {
        "connecting",  "the greeting",           "EHLO", "the envelope",
        "the content", "the end of the message", ""};
    log_warning("proxy_next = %s: %s at %s", proxy.config->proxy_next, why, at[n->phase]);
    finish(n, NEXT_REFUSED, "451 4.3.0 Error: queue service cannot be reached, try again later",
           n->phase == PHASE_DOT);
}

static void refused(const struct smtp_reply *r, char *out, size_t size)
{
    char text[500];
    smtp_reply_flat(r, text, sizeof text);
    /* What is no refusal where one is due (a 2xx to DATA) is an error of its, which is not the
     * client's. */
    if (r->code >= 400)
        snprintf(out, size, "%d %s", r->code, text);
    else
        snprintf(out, size, "451 4.3.0 Error: queue service does not follow: %d %s", r->code, text);
}

/* ---- writing ---- */

static void write_some(struct next *n)
{
    while (n->out.len) {
        ssize_t done = send(n->fd, n->out.data, n->out.len, MSG_NOSIGNAL);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0 && errno != EAGAIN) {
            /* What it said before it closed is read first. */
            buf_consume(&n->out, n->out.len);
            break;
        }
        if (done < 0) {
            ev_io_start(proxy.loop, &n->writing);
            return;
        }
        buf_consume(&n->out, (size_t)done);
        if (ev_is_active(&n->patience))
            ev_timer_again(proxy.loop, &n->patience);
    }
    ev_io_stop(proxy.loop, &n->writing);
    if (n->phase != PHASE_CONTENT)
        return;
    ev_timer_stop(proxy.loop, &n->patience); /* it is not the one who is waited for */
    if (n->was_full)
        tell(n, NEXT_DRAINED);
    n->was_full = false;
}

static void send_commands(struct next *n)
{
    while (n->sent < n->ncommands && (n->pipelining || n->sent == n->answered)) {
        buf_adds(&n->out, n->command[n->sent]);
        buf_adds(&n->out, "\r\n");
        n->sent++;
    }
    write_some(n);
}

/* ---- reading ---- */

static bool offers(const char *text, const char *word)
{
    size_t n = strlen(word);
    for (const char *s = text; s; s = strchr(s, '\n')) {
        s += *s == '\n';
        if (!strncasecmp(s, word, n) && (!s[n] || s[n] == ' ' || s[n] == '\n' || s[n] == '\r'))
            return true;
    }
    return false;
}

/* RFC 3461's xtext, as Postfix writes and reads it here. */
static void add_xtext(struct buf *b, const char *s)
{
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c > ' ' && c < 127 && c != '+' && c != '=')
            buf_addc(b, (char)c);
        else
            buf_printf(b, "+%02X", c);
    }
}

static void add_command(struct next *n, size_t at, char *text)
{
    memmove(n->command + at + 1, n->command + at, (n->ncommands - at) * sizeof *n->command);
    n->command[at] = text;
    n->ncommands++;
}

/* A command line stays below 512 bytes, as Postfix's own are. */
static void xforward(struct next *n, const char *features)
{
    struct buf b = {0};
    size_t at = 0;
    if (!offers(features, "XFORWARD"))
        return;
    for (int i = 0; i < XFORWARD_ATTRIBUTES; i++) {
        size_t before = b.len;
        buf_printf(&b, " %s=", command_xforward_name[i]);
        add_xtext(&b, n->xforward[i] ? n->xforward[i] : "[UNAVAILABLE]");
        if (b.len > 480 && before) {
            add_command(n, at++, mem_printf("XFORWARD%.*s", (int)before, b.data));
            buf_consume(&b, before);
        }
    }
    add_command(n, at, mem_printf("XFORWARD%s", b.data));
    buf_free(&b);
}

static void take_envelope_reply(struct next *n, const struct smtp_reply *r)
{
    bool last = ++n->answered == n->ncommands;
    int wanted = last ? 3 : 2;
    if (r->code / 100 != wanted && !*n->refusal)
        refused(r, n->refusal, sizeof n->refusal);
    if (*n->refusal) {
        if (last || !n->pipelining)
            finish(n, NEXT_REFUSED, n->refusal, false);
        return;
    }
    if (!last) {
        send_commands(n);
        return;
    }
    n->phase = PHASE_CONTENT;
    ev_timer_stop(proxy.loop, &n->patience);
    tell(n, NEXT_READY);
}

static void take_reply(struct next *n)
{
    const struct smtp_reply *r = &n->reply;
    char text[600];
    switch (n->phase) {
    case PHASE_GREETING:
    case PHASE_HELLO:
        if (r->code / 100 != 2) {
            refused(r, text, sizeof text);
            finish(n, NEXT_REFUSED,
                   r->code < 500
                       ? text
                       : "451 4.3.0 Error: queue service refuses to serve, try again later",
                   false);
        } else if (n->phase == PHASE_GREETING) {
            n->phase = PHASE_HELLO;
            buf_printf(&n->out, "EHLO %s\r\n", proxy.name);
            write_some(n);
        } else {
            n->phase = PHASE_ENVELOPE;
            n->pipelining = offers(r->text.data, "PIPELINING");
            xforward(n, r->text.data);
            send_commands(n);
        }
        return;
    case PHASE_ENVELOPE: take_envelope_reply(n, r); return;
    case PHASE_DOT:
        refused(r, text, sizeof text);
        if (r->code / 100 == 2) {
            char flat[500];
            smtp_reply_flat(r, flat, sizeof flat);
            snprintf(text, sizeof text, "%d %s", r->code, flat);
        }
        finish(n, r->code / 100 == 2 ? NEXT_DONE : NEXT_REFUSED, text, false);
        return;
    default: /* it speaks in the middle of the content: 421, most likely */
        refused(r, text, sizeof text);
        finish(n, NEXT_REFUSED, text, false);
    }
}

static void on_readable(struct ev_loop *loop, ev_io *io, int events)
{
    struct next *n = io->data;
    char bytes[8192];
    ssize_t got = recv(n->fd, bytes, sizeof bytes, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        lost(n, got ? strerror(errno) : "connection closed");
        return;
    }
    if (n->phase == PHASE_CONNECT) { /* its greeting is faster than the loop */
        n->phase = PHASE_GREETING;
        ev_io_stop(loop, &n->writing);
    }
    if (n->phase != PHASE_CONTENT)
        ev_timer_again(loop, &n->patience);
    for (size_t at = 0, used; at < (size_t)got; at += used) {
        enum smtp_reply_status status =
            smtp_reply_feed(&n->reply, bytes + at, (size_t)got - at, &used);
        if (status == SMTP_REPLY_BAD) {
            lost(n, "no SMTP server");
            return;
        }
        if (status == SMTP_REPLY_DONE)
            take_reply(n);
        if (n->phase == PHASE_OVER)
            return;
    }
}

static void on_writable(struct ev_loop *loop, ev_io *io, int events)
{
    struct next *n = io->data;
    if (n->phase == PHASE_CONNECT) {
        int error = 0;
        socklen_t len = sizeof error;
        getsockopt(n->fd, SOL_SOCKET, SO_ERROR, &error, &len);
        if (error) {
            lost(n, strerror(error));
            return;
        }
        n->phase = PHASE_GREETING;
        ev_io_stop(loop, io);
        return;
    }
    write_some(n);
}

static void on_patience(struct ev_loop *loop, ev_timer *t, int events)
{
    struct next *n = t->data;
    lost(n, *n->trouble ? n->trouble : "no answer in time");
}

/* ---- opening ---- */

/* Said by the timer: never from within next_open. */
static void cannot_connect(struct next *n, const char *why)
{
    snprintf(n->trouble, sizeof n->trouble, "%s", why);
    ev_timer_stop(proxy.loop, &n->patience);
    ev_timer_set(&n->patience, 0., 0.);
    ev_timer_start(proxy.loop, &n->patience);
}

static void on_found(const struct addresses *found, const char *error, void *arg)
{
    struct next *n = arg;
    n->lookup = NULL;
    if (error) {
        cannot_connect(n, error);
        return;
    }
    const struct socket_address *a = &found->v[0];
    bool local = a->sa.ss_family == AF_UNIX;
    int one = 1;
    n->fd = socket(a->sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    /* A UNIX socket with a full backlog says EAGAIN and does not go on connecting. */
    if (n->fd < 0 || (connect(n->fd, (const struct sockaddr *)&a->sa, a->len) < 0 &&
                      (errno != EINPROGRESS || local))) {
        cannot_connect(n, strerror(errno));
        return;
    }
    if (!local)
        setsockopt(n->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    n->phase = local ? PHASE_GREETING : PHASE_CONNECT;
    ev_io_set(&n->reading, n->fd, EV_READ);
    ev_io_set(&n->writing, n->fd, EV_WRITE);
    ev_io_start(proxy.loop, &n->reading);
    if (!local)
        ev_io_start(proxy.loop, &n->writing);
}

static void look_up(struct next *n, const char *address)
{
    char buf[512];
    const char *host, *port;
    if (config_address(address, buf, sizeof buf, &host, &port) < 0)
        cannot_connect(n, "no address");
    else
        resolve_start(proxy.loop, host, port, RESOLVE_HOP, on_found, n, &n->lookup);
}

static void set_commands(struct next *n, const struct engine *e, const bool *which)
{
    n->command = mem_zero((e->nrecipients + 2 + XFORWARD_ATTRIBUTES) * sizeof *n->command);
    if (e->sender.plain) {
        char *args = command_args_without(e->sender.args, "AUTH");
        n->command[n->ncommands++] =
            mem_printf("MAIL FROM:<%s>%s%s", e->sender.address, args ? " " : "", args ? args : "");
        free(args);
    } else {
        n->command[n->ncommands++] = command_line_without(e->mail_line, "AUTH");
    }
    for (size_t i = 0; i < e->nrecipients; i++)
        if (!which || which[i])
            n->command[n->ncommands++] = mem_strdup(e->recipient[i].given);
    n->command[n->ncommands++] = mem_strdup("DATA");
}

struct next *next_open(const struct engine *e, const bool *which, const char *id, next_fn *fn,
                       void *arg)
{
    struct next *n = mem_zero(sizeof *n);
    n->fn = fn;
    n->arg = arg;
    smtp_dots_begin(&n->dots);
    set_commands(n, e, which);
    for (int i = 0; i < XFORWARD_ATTRIBUTES; i++)
        n->xforward[i] = i == XFORWARD_IDENT ? mem_strdup(id)
                         : e->xforward[i]    ? mem_strdup(e->xforward[i])
                                             : NULL;
    n->fd = -1;
    n->phase = PHASE_CONNECT;
    double patience = (double)proxy.config->proxy_timeout / 1000;
    ev_timer_init(&n->patience, on_patience, patience, patience);
    ev_init(&n->telling, on_telling);
    ev_init(&n->reading, on_readable);
    ev_init(&n->writing, on_writable);
    n->reading.data = n->writing.data = n->telling.data = n->patience.data = n;
    ev_timer_start(proxy.loop, &n->patience);
    look_up(n, proxy.config->proxy_next);
    return n;
}

/* ---- content ---- */

bool next_full(const struct next *n)
{
    return n->out.len > NEXT_BACKLOG;
}

void next_add(struct next *n, const char *data, size_t len)
{
    if (n->phase != PHASE_CONTENT)
        return;
    smtp_dots_add(&n->dots, data, len, &n->out);
    n->was_full |= next_full(n);
    if (n->out.len < 16384 || ev_is_active(&n->writing))
        return;
    ev_timer_again(proxy.loop, &n->patience);
    ev_io_start(proxy.loop, &n->writing);
}

void next_end(struct next *n)
{
    if (n->phase != PHASE_CONTENT)
        return;
    n->phase = PHASE_DOT;
    smtp_dots_end(&n->dots, &n->out);
    ev_timer_again(proxy.loop, &n->patience);
    ev_io_start(proxy.loop, &n->writing);
}
