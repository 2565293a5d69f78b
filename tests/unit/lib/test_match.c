#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/mail/match.h"
#include "tests/unit/lib/tests.h"

static const char message[] = "Received: x\r\nSubject: your\r\n\tINVOICE 17\r\n\r\nX-Body: no\r\n";
static int asked;

static bool give_message(void *arg, const char **data, size_t *len)
{
    asked++;
    *data = message;
    *len = sizeof message - 1;
    return true;
}

static const char *last_error(void *arg, const struct recipient *r)
{
    return r->text ? r->text : "";
}

static struct recipient recipients[] = {
    {.address = (char *)"Done@Example.net", .state = RECIPIENT_SENT, .text = (char *)"2.0.0 fine"},
    {.address = (char *)"a@example.net",
     .state = RECIPIENT_WAITING,
     .text = (char *)"lost connection"},
};
static struct envelope envelope = {.queue_id = (char *)"4jWhSH0G8Sz1SS5l",
                                   .sender = (char *)"Boss@Example.ORG",
                                   .login = (char *)"boss",
                                   .client_addr = (char *)"192.0.2.77",
                                   .client_name = (char *)"Mail.Example",
                                   .size = 2048,
                                   .nrecipients = 2,
                                   .recipient = recipients};
static unsigned char id[ENTRYID_LEN] = {0xab};

static bool fits(enum match_kind kind, const char *value)
{
    struct match m = {0};
    envelope.arrived = clock_wall() - 3600 * 1000000LL;
    ck_assert_ptr_null(match_add(&m, kind, value));
    bool fit = match_fits(&m, &(struct match_facts){&envelope, id, "lmtp:[10.0.0.5]:24", NULL,
                                                    last_error, give_message});
    match_free(&m);
    return fit;
}

START_TEST(test_each_kind_fits_what_it_says)
{
    ck_assert(fits(MATCH_ID, "4jWhSH0G8Sz1SS5l") && !fits(MATCH_ID, "4JWHSH0G8SZ1SS5L") &&
              fits(MATCH_ID, "AB000000000000000000000000000000"));
    ck_assert(fits(MATCH_SENDER, "boss@*") && !fits(MATCH_SENDER, "") &&
              !fits(MATCH_SENDER, "boss"));
    ck_assert(fits(MATCH_RCPT, "A@example.NET") && !fits(MATCH_RCPT, "done@*"));
    ck_assert(fits(MATCH_DEST, "lmtp:*") && !fits(MATCH_DEST, "smtp:*"));
    ck_assert(fits(MATCH_DEST, "lmtp:[10.0.0.5]:24") && fits(MATCH_DEST, "LMTP:[10.0.0.5]:24") &&
              !fits(MATCH_DEST, "lmtp:[10.0.0.6]:24"));
    ck_assert(fits(MATCH_DEST, "lmtp:[10.0.0.*]:24") && fits(MATCH_DEST, "lmtp:[[]10.0.0.5]:2?") &&
              !fits(MATCH_DEST, "smtp:[10.0.0.*"));
    ck_assert(fits(MATCH_SASL_USER, "*") && !fits(MATCH_SASL_USER, "x"));
    ck_assert(fits(MATCH_CLIENT, "192.0.2.77") && fits(MATCH_CLIENT, "192.0.2.64/26") &&
              !fits(MATCH_CLIENT, "192.0.2.0/26") && fits(MATCH_CLIENT, "0.0.0.0/0"));
    ck_assert(fits(MATCH_CLIENT, "mail.*") && !fits(MATCH_CLIENT, "2001:db8::/32"));
    ck_assert(fits(MATCH_AGE, "59min") && !fits(MATCH_AGE, "61min") && fits(MATCH_AGE, "<61min") &&
              !fits(MATCH_AGE, "<1min"));
    ck_assert(fits(MATCH_AGE, "59m") && !fits(MATCH_AGE, "61m") && fits(MATCH_AGE, "<1w"));
    ck_assert(fits(MATCH_SIZE, "2kB") && !fits(MATCH_SIZE, "2049") && fits(MATCH_SIZE, "<2049") &&
              fits(MATCH_SIZE, "2k") && !fits(MATCH_SIZE, "1M"));
    ck_assert(fits(MATCH_ERROR, "LOST") && !fits(MATCH_ERROR, "fine"));
    ck_assert(fits(MATCH_HEADER, "^subject:.*invoice") && !fits(MATCH_HEADER, "^x-body"));
    ck_assert(fits(MATCH_ALL, NULL));
}
END_TEST

START_TEST(test_of_one_kind_one_of_different_kinds_all_and_the_message_last)
{
    struct match m = {0};
    struct match_facts f = {&envelope, id, "lmtp:[10.0.0.5]:24", NULL, last_error, give_message};
    ck_assert(match_fits(&m, &f));
    match_add(&m, MATCH_HEADER, "invoice");
    match_add(&m, MATCH_SENDER, "nobody");
    asked = 0;
    ck_assert(!match_fits(&m, &f) && asked == 0);
    match_add(&m, MATCH_SENDER, "boss@*");
    ck_assert(match_fits(&m, &f) && asked == 1);
    f.envelope = NULL;
    ck_assert(!match_fits(&m, &f));
    match_free(&m);
}
END_TEST

START_TEST(test_texts_come_back)
{
    struct match m = {0}, again = {0};
    struct buf b = {0};
    ck_assert_ptr_null(match_add(&m, MATCH_SENDER, ""));
    ck_assert_ptr_null(match_add(&m, MATCH_HEADER, "^Subject: a b"));
    ck_assert_ptr_null(match_add(&m, MATCH_ALL, NULL));
    match_print(&m, &b);
    ck_assert_ptr_null(match_parse(&again, b.data, b.len));
    char *text = match_text(&again);
    ck_assert_str_eq(text, "--sender '' --header '^Subject: a b' --all");
    free(text);
    ck_assert(match_has(&again, MATCH_HEADER) && !match_has(&again, MATCH_RCPT));
    buf_free(&b);
    match_free(&m);
    match_free(&again);
}
END_TEST

START_TEST(test_what_is_no_value_is_refused)
{
    static const struct {
        enum match_kind kind;
        const char *value, *wrong;
    } table[] = {{MATCH_AGE, "soon", "--age soon: write it like"},
                 {MATCH_AGE, "1MB", "--age 1MB"},
                 {MATCH_SIZE, "", "--size : write"},
                 {MATCH_HEADER, "(", "--header (:"},
                 {MATCH_CLIENT, "1.2.3.4/33", "0 to 32"},
                 {MATCH_CLIENT, "host/8", "host is no address"},
                 {MATCH_CLIENT, "::/129", "0 to 128"},
                 {MATCH_SENDER, "a\nall ", "more than one line"},
                 {MATCH_HEADER, "\\\\(x+)+\\1", "no \\1 to"}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct match m = {0};
        char *wrong = match_add(&m, table[i].kind, table[i].value);
        ck_assert_msg(wrong && strstr(wrong, table[i].wrong), "%s: %s", table[i].value,
                      wrong ? wrong : "nothing");
        ck_assert_uint_eq(m.n, 0);
        free(wrong);
    }
    struct match m = {0};
    char *wrong = match_parse(&m, "nonsense x\n", 11);
    ck_assert_str_eq(wrong, "unknown: nonsense x");
    free(wrong);
    match_free(&m);
}
END_TEST

TCase *match_tests(void)
{
    TCase *t = tcase_create("match");
    tcase_add_test(t, test_each_kind_fits_what_it_says);
    tcase_add_test(t, test_of_one_kind_one_of_different_kinds_all_and_the_message_last);
    tcase_add_test(t, test_texts_come_back);
    tcase_add_test(t, test_what_is_no_value_is_refused);
    return t;
}
