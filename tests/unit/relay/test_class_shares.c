#include <check.h>

#include "relay/tables/class_shares.h"
#include "tests/unit/relay/tests.h"

enum { PLAIN, BULK, SUBMISSION };
#define SET(c) (1u << (c))

static const double weight[CLASS_SHARES_MOST] = {1., 1., 8., 1.5};

/* One mail of the class that is next. */
static unsigned one(struct class_shares *s, unsigned waiting)
{
    unsigned c = class_shares_next(s, waiting, weight);
    ck_assert(waiting >> c & 1);
    class_shares_took(s, c, weight);
    return c;
}

START_TEST(test_classes_that_always_wait_have_their_weights)
{
    struct class_shares s = {0};
    size_t n[CLASS_SHARES_MOST] = {0};
    for (int i = 0; i < 9000; i++)
        n[one(&s, SET(BULK) | SET(SUBMISSION))]++;
    ck_assert_uint_ge(n[SUBMISSION], 7600);
    ck_assert_uint_le(n[SUBMISSION], 8400);
    ck_assert_uint_eq(n[BULK] + n[SUBMISSION], 9000);
    for (size_t i = 0; i < 21000; i++) /* 1 : 8 : 1.5 with mail without a class */
        n[one(&s, SET(PLAIN) | SET(SUBMISSION) | SET(3))]++;
    ck_assert_uint_ge(n[PLAIN], 1900);
    ck_assert_uint_le(n[PLAIN], 2100);
    ck_assert_uint_ge(n[3], 2850);
    ck_assert_uint_le(n[3], 3150);
}
END_TEST

START_TEST(test_a_class_that_comes_waits_one_round_at_most)
{
    struct class_shares s = {0};
    for (int round = 0; round < 100; round++) {
        for (int i = 0; i < 1000; i++)
            one(&s, SET(BULK));
        ck_assert_uint_eq(one(&s, SET(BULK) | SET(SUBMISSION)), SUBMISSION);
        for (int i = 0; i < 1000; i++)
            one(&s, SET(SUBMISSION));
        int waited = 0; /* the light one: a round is 9 mails */
        while (one(&s, SET(BULK) | SET(SUBMISSION)) != BULK)
            ck_assert_int_lt(++waited, 9);
    }
}
END_TEST

START_TEST(test_who_did_not_wait_has_nothing_saved_and_owes_nothing)
{
    struct class_shares s = {0};
    size_t n[CLASS_SHARES_MOST] = {0};
    for (int i = 0; i < 100000; i++)
        one(&s, SET(SUBMISSION));
    for (int i = 0; i < 900; i++)
        n[one(&s, SET(BULK) | SET(SUBMISSION))]++;
    ck_assert_uint_ge(n[BULK], 95);
    ck_assert_uint_le(n[BULK], 105);
    for (int i = 0; i < 100000; i++)
        one(&s, SET(BULK));
    n[BULK] = n[SUBMISSION] = 0;
    for (int i = 0; i < 900; i++)
        n[one(&s, SET(BULK) | SET(SUBMISSION))]++;
    ck_assert_uint_ge(n[BULK], 95);
    ck_assert_uint_le(n[BULK], 105);
}
END_TEST

START_TEST(test_nobody_starves)
{
    struct class_shares s = {0};
    double far[CLASS_SHARES_MOST] = {1., 1000.};
    int waited = 0;
    for (int i = 0; i < 100000; i++) {
        unsigned c = class_shares_next(&s, SET(0) | SET(1), far);
        class_shares_took(&s, c, far);
        waited = c ? waited + 1 : 0;
        ck_assert_int_le(waited, 1001); /* a thousand times 1/1000 is a little less than 1 */
    }
}
END_TEST

START_TEST(test_the_room_is_divided_by_weight)
{
    ck_assert_uint_eq(class_shares_part(900, SUBMISSION, SET(SUBMISSION), weight), 900);
    ck_assert_uint_eq(class_shares_part(900, SUBMISSION, SET(SUBMISSION) | SET(BULK), weight), 800);
    ck_assert_uint_eq(class_shares_part(900, BULK, SET(SUBMISSION) | SET(BULK), weight), 100);
    ck_assert_uint_eq(class_shares_part(900, BULK, SET(SUBMISSION), weight), 100);
    ck_assert_uint_eq(class_shares_part(3, BULK, SET(SUBMISSION), weight), 1);
    ck_assert_uint_eq(class_shares_part(0, BULK, SET(SUBMISSION), weight), 0);
}
END_TEST

TCase *class_shares_tests(void)
{
    TCase *t = tcase_create("class_shares");
    tcase_add_test(t, test_classes_that_always_wait_have_their_weights);
    tcase_add_test(t, test_a_class_that_comes_waits_one_round_at_most);
    tcase_add_test(t, test_who_did_not_wait_has_nothing_saved_and_owes_nothing);
    tcase_add_test(t, test_nobody_starves);
    tcase_add_test(t, test_the_room_is_divided_by_weight);
    return t;
}
