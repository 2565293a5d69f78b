#include "tests/unit/plugin/tests.h"

#include "dovecot-plugin/protocol/line.h"

#include <string.h>

#define GUID "0123456789abcdef0123456789abcdef"

static const char *hint(const char *user, const char *guid, const char *vname)
{
    static char line[LINE_HINT_MAX + 1];
    size_t size = line_hint(line, user, guid, vname);

    ck_assert_uint_le(size, LINE_HINT_MAX);
    line[size] = '\0';
    return line;
}

static char *repeated(char c, size_t n)
{
    static char text[8192];

    memset(text, c, n);
    text[n] = '\0';
    return text;
}

START_TEST(test_a_hint_names_user_guid_and_folder)
{
    ck_assert_str_eq(hint("a@b", GUID, "INBOX"), "1\ta@b\t" GUID "\tINBOX\n");
    ck_assert_str_eq(hint("a@b", NULL, "x/y"), "1\ta@b\t-\tx/y\n");
    ck_assert_str_eq(hint("a@b", GUID, ""), "1\ta@b\t" GUID "\t\n");
}
END_TEST

START_TEST(test_separators_in_names_are_escaped)
{
    ck_assert_str_eq(hint("a\tb", NULL, "c\nd\re\001f"), "1\ta\001tb\t-\tc\001nd\001re\0011f\n");
}
END_TEST

START_TEST(test_a_hint_is_never_longer_than_its_limit)
{
    /* "1\ta\t-\t" and LF are 7 bytes */
    size_t most = LINE_HINT_MAX - 7;
    const char *longest = hint("a", NULL, repeated('n', most));

    ck_assert_uint_eq(strlen(longest), LINE_HINT_MAX);
    ck_assert_mem_eq(longest + 6, repeated('n', most), most);
    ck_assert_str_eq(longest + 6 + most, "\n");
    /* one byte more: without the name, so for all of the user */
    ck_assert_str_eq(hint("a", NULL, repeated('n', most + 1)), "1\ta\t-\t\n");
    /* escaping counts */
    ck_assert_str_eq(hint("a", NULL, repeated('\t', most / 2 + 1)), "1\ta\t-\t\n");
}
END_TEST

START_TEST(test_a_user_that_does_not_fit_makes_no_hint)
{
    char line[LINE_HINT_MAX];

    /* "1\t" "\t-\t" LF are 6 bytes */
    ck_assert_uint_eq(line_hint(line, repeated('u', LINE_HINT_MAX - 6), NULL, "n"), LINE_HINT_MAX);
    ck_assert_uint_eq(line_hint(line, repeated('u', LINE_HINT_MAX - 5), NULL, ""), 0);
}
END_TEST

START_TEST(test_a_question_has_all_guids_or_is_none)
{
    static const char guid[LINE_COMMIT_GUIDS][LINE_GUID_HEX] = {GUID, GUID};
    char line[LINE_COMMIT_MAX];
    size_t size = line_commit(line, "a\tb", "inbox", guid, 2);

    ck_assert_uint_eq(size, strlen("1\ta\001tb\tinbox\t" GUID " " GUID "\n"));
    ck_assert_mem_eq(line, "1\ta\001tb\tinbox\t" GUID " " GUID "\n", size);
    ck_assert_uint_gt(line_commit(line, repeated('u', 255), repeated('n', 255), guid, 1), 0);
    ck_assert_uint_eq(line_commit(line, repeated('u', LINE_COMMIT_MAX), "n", guid, 1), 0);
}
END_TEST

START_TEST(test_intents_are_lines_of_a_journal)
{
    char line[LINE_INTENT_MAX];
    size_t size = line_intent(line, LINE_INTENT_DELETE, GUID, "a\tb");

    ck_assert_mem_eq(line, "D\t" GUID "\ta\001tb\n", size);
    ck_assert_uint_eq(size, strlen("D\t" GUID "\ta\001tb\n"));
    size = line_intent(line, LINE_INTENT_DELETE, NULL, "x");
    ck_assert_mem_eq(line, "D\t-\tx\n", size);
    size = line_intent(line, LINE_INTENT_SUBSCRIBE, NULL, "x");
    ck_assert_mem_eq(line, "S\t-\tx\n", size);
    size = line_intent(line, LINE_INTENT_UNSUBSCRIBE, NULL, "a\tb");
    ck_assert_mem_eq(line, "U\t-\ta\001tb\n", size);
    size = line_intent(line, LINE_INTENT_VOID, GUID, NULL);
    ck_assert_mem_eq(line, "x\t" GUID "\n", size);
    ck_assert_uint_eq(size, 35);
    size = line_intent(line, LINE_INTENT_UID_NEXT, GUID, "17");
    ck_assert_mem_eq(line, "N\t" GUID "\t17\n", size);
    size = line_intent(line, LINE_INTENT_VOID, NULL, NULL);
    ck_assert_mem_eq(line, "x\t-\n", size);
    ck_assert_uint_eq(
        line_intent(line, LINE_INTENT_DELETE, NULL, repeated('n', LINE_INTENT_MAX - 5)),
        LINE_INTENT_MAX);
    ck_assert_uint_eq(
        line_intent(line, LINE_INTENT_DELETE, NULL, repeated('n', LINE_INTENT_MAX - 4)), 0);
}
END_TEST

START_TEST(test_marks_are_file_names)
{
    char name[LINE_MARK_MAX + 1];

    line_mark(name, "Az0_-");
    ck_assert_str_eq(name, "Az0_-");
    line_mark(name, "user.1@example.org");
    ck_assert_str_eq(name, "user%2E1%40example%2Eorg");
    line_mark(name, "../x/\xc3\xa4 +");
    ck_assert_str_eq(name, "%2E%2E%2Fx%2F%C3%A4%20%2B");
}
END_TEST

START_TEST(test_what_is_no_name_marks_all_users)
{
    char name[LINE_MARK_MAX + 1];

    line_mark(name, repeated('u', LINE_MARK_MAX));
    ck_assert_str_eq(name, repeated('u', LINE_MARK_MAX));
    line_mark(name, repeated('u', LINE_MARK_MAX + 1));
    ck_assert_str_eq(name, LINE_MARK_ALL);
    line_mark(name, repeated('@', LINE_MARK_MAX / 3 + 1));
    ck_assert_str_eq(name, LINE_MARK_ALL);
    line_mark(name, "");
    ck_assert_str_eq(name, LINE_MARK_ALL);
    line_mark(name, LINE_MARK_ALL); /* a user of that name is another */
    ck_assert_str_eq(name, "%2Ball");
}
END_TEST

TCase *line_tests(void)
{
    TCase *t = tcase_create("line");

    tcase_add_test(t, test_a_hint_names_user_guid_and_folder);
    tcase_add_test(t, test_separators_in_names_are_escaped);
    tcase_add_test(t, test_a_hint_is_never_longer_than_its_limit);
    tcase_add_test(t, test_a_user_that_does_not_fit_makes_no_hint);
    tcase_add_test(t, test_a_question_has_all_guids_or_is_none);
    tcase_add_test(t, test_intents_are_lines_of_a_journal);
    tcase_add_test(t, test_marks_are_file_names);
    tcase_add_test(t, test_what_is_no_name_marks_all_users);
    return t;
}
