/* The table of Postfix's parameters: each name is found as the row that has it, and once. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/postfix/parameters.h"

static const char *const prefix[] = {"", "smtp_", "slow_"};

/* Calls see for each name of the table, with a prefix where it needs one. */
static void each_name(void (*see)(const struct parameter *, const char *name))
{
    const struct parameter *p;
    for (size_t i = 0; (p = parameter_row(i)); i++)
        for (const char *s = p->names; *s; s += strspn(s, " ")) {
            size_t n = strcspn(s, " ");
            char *name = mem_printf("%s%.*s", prefix[p->prefix], (int)n, s);
            see(p, name);
            free(name);
            s += n;
        }
}

static void is_found(const struct parameter *p, const char *name)
{
    ck_assert_msg(parameter_find(name) == p, "%s is in two rows", name);
}

START_TEST(test_each_name_is_in_one_row)
{
    each_name(is_found);
}
END_TEST

static void has_words(const struct parameter *p, const char *name)
{
    ck_assert_msg(*p->why, "%s: without a reason", name);
    ck_assert_msg((p->class == PARAMETER_FORBIDS) == (p->reader != PARAMETER_READER_NONE),
                  "%s: who reads it?", name);
}

START_TEST(test_each_row_says_why)
{
    each_name(has_words);
}
END_TEST

static enum parameter_class class_of(const char *name)
{
    const struct parameter *p = parameter_find(name);
    ck_assert_msg(p != NULL, "%s is not found", name);
    return p->class;
}

START_TEST(test_prefixes)
{
    ck_assert_int_eq(class_of("lmtp_header_checks"), PARAMETER_FORBIDS);
    ck_assert_int_eq(class_of("header_checks"), PARAMETER_FORBIDS); /* of the proxy's mail */
    ck_assert_int_eq(class_of("my-transport_destination_rate_delay"), PARAMETER_FORBIDS);
    ck_assert_int_eq(class_of("default_destination_rate_delay"), PARAMETER_FORBIDS);
    ck_assert_int_eq(class_of("lmtp_destination_recipient_limit"), PARAMETER_GIVEN_UP);
    ck_assert_int_eq(class_of("a_b_c_recipient_limit"), PARAMETER_HARMLESS);
    ck_assert_int_eq(class_of("smtpd_recipient_limit"), PARAMETER_BEFORE);
    ck_assert_ptr_null(parameter_find(""));
    ck_assert_ptr_null(parameter_find("pipe_generic_maps"));
    ck_assert_ptr_null(parameter_find("smtp_"));
    ck_assert_ptr_null(parameter_find("_recipient_limit"));
    ck_assert_ptr_null(parameter_find("header_checks mime_header_checks"));
    ck_assert_ptr_null(parameter_find("a_parameter_of_postfix_4"));
}
END_TEST

START_TEST(test_off)
{
    const struct parameter *level = parameter_find("smtp_tls_security_level"),
                           *delay = parameter_find("smtp_destination_rate_delay"),
                           *bounce = parameter_find("soft_bounce");
    ck_assert(parameter_is_off(level, "") && parameter_is_off(level, "none"));
    ck_assert(!parameter_is_off(level, "non") && !parameter_is_off(level, "verify"));
    ck_assert(parameter_is_off(delay, "0s") && parameter_is_off(delay, "0"));
    ck_assert(!parameter_is_off(delay, "1s") && !parameter_is_off(delay, "0|0s"));
    ck_assert(parameter_is_off(bounce, "NO") && !parameter_is_off(bounce, "yes"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("milter");
    TCase *c = tcase_create("parameters");
    tcase_add_test(c, test_each_name_is_in_one_row);
    tcase_add_test(c, test_each_row_says_why);
    tcase_add_test(c, test_prefixes);
    tcase_add_test(c, test_off);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
