/* One SMTP session as an engine hears it: facts of the client, then mails, one after another.
 * Everything is decided at the end of a message.
 *
 * In time. Postfix waits for the answer at the end of a message for content_timeout. Then it queues
 * the mail, shuts the connection down, and the session goes on without us (docs/design.md, "Mail
 * in" 11). A later answer reaches nobody, but the copies in the lanes would be a second mail. So
 * nothing is answered when Postfix may have been waiting for more than PATIENCE: the copies are
 * taken back, and the connection is closed.
 *
 * While the store takes long, progress is reported.
 *
 * Postfix may be on another host, and its time goes on while ours is suspended: CLOCK_BOOTTIME. */
#include "milter/session.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/config/nexthop.h"
#include "milter/end_of_message.h"

#define PATIENCE 10.      /* seconds; content_timeout is 60 s (dovelane check wants at least 16) */
#define PROGRESS_AFTER 3. /* seconds without an answer */
/* While so many mails are being stored the loop waits for so long before it looks for events:
 * then the pushes of several leave together, and so do the nodes' answers. A mail that is alone,
 * or one of two, waits for nothing. Longer, and 20 sessions leave the cores idle
 * (docs/lab/gateway.md). */
#define GATHER_MAILS 3
#define GATHER_SECONDS .0008
#define LONG_TURN 1. /* seconds; the store's watch turns the loop ten times a second */

/* Sessions whose message is complete, until the mail is over. */
static struct {
    struct milter_session *first;
    size_t n;
} storing;

static struct {
    ev_prepare turn;
    double this_turn, last_turn; /* when the loop began to wait for events */
    ev_timer tick;
} loop_watch;

double milter_session_last_turn(void)
{
    return loop_watch.last_turn;
}

/* ---- the end ---- */

static void set(char **field, const char *value)
{
    free(*field);
    *field = value ? mem_strdup(value) : NULL;
}

static void forget_client(struct milter_session *s)
{
    char **text[] = {&s->client_name, &s->client_addr, &s->client_port, &s->helo,
                     &s->host,        &s->tls_version, &s->tls_cipher,  &s->tls_bits,
                     &s->tls_subject, &s->tls_issuer};
    for (size_t i = 0; i < sizeof text / sizeof *text; i++)
        set(text[i], NULL);
}

struct milter_session *milter_session_new(const struct engine *engine, void *peer)
{
    struct milter_session *s = mem_zero(sizeof *s);
    s->engine = engine;
    s->peer = peer;
    return s;
}

void milter_session_free(struct milter_session *s)
{
    mail_reset(&s->mail);
    forget_client(s);
    free(s);
}

static void forget_storing(struct milter_session *s)
{
    ASSERT(storing.n);
    if (s->next)
        s->next->prev = s->prev;
    if (s->prev)
        s->prev->next = s->next;
    else
        storing.first = s->next;
    s->prev = s->next = NULL;
    storing.n--;
}

void milter_session_mail_over(struct milter_session *s)
{
    ASSERT(!s->answering && !s->lookup);
    if (s->stored)
        store_finish(milter.store, &s->entries.request);
    mail_entries_free(&s->entries);
    buf_free(&s->body);
    mail_reset(&s->mail);
    s->entries = (struct mail_entries){0};
    s->stored = s->revoked = false;
    s->stage = STAGE_READING;
    forget_storing(s);
    s->engine->over(s->peer);
}

void milter_session_gone(struct milter_session *s)
{
    s->gone = true;
    s->engine->hang_up(s->peer);
}

void milter_session_lost(struct milter_session *s)
{
    if (s->answering)
        return;
    milter_session_gone(s);
    divert_gone(s);
}

/* ---- the answer ---- */

bool milter_session_waits(const struct milter_session *s)
{
    return !s->gone && clock_boottime() - s->since < PATIENCE;
}

void milter_session_answer(struct milter_session *s, enum engine_answer answer, const char *reply)
{
    ASSERT(!s->answering);
    s->answering = milter_session_waits(s);
    if (s->answering)
        s->engine->answer(s->peer, answer, reply);
    else
        divert_answered(s, false);
}

void milter_session_answered(struct milter_session *s, bool told)
{
    s->answering = false;
    divert_answered(s, told);
}

bool milter_session_late(struct milter_session *s)
{
    s->answering = false;
    bool holds = divert_late(s);
    if (holds)
        s->answering = true;
    return holds;
}

/* ---- what Postfix says ---- */

static void address_text(struct milter_session *s, const char *address, unsigned port)
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

static const char *macro(const struct milter_session *s, const char *name)
{
    return s->engine->macro(s->peer, name);
}

void milter_session_connect(struct milter_session *s, const char *name, const char *address,
                            unsigned port)
{
    const char *verified = macro(s, "{client_name}");
    forget_client(s);
    set(&s->client_name, verified ? verified : name);
    address_text(s, address, port);
    set(&s->host, *milter.config->host_name ? milter.config->host_name : macro(s, "j"));
}

void milter_session_helo(struct milter_session *s, const char *name)
{
    set(&s->helo, name);
    set(&s->tls_version, macro(s, "{tls_version}"));
    set(&s->tls_cipher, macro(s, "{cipher}"));
    set(&s->tls_bits, macro(s, "{cipher_bits}"));
    set(&s->tls_subject, macro(s, "{cert_subject}"));
    set(&s->tls_issuer, macro(s, "{cert_issuer}"));
}

static void milter_session_facts(const struct milter_session *s, struct envelope *e)
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

/* RFC 3848's names. Postfix gives a milter no macro with ESMTP or SMTP in it; a client that
 * greeted with HELO cannot have given arguments. */
static const char *protocol_name(const struct envelope *e)
{
    bool tls = e->tls_version && *e->tls_version, login = e->login && *e->login;
    static const char *const name[] = {"ESMTP", "ESMTPA", "ESMTPS", "ESMTPSA"};
    return name[2 * tls + login];
}

void milter_session_mail(struct milter_session *s, char *const *argv)
{
    struct mail *m = &s->mail;
    mail_reset(m);
    mail_set_sender(m, argv, macro(s, "{mail_addr}"));
    set(&m->envelope.login, macro(s, "{auth_authen}"));
    set(&m->envelope.login_method, macro(s, "{auth_type}"));
    set(&m->envelope.login_sender, macro(s, "{auth_author}"));
    milter_session_facts(s, &m->envelope);
    set(&m->envelope.protocol, protocol_name(&m->envelope));
}

void milter_session_rcpt(struct milter_session *s, char *const *argv)
{
    const char *mailer = macro(s, "{rcpt_mailer}"), *host = macro(s, "{rcpt_host}");
    char *resolved = mem_printf("%s:%s", mailer ? mailer : "", host ? host : ""),
         *destination = nexthop_spell(resolved);
    mail_add_recipient(&s->mail, argv, destination, macro(s, "{rcpt_addr}"));
    free(resolved);
    free(destination);
}

void milter_session_header(struct milter_session *s, const char *name, const char *value)
{
    mail_add_header(&s->mail, name, value);
}

void milter_session_body(struct milter_session *s, const void *data, size_t len)
{
    mail_add_body(&s->mail, data, len);
}

void milter_session_abort(struct milter_session *s)
{
    mail_reset(&s->mail);
}

void milter_session_end(struct milter_session *s, const char *queue_id, double since)
{
    ASSERT(s->stage == STAGE_READING && !s->stored && !s->revoked);
    s->since = since;
    set(&s->mail.envelope.queue_id, queue_id);
    s->prev = NULL;
    s->next = storing.first;
    if (s->next)
        s->next->prev = s;
    storing.first = s;
    storing.n++;
    divert_begin(s);
}

void milter_session_complain(const char *what)
{
    static atomic_llong complained; /* the second in which */
    long long now = (long long)clock_boottime() + 1;
    if (atomic_exchange(&complained, now) != now)
        log_error("milter_socket: a connection is closed: %s", what);
}

/* ---- time ---- */

/* Not when the wait ended: a process that was stopped and goes on is told of no events at first
 * (EINTR). */
static void on_turn(struct ev_loop *loop, ev_prepare *p, int events)
{
    double now = clock_boottime();
    if (now - loop_watch.this_turn > LONG_TURN && milter.engine->stood_still)
        milter.engine->stood_still(loop_watch.last_turn);
    loop_watch.last_turn = loop_watch.this_turn;
    loop_watch.this_turn = now;
    ev_set_io_collect_interval(loop, storing.n >= GATHER_MAILS ? GATHER_SECONDS : 0.);
}

static void on_tick(struct ev_loop *loop, ev_timer *t, int events)
{
    double now = clock_boottime();
    for (struct milter_session *s = storing.first, *next; s; s = next) {
        next = s->next;
        if (s->gone || s->answering || now - s->since < PROGRESS_AFTER)
            continue;
        if (now - s->since < PATIENCE && s->engine->progress(s->peer))
            s->since = now;
        else
            milter_session_lost(s);
    }
}

void milter_session_open(void)
{
    loop_watch.this_turn = loop_watch.last_turn = clock_boottime();
    ev_prepare_init(&loop_watch.turn, on_turn);
    ev_set_priority(&loop_watch.turn, EV_MINPRI); /* behind what others still do */
    ev_prepare_start(milter.loop, &loop_watch.turn);
    ev_timer_init(&loop_watch.tick, on_tick, 1., 1.);
    ev_timer_start(milter.loop, &loop_watch.tick);
}
