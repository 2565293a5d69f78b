/* One connection of Postfix: facts of the SMTP session, then mails, one after another.
 *
 * Nothing but the end of a message is answered (engine.h): three fewer context switches a mail, and a third more mails a second, measured. A step without an answer
 * cannot refuse anything either; everything is decided at the end.
 *
 * In time. Postfix waits for the answer at the end of a message for content_timeout. Then it queues the mail, shuts the
 * connection down, and the session goes on without us (docs/design.md, "Mail in" 11). A later answer reaches nobody, but
 * the copies in the lanes would be a second mail. So nothing is answered when Postfix may have been waiting for more than
 * PATIENCE: the copies are taken back, and the connection is closed.
 *
 * Postfix cannot tell us when it wrote the end of a message. When the loop began to wait for events the time before, it
 * was not there yet (the connection was: the negotiation is waited for). But a turn of the loop does not report all that
 * is ready: libev takes 64 descriptors at first. So after each long turn we look which connections have something to
 * read: that may be as old as the turn. While the store takes long, progress is reported. What Postfix sends before our
 * answer says that it does not wait.
 */
#include "session.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "listener.h"
#include "log.h"
#include "metrics.h"

#define PATIENCE 10.       /* seconds; content_timeout is 60 s (dovelane check wants at least 16) */
#define PROGRESS_AFTER 3.  /* seconds without an answer */
#define READ_MOST (256 * 1024)
/* While so many mails are being stored the loop waits for so long before it looks for events: then the pushes of several leave together, and so do the nodes' answers. A mail that is
 * alone, or one of two, waits for nothing. Longer, and 20 sessions leave the cores idle (docs/benchmarks.md). */
#define GATHER_MAILS 3
#define GATHER_SECONDS .0008
#define LONG_TURN 1.       /* seconds; the store's watch turns the loop ten times a second */

static struct {
    struct session *first;
    size_t n, storing; /* storing: the message is complete, and not over */
    ev_prepare turn;
    double this_turn, last_turn; /* when the loop began to wait for events */
    ev_timer tick;
} sessions;

size_t session_count(void)
{
    return sessions.n;
}

/* ---- the end ---- */

static void set(char **field, const char *value)
{
    free(*field);
    *field = value ? mem_strdup(value) : NULL;
}

static void forget_client(struct session *s)
{
    char **text[] = {&s->client_name, &s->client_addr, &s->client_port, &s->helo,        &s->host,
                     &s->tls_version, &s->tls_cipher,  &s->tls_bits,    &s->tls_subject, &s->tls_issuer};
    for (size_t i = 0; i < sizeof text / sizeof *text; i++)
        set(text[i], NULL);
}

static void end_session(struct session *s)
{
    ev_io_stop(milter.loop, &s->reading);
    ev_io_stop(milter.loop, &s->writing);
    close(s->fd);
    if (s->next)
        s->next->prev = s->prev;
    if (s->prev)
        s->prev->next = s->next;
    else
        sessions.first = s->next;
    sessions.n--;
    metric_add(milter_sessions, -1);
    mail_reset(&s->mail);
    forget_client(s);
    engine_free(&s->engine);
    free(s);
}

void session_mail_over(struct session *s)
{
    if (s->stored)
        store_finish(milter.store, &s->deposit.request);
    deposit_free(&s->deposit);
    buf_free(&s->body);
    mail_reset(&s->mail);
    s->deposit = (struct deposit){0};
    s->stored = s->revoked = false;
    s->stage = STAGE_READING;
    sessions.storing--;
    if (s->gone)
        end_session(s);
}

void session_gone(struct session *s)
{
    s->gone = true;
    ev_io_stop(milter.loop, &s->reading);
    ev_io_stop(milter.loop, &s->writing);
    shutdown(s->fd, SHUT_RDWR); /* Postfix must not wait for us until the store has ended */
}

/* Postfix hung up, does not behave, or does not wait any more. */
static void lose(struct session *s)
{
    if (s->stage == STAGE_READING) {
        end_session(s);
        return;
    }
    session_gone(s);
    divert_gone(s);
}

/* ---- writing ---- */

static bool write_out(struct session *s)
{
    return listener_send(milter.loop, &s->writing, &s->engine.out);
}

static void on_writable(struct ev_loop *loop, ev_io *io, int events)
{
    struct session *s = io->data;
    if (!write_out(s))
        lose(s);
}

bool session_waits(const struct session *s)
{
    return !s->gone && clock_monotonic() - s->since < PATIENCE;
}

bool session_answer(struct session *s, enum engine_answer answer, const char *reply)
{
    if (!session_waits(s))
        return false;
    engine_answer(&s->engine, answer, reply);
    return write_out(s);
}

/* ---- what Postfix says ---- */

static void address_text(struct session *s, const char *address, unsigned port)
{
    char text[INET6_ADDRSTRLEN] = "";
    unsigned char binary[16];
    if (address && !strncasecmp(address, "IPv6:", 5))
        address += 5;
    int family = address && strchr(address, ':') ? AF_INET6 : AF_INET;
    bool good = address && inet_pton(family, address, binary) == 1;
    if (good)
        inet_ntop(family, binary, text, sizeof text);
    set(&s->client_addr, text);
    free(s->client_port);
    s->client_port = good && port ? mem_printf("%u", port) : NULL;
}

static void on_connect(struct session *s)
{
    const struct engine *e = &s->engine;
    const char *verified = engine_macro(e, "{client_name}");
    forget_client(s);
    set(&s->client_name, verified ? verified : e->text);
    address_text(s, e->address, e->port);
    set(&s->host, *milter.config->host_name ? milter.config->host_name : engine_macro(e, "j"));
}

static void on_helo(struct session *s)
{
    const struct engine *e = &s->engine;
    set(&s->helo, e->text);
    set(&s->tls_version, engine_macro(e, "{tls_version}"));
    set(&s->tls_cipher, engine_macro(e, "{cipher}"));
    set(&s->tls_bits, engine_macro(e, "{cipher_bits}"));
    set(&s->tls_subject, engine_macro(e, "{cert_subject}"));
    set(&s->tls_issuer, engine_macro(e, "{cert_issuer}"));
}

static void session_facts(const struct session *s, struct envelope *e)
{
    set(&e->host, s->host);
    set(&e->client_name, s->client_name);
    set(&e->client_addr, s->client_addr);
    set(&e->client_port, s->client_port);
    set(&e->helo, s->helo);
    set(&e->tls_version, s->tls_version);
    set(&e->tls_cipher, s->tls_cipher);
    set(&e->tls_bits, s->tls_bits);
    set(&e->tls_subject, s->tls_subject);
    set(&e->tls_issuer, s->tls_issuer);
}

/* RFC 3848's names. Postfix gives a milter no macro with ESMTP or SMTP in it; a client that greeted with HELO cannot have given arguments. */
static const char *protocol_name(const struct envelope *e)
{
    bool tls = e->tls_version && *e->tls_version, login = e->login && *e->login;
    static const char *const name[] = {"ESMTP", "ESMTPA", "ESMTPS", "ESMTPSA"};
    return name[2 * tls + login];
}

static void on_mail(struct session *s)
{
    struct mail *m = &s->mail;
    const struct engine *e = &s->engine;
    mail_reset(m);
    mail_set_sender(m, e->argv, engine_macro(e, "{mail_addr}"));
    set(&m->envelope.login, engine_macro(e, "{auth_authen}"));
    set(&m->envelope.login_method, engine_macro(e, "{auth_type}"));
    set(&m->envelope.login_sender, engine_macro(e, "{auth_author}"));
    session_facts(s, &m->envelope);
    set(&m->envelope.protocol, protocol_name(&m->envelope));
}

static void on_rcpt(struct session *s)
{
    const struct engine *e = &s->engine;
    const char *mailer = engine_macro(e, "{rcpt_mailer}"), *host = engine_macro(e, "{rcpt_host}");
    char *destination = mem_printf("%s:%s", mailer ? mailer : "", host ? host : "");
    mail_add_recipient(&s->mail, e->argv, destination, engine_macro(e, "{rcpt_addr}"));
    free(destination);
}

/* ---- reading ---- */

static void complain(const char *what)
{
    static double complained;
    if (complained && clock_monotonic() - complained < 1)
        return;
    complained = clock_monotonic();
    log_error("milter_socket: a connection is closed: %s", what);
}

/* False: the session may be gone. */
static bool do_event(struct session *s, enum engine_event event, bool more)
{
    const struct engine *e = &s->engine;
    switch (event) {
    case ENGINE_HELLO:
        if (!more)
            break;
        complain("it goes on behind the negotiation, without waiting for an answer");
        lose(s);
        return false;
    case ENGINE_CONNECT: on_connect(s); break;
    case ENGINE_HELO: on_helo(s); break;
    case ENGINE_MAIL: on_mail(s); break;
    case ENGINE_RCPT: on_rcpt(s); break;
    case ENGINE_HEADER: mail_add_header(&s->mail, e->text, e->value); break;
    case ENGINE_BODY: mail_add_body(&s->mail, e->data, e->len); break;
    case ENGINE_ABORT: mail_reset(&s->mail); break;
    case ENGINE_MORE: break;
    case ENGINE_END:
        s->since = s->stood && s->stood < sessions.last_turn ? s->stood : sessions.last_turn;
        s->stood = 0;
        if (more) {
            complain("it goes on behind the end of a message, without waiting for an answer");
            lose(s);
        } else {
            sessions.storing++;
            divert_begin(s);
        }
        return false;
    case ENGINE_BAD:
        complain(e->text);
        lose(s);
        return false;
    case ENGINE_QUIT: lose(s); return false;
    }
    return true;
}

/* False: the session may be gone, or its message is complete. */
static bool feed(struct session *s, const char *data, size_t len)
{
    enum engine_event event;
    size_t at = 0;
    do {
        size_t used;
        event = engine_feed(&s->engine, data + at, len - at, &used);
        at += used;
        if (!do_event(s, event, at < len))
            return false;
    } while (event != ENGINE_MORE);
    if (s->engine.out.len && !write_out(s)) { /* the negotiation */
        lose(s);
        return false;
    }
    return true;
}

static void on_readable(struct ev_loop *loop, ev_io *io, int events)
{
    static char bytes[READ_MOST];
    struct session *s = io->data;
    ssize_t n = recv(s->fd, bytes, sizeof bytes, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0 && s->stage != STAGE_READING)
        complain("Postfix did not wait for the answer to a message");
    if (n <= 0 || s->stage != STAGE_READING) {
        lose(s);
        return;
    }
    bool emptied = (size_t)n < sizeof bytes;
    if (feed(s, bytes, (size_t)n) && emptied)
        s->stood = 0; /* what comes from now on is fresh */
}

/* ---- sessions ---- */

void session_new(int fd)
{
    struct session *s = mem_zero(sizeof *s);
    s->fd = fd;
    s->next = sessions.first;
    if (s->next)
        s->next->prev = s;
    sessions.first = s;
    sessions.n++;
    metric_add(milter_sessions, 1);
    ev_io_init(&s->reading, on_readable, fd, EV_READ);
    ev_io_init(&s->writing, on_writable, fd, EV_WRITE);
    s->reading.data = s->writing.data = s;
    ev_io_start(milter.loop, &s->reading);
}

void session_leave(bool all)
{
    for (struct session *s = sessions.first, *next; s; s = next) {
        next = s->next;
        if (s->stage == STAGE_READING && !s->engine.out.len && (all || s->engine.state != ENGINE_IN_MAIL))
            lose(s);
    }
}

/* This process stood still: what lies in a socket now may have come since that moment, and may be reported only some turns later. */
static void note_standstill(double since)
{
    for (struct session *s = sessions.first; s; s = s->next) {
        char byte;
        if (!s->stood && recv(s->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1)
            s->stood = since;
    }
}

/* Not when the wait ended: a process that was stopped and goes on is told of no events at first (EINTR). */
static void on_turn(struct ev_loop *loop, ev_prepare *p, int events)
{
    double now = clock_monotonic();
    if (now - sessions.this_turn > LONG_TURN)
        note_standstill(sessions.last_turn);
    sessions.last_turn = sessions.this_turn;
    sessions.this_turn = now;
    ev_set_io_collect_interval(loop, sessions.storing >= GATHER_MAILS ? GATHER_SECONDS : 0.);
}

static void on_tick(struct ev_loop *loop, ev_timer *t, int events)
{
    double now = clock_monotonic();
    for (struct session *s = sessions.first, *next; s; s = next) {
        next = s->next;
        if (s->stage == STAGE_READING || s->gone || now - s->since < PROGRESS_AFTER)
            continue;
        if (now - s->since < PATIENCE)
            engine_progress(&s->engine);
        if (now - s->since >= PATIENCE || !write_out(s))
            lose(s);
        else
            s->since = now;
    }
}

void session_open(void)
{
    sessions.this_turn = sessions.last_turn = clock_monotonic();
    ev_prepare_init(&sessions.turn, on_turn);
    ev_set_priority(&sessions.turn, EV_MINPRI); /* behind what others still do */
    ev_prepare_start(milter.loop, &sessions.turn);
    ev_timer_init(&sessions.tick, on_tick, 1., 1.);
    ev_timer_start(milter.loop, &sessions.tick);
}
