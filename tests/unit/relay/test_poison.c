/* When a mail counts as one that relays die of. */
#include <check.h>
#include <string.h>

#include "relay/tables/poison.h"
#include "tests/unit/relay/tests.h"

static struct relay relay;

static void begin(void)
{
    relay.poison = poison_open();
}

static void end(void)
{
    poison_close(relay.poison);
}

static enum poison_verdict judge(unsigned char last, long long failed)
{
    unsigned char id[ENTRYID_LEN] = {0};
    id[ENTRYID_LEN - 1] = last;
    return poison_judge(&relay, id, failed);
}

static void excuse(unsigned number, long long n)
{
    unsigned char id[ENTRYID_LEN] = {0};
    id[ENTRYID_LEN - 2] = (unsigned char)(number >> 8);
    id[ENTRYID_LEN - 1] = (unsigned char)number;
    poison_excuse(&relay, id, n);
}

START_TEST(test_verdicts)
{
    static const enum poison_verdict wanted[] = {
        POISON_NO,   POISON_NO,   POISON_NO,   POISON_ALONE, POISON_ALONE, POISON_ALONE,
        POISON_HOLD, POISON_HOLD, POISON_HOLD, POISON_LEAVE, POISON_LEAVE};
    for (long long n = 0; n <= 10; n++)
        ck_assert_int_eq(judge(1, n), wanted[n]);
}
END_TEST

START_TEST(test_what_we_survived_is_no_crash)
{
    excuse(1, 2);
    excuse(1, 1);
    ck_assert_int_eq(judge(1, 5), POISON_NO);
    ck_assert_int_eq(judge(1, 6), POISON_ALONE);
    ck_assert_int_eq(judge(2, 3), POISON_ALONE);
}
END_TEST

START_TEST(test_excuses_are_bounded)
{
    excuse(1, 3);
    for (unsigned n = 2; n <= 1000; n++)
        excuse(n, 1);
    ck_assert_int_eq(judge(1, 3), POISON_NO);
    excuse(1001, 1);
    ck_assert_int_eq(judge(1, 3), POISON_ALONE);
    ck_assert_int_eq(judge(2, 3), POISON_NO);
}
END_TEST

TCase *poison_tests(void)
{
    TCase *t = tcase_create("poison");
    tcase_add_checked_fixture(t, begin, end);
    tcase_add_test(t, test_verdicts);
    tcase_add_test(t, test_what_we_survived_is_no_crash);
    tcase_add_test(t, test_excuses_are_bounded);
    return t;
}
