/* disk_question: questions and answers come back as they were written, and nothing else does. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/mail/disk_question.h"
#include "tests/unit/lib/tests.h"

#define GUID "0123456789abcdef0123456789abcdef"

static struct disk_question some_question(void)
{
    return (struct disk_question){
        .guid = GUID, .node = "mx-1.example", .sites = 2, .rcpt = "\"a b\"@example.org"};
}

static bool reads_question(const char *body)
{
    struct disk_question q;
    return disk_question_read(&q, body, strlen(body));
}

static bool reads_answer(const char *body)
{
    struct disk_answer a;
    return disk_answer_read(&a, body, strlen(body));
}

START_TEST(test_a_question_comes_back)
{
    struct disk_question q = some_question(), r;
    char body[DISK_BODY_MAX];
    size_t n = disk_question_write(body, &q);
    ck_assert_str_eq(body, "1 " GUID " mx-1.example 2 \"a b\"@example.org");
    ck_assert_uint_eq(n, strlen(body));
    ck_assert(disk_question_read(&r, body, n));
    ck_assert_str_eq(r.guid, q.guid);
    ck_assert_str_eq(r.node, q.node);
    ck_assert_uint_eq(r.sites, 2);
    ck_assert_str_eq(r.rcpt, q.rcpt);
}
END_TEST

START_TEST(test_an_answer_comes_back)
{
    struct disk_answer a = {.guid = GUID, .site = 7, .epoch = UINT64_MAX, .safe = true}, r;
    char body[DISK_BODY_MAX];
    size_t n = disk_answer_write(body, &a);
    ck_assert_str_eq(body, "1 " GUID " 7 ffffffffffffffff safe");
    ck_assert(disk_answer_read(&r, body, n));
    ck_assert(r.site == 7 && r.epoch == UINT64_MAX && r.safe);
    a = (struct disk_answer){.guid = GUID, .site = UINT64_MAX};
    n = disk_answer_write(body, &a);
    ck_assert_str_eq(body, "1 " GUID " 18446744073709551615 0 unknown");
    ck_assert(disk_answer_read(&r, body, n));
    ck_assert(r.site == UINT64_MAX && r.epoch == 0 && !r.safe);
}
END_TEST

START_TEST(test_what_is_out_of_bounds_is_not_written)
{
    struct disk_question q = some_question();
    struct disk_answer a = {.guid = GUID};
    char body[DISK_BODY_MAX];
    ck_assert_uint_eq(disk_answer_write(body, &a), 0); /* no site */
    q.sites = 1;
    ck_assert_uint_eq(disk_question_write(body, &q), 0);
    q = some_question();
    strcpy(q.node, "mx 1");
    ck_assert_uint_eq(disk_question_write(body, &q), 0);
    q = some_question();
    strcpy(q.rcpt, "a\n@b");
    ck_assert_uint_eq(disk_question_write(body, &q), 0);
    q = some_question();
    q.rcpt[0] = '\0';
    ck_assert_uint_eq(disk_question_write(body, &q), 0);
    q = some_question();
    q.guid[31] = 'X';
    ck_assert_uint_eq(disk_question_write(body, &q), 0);
    /* the longest of all */
    q = some_question();
    memset(q.node, 'n', DISK_NODE_MAX);
    memset(q.rcpt, 'r', DISK_RCPT_MAX);
    q.sites = DISK_SITES_MAX;
    size_t n = disk_question_write(body, &q);
    ck_assert(n > DISK_RCPT_MAX && n < DISK_BODY_MAX);
    struct disk_question r;
    ck_assert(disk_question_read(&r, body, n));
}
END_TEST

START_TEST(test_hostile_bodies_are_refused)
{
    static const char *const question[] = {"",
                                           "1",
                                           "1 ",
                                           "2 " GUID " mx1 2 u",
                                           "1  " GUID " mx1 2 u",
                                           "1 " GUID " mx1 2 ",
                                           "1 " GUID " mx1 2",
                                           "1 " GUID " mx1 1 u",
                                           "1 " GUID " mx1 02 u",
                                           "1 " GUID " mx1 65 u",
                                           "1 " GUID " mx1 18446744073709551618 u",
                                           "1 " GUID " mx1 a u",
                                           "1 " GUID " MX1 2 u",
                                           "1 " GUID " mx1\t2 u",
                                           "1 " GUID " mx1 2 u\n",
                                           "1 " GUID "0 mx1 2 u",
                                           "1 0123456789ABCDEF0123456789abcdef mx1 2 u",
                                           "1 " GUID " mx1 2 u\x7f",
                                           "1 " GUID " ../mx*1 2 u"};
    static const char *const answer[] = {
        "1 " GUID " 1 0 Safe", "1 " GUID " 1 0 safe ",
        "1 " GUID " 0 0 safe", "1 " GUID " 1 00 safe",
        "1 " GUID " 1 A safe", "1 " GUID " 1 10000000000000000 safe",
        "1 " GUID " 1 0",      "1 " GUID " -1 0 safe",
        "1 " GUID " 1  safe",  "1 " GUID " 18446744073709551616 0 safe"};
    for (size_t i = 0; i < sizeof question / sizeof *question; i++)
        ck_assert_msg(!reads_question(question[i]), "%s", question[i]);
    for (size_t i = 0; i < sizeof answer / sizeof *answer; i++)
        ck_assert_msg(!reads_answer(answer[i]), "%s", answer[i]);
    ck_assert(reads_question("1 " GUID " mx1 2 u") && reads_answer("1 " GUID " 1 0 safe"));
    struct disk_question q;
    ck_assert(!disk_question_read(&q, "1 " GUID " mx1 2 u\0v", 46));
}
END_TEST

/* Whatever is read, written again, is the same bytes; nothing is read beyond its end. */
START_TEST(test_bytes_at_random_do_no_harm)
{
    static const char *const seed[] = {"1 " GUID " mx1 2 user@example.org",
                                       "1 " GUID " 12 3f safe"};
    unsigned took = 0;
    srand(29);
    for (int i = 0; i < 200000; i++) {
        char text[DISK_BODY_MAX + 64];
        size_t n = strlen(seed[i % 2]);
        memcpy(text, seed[i % 2], n);
        for (int k = rand() % 3; k > 0; k--)
            text[(size_t)rand() % n] = (char)(rand() % 3 ? rand() % 256 : '0' + rand() % 10);
        n = rand() % 4 ? n : (size_t)rand() % (n + 1);
        char *body = malloc(n + 1); /* its end is where the sanitizer sees it */
        memcpy(body, text, n);
        struct disk_question q;
        struct disk_answer a;
        char again[DISK_BODY_MAX];
        if (disk_question_read(&q, body, n)) {
            took++;
            ck_assert(disk_question_write(again, &q) == n && !memcmp(again, body, n));
        }
        if (disk_answer_read(&a, body, n)) {
            took++;
            ck_assert(disk_answer_write(again, &a) == n && !memcmp(again, body, n));
        }
        free(body);
    }
    ck_assert_uint_gt(took, 1000);
}
END_TEST

START_TEST(test_an_id_is_of_the_body)
{
    unsigned char a[ENTRYID_LEN], b[ENTRYID_LEN];
    disk_id(a, "abc", 3);
    ck_assert(!memcmp(a, "\xba\x78\x16\xbf\x8f\x01\xcf\xea\x41\x41\x40\xde\x5d\xae\x22\x23", 16));
    disk_id(b, "abd", 3);
    ck_assert(memcmp(a, b, sizeof a) != 0);
    ck_assert(disk_lane("dovelane:asked:1") && disk_lane("dovelane:answered:mx1"));
    struct lanename n;
    ck_assert(!lanename_parse("dovelane:asked:1", strlen("dovelane:asked:1"), &n));
    ck_assert(!disk_lane("dovelane:lmtp:[h]:24|mx1>mx2"));
}
END_TEST

TCase *disk_question_tests(void)
{
    TCase *t = tcase_create("disk_question");
    tcase_add_test(t, test_a_question_comes_back);
    tcase_add_test(t, test_an_answer_comes_back);
    tcase_add_test(t, test_what_is_out_of_bounds_is_not_written);
    tcase_add_test(t, test_hostile_bodies_are_refused);
    tcase_add_test(t, test_bytes_at_random_do_no_harm);
    tcase_add_test(t, test_an_id_is_of_the_body);
    return t;
}
