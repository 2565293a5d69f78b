/* session_fuzz - a session of the delivery engine against a server whose every choice comes from
 * the input: what it offers, what it answers, when it closes, when it says garbage. The server
 * remembers what it said about whom, and every result is compared with that:
 *
 *   SENT       it said 2xx for this recipient of this mail, after the whole message, byte for byte
 *   FAILED     it said 5xx about it
 *   otherwise  it said neither; and if it had the whole message and said nothing, the engine must not claim that nothing happened
 *
 * Up to MAILS mails go over the connection, so a reply that is taken for another's shows. After
 * garbage only crashes and lost mails count. */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/config/config.h"
#include "lib/base/log.h"
#include "relay/smtp/smtp.h"

enum { MAILS = 4, RCPTS = 3, ROUNDS = 2000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "session_fuzz: %s\n", what);
        abort();
    }
}

/* ---- the input ---- */

static const uint8_t *input;
static size_t input_left;

/* 0 when there is no more: then the server is a good one. */
static unsigned choice(unsigned n)
{
    if (!input_left)
        return 0;
    input_left--;
    return *input++ % n;
}

/* ---- the mails ---- */

static struct {
    const char *sent, *arrives;
} bodies[] = {
    {"Subject: a\r\n\r\nb\r\n", "Subject: a\r\n\r\nb\r\n"},
    {".dot\r\n.\r\n..\r\nlast", ".dot\r\n.\r\n..\r\nlast\r\n"},
    {"bare\nfeed\n.\n\n", "bare\r\nfeed\r\n.\r\n\r\n"},
    {"", ""},
    {NULL, NULL}, /* larger than a socket takes at once */
};

static struct job {
    struct envelope envelope;
    struct recipient recipient[RCPTS];
    struct smtp_rcpt rcpt[RCPTS];
    struct smtp_mail mail;
    const char *arrives;
    bool over;
    /* what the server did */
    struct {
        bool accepted, received, sent, failed;
    } truth[RCPTS];
} job[MAILS];
static char sender[MAILS][16], address[RCPTS][16];
static unsigned sent, over; /* mails given to the session, and back */

static void make_large(void)
{
    enum { LARGE = 250000 };
    char *large = malloc(LARGE + 1);
    for (size_t i = 0; i < LARGE; i++)
        large[i] = "0123456789abcdef\r\n"[i % 18];
    large[LARGE / 18 * 18] = '\0';
    bodies[4].sent = bodies[4].arrives = large;
}

static void make_job(unsigned n)
{
    struct job *j = &job[n];
    unsigned body = choice(16);
    smtp_rcpts_clear(j->rcpt, RCPTS);
    *j = (struct job){0};
    body = body < 12 ? body % 4 : body == 12 ? 4 : 0;
    snprintf(sender[n], sizeof sender[n], "m%u@x", n);
    j->envelope.sender = sender[n];
    j->envelope.client_addr = n % 2 ? (char *)"192.0.2.1" : (char *)"2001:db8::1";
    j->envelope.recipient = j->recipient;
    j->mail.envelope = &j->envelope;
    j->mail.rcpt = j->rcpt;
    j->mail.nrcpt = j->envelope.nrecipients = 1 + choice(RCPTS);
    for (unsigned i = 0; i < RCPTS; i++) {
        snprintf(address[i], sizeof address[i], "r%u@x", i);
        j->recipient[i].address = address[i];
        j->rcpt[i].index = i;
    }
    j->mail.body = bodies[body].sent;
    j->mail.body_len = strlen(bodies[body].sent);
    j->arrives = bodies[body].arrives;
    j->mail.owner = j;
}

/* ---- the server ---- */

enum outcome { GOOD, TEMPORARY, PERMANENT, SILENT };

static struct server {
    int fd;
    bool lmtp, chunk, pipelining, xclient;
    bool batch; /* says nothing before it has to wait for more, as pipelining servers do */
    struct buf out;
    bool dirty;  /* said something that is no answer */
    bool unsure; /* refused a BDAT: only RSET helps (RFC 3030 section 2) */
    struct buf in;
    enum { COMMANDS, IN_DATA, IN_BDAT } state;
    size_t bdat_left;
    struct buf message;
    struct job *mail; /* accepted MAIL */
} server;
static struct ev_loop *loop;
static struct smtp_session *session;

static void run_client(void)
{
    ev_run(loop, EVRUN_NOWAIT);
}

/* What was not said yet never is. */
static void server_drop(void)
{
    if (server.fd >= 0)
        close(server.fd);
    server.fd = -1;
    buf_consume(&server.out, server.out.len);
}

static void server_flush(void)
{
    size_t len = server.out.len;
    if (server.fd >= 0 && len &&
        send(server.fd, server.out.data, len, MSG_NOSIGNAL) != (ssize_t)len)
        server_drop();
    buf_consume(&server.out, server.out.len);
}

static void server_close(void)
{
    server_flush();
    server_drop();
}

static void server_says(const char *text, size_t len)
{
    if (server.fd < 0)
        return;
    buf_add(&server.out, text, len);
    if (!server.batch)
        server_flush();
}

static void garbage(void)
{
    size_t n = choice(64);
    if (n > input_left)
        n = input_left;
    server.dirty = true;
    server_says((const char *)input, n);
    input += n;
    input_left -= n;
}

/* One reply, mostly the good one: what it means, SILENT when nothing was said. */
static enum outcome answer(const char *good)
{
    char text[200];
    unsigned how = choice(20);
    const char *code = how == 9 ? "450" : how == 10 ? "550" : how == 11 ? "421" : good;
    if (how == 12) {
        garbage();
        return SILENT;
    }
    if (how == 13) {
        server_close();
        return SILENT;
    }
    if (how == 14) {
        snprintf(text, sizeof text, "%s-2.1.5 one\r\n%s-\r\n%s 2.0.0 two\r\n", code, code, code);
    } else {
        snprintf(text, sizeof text, "%s 2.0.0 text\r\n", code);
    }
    if (how == 15) {
        size_t half = choice((unsigned)strlen(text));
        server_says(text, half);
        run_client();
        server_says(text + half, strlen(text) - half);
    } else {
        server_says(text, strlen(text));
    }
    enum outcome outcome = server.fd < 0  ? SILENT
                           : *code == '4' ? TEMPORARY
                           : *code == '5' ? PERMANENT
                                          : GOOD;
    if (how == 16)
        server_close();
    return outcome;
}

/* A reply that leaves no choice. */
static void must(const char *text)
{
    server_says(text, strlen(text));
}

static unsigned accepted(void)
{
    unsigned n = 0;
    for (unsigned i = 0; server.mail && i < RCPTS; i++)
        n += server.mail->truth[i].accepted;
    return n;
}

static void failed_all(void)
{
    for (unsigned i = 0; server.mail && i < RCPTS; i++)
        server.mail->truth[i].failed = true;
}

static void judge(struct job *j, unsigned i, enum outcome o)
{
    j->truth[i].sent = o == GOOD;
    j->truth[i].failed |= o == PERMANENT;
}

/* The whole message is there. */
static void end_of_message(void)
{
    struct job *j = server.mail;
    unsigned n = accepted(), refused = 0;
    bool chunk = server.state == IN_BDAT;
    server.state = COMMANDS;
    server.mail = NULL;
    if (!n) {
        server.unsure = chunk;
        if (!(server.lmtp && choice(4) == 1))
            must("554 5.5.1 no valid recipients\r\n");
        return;
    }
    require(server.dirty || (server.message.len == strlen(j->arrives) &&
                             !memcmp(server.message.data ? server.message.data : "", j->arrives,
                                     server.message.len)),
            "another message than was to be sent");
    for (unsigned i = 0; i < RCPTS; i++)
        j->truth[i].received = j->truth[i].accepted;
    if (choice(16) == 9) {
        server_drop();
        return;
    }
    if (!server.lmtp) {
        enum outcome o = answer("250");
        for (unsigned i = 0; i < RCPTS; i++)
            if (j->truth[i].accepted)
                judge(j, i, o);
        server.unsure = chunk && o != GOOD;
        return;
    }
    for (unsigned i = 0; i < RCPTS; i++)
        if (j->truth[i].accepted) {
            judge(j, i, answer("250"));
            refused += !j->truth[i].sent;
        }
    server.unsure = chunk && refused == n;
}

static void offer(bool esmtp)
{
    char text[300];
    unsigned how = choice(16);
    if (how == 9 || how == 10) {
        must(how == 9 ? "500 what\r\n" : "421 later\r\n");
        return;
    }
    if (how == 11) {
        answer("250-x\r\n250");
        return;
    }
    snprintf(text, sizeof text, "250-x\r\n%s%s%s250 OK\r\n",
             esmtp && server.pipelining ? "250-PIPELINING\r\n" : "",
             esmtp && server.chunk ? "250-CHUNKING\r\n" : "",
             esmtp && server.xclient ? "250-XCLIENT ADDR\r\n" : "");
    must(text);
}

static void recipient(const char *line)
{
    unsigned i = (unsigned)(line[strlen("RCPT TO:<r")] - '0');
    require(i < RCPTS, "a recipient that is none");
    if (!server.mail) {
        must("503 5.5.1 first MAIL\r\n");
        return;
    }
    enum outcome o = answer("250");
    server.mail->truth[i].accepted = o == GOOD;
    server.mail->truth[i].failed |= o == PERMANENT;
}

static void begin_mail(const char *line)
{
    unsigned n = (unsigned)(line[strlen("MAIL FROM:<m")] - '0');
    require(server.dirty || (n < MAILS && !server.mail && !server.unsure),
            "a mail that is none, or in another, or before RSET");
    n %= MAILS;
    server.mail = &job[n];
    enum outcome o = answer("250");
    if (o == PERMANENT)
        failed_all();
    if (o != GOOD)
        server.mail = NULL;
}

static void begin_data(void)
{
    buf_consume(&server.message, server.message.len);
    if (!accepted()) {
        must("554 5.5.1 no valid recipients\r\n");
        return;
    }
    enum outcome o = answer("354");
    if (o == PERMANENT)
        failed_all();
    if (o == GOOD)
        server.state = IN_DATA;
}

static void command(const char *line)
{
    if (!strncmp(line, "EHLO", 4) || !strncmp(line, "LHLO", 4)) {
        require((*line == 'L') == server.lmtp, "the other protocol's hello");
        offer(true);
    } else if (!strncmp(line, "HELO", 4)) {
        offer(false);
    } else if (!strncmp(line, "XCLIENT", 7)) {
        answer("220");
    } else if (!strncmp(line, "MAIL", 4)) {
        begin_mail(line);
    } else if (!strncmp(line, "RCPT", 4)) {
        recipient(line);
    } else if (!strcmp(line, "DATA")) {
        begin_data();
    } else if (!strncmp(line, "BDAT ", 5)) {
        require(strstr(line, " LAST") != NULL, "a chunk that is not the last");
        buf_consume(&server.message, server.message.len);
        server.bdat_left = strtoul(line + 5, NULL, 10);
        server.state = IN_BDAT;
    } else if (!strcmp(line, "RSET")) {
        server.mail = NULL;
        server.unsure = false;
        answer("250");
    } else if (!strcmp(line, "QUIT")) {
        server_close();
    } else if (*line == '.') {
        must("500 5.5.2 a dot\r\n"); /* to a 354 that was garbage */
    } else {
        require(server.dirty, "a command that nobody knows");
        must("500 5.5.2 what\r\n");
    }
}

/* True when something was taken from what came in. */
static bool take_line(void)
{
    char *lf = server.in.len ? memchr(server.in.data, '\n', server.in.len) : NULL;
    char line[600];
    if (!lf)
        return false;
    size_t n = (size_t)(lf - server.in.data) + 1;
    if (server.state == IN_DATA) {
        const char *text = server.in.data;
        if (n == 3 && !memcmp(text, ".\r\n", 3)) {
            buf_consume(&server.in, n);
            end_of_message();
            return true;
        }
        buf_add(&server.message, text + (*text == '.'), n - (*text == '.'));
        buf_consume(&server.in, n);
        return true;
    }
    require(n < sizeof line, "a command of this length");
    memcpy(line, server.in.data, n);
    line[n - 1] = '\0';
    if (n > 1 && line[n - 2] == '\r')
        line[n - 2] = '\0';
    buf_consume(&server.in, n);
    command(line);
    return true;
}

static bool take(void)
{
    if (server.state != IN_BDAT)
        return take_line();
    size_t n = server.in.len < server.bdat_left ? server.in.len : server.bdat_left;
    buf_add(&server.message, server.in.data, n);
    buf_consume(&server.in, n);
    server.bdat_left -= n;
    if (server.bdat_left)
        return false;
    end_of_message();
    return true;
}

static bool server_step(void)
{
    static char chunk[65536];
    ssize_t n = server.fd < 0 ? -1 : recv(server.fd, chunk, sizeof chunk, MSG_DONTWAIT);
    if (n == 0)
        server_close();
    if (n <= 0)
        return false;
    /* To close with something unread is another end for the client than to close after all of
     * it. */
    if (choice(64) == 9) {
        server_drop();
        return true;
    }
    buf_add(&server.in, chunk, (size_t)n);
    while (server.fd >= 0 && take())
        ;
    server_flush();
    return true;
}

/* ---- the client ---- */

static void check(const struct job *j)
{
    for (unsigned i = 0; i < j->mail.nrcpt; i++) {
        const struct smtp_rcpt *r = &j->rcpt[i];
        require(j->mail.stale || r->verdict != SMTP_UNTRIED, "a recipient without a result");
        require(r->verdict == SMTP_UNTRIED || (r->text && *r->dsn), "a result without its reason");
        if (server.dirty)
            continue;
        require(r->verdict != SMTP_SENT || j->truth[i].sent, "sent, but the server never said so");
        require(r->verdict == SMTP_SENT || !j->truth[i].sent,
                "the server took it, and the engine does not know");
        require(r->verdict != SMTP_FAILED || j->truth[i].failed,
                "failed, but the server never said so");
        require(!j->mail.stale || !j->truth[i].received,
                "called untried although the server had all of it");
        require(r->verdict != SMTP_DEFERRED || r->code || !j->truth[i].received,
                "called deferred although the server may have delivered it");
    }
}

static void on_done(struct smtp_session *s, struct smtp_mail *m)
{
    struct job *j = m->owner;
    require(!j->over, "a mail that is over twice");
    j->over = true;
    over++;
    check(j);
}

static void on_ready(struct smtp_session *s)
{
    require(sent == over, "ready with a mail in hand");
    while (sent < MAILS) {
        struct job *j = &job[sent++];
        if (smtp_send(s, &j->mail))
            return;
        j->over = true;
        over++;
    }
}

static void on_closed(struct smtp_session *s, const char *why)
{
    require(why && *why, "closed without a reason");
    require(sent == over, "closed with a mail in hand");
    session = NULL;
}

static const struct smtp_events events = {on_ready, on_done, on_closed};

/* ---- a run ---- */

static int listen_here(struct socket_address *a)
{
    struct sockaddr_un *un = (struct sockaddr_un *)(void *)&a->sa;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    socklen_t len = sizeof a->sa;
    *un = (struct sockaddr_un){.sun_family = AF_UNIX};
    /* the kernel names it */
    require(fd >= 0 && !bind(fd, (struct sockaddr *)un, sizeof un->sun_family) && !listen(fd, 8),
            "a socket");
    require(!getsockname(fd, (struct sockaddr *)un, &len), "its name");
    a->len = len;
    snprintf(a->text, sizeof a->text, "fuzz");
    return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int listener = -1;
    static struct socket_address where;
    if (listener < 0) {
        make_large();
        loop = ev_loop_new(0);
        listener = listen_here(&where);
    }
    input = data;
    input_left = size;
    unsigned offers = choice(16);
    struct smtp_policy policy = {.users = 1, .trust = choice(3) == 1 ? TRUST_XCLIENT : TRUST_NONE};
    for (int i = 0; i < SMTP_LIMITS; i++)
        policy.limit[i] = 3600.;
    server = (struct server){.fd = -1,
                             .in = server.in,
                             .out = server.out,
                             .message = server.message,
                             .batch = choice(2) == 1,
                             .pipelining = !(offers & 1),
                             .chunk = !(offers & 2),
                             .lmtp = offers & 4,
                             .xclient = offers & 8};
    buf_consume(&server.in, server.in.len);
    buf_consume(&server.out, server.out.len);
    sent = over = 0;
    for (unsigned i = 0; i < MAILS; i++)
        make_job(i);
    struct smtp_options o = {.lmtp = server.lmtp,
                             .host = "fuzz",
                             .address = &where,
                             .helo = "client",
                             .policy = &policy};
    session = smtp_open(loop, &o, &events);
    for (int round = 0, idle = 0; session && round < ROUNDS && idle < 4; round++) {
        run_client();
        if (server.fd < 0 && (server.fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0)
            answer("220"), server_flush();
        idle = server_step() ? 0 : idle + 1;
    }
    server_close();
    for (int round = 0; session && round < 10; round++)
        run_client();
    require(!session, "the server is gone and the session is not");
    for (unsigned i = 0; i < MAILS; i++)
        smtp_rcpts_clear(job[i].rcpt, RCPTS);
    for (unsigned i = 0; i < MAILS; i++)
        job[i] = (struct job){0};
    require(policy.users == 1, "the session still holds its policy");
    return 0;
}
