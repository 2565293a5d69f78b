#include <stdlib.h>
#include <string.h>

#include "ctl/escape.h"
#include "ctl/row.h"
#include "tests/unit/ctl/tests.h"

START_TEST(what_is_no_utf8_becomes_text)
{
    json_t *row = row_new();
    row_add_text(row, "a", "gr\xc3\xbcn \xff\x80 \xc3");
    ck_assert_str_eq(row_get_text(row, "a"), "gr\xc3\xbcn \\xff\\x80 \\xc3");
    row_add_text(row, "b", NULL);
    ck_assert(!row_has(row, "b"));
    ck_assert_str_eq(row_get_text(row, "b"), "");
    json_decref(row);
}
END_TEST

START_TEST(times_are_rfc_3339_in_utc)
{
    json_t *row = row_new();
    row_add_time(row, "a_at", 1790000000123456);
    row_add_time(row, "none_at", 0);
    row_add_time(row, "far_at", INT64_MAX);
    ck_assert_str_eq(row_get_text(row, "a_at"), "2026-09-21T14:13:20.123Z");
    ck_assert_int_eq(row_get_time(row, "a_at"), 1790000000123000);
    ck_assert(!row_has(row, "none_at"));
    json_decref(row);
}
END_TEST

START_TEST(a_list_is_joined)
{
    json_t *row = row_new(), *list = json_array();
    struct buf out = {0};
    row_append_text(list, "a");
    row_append_text(list, "b");
    row_add(row, "some", list);
    row_add(row, "none", json_array());
    row_join(row, "some", ",", "-", &out);
    row_join(row, "none", ",", "-", &out);
    ck_assert_str_eq(out.data, "a,b-");
    buf_free(&out);
    json_decref(row);
}
END_TEST

START_TEST(json_obeys_no_terminal)
{
    struct buf out = {0};
    const char *text = "{\"a\":\"\xc2\x9b\xe2\x80\xae\"}";
    escape_json(&out, text, strlen(text));
    ck_assert_str_eq(out.data, "{\"a\":\"\\u009b\\u202e\"}");
    buf_free(&out);
}
END_TEST

TCase *row_case(void)
{
    TCase *t = tcase_create("row");
    tcase_add_test(t, what_is_no_utf8_becomes_text);
    tcase_add_test(t, times_are_rfc_3339_in_utc);
    tcase_add_test(t, a_list_is_joined);
    tcase_add_test(t, json_obeys_no_terminal);
    return t;
}
