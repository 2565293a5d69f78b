#include "tests/unit/plugin/tests.h"

#include "dovecot-plugin/protocol/admin_reply.h"

#include <string.h>

START_TEST(test_lines_are_known_by_their_first_byte)
{
    const char *rest;
    int code = -1;

    ck_assert_int_eq(admin_reply_parse("#\ta\tb", &rest, &code), ADMIN_REPLY_TITLES);
    ck_assert_str_eq(rest, "a\tb");
    ck_assert_int_eq(admin_reply_parse("+x\ty", &rest, &code), ADMIN_REPLY_ROW);
    ck_assert_str_eq(rest, "x\ty");
    ck_assert_int_eq(admin_reply_parse("-no such user", &rest, &code), ADMIN_REPLY_ERROR);
    ck_assert_str_eq(rest, "no such user");
    ck_assert_int_eq(code, -1);
    ck_assert_int_eq(admin_reply_parse("=\t0", &rest, &code), ADMIN_REPLY_END);
    ck_assert_int_eq(code, 0);
    ck_assert_int_eq(admin_reply_parse("=\t75", &rest, &code), ADMIN_REPLY_END);
    ck_assert_int_eq(code, 75);
}
END_TEST

START_TEST(test_what_is_no_reply_is_said_to_be_none)
{
    static const char *const lines[] = {
        "", "=", "=0", "=\t", "=\t-1", "=\t256", "=\t1x", "=\t99999999999999999999", "OK", " +a"};
    const char *rest;
    int code;

    for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++)
        ck_assert_msg(admin_reply_parse(lines[i], &rest, &code) == ADMIN_REPLY_BROKEN, "%s",
                      lines[i]);
}
END_TEST

START_TEST(test_fields_are_taken_one_by_one_and_unescaped)
{
    char text[] = "a\001tb\t\tc\0011\001n\001\tend\001";
    char *rest = text;

    ck_assert_str_eq(admin_reply_field(&rest), "a\tb");
    ck_assert_str_eq(admin_reply_field(&rest), "");
    ck_assert_str_eq(admin_reply_field(&rest), "c\001\n\001");
    ck_assert_str_eq(admin_reply_field(&rest), "end\001");
    ck_assert_ptr_null(rest);
    ck_assert_ptr_null(admin_reply_field(&rest));
}
END_TEST

TCase *admin_reply_tests(void)
{
    TCase *t = tcase_create("admin reply");

    tcase_add_test(t, test_lines_are_known_by_their_first_byte);
    tcase_add_test(t, test_what_is_no_reply_is_said_to_be_none);
    tcase_add_test(t, test_fields_are_taken_one_by_one_and_unescaped);
    return t;
}
