#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/mem.h"
#include "lib/config/config.h"
#include "lib/shape/shape_rules.h"
#include "tests/unit/lib/tests.h"

static char *lines_of(const char *text)
{
    char *error;
    struct config *c = config_of_text(text, &error);
    ck_assert_msg(c, "%s", error);
    char *lines = config_shape_text(c);
    config_free(c);
    return lines;
}

static void expect_lines(const char *text, const char *expected)
{
    char *lines = lines_of(text);
    ck_assert_str_eq(lines, expected);
    free(lines);
}

START_TEST(test_sections_become_rules)
{
    expect_lines("", "");
    expect_lines("shape \"smtp:[a], [b]:25\" {\n rate = \"100/s\"\n burst = 20\n"
                 " suspend = \"a b\" suspend_until = \"2026-12-01 12:00\" }\n"
                 "shape '*' { connections = 5 }\n"
                 "shape .example.net { weight = 5 # so few\n class = bulk }\n",
                 "smtp:[a],[b]:25\trate=100/s\tburst=20\tsuspend=a b\tsuspend_until=2026-12-01 "
                 "12:00\n"
                 "*\tconnections=5\n.example.net\tclass=bulk\tweight=5\n");
}
END_TEST

START_TEST(test_one_pattern_may_have_several_classes)
{
    expect_lines("shape \"*\" { rate = 1/s }\nsyslog_name = shape\nlog_level = debug\n"
                 "shape \"*\" { weight = 2 class = bulk }\n"
                 "shape \"*\" { weight = 3 class = mail }\n",
                 "*\trate=1/s\n*\tclass=bulk\tweight=2\n*\tclass=mail\tweight=3\n");
}
END_TEST

START_TEST(test_every_word_of_a_shape_can_stand_in_a_section)
{
    struct buf text = {0};
    size_t n = 0;
    while (shape_word_name(n))
        n++;
    for (size_t i = 0; i < n; i++)
        if (strcmp(shape_word_name(i), "suspend_until") != 0)
            buf_printf(&text, "shape .x%zu.net { %s = none }\n", i, shape_word_name(i));
    char *lines = lines_of(text.data), *error;
    size_t got = 0;
    for (const char *s = lines; (s = strchr(s, '\n')); s++)
        got++;
    ck_assert_uint_eq(got, n - 1);
    free(lines);
    buf_free(&text);
    struct config *c = config_of_text("shape .x { rat = 1/s }\n", &error);
    ck_assert_ptr_null(c);
    ck_assert_msg(strstr(error, "no setting is named rat in section shape; is rate meant?"), "%s",
                  error);
    free(error);
}
END_TEST

static void digest(const char *text, char out[CONFIG_DIGEST])
{
    char *error;
    struct config *c = config_of_text(text, &error);
    ck_assert_msg(c, "%s", error);
    config_digest(c, out);
    config_free(c);
}

START_TEST(test_sections_are_the_same_on_all_hosts)
{
    char none[CONFIG_DIGEST], one[CONFIG_DIGEST], two[CONFIG_DIGEST], file[CONFIG_DIGEST];
    digest("", none);
    digest("shape \"*\" { rate = 1/s }\n", one);
    digest("shape \"*\" { rate = 2/s }\n", two);
    digest("backoff_rules = \"/etc/x\"\n", file);
    ck_assert(strcmp(none, one) != 0 && strcmp(one, two) != 0 && !strcmp(none, file));
}
END_TEST

static const struct {
    const char *text, *expected;
} bad[] = {
    {"\nshape \"smtp:[h]:25\" {\n rate = fast }\n",
     ":3: shape \"smtp:[h]:25\": rate = fast: write it like 100/s, 6000/min"},
    {"shape '*' { burst = 0 }\n", ":1: shape \"*\": burst = 0: write it like 20, or none"},
    {"shape \"*\" { class = \"Bulk Mail\" }\n",
     "class = \"Bulk Mail\": a class's name has 1 to 15 of the characters a-z 0-9 -"},
    {"shape \"*\" { rate = 1/s\n", "section shape \"*\" is not closed: a } is missing"},
    {"shape example.net { rate = 1/s }\n", ":1: shape \"example.net\": \"example.net\" is no next "
                                           "hop: write smtp:[mx1.example.net]:25 for one"},
    {"shape smtp:example.net { rate = 1/s }\n",
     "shape \"smtp:example.net\": it is no next hop that mail can be diverted for"},
    {"shape \"a b\" { rate = 1/s }\n", "is no pattern of next hops, it has blanks"},
    {"shape \"*\" { rate = 1/s }\nshape \"*\" { burst = 5 }\n",
     ":2: shape \"*\": it has a section already: put the words into one, or name another class"},
    {"shape \"smtp:[a],[b]\" { class = x }\nshape \"smtp:[a], [b]\" { class = x }\n",
     "shape \"smtp:[a],[b]\": it has a section already for class x"},
    {"shape \"*\" { suspend_until = \"2026-12-01\" }\n",
     "suspend_until = 2026-12-01 without suspend: write the reason"},
    {"shape \"*\" { rate = 1/s\n rate = 2/s }\n",
     ":2: rate is set a second time in section shape \"*\": line 1 has it already"},
    {"backoff_rules = rules\n", "backoff_rules = rules must be an absolute path"},
    {"rate = 1/s\n", "rate is only for a shape section, write shape NAME { rate = ... }"},
};

START_TEST(test_errors_name_the_section_the_word_and_the_way_out)
{
    char *error;
    struct config *c = config_of_text(bad[_i].text, &error);
    ck_assert_msg(!c, "accepted: %s", bad[_i].text);
    ck_assert_msg(strstr(error, bad[_i].expected), "said: %s", error);
    free(error);
}
END_TEST

TCase *config_shape_tests(void)
{
    TCase *t = tcase_create("config_shape");
    tcase_add_test(t, test_sections_become_rules);
    tcase_add_test(t, test_one_pattern_may_have_several_classes);
    tcase_add_test(t, test_every_word_of_a_shape_can_stand_in_a_section);
    tcase_add_test(t, test_sections_are_the_same_on_all_hosts);
    tcase_add_loop_test(t, test_errors_name_the_section_the_word_and_the_way_out, 0,
                        sizeof bad / sizeof *bad);
    return t;
}
