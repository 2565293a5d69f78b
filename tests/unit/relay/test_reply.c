#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "relay/smtp/smtp_features.h"
#include "tests/unit/relay/tests.h"

static enum smtp_reply_status feed(struct smtp_reply *r, const char *text, size_t *used)
{
    return smtp_reply_feed(r, text, strlen(text), used);
}

static void expect_bad(const char *text)
{
    struct smtp_reply r = {0};
    size_t used;
    ck_assert_msg(feed(&r, text, &used) == SMTP_REPLY_BAD, "not refused: %.60s", text);
    smtp_reply_free(&r);
}

START_TEST(test_one_line)
{
    struct smtp_reply r = {0};
    size_t used;
    ck_assert_int_eq(feed(&r, "250 2.1.5 Ok\r\nrest", &used), SMTP_REPLY_DONE);
    ck_assert_uint_eq(used, 14);
    ck_assert_int_eq(r.code, 250);
    ck_assert_str_eq(r.text.data, "2.1.5 Ok");
    smtp_reply_free(&r);
}
END_TEST

START_TEST(test_lines_are_joined)
{
    struct smtp_reply r = {0};
    size_t used;
    char flat[100];
    ck_assert_int_eq(feed(&r, "250-mx\r\n250-SIZE 10\n250 DSN\r\n", &used), SMTP_REPLY_DONE);
    ck_assert_str_eq(r.text.data, "mx\nSIZE 10\nDSN");
    smtp_reply_flat(&r, flat, sizeof flat);
    ck_assert_str_eq(flat, "mx SIZE 10 DSN");
    smtp_reply_flat(&r, flat, 5);
    ck_assert_str_eq(flat, "mx S");
    smtp_reply_free(&r);
}
END_TEST

START_TEST(test_a_reply_may_be_cut_anywhere)
{
    const char *text = "250-first\r\n250 second\r\n451 4.3.0 later\r\n";
    size_t len = strlen(text);
    for (size_t cut = 0; cut <= len; cut++) {
        struct smtp_reply r = {0};
        const char *piece[] = {text, text + cut};
        size_t size[] = {cut, len - cut};
        int seen = 0;
        for (int i = 0; i < 2; i++)
            for (size_t at = 0, used; at < size[i]; at += used) {
                enum smtp_reply_status s = smtp_reply_feed(&r, piece[i] + at, size[i] - at, &used);
                ck_assert_int_ne(s, SMTP_REPLY_BAD);
                if (s != SMTP_REPLY_DONE)
                    continue;
                ck_assert_int_eq(r.code, seen ? 451 : 250);
                ck_assert_str_eq(r.text.data, seen ? "4.3.0 later" : "first\nsecond");
                seen++;
            }
        ck_assert_int_eq(seen, 2);
        ck_assert(!smtp_reply_begun(&r));
        smtp_reply_free(&r);
    }
}
END_TEST

START_TEST(test_what_is_left_over_is_noticed)
{
    struct smtp_reply r = {0};
    size_t used;
    feed(&r, "250 ok\r\n", &used);
    ck_assert(!smtp_reply_begun(&r));
    feed(&r, "42", &used);
    ck_assert(smtp_reply_begun(&r));
    feed(&r, "1-going\r\n", &used);
    ck_assert(smtp_reply_begun(&r));
    ck_assert_int_eq(feed(&r, "421 down\r\n", &used), SMTP_REPLY_DONE);
    ck_assert(!smtp_reply_begun(&r));
    smtp_reply_free(&r);
}
END_TEST

START_TEST(test_text_may_be_missing)
{
    struct smtp_reply r = {0};
    size_t used;
    char dsn[SMTP_DSN_MAX];
    ck_assert_int_eq(feed(&r, "354\r\n", &used), SMTP_REPLY_DONE);
    ck_assert_int_eq(r.code, 354);
    ck_assert_uint_eq(r.text.len, 0);
    ck_assert_int_eq(feed(&r, "250-\r\n250 \r\n", &used), SMTP_REPLY_DONE);
    smtp_reply_dsn(&r, dsn);
    ck_assert_str_eq(dsn, "2.0.0");
    smtp_reply_free(&r);
}
END_TEST

START_TEST(test_garbage_is_refused)
{
    expect_bad("\r\n");
    expect_bad("SSH-2.0-OpenSSH\r\n");
    expect_bad("25 ok\r\n");
    expect_bad("2500 ok\r\n");
    expect_bad("250_ok\r\n");
    expect_bad("150 early\r\n");
    expect_bad("650 late\r\n");
    expect_bad("2x0 ok\r\n");
    expect_bad(" 250 ok\r\n");
    expect_bad("+OK POP3\r\n");
    expect_bad("250-one\r\n251 two\r\n");
    expect_bad("250-one\r\nmore of it\r\n");
}
END_TEST

START_TEST(test_lengths_are_bounded)
{
    struct buf b = {0};
    buf_adds(&b, "250 ");
    while (b.len <= SMTP_REPLY_LINE_MAX + 1)
        buf_addc(&b, 'x');
    expect_bad(b.data); /* also without a line end */
    b.len = 0;
    for (int i = 0; i <= SMTP_REPLY_LINES_MAX; i++)
        buf_adds(&b, "250-x\r\n");
    expect_bad(b.data);
    b.len = 0;
    for (int i = 0; i < 100; i++)
        buf_printf(&b, "250-%01000d\r\n", i);
    buf_adds(&b, "250 end\r\n");
    struct smtp_reply r = {0};
    size_t used;
    ck_assert_int_eq(feed(&r, b.data, &used), SMTP_REPLY_DONE);
    ck_assert_uint_le(r.text.len, SMTP_REPLY_TEXT_MAX + SMTP_REPLY_LINES_MAX);
    smtp_reply_free(&r);
    buf_free(&b);
}
END_TEST

START_TEST(test_control_characters_are_replaced)
{
    struct smtp_reply r = {0};
    size_t used;
    ck_assert_int_eq(smtp_reply_feed(&r, "550 a\0b\x1b[1mc\rd\r\n", 17, &used), SMTP_REPLY_DONE);
    ck_assert_str_eq(r.text.data, "a?b?[1mc?d");
    smtp_reply_free(&r);
}
END_TEST

static void expect_dsn(const char *text, const char *want)
{
    struct smtp_reply r = {0};
    size_t used;
    char dsn[SMTP_DSN_MAX];
    ck_assert_int_eq(feed(&r, text, &used), SMTP_REPLY_DONE);
    smtp_reply_dsn(&r, dsn);
    ck_assert_str_eq(dsn, want);
    smtp_reply_free(&r);
}

START_TEST(test_enhanced_status)
{
    expect_dsn("550 5.1.1 unknown\r\n", "5.1.1");
    expect_dsn("550-5.123.456 a\r\n550 5.123.456 b\r\n", "5.123.456");
    expect_dsn("550 5.1.1\r\n", "5.1.1");
    expect_dsn("550 unknown\r\n", "5.0.0");
    expect_dsn("550 4.1.1 of another class\r\n", "5.0.0");
    expect_dsn("451 5.1.1.1 is an address\r\n", "4.0.0");
    expect_dsn("451 4.1234.1 is too long\r\n", "4.0.0");
    expect_dsn("250 2..0 x\r\n", "2.0.0");
    ck_assert_uint_eq(smtp_dsn_length("3.0.0 x"), 0);
    ck_assert_uint_eq(smtp_dsn_length(""), 0);
}
END_TEST

START_TEST(test_ehlo)
{
    struct smtp_reply r = {0};
    struct smtp_features f;
    size_t used;
    feed(&r,
         "250-PIPELINING.example DSN\r\n250-pipelining\r\n250-SIZE "
         "10240000\r\n250-8bitmime\r\n250-DSNX\r\n"
         "250-XFORWARD NAME ADDR PROTO SOURCE\r\n250 SMTPUTF8\r\n",
         &used);
    smtp_features_parse(&r, &f);
    ck_assert_uint_eq(f.set, SMTP_PIPELINING | SMTP_SIZE | SMTP_8BITMIME | SMTP_UTF8 |
                                 SMTP_XFORWARD_NAME | SMTP_XFORWARD_ADDR | SMTP_XFORWARD_PROTO);
    ck_assert_uint_eq(f.size_limit, 10240000);
    feed(&r, "250-mx\r\n250-SIZE\r\n250 DSN\r\n", &used);
    smtp_features_parse(&r, &f);
    ck_assert_uint_eq(f.set, SMTP_SIZE | SMTP_DSN);
    ck_assert_uint_eq(f.size_limit, 0);
    feed(&r, "250 mx\r\n", &used);
    smtp_features_parse(&r, &f);
    ck_assert_uint_eq(f.set, 0);
    feed(&r,
         "250-mx\r\n250-CHUNKING\r\n250-STARTTLS\r\n250-EnhancedStatusCodes\r\n250-XCLIENT ADDR "
         "SOURCE LOGIN\r\n250 XFORWARD\r\n",
         &used);
    smtp_features_parse(&r, &f);
    ck_assert_uint_eq(f.set, SMTP_CHUNKING | SMTP_STARTTLS | SMTP_ENHANCED | SMTP_XCLIENT_ADDR |
                                 SMTP_XCLIENT_LOGIN);
    static const char *const odd[] = {"SIZE -1", "SIZE 10k", "SIZE 99999999999999999999999",
                                      "SIZE  "};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        char text[100];
        snprintf(text, sizeof text, "250-mx\r\n250 %s\r\n", odd[i]);
        feed(&r, text, &used);
        smtp_features_parse(&r, &f);
        ck_assert_uint_eq(f.set, SMTP_SIZE);
        ck_assert_uint_eq(f.size_limit, 0);
    }
    ck_assert_uint_eq(smtp_features_named("chunking"), SMTP_CHUNKING);
    ck_assert_uint_eq(smtp_features_named("XCLIENT"), SMTP_XCLIENT);
    ck_assert_uint_eq(smtp_features_named("CHUNKINGS"), 0);
    smtp_reply_free(&r);
}
END_TEST

TCase *reply_tests(void)
{
    TCase *t = tcase_create("reply");
    tcase_add_test(t, test_one_line);
    tcase_add_test(t, test_lines_are_joined);
    tcase_add_test(t, test_a_reply_may_be_cut_anywhere);
    tcase_add_test(t, test_what_is_left_over_is_noticed);
    tcase_add_test(t, test_text_may_be_missing);
    tcase_add_test(t, test_garbage_is_refused);
    tcase_add_test(t, test_lengths_are_bounded);
    tcase_add_test(t, test_control_characters_are_replaced);
    tcase_add_test(t, test_enhanced_status);
    tcase_add_test(t, test_ehlo);
    return t;
}
