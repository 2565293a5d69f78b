#include "relay/delivery/retry.h"
#include "tests/unit/relay/tests.h"

#define SECOND INT64_C(1000000)

static const struct retry_policy policy = {10 * SECOND, 600 * SECOND};
static const unsigned char id[ENTRYID_LEN] = {'0', '1', '2', '3', '4', '5', '6', '7',
                                              '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'};

/* At most a quarter below what the schedule says, never above. */
static void expect_wait(int64_t age, uint32_t attempts, int64_t seconds)
{
    int64_t wait = retry_wait(&policy, id, age, attempts);
    ck_assert_int_le(wait, seconds * SECOND);
    ck_assert_int_gt(wait, seconds * SECOND * 3 / 4);
}

START_TEST(test_waits_double_up_to_the_most)
{
    expect_wait(0, 1, 10);
    expect_wait(0, 2, 20);
    expect_wait(0, 3, 40);
    expect_wait(0, 6, 320);
    expect_wait(0, 7, 600);
    expect_wait(0, 4000000000u, 600);
}
END_TEST

START_TEST(test_an_old_mail_does_not_begin_anew)
{
    expect_wait(9 * SECOND, 1, 10);
    expect_wait(10 * SECOND, 1, 20);
    expect_wait(69 * SECOND, 1, 40);
    expect_wait(70 * SECOND, 1, 80);
    expect_wait(INT64_MAX, 1, 600);
    expect_wait(-5 * SECOND, 1, 10);
}
END_TEST

START_TEST(test_attempts_and_age_on_schedule_agree)
{
    int64_t age = 0;
    for (uint32_t n = 1; n < 12; n++) {
        int64_t wait = retry_wait(&policy, id, age, n);
        ck_assert_int_eq(wait, retry_wait(&policy, id, 0, n));
        age += wait;
    }
}
END_TEST

START_TEST(test_ids_spread_and_owners_agree)
{
    unsigned char other[ENTRYID_LEN];
    int differ = 0;
    for (unsigned i = 0; i < 100; i++) {
        entryid_make(other);
        ck_assert_int_eq(retry_wait(&policy, other, 0, 1), retry_wait(&policy, other, 0, 1));
        differ += retry_wait(&policy, other, 0, 1) != retry_wait(&policy, id, 0, 1);
    }
    ck_assert_int_gt(differ, 90);
}
END_TEST

START_TEST(test_the_latest_open_recipient_counts)
{
    struct recipient r[] = {
        {.state = RECIPIENT_SENT, .attempts = 9, .last_attempt = 2000 * SECOND},
        {.state = RECIPIENT_WAITING, .attempts = 1, .last_attempt = 1000 * SECOND},
        {.state = RECIPIENT_FAILED, .attempts = 1, .last_attempt = 1005 * SECOND},
    };
    struct envelope e = {.arrived = 1000 * SECOND, .nrecipients = 3, .recipient = r};
    int64_t due = retry_due(&policy, id, &e);
    ck_assert_int_eq(due, 1005 * SECOND + retry_wait(&policy, id, 5 * SECOND, 1));
    ck_assert_int_eq(retry_left(&policy, id, &e, 1006 * SECOND), due - 1006 * SECOND);
    ck_assert_int_eq(retry_left(&policy, id, &e, due), 0);
}
END_TEST

START_TEST(test_untried_is_due_at_once)
{
    struct recipient r = {.state = RECIPIENT_WAITING};
    struct envelope e = {.arrived = 1000 * SECOND, .nrecipients = 1, .recipient = &r};
    ck_assert_int_eq(retry_due(&policy, id, &e), 0);
    r.attempts = 3; /* without a time: META was written without texts */
    ck_assert_int_eq(retry_left(&policy, id, &e, 1001 * SECOND), 0);
}
END_TEST

START_TEST(test_a_clock_behind_cannot_make_it_wait_long)
{
    struct recipient r = {
        .state = RECIPIENT_WAITING, .attempts = 1, .last_attempt = 90000 * SECOND};
    struct envelope e = {.arrived = 1000 * SECOND, .nrecipients = 1, .recipient = &r};
    ck_assert_int_eq(retry_left(&policy, id, &e, 1000 * SECOND), policy.most);
}
END_TEST

TCase *retry_tests(void)
{
    TCase *t = tcase_create("retry");
    tcase_add_test(t, test_waits_double_up_to_the_most);
    tcase_add_test(t, test_an_old_mail_does_not_begin_anew);
    tcase_add_test(t, test_attempts_and_age_on_schedule_agree);
    tcase_add_test(t, test_ids_spread_and_owners_agree);
    tcase_add_test(t, test_the_latest_open_recipient_counts);
    tcase_add_test(t, test_untried_is_due_at_once);
    tcase_add_test(t, test_a_clock_behind_cannot_make_it_wait_long);
    return t;
}
