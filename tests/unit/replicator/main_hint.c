/* Hints, marks, questions for mails: what the plugin writes is understood, everything else is none. */
#include <stdio.h>
#include <string.h>

#include "dovecot-plugin/protocol/commit.h"
#include "dovecot-plugin/protocol/fetch.h"
#include "dovecot-plugin/protocol/hint.h"
#include "tests/unit/replicator/tests.h"

static struct hint h;

static bool parse(const char *line)
{
    return hint_parse(line, strlen(line), &h);
}

#define GUID "0123456789abcdef0123456789abcdef"

START_TEST(a_hint_names_user_and_mailbox)
{
    ck_assert(parse("1\ta@example.net\t" GUID "\tINBOX"));
    ck_assert_str_eq(h.user, "a@example.net");
    ck_assert_str_eq(h.guid, GUID);
    ck_assert_uint_eq(h.name_len, 5);
    ck_assert_str_eq(h.name, "INBOX");
}
END_TEST

START_TEST(escapes_are_undone)
{
    /* a control character in a user's name */
    ck_assert(parse("1\ta\0011b\t-\ta\001tb\001nc\001r") == false);
    ck_assert(parse("1\tab\t-\ta\001tb\001nc\001r\0011"));
    ck_assert_str_eq(h.name, "a\tb\nc\r\001");
    ck_assert_str_eq(h.guid, "");
}
END_TEST

START_TEST(what_is_odd_means_all_mailboxes)
{
    const char *odd[] = {"1\tu", ("1\tu\t" GUID), "1\tu\t-\t", "1\tu\t-\tbad\001x",
                         "1\tu\t-\tcut\001"};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        ck_assert_msg(parse(odd[i]), "hint %zu", i);
        ck_assert_uint_eq(h.name_len, 0);
    }
    ck_assert(parse("1\tu\tABC\tname"));
    ck_assert_uint_eq(h.name_len, 4);
    ck_assert_str_eq(h.guid, "");
}
END_TEST

START_TEST(what_names_no_user_is_no_hint)
{
    char longest[HINT_MAX + 10];
    const char *bad[] = {"", "1", "2\tu\t-\tx", "11\tu", "1\t", "1\t..\t-\tx", "1\ta/b\t-\tx", "x"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(!parse(bad[i]), "hint %zu", i);
    memset(longest, 'a', sizeof longest);
    memcpy(longest, "1\tu\t-\t", 6);
    ck_assert(!hint_parse(longest, HINT_MAX, &h));
    ck_assert(hint_parse(longest, HINT_MAX - 1, &h));
    memset(longest + 2, 'u', 300);
    ck_assert(!hint_parse(longest, 302, &h)); /* a user's name of 300 bytes */
}
END_TEST

START_TEST(marks_name_users)
{
    char user[256];
    bool all;
    ck_assert(hint_mark("a%40example%2Enet", user, &all));
    ck_assert(!all);
    ck_assert_str_eq(user, "a@example.net");
    ck_assert(hint_mark("+all", user, &all) && all);
    const char *bad[] = {"", "a.b", "%4", "%zz", "%2F", "%00", "%2E%2E", "+alle"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(!hint_mark(bad[i], user, &all), "mark %zu", i);
}
END_TEST

START_TEST(a_hint_behind_one_without_its_line_s_end_is_found)
{
    const char *whole[] = {
        "1\tab\t-\tINBOX", "1\tab\t" GUID "\t1", "1\tab\t-\t", "1\tab", "", "1\t\t\t", "x\t\t\t"};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        ck_assert_msg(hint_last(whole[i], strlen(whole[i])) == 0, "hint %zu", i);
    const char *before[] = {"1\tab\t-\tINBOX", "1\tab\t-\t1",           "1\tab", "1\ta", "1",
                            "nothing",         "1\tab\t-\tx1\tcd\t-\ty"};
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        char line[HINT_MAX];
        size_t n = (size_t)snprintf(line, sizeof line, "%s1\tother\t-\tINBOX", before[i]);
        ck_assert_msg(hint_last(line, n) == strlen(before[i]), "line %zu", i);
        ck_assert(parse(line + strlen(before[i])));
        ck_assert_str_eq(h.user, "other");
    }
}
END_TEST

static struct commit_question q;

static bool reads(const char *line)
{
    return commit_read(line, strlen(line), &q);
}

START_TEST(a_question_names_user_namespace_and_mails)
{
    ck_assert(reads("1\ta@example.net\tinbox\t" GUID));
    ck_assert_str_eq(q.user, "a@example.net");
    ck_assert_str_eq(q.namespace, "inbox");
    ck_assert_uint_eq(q.n, 1);
    ck_assert(reads("1\ta b\tin box\t" GUID " " GUID));
    ck_assert_uint_eq(q.n, 2);
    ck_assert_str_eq(q.guid[1], GUID);
    char most[LINE_COMMIT_MAX] = "1\tu\tn\t" GUID;
    for (size_t i = 1; i < LINE_COMMIT_GUIDS; i++)
        strcat(most, " " GUID);
    ck_assert(reads(most));
    ck_assert_uint_eq(q.n, LINE_COMMIT_GUIDS);
    ck_assert(!reads(strcat(most, " " GUID)));
}
END_TEST

#define SHA256 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static struct fetch_question f;

static bool fetches(const char *line)
{
    return fetch_is_asked(line, strlen(line)) && fetch_read(line, strlen(line), &f);
}

START_TEST(a_question_for_a_text_names_user_guid_and_bytes)
{
    char line[LINE_FETCH_MAX + 1];
    size_t n = line_fetch(line, "a b@example.net", GUID, SHA256, 12345);
    ck_assert_uint_gt(n, 0);
    line[n - 1] = '\0'; /* its LF */
    ck_assert(fetches(line));
    ck_assert_str_eq(f.user, "a b@example.net");
    ck_assert_str_eq(f.guid, GUID);
    ck_assert_str_eq(f.sha256, SHA256);
    ck_assert_str_eq(f.size, "12345");
    ck_assert(fetches("2\tu\t" GUID "\t" SHA256 "\t281474976710656"));
    const char *none[] = {"",
                          "2",
                          "2\t",
                          "1\tu\t" GUID "\t" SHA256,
                          "2\tu\t" GUID,
                          "2\tu\t" GUID "\t",
                          "2\t\t" GUID "\t" SHA256 "\t1",
                          "2\t..\t" GUID "\t" SHA256 "\t1",
                          "2\ta/b\t" GUID "\t" SHA256 "\t1",
                          "2\tu\t" GUID "\t" SHA256,
                          "2\tu\t" GUID "\t" SHA256 "\t",
                          "2\tu\t" GUID "\t" SHA256 "\t0",
                          "2\tu\t" GUID "\t" SHA256 "\t-1",
                          "2\tu\t" GUID "\t" SHA256 "\t1\t",
                          "2\tu\t" GUID "\t" SHA256 "\t2814749767106560",
                          "2\tu\t" GUID "\t" SHA256 "0\t1",
                          "2\tu\t" GUID "0\t" SHA256 "\t1",
                          "2\tu\t" GUID "\t" GUID "\t1",
                          "2\tu\t../../../../../etc/passwd\t" SHA256 "\t1"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        ck_assert_msg(!fetches(none[i]), "line %zu", i);
}
END_TEST

START_TEST(what_is_not_quite_a_question_is_none)
{
    const char *none[] = {"",
                          "1",
                          "1\tu",
                          "1\tu\tn",
                          "1\tu\tn\t",
                          "2\tu\tn\t" GUID,
                          "11\tu\tn\t" GUID,
                          "1\t\tn\t" GUID,
                          "1\tu\t\t" GUID,
                          "1\tu\tn\t" GUID " ",
                          "1\tu\tn\t " GUID,
                          "1\tu\tn\t" GUID "0",
                          "1\tu\tn\t" GUID "\t" GUID,
                          "1\tu\tn\t0123456789ABCDEF0123456789abcdef",
                          "1\tu\tn\t0123456789abcdef0123456789abcde",
                          "1\tu\001t\tn\t" GUID,
                          "1\t../u\tn\t" GUID,
                          "1\t..\tn\t" GUID};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        ck_assert_msg(!reads(none[i]), "question %zu", i);
    char longest[600] = "1\t";
    memset(longest + 2, 'u', 300);
    strcpy(longest + 302, "\tn\t" GUID);
    ck_assert(!reads(longest));
}
END_TEST

TCase *hint_tests(void)
{
    TCase *t = tcase_create("hint");
    tcase_add_test(t, a_hint_names_user_and_mailbox);
    tcase_add_test(t, escapes_are_undone);
    tcase_add_test(t, what_is_odd_means_all_mailboxes);
    tcase_add_test(t, what_names_no_user_is_no_hint);
    tcase_add_test(t, marks_name_users);
    tcase_add_test(t, a_hint_behind_one_without_its_line_s_end_is_found);
    tcase_add_test(t, a_question_names_user_namespace_and_mails);
    tcase_add_test(t, what_is_not_quite_a_question_is_none);
    tcase_add_test(t, a_question_for_a_text_names_user_guid_and_bytes);
    return t;
}
