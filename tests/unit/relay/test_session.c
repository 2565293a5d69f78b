/* A session against a server in the same thread: what only shows when the moment of a loss is
 * known exactly. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/config/config.h"
#include "relay/smtp/smtp.h"
#include "tests/unit/relay/tests.h"

static struct ev_loop *loop;
static struct smtp_session *session;
static struct smtp_policy policy;
static struct socket_address where;
static int listener, server;
static unsigned readies, overs;
static char heard[8192];

static struct recipient to = {.address = (char *)"b@y"};
static struct envelope envelope = {.sender = (char *)"a@x", .nrecipients = 1, .recipient = &to};
static struct smtp_rcpt rcpt;
static struct smtp_mail mail;

static void on_ready(struct smtp_session *s)
{
    readies++;
}

static void on_done(struct smtp_session *s, struct smtp_mail *m)
{
    overs++;
}

static void on_closed(struct smtp_session *s, const char *why)
{
    session = NULL;
}

static const struct smtp_events events = {on_ready, on_done, on_closed};

static void begin(int family)
{
    struct sockaddr_in *in = (struct sockaddr_in *)(void *)&where.sa;
    memset(&where, 0, sizeof where);
    where.sa.ss_family = (sa_family_t)family;
    if (family == AF_INET)
        in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listener = socket(family, SOCK_STREAM, 0);
    socklen_t len = family == AF_INET ? sizeof *in : sizeof(sa_family_t);
    ck_assert(listener >= 0 && !bind(listener, (struct sockaddr *)&where.sa, len) &&
              !listen(listener, 1));
    len = sizeof where.sa;
    ck_assert(!getsockname(listener, (struct sockaddr *)&where.sa, &len));
    where.len = len;
    loop = ev_loop_new(0);
    policy = (struct smtp_policy){.users = 1};
    for (int i = 0; i < SMTP_LIMITS; i++)
        policy.limit[i] = 60.;
    struct smtp_options o = {.host = "h", .address = &where, .helo = "c", .policy = &policy};
    readies = overs = 0;
    session = smtp_open(loop, &o, &events);
    server = accept(listener, NULL, NULL);
}

static void end(void)
{
    if (session)
        smtp_drop(session, "the test ends");
    smtp_rcpts_clear(&rcpt, 1);
    rcpt = (struct smtp_rcpt){0};
    close(listener);
    ev_loop_destroy(loop);
}

static void says(const char *text)
{
    ck_assert_int_eq(send(server, text, strlen(text), 0), (ssize_t)strlen(text));
}

/* Runs the client until the server has heard this at the end. */
static void hears(const char *what)
{
    size_t len = 0;
    for (int i = 0; i < 200000; i++) {
        ev_run(loop, EVRUN_NOWAIT);
        ssize_t n = recv(server, heard + len, sizeof heard - 1 - len, MSG_DONTWAIT);
        len += n > 0 ? (size_t)n : 0;
        heard[len] = '\0';
        if (len >= strlen(what) && !strcmp(heard + len - strlen(what), what))
            return;
    }
    ck_abort_msg("never said: %s; but: %s", what, heard);
}

static void until(const unsigned *count, unsigned n)
{
    for (int i = 0; i < 200000 && *count < n; i++)
        ev_run(loop, EVRUN_NOWAIT);
    ck_assert_uint_eq(*count, n);
}

static void sends(void)
{
    smtp_rcpts_clear(&rcpt, 1);
    rcpt = (struct smtp_rcpt){.index = 0};
    mail = (struct smtp_mail){
        .envelope = &envelope, .body = "S: x\r\n\r\n", .body_len = 8, .rcpt = &rcpt, .nrcpt = 1};
    ck_assert(smtp_send(session, &mail));
}

static void greet(void)
{
    says("220 s\r\n");
    hears("EHLO c\r\n");
    says("250-s\r\n250-PIPELINING\r\n250 CHUNKING\r\n");
    until(&readies, 1);
}

/* One mail, and the connection is kept. */
static void one_mail(void)
{
    greet();
    sends();
    hears("MAIL FROM:<a@x>\r\nRCPT TO:<b@y>\r\nBDAT 8 LAST\r\nS: x\r\n\r\n");
    says("250 1\r\n250 2\r\n250 3\r\n");
    until(&readies, 2);
    ck_assert_int_eq(rcpt.verdict, SMTP_SENT);
}

static void closed_before_it_was_read(int family)
{
    begin(family);
    one_mail();
    close(server);
    sends(); /* the loop has not told the client yet */
    until(&overs, 2);
    ck_assert(mail.stale && rcpt.verdict == SMTP_UNTRIED);
    end();
}

START_TEST(test_a_kept_connection_that_was_closed_is_no_attempt)
{
    closed_before_it_was_read(AF_INET);
    closed_before_it_was_read(AF_UNIX);
}
END_TEST

static void closed_after_all_was_read(int family)
{
    begin(family);
    one_mail();
    sends();
    hears("S: x\r\n\r\n");
    close(server);
    until(&overs, 2);
    ck_assert(!mail.stale);
    ck_assert_int_eq(rcpt.verdict, SMTP_UNKNOWN);
    ck_assert(strstr(rcpt.text, "message may be sent more than once"));
    end();
}

START_TEST(test_without_a_word_after_the_whole_mail_nobody_knows)
{
    closed_after_all_was_read(AF_INET);
    closed_after_all_was_read(AF_UNIX);
}
END_TEST

START_TEST(test_a_reply_is_for_the_step_of_its_number)
{
    begin(AF_INET);
    greet();
    sends();
    hears("S: x\r\n\r\n");
    says("250 mail\r\n550 5.1.1 rcpt\r\n554 5.5.1 bdat\r\n");
    hears("RSET\r\n");
    ck_assert_int_eq(rcpt.verdict, SMTP_FAILED);
    ck_assert_str_eq(rcpt.dsn, "5.1.1");
    ck_assert(strstr(rcpt.text, "in reply to RCPT TO command"));
    says("250 rset\r\n");
    until(&readies, 2);
    end();
}
END_TEST

/* Which of them is for the message, nobody can tell: so the mail is tried again, with DATA. */
START_TEST(test_a_reply_too_many_ends_the_connection)
{
    begin(AF_INET);
    greet();
    sends();
    hears("S: x\r\n\r\n");
    says("250 1\r\n250 2\r\n250 3\r\n250 4\r\n");
    until(&overs, 1);
    ck_assert_int_eq(rcpt.verdict, SMTP_UNKNOWN);
    ck_assert(!session && readies == 1);
    end();
    begin(AF_INET);
    greet();
    sends();
    hears("S: x\r\n\r\n");
    says("250 1\r\n250 2\r\n250 3\r\n421 4.3.2 closing\r\n");
    until(&overs, 1);
    ck_assert_int_eq(rcpt.verdict, SMTP_SENT);
    end();
}
END_TEST

START_TEST(test_a_reply_before_its_command_ends_the_connection)
{
    begin(AF_INET);
    says("220 s\r\n250 early\r\n");
    for (int i = 0; i < 200000 && session; i++)
        ev_run(loop, EVRUN_NOWAIT);
    ck_assert(!session && !readies);
    end();
}
END_TEST

TCase *session_tests(void)
{
    TCase *t = tcase_create("session");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, test_a_kept_connection_that_was_closed_is_no_attempt);
    tcase_add_test(t, test_without_a_word_after_the_whole_mail_nobody_knows);
    tcase_add_test(t, test_a_reply_is_for_the_step_of_its_number);
    tcase_add_test(t, test_a_reply_too_many_ends_the_connection);
    tcase_add_test(t, test_a_reply_before_its_command_ends_the_connection);
    return t;
}
