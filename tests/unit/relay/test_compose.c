#include <stdlib.h>
#include <string.h>

#include "relay/delivery/bounce.h"
#include "relay/smtp/smtp_compose.h"
#include "tests/unit/relay/tests.h"

static struct recipient to = {.address = "b@example.net",
                              .args = "NOTIFY=FAILURE,DELAY ORCPT=rfc822;x+40example.com"};
static struct envelope env = {
    .queue_id = "4jWhSH0G8Sz1SS5l",
    .sender = "a@example.org",
    .sender_args = "SIZE=5 BODY=8BITMIME RET=HDRS ENVID=abc+2B AUTH=<> SMTPUTF8",
    .client_name = "unknown",
    .client_addr = "2001:db8::1",
    .client_port = "25",
    .helo = "we ird=name",
    .protocol = "ESMTPS",
    .nrecipients = 1,
    .recipient = &to,
};

static void expect(struct buf *out, const char *want)
{
    ck_assert_str_eq(out->data, want);
    buf_free(out);
}

START_TEST(test_arguments_only_where_offered)
{
    struct buf out = {0};
    struct smtp_features none = {0}, all = {SMTP_SIZE | SMTP_8BITMIME | SMTP_DSN | SMTP_UTF8, 0},
                         dsn = {SMTP_DSN, 0};
    smtp_compose_mail(&out, &env, &none, 1000);
    smtp_compose_rcpt(&out, &to, &none);
    expect(&out, "MAIL FROM:<a@example.org>\r\nRCPT TO:<b@example.net>\r\n");
    smtp_compose_mail(&out, &env, &all, 1000);
    expect(&out,
           "MAIL FROM:<a@example.org> SIZE=1000 BODY=8BITMIME ENVID=abc+2B RET=HDRS SMTPUTF8\r\n");
    smtp_compose_mail(&out, &env, &dsn, 1000);
    smtp_compose_rcpt(&out, &to, &dsn);
    expect(&out, "MAIL FROM:<a@example.org> ENVID=abc+2B RET=HDRS\r\n"
                 "RCPT TO:<b@example.net> ORCPT=rfc822;x@example.com NOTIFY=FAILURE,DELAY\r\n");
}
END_TEST

static void expect_rcpt(const char *address, const char *args, const char *want)
{
    struct buf out = {0};
    struct smtp_features dsn = {SMTP_DSN, 0};
    struct recipient r = {.address = (char *)address, .args = (char *)args};
    smtp_compose_rcpt(&out, &r, &dsn);
    expect(&out, want);
}

START_TEST(test_dsn_arguments_have_one_form)
{
    expect_rcpt("a+b=c@d", NULL, "RCPT TO:<a+b=c@d> ORCPT=rfc822;a+2Bb+3Dc@d\r\n");
    expect_rcpt("a@d", "notify=never", "RCPT TO:<a@d> ORCPT=rfc822;a@d NOTIFY=NEVER\r\n");
    expect_rcpt("a@d", "ORCPT=rfc822;+41+2b+4", "RCPT TO:<a@d> ORCPT=rfc822;A+2B+4\r\n");
    expect_rcpt("a@d", "ORCPT=utf-8;a+41\\x{F6}@d", "RCPT TO:<a@d> ORCPT=utf-8;a+41\\x{F6}@d\r\n");
    struct buf out = {0};
    struct smtp_features all = {SMTP_DSN | SMTP_8BITMIME, 0};
    struct envelope e = {.sender = (char *)"a@b",
                         .sender_args = (char *)"ret=hdrs envid=+41+20+2B body=8bitmime"};
    smtp_compose_mail(&out, &e, &all, 1);
    expect(&out, "MAIL FROM:<a@b> BODY=8BITMIME ENVID=A+20+2B RET=HDRS\r\n");
}
END_TEST

START_TEST(test_the_null_sender)
{
    struct buf out = {0};
    struct smtp_features none = {0};
    struct envelope e = env;
    e.sender = NULL;
    e.sender_args = NULL;
    smtp_compose_mail(&out, &e, &none, 1);
    expect(&out, "MAIL FROM:<>\r\n");
}
END_TEST

START_TEST(test_xforward)
{
    struct buf out = {0};
    struct smtp_features none = {0}, all = {SMTP_XFORWARD_FIRST | SMTP_XFORWARD_SECOND, 0},
                         some = {SMTP_XFORWARD_ADDR, 0};
    ck_assert(!smtp_compose_xforward_client(&out, &env, &none) &&
              !smtp_compose_xforward_session(&out, &env, &none));
    ck_assert(smtp_compose_xforward_client(&out, &env, &all) &&
              smtp_compose_xforward_session(&out, &env, &all));
    expect(&out, "XFORWARD NAME=[UNAVAILABLE] ADDR=IPv6:2001:db8::1 PORT=25\r\n"
                 "XFORWARD PROTO=ESMTPS HELO=we+20ird+3Dname IDENT=4jWhSH0G8Sz1SS5l\r\n");
    struct envelope e = env;
    e.client_addr = NULL;
    ck_assert(smtp_compose_xforward_client(&out, &e, &some) &&
              !smtp_compose_xforward_session(&out, &e, &some));
    expect(&out, "XFORWARD ADDR=[UNAVAILABLE]\r\n");
}
END_TEST

static bool needs(const char *args, const char *sender, const char *recipient, const char *message)
{
    struct recipient r = {.address = (char *)recipient};
    struct envelope e = {
        .sender = (char *)sender, .sender_args = (char *)args, .nrecipients = 1, .recipient = &r};
    size_t index = 0;
    return smtp_needs_utf8(&e, &index, 1, message, strlen(message));
}

START_TEST(test_smtputf8_is_needed_only_where_something_is_not_ascii)
{
    const char *plain = "Subject: x\r\n\r\nbody\r\n", *utf8_body = "Subject: x\r\n\r\nb\xc3\xb6"
                                                                   "dy\r\n";
    const char *utf8_header = "Subject: \xc3\xb6\r\n\r\nbody\r\n";
    ck_assert(!needs("SMTPUTF8", "a@b", "c@d", plain));
    ck_assert(!needs("SMTPUTF8", "a@b", "c@d", utf8_body));
    ck_assert(needs("smtputf8", "a@b", "c@d", utf8_header));
    ck_assert(needs("SMTPUTF8", "\xc3\xb6@b", "c@d", plain));
    ck_assert(needs("SIZE=1 SMTPUTF8", "a@b", "\xc3\xb6@d", plain));
    ck_assert(!needs("", "\xc3\xb6@b", "c@d", utf8_header));
}
END_TEST

START_TEST(test_an_envelope_cannot_inject_commands)
{
    struct envelope e = env;
    struct recipient r = to;
    e.recipient = &r;
    ck_assert_ptr_null(envelope_unfit(&e));
    r.address = "b@example.net>\r\nRCPT TO:<c@example.net";
    ck_assert_ptr_nonnull(envelope_unfit(&e));
    r.address = "";
    ck_assert_ptr_nonnull(envelope_unfit(&e));
    r = to;
    r.args = "NOTIFY=NEVER\nDATA";
    ck_assert_ptr_nonnull(envelope_unfit(&e));
    r = to;
    e.sender_args = "RET=HDRS\r\nQUIT";
    ck_assert_ptr_nonnull(envelope_unfit(&e));
}
END_TEST

static void expect_header(const char *text, const char *want)
{
    char *header = bounce_header(text);
    ck_assert_str_eq(header, want);
    free(header);
}

START_TEST(test_the_reason_of_a_bounce_is_one_plain_line)
{
    expect_header("5.1.1 host a[1.2.3.4]:25 said: 550 no",
                  "Dovelane-Bounce: 5.1.1 host a[1.2.3.4]:25 said: 550 no\r\n");
    expect_header("no code", "Dovelane-Bounce: 5.0.0 no code\r\n");
    expect_header("4.2.0 wrong class", "Dovelane-Bounce: 5.0.0 4.2.0 wrong class\r\n");
    expect_header(NULL, "Dovelane-Bounce: 5.0.0 delivery failed\r\n");
    expect_header("5.1.1 a\r\nBcc: x\xc3\xb6", "Dovelane-Bounce: 5.1.1 a??Bcc: x??\r\n");
    struct buf b = {0};
    buf_adds(&b, "5.1.1 ");
    while (b.len < 5000)
        buf_addc(&b, 'x');
    char *header = bounce_header(b.data);
    ck_assert_uint_lt(strlen(header), 500);
    free(header);
    buf_free(&b);
}
END_TEST

START_TEST(test_a_mail_cannot_choose_its_reason)
{
    const char *message =
        "dovelane-BOUNCE: a\r\nSubject: x\r\n Dovelane-Bounce: folded\nDovelane-Bounce: b\r\n\r\n"
        "Dovelane-Bounce: in the body\r\n";
    char *copy = bounce_body(message, strlen(message));
    ck_assert_ptr_nonnull(copy);
    const char *want =
        "Xovelane-BOUNCE: a\r\nSubject: x\r\n Dovelane-Bounce: folded\nXovelane-Bounce: b\r\n\r\n"
        "Dovelane-Bounce: in the body\r\n";
    ck_assert_mem_eq(copy, want, strlen(want));
    free(copy);
    const char *const plain[] = {"", "\r\nDovelane-Bounce: x\r\n", "Subject: x\r\n\r\n",
                                 "Dovelane-Bounc", "\nDovelane-Bounce: x"};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        ck_assert_ptr_null(bounce_body(plain[i], strlen(plain[i])));
}
END_TEST

TCase *compose_tests(void)
{
    TCase *t = tcase_create("compose");
    tcase_add_test(t, test_arguments_only_where_offered);
    tcase_add_test(t, test_dsn_arguments_have_one_form);
    tcase_add_test(t, test_the_null_sender);
    tcase_add_test(t, test_xforward);
    tcase_add_test(t, test_smtputf8_is_needed_only_where_something_is_not_ascii);
    tcase_add_test(t, test_an_envelope_cannot_inject_commands);
    tcase_add_test(t, test_the_reason_of_a_bounce_is_one_plain_line);
    tcase_add_test(t, test_a_mail_cannot_choose_its_reason);
    return t;
}
