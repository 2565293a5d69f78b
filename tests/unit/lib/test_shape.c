#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/shape/shape.h"
#include "lib/shape/shape_rules.h"
#include "tests/unit/lib/tests.h"

#define MX "smtp:[mx1.example.net]:25"
#define SECOND 1000000LL
#define DAY (86400 * SECOND)

static char told[2000];

static void hear(void *arg, const char *why)
{
    strncat(told, why, sizeof told - strlen(told) - 1);
    strncat(told, "\n", sizeof told - strlen(told) - 1);
}

static struct shape of(const char *file, const char *said, const char *destination,
                       const char *class)
{
    static struct shapes *before; /* reasons are its texts */
    struct shape s;
    shapes_free(before);
    *told = '\0';
    before = shapes_new(file, said, hear, NULL);
    shape_of(before, destination, class, &s);
    return s;
}

static int64_t wall(const char *text)
{
    int64_t at = -1;
    ck_assert_msg(shape_time_read(text, &at), "%s", text);
    return at;
}

START_TEST(test_the_most_specific_rule_counts_for_each_word)
{
    static const char file[] = "*\trate=1/s\tconnections=1\ttimeout=1h\tweight=2\n"
                               "smtp:*\trate=2/s\tconnections=2\ttimeout=2h\n"
                               "smtp:*example.net*\trate=3/s\tconnections=3\n"
                               ".net\trate=4/s\n"
                               ".example.net\trate=5/s\n";
    struct shape s = of(file, NULL, MX, NULL);
    ck_assert_str_eq(told, "");
    ck_assert(s.rate == 5 && s.connections == 3 && s.timeout == 7200000 && s.weight == 2);
    ck_assert(of(file, NULL, "smtp:[a.net]:25", NULL).rate == 4);
    ck_assert(of(file, NULL, "smtp:[example.net.invalid]:25", NULL).rate == 3);
    ck_assert(of(file, NULL, "smtp:[10.0.0.5]:25", NULL).rate == 2);
    ck_assert(of(file, NULL, "lmtp:[10.0.0.5]:24", NULL).rate == 1);
    ck_assert(of(file, MX "\trate=6/s\n", MX, NULL).rate == 6);
}
END_TEST

START_TEST(test_at_one_level_the_class_counts_more_then_what_was_said)
{
    static const char file[] =
        ".example.net\tclass=bulk\trate=1/s\n.example.net\trate=2/s\n" MX "\tconnections=7\n";
    static const char said[] = ".example.net\tby=root@mx1\tat=5\trate=3/s\n";
    ck_assert(of(file, said, MX, "bulk").rate == 1);
    ck_assert(of(file, said, MX, "other").rate == 3);
    ck_assert(of(file, said, MX, NULL).rate == 3);
    ck_assert(of(file, NULL, MX, NULL).rate == 2);
    ck_assert(of(file, ".example.net\tclass=bulk\trate=4/s\n", MX, "bulk").rate == 4);
    /* A level above counts more than a class. */
    ck_assert(of(file, MX "\trate=9/s\n", MX, "bulk").rate == 9);
}
END_TEST

START_TEST(test_none_ends_the_search_for_a_word)
{
    struct shape s = of("*\trate=1/s\tburst=9\tconnections=1\tfeedback_positive=0.5\tsuspend=x\n",
                        MX "\trate=none\tfeedback_positive=none\tsuspend=none\n", MX, NULL);
    ck_assert(s.rate == 0 && s.burst == 0 && s.connections == 1 && !s.has_feedback && !s.suspended);
}
END_TEST

START_TEST(test_patterns_know_one_next_hop_in_its_spellings)
{
    static const struct {
        const char *pattern, *destination;
        bool fits;
    } table[] = {
        {MX, MX, true},
        {MX, "smtp:[MX1.example.NET]:25", true},
        {MX, "smtp:[mx1.example.net]", true},
        {"smtp:[mx1.example.net]", MX, true},
        {"lmtp:[10.0.0.5]", "lmtp:[10.0.0.5]:24", true},
        {"lmtp:[10.0.0.5]:25", "lmtp:[10.0.0.5]", false},
        {MX, "smtp:[mx1.example.net]:2525", false},
        {MX, "relay:[mx1.example.net]:25", false},
        {MX, "smtp:[mx1.example.net]:2", false},
        {".example.net", "smtp:[example.net]:25", false},
        {".example.net", "smtp:[mx.badexample.net]:25", false},
        {".example.net", "lmtp:inet:MX.example.net:24", true},
        {".example.net", "lmtp:mx.example.net", true},
        {".example.net", "smtp:[10.0.0.1],[mx.example.net]:25", true},
        {".sock", "lmtp:unix:/run/a.sock", false},
        {"smtp:*", "lmtp:[a]:24", false},
        {"SMTP:*:25", MX, true},
        {"*[mx?.*", MX, false},
        {"*[mx1.*", MX, true},
        {"*mx1*mx1*", MX, false},
        {"*1*e*5", MX, true},
        {"*", "lmtp:unix:/x", true},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char *rule = mem_printf("%s\tweight=5\n", table[i].pattern);
        struct shape s = of(rule, NULL, table[i].destination, NULL);
        ck_assert_msg((s.weight == 5) == table[i].fits && !*told, "%s %s %s", table[i].pattern,
                      table[i].destination, told);
        free(rule);
    }
}
END_TEST

START_TEST(test_each_word_is_read)
{
    struct shape s = of("*\trate=6000/min\tburst=20\tbyte_rate=60 MB/min\tbyte_burst=2MB"
                        "\tconnections=20\trelay_connections=4\tconnection_mails=50"
                        "\tfeedback_positive=1/sqrt_concurrency\tretry_first=5s\tretry_most=1h"
                        "\ttimeout=4h\ttimeout_action=bounce\tsize_most=25MB\tbackoff=yes"
                        "\tsuspend=a b\tsuspend_until=2026-12-01 12:00"
                        "\twarmup=2026-12-01: 50, 100 500\taccept_entries=1000\taccept_age=10min"
                        "\tover=queue\tweight=8\n",
                        NULL, MX, NULL);
    ck_assert_str_eq(told, "");
    ck_assert(s.rate == 100 && s.burst == 20 && s.byte_rate == 1048576 && s.byte_burst == 2097152);
    ck_assert(s.connections == 20 && s.relay_connections == 4 && s.connection_mails == 50);
    ck_assert(s.has_feedback && s.positive.per == SHAPE_PER_SQRT_CONCURRENCY &&
              s.positive.value == 1 && s.negative.per == SHAPE_PER_NONE && s.negative.value == 1);
    ck_assert(s.retry_first == 5000 && s.retry_most == 3600000 && s.timeout == 14400000);
    ck_assert(s.timeout_action == SHAPE_TIMEOUT_BOUNCE && s.size_most == 25 << 20 && s.backoff);
    ck_assert(s.suspended && !strcmp(s.suspended_why, "a b"));
    ck_assert(s.suspended_until == wall("2026-12-01 12:00"));
    ck_assert(s.warmup.n == 3 && s.warmup.mails[1] == 100 && s.warmup.first == wall("2026-12-01"));
    ck_assert(s.accept_entries == 1000 && s.accept_age == 600000 && s.over == SHAPE_OVER_QUEUE);
    ck_assert(s.weight == 8);
}
END_TEST

START_TEST(test_without_rules_nothing_is_set)
{
    struct shapes *none = shapes_new(NULL, "", NULL, NULL);
    struct shape s;
    double burst = 7;
    shape_of(none, MX, "bulk", &s);
    ck_assert(!shapes_any(none) && !s.rate && !s.burst && !s.weight && !s.has_feedback);
    ck_assert(!s.suspended && !strcmp(s.suspended_why, "") && !s.backoff);
    ck_assert(shape_rate_at(&s, DAY, &burst) == 0 && burst == 0);
    shapes_free(none);
    struct shapes *any = shapes_new("*\trate=1/h\n", NULL, NULL, NULL);
    ck_assert(shapes_any(any));
    shapes_free(any);
}
END_TEST

START_TEST(test_a_burst_belongs_to_its_rate)
{
    ck_assert(of("*\trate=100/s\n", NULL, MX, NULL).burst == 100);
    ck_assert(of("*\trate=1/h\n", NULL, MX, NULL).burst == 1);
    ck_assert(of("*\trate=100/s\tburst=500\n.example.net\trate=10/s\n", NULL, MX, NULL).burst ==
              10);
    ck_assert(of("*\trate=100/s\tburst=500\n.example.net\tburst=5\n", NULL, MX, NULL).burst == 5);
    ck_assert(of("*\tburst=5\n", NULL, MX, NULL).burst == 0);
    ck_assert(of("*\tbyte_rate=1MB/s\n", NULL, MX, NULL).byte_burst == 1048576);
    struct shape s = of("*\tretry_most=1min\n" MX "\tretry_first=5min\n", NULL, MX, NULL);
    ck_assert(s.retry_first == 300000 && s.retry_most == 300000);
}
END_TEST

START_TEST(test_a_suspension_is_not_over_before_the_last_one)
{
    static const char until[] = MX "\tsuspend=short\tsuspend_until=2026-12-01 12:00\n";
    struct shape s = of(until, "*\tsuspend=all\n", MX, NULL);
    ck_assert(s.suspended && !s.suspended_until && !strcmp(s.suspended_why, "all"));
    s = of(until, "*\tsuspend=all\tsuspend_until=2026-12-01 10:00\n", MX, NULL);
    ck_assert(!strcmp(s.suspended_why, "short") && s.suspended_until == wall("2026-12-01 12:00"));
    ck_assert(shape_suspended_at(&s, wall("2026-12-01 11:59:59")) &&
              !shape_suspended_at(&s, wall("2026-12-01 12:00")));
    s = of(until, "*\tsuspend=all\n.example.net\tsuspend=none\n", MX, NULL);
    ck_assert(!strcmp(s.suspended_why, "short"));
    /* An end without a reason is nothing. */
    s = of("*\tsuspend=all\n" MX "\tsuspend_until=2026-12-01\n", NULL, MX, NULL);
    ck_assert(s.suspended && !s.suspended_until);
    ck_assert(shape_suspended_at(&s, wall("2100-01-01")));
}
END_TEST

START_TEST(test_the_end_of_a_suspension_is_remembered)
{
    static const char said[] = MX "\tresumed=2026-12-01 12:00\n";
    int64_t noon = wall("2026-12-01 12:00"), one = wall("2026-12-01 13:00");
    struct shape s = of("*\tresumed=2026-12-01 11:00\n", said, MX, NULL);
    ck_assert(!s.suspended && shape_resumed_at(&s, one) == noon);
    s = of(said, "*\tresumed=2026-12-01 13:00\n", MX, NULL);
    ck_assert(shape_resumed_at(&s, one) == one);
    s = of(NULL, said, "smtp:[10.0.0.5]:25", NULL);
    ck_assert(shape_resumed_at(&s, one) == 0);
    /* One that ended by itself, and one that has not. */
    s = of(said, "*\tsuspend=x\tsuspend_until=2026-12-01 12:30\n", MX, NULL);
    ck_assert(shape_resumed_at(&s, one) == wall("2026-12-01 12:30"));
    ck_assert(shape_resumed_at(&s, wall("2026-12-01 12:29")) == noon);
}
END_TEST

START_TEST(test_a_warm_up_spreads_each_day_and_ends)
{
    struct shape s = of("*\twarmup=2026-12-01: 24 86400\n", NULL, MX, NULL);
    double burst;
    ck_assert_double_eq_tol(shape_rate_at(&s, wall("2026-12-01 05:00"), &burst), 24 / 86400., 1e-9);
    ck_assert(burst == 1);
    ck_assert_double_eq_tol(shape_rate_at(&s, wall("2026-11-01"), &burst), 24 / 86400., 1e-9);
    ck_assert_double_eq_tol(shape_rate_at(&s, wall("2026-12-02"), &burst), 1, 1e-9);
    ck_assert(burst == 3600);
    ck_assert(shape_rate_at(&s, wall("2026-12-03"), &burst) == 0 && burst == 0);
    s = of("*\trate=0.5/s\tburst=7\twarmup=2026-12-01: 24 86400\n", NULL, MX, NULL);
    ck_assert_double_eq_tol(shape_rate_at(&s, wall("2026-12-01"), &burst), 24 / 86400., 1e-9);
    ck_assert(burst == 1);
    ck_assert(shape_rate_at(&s, wall("2026-12-02"), &burst) == 0.5 && burst == 7);
    ck_assert(shape_rate_at(&s, wall("2026-12-04"), &burst) == 0.5 && burst == 7);
}
END_TEST

START_TEST(test_feedback_steps_as_postfix_has_them)
{
    struct shape s =
        of("*\tfeedback_positive=0.5/concurrency\tfeedback_negative=1\n", NULL, MX, NULL);
    ck_assert(shape_feedback(&s.positive, 10) == 0.05 && shape_feedback(&s.negative, 10) == 1);
    ck_assert(shape_feedback(&s.positive, 0) == 0.5);
    s = of("*\tfeedback_negative=1/sqrt_concurrency\n", NULL, MX, NULL);
    ck_assert(shape_feedback(&s.negative, 16) == 0.25 &&
              shape_feedback(&s.positive, 16) == 1 / 16.);
}
END_TEST

START_TEST(test_a_value_that_will_not_do_names_the_word_the_value_and_the_way_out)
{
    static const struct {
        const char *word, *value, *wrong;
    } table[] = {
        {"rate", "100", "rate = 100: write it like 100/s"},
        {"rate", "0/s", "write it like"},
        {"rate", "-1/s", "write it like"},
        {"rate", "nan/s", "write it like"},
        {"rate", "0x10/s", "write it like"},
        {"rate", "1/week", "2000/d, or none"},
        {"rate", "1.2.3/s", "write it like"},
        {"byte_rate", "1XB/s", "10MB/s"},
        {"burst", "0.5", "burst = 0.5"},
        {"burst", "1k", "burst = 1k"},
        {"connections", "0", "allowed is 1 to 100000"},
        {"connections", "12x", "allowed is 1 to 100000"},
        {"relay_connections", "1001", "1 to 1000"},
        {"feedback_positive", "2/concurrency", "from 0 to 1"},
        {"feedback_positive", "1/x", "from 0 to 1"},
        {"retry_first", "5", "400ms, 1.5s"},
        {"retry_first", "2d", "allowed is 100ms to 1d"},
        {"timeout_action", "drop", "postfix|bounce|none"},
        {"backoff", "maybe", "no|yes|none"},
        {"size_most", "big", "size_most = big"},
        {"suspend", "", "1 to 200 bytes"},
        {"suspend", "a\nb", "one line"},
        {"suspend_until", "tomorrow", "2026-12-01 12:00 (UTC)"},
        {"suspend_until", "2026-02-30", "2026-12-01 12:00 (UTC)"},
        {"warmup", "50 100", "the first day (UTC)"},
        {"warmup", "2026-12-01:", "the first day (UTC)"},
        {"warmup", "2026-12-01: 5 0", "the first day (UTC)"},
        {"warmup", "2026-12-01: 5 x", "the first day (UTC)"},
        {"warmup", "2026-12-01 12:00: 5", "the first day (UTC)"},
        {"accept_entries", "99999999999999999999", "1 to 1000000000000"},
        {"over", "reject", "defer|queue|none"},
        {"weight", "0", "1 to 1000"},
        {"rat", "1/s", "rat is no word of a shape; the words are rate, burst"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char *wrong = shape_word_wrong(table[i].word, table[i].value);
        ck_assert_msg(wrong && strstr(wrong, table[i].wrong), "%s=%s: %s", table[i].word,
                      table[i].value, wrong ? wrong : "nothing");
        free(wrong);
    }
    for (size_t i = 0; shape_word_name(i); i++)
        ck_assert(shape_word_like(shape_word_name(i)) &&
                  !shape_word_wrong(shape_word_name(i), "none"));
}
END_TEST

START_TEST(test_what_cannot_be_read_is_told_and_the_rest_holds)
{
    struct shape s = of("*\trate=fast\tburst=5\tlater=1\tconnections=3\n"
                        "example.net\trate=1/s\n"
                        "a b\trate=1/s\n.x*\trate=1/s\n"
                        "*\tclass=BULK\trate=1/s\n*\tnothing\n\n",
                        NULL, MX, NULL);
    ck_assert(s.connections == 3 && !s.rate);
    ck_assert(strstr(told, "rule *: rate = fast: write it like"));
    ck_assert(strstr(told, "rule *: later is no word of a shape"));
    ck_assert(strstr(told, "\"example.net\" is no next hop: write smtp:["));
    ck_assert(strstr(told, "\"a b\" is no pattern of next hops, it has blanks"));
    ck_assert(strstr(told, "\".x*\" is no domain, and no pattern"));
    ck_assert(strstr(told, "class = \"BULK\": a class's name has 1 to 15"));
    ck_assert(strstr(told, "rule *: \"nothing\" is no word with a value"));
}
END_TEST

static void add_line(void *arg, const char *word, const struct shape_rule *r, bool said)
{
    buf_printf(arg, "%s %s %s %s\n", word, shape_rule_value(r, word), r->pattern,
               said ? r->by : "file");
}

START_TEST(test_rules_are_changed_and_printed_and_explained)
{
    struct shape_rules all = {0};
    struct buf b = {0};
    shape_rules_parse(&all, "*\tby=root@mx1\tat=17\trate=1/s\tlater=x\n", NULL, NULL);
    struct shape_rule *r = shape_rules_get(&all, MX, "bulk");
    shape_rule_set(r, "rate", "5/s");
    shape_rule_set(r, "burst", "7");
    shape_rule_set(r, "rate", "6/s");
    shape_rule_set(r, "weight", NULL);
    shape_rule_set(r, "burst", NULL);
    ck_assert_ptr_eq(shape_rules_get(&all, "SMTP:[mx1.example.net]:25", "bulk"), r);
    ck_assert_ptr_null(shape_rules_find(&all, MX, ""));
    shape_rules_print(&all, &b);
    ck_assert_str_eq(b.data,
                     "*\tby=root@mx1\tat=17\trate=1/s\tlater=x\n" MX "\tclass=bulk\trate=6/s\n");
    struct shapes *s = shapes_new("*\tconnections=4\n", b.data, NULL, NULL);
    buf_free(&b);
    shape_explain(s, MX, NULL, add_line, &b);
    ck_assert_str_eq(b.data, "rate 1/s * root@mx1\nconnections 4 * file\n");
    shapes_free(s);
    shape_rules_remove(&all, shape_rules_find(&all, "*", ""));
    ck_assert_uint_eq(all.n, 1);
    ck_assert_str_eq(all.rule[0].class, "bulk");
    shape_rules_free(&all);
    buf_free(&b);
}
END_TEST

START_TEST(test_times_come_back)
{
    char text[SHAPE_TIME_TEXT];
    int64_t at;
    shape_time_text(wall("2026-12-01T12:00:30Z"), text);
    ck_assert_str_eq(text, "2026-12-01 12:00:30Z");
    ck_assert(wall(text) == wall("2026-12-01") + (12 * 3600 + 30) * SECOND);
    static const char *const none[] = {"",           "2026-13-01",       "2026-12-01 24:61",
                                       "2026-12",    "2026-12-01 12",    "2026-12-01x",
                                       "2026--1-01", "2026-12-01 12:-1", " 2026-12-01",
                                       "1900-01-01", "2026-12-01 12:00:"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        ck_assert_msg(!shape_time_read(none[i], &at), "%s", none[i]);
}
END_TEST

TCase *shape_tests(void)
{
    TCase *t = tcase_create("shape");
    tcase_add_test(t, test_the_most_specific_rule_counts_for_each_word);
    tcase_add_test(t, test_at_one_level_the_class_counts_more_then_what_was_said);
    tcase_add_test(t, test_none_ends_the_search_for_a_word);
    tcase_add_test(t, test_patterns_know_one_next_hop_in_its_spellings);
    tcase_add_test(t, test_each_word_is_read);
    tcase_add_test(t, test_without_rules_nothing_is_set);
    tcase_add_test(t, test_a_burst_belongs_to_its_rate);
    tcase_add_test(t, test_a_suspension_is_not_over_before_the_last_one);
    tcase_add_test(t, test_the_end_of_a_suspension_is_remembered);
    tcase_add_test(t, test_a_warm_up_spreads_each_day_and_ends);
    tcase_add_test(t, test_feedback_steps_as_postfix_has_them);
    tcase_add_test(t, test_a_value_that_will_not_do_names_the_word_the_value_and_the_way_out);
    tcase_add_test(t, test_what_cannot_be_read_is_told_and_the_rest_holds);
    tcase_add_test(t, test_rules_are_changed_and_printed_and_explained);
    tcase_add_test(t, test_times_come_back);
    return t;
}
