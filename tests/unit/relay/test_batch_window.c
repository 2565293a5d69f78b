/* When the loop waits for more events. */
#include <check.h>

#include "relay/intake/batch_window.h"
#include "tests/unit/relay/tests.h"

/* Whether it gathers after so many seconds of so many mails a second, one by one. */
static bool after(struct batch_window *g, double *now, double seconds, double rate, bool behind)
{
    bool on = g->on;
    for (double end = *now + seconds; *now < end; *now += 1. / rate)
        on = batch_window_took(g, 1, behind, *now);
    return on;
}

START_TEST(test_rates)
{
    struct batch_window g = {0};
    double now = 1000.;
    ck_assert(!batch_window_took(&g, 1, false, now)); /* the first mail ever */
    ck_assert(!after(&g, &now, 1., BATCH_RATE / 2, false));
    ck_assert(after(&g, &now, 1., BATCH_RATE * 4, false));
    ck_assert(!after(&g, &now, 1., BATCH_RATE / 2, false));
}
END_TEST

START_TEST(test_one_after_a_pause)
{
    struct batch_window g = {0};
    double now = 5.;
    ck_assert(after(&g, &now, 1., BATCH_RATE * 4, false));
    ck_assert(!batch_window_took(&g, 1, false, now + 3600.));
}
END_TEST

START_TEST(test_behind)
{
    struct batch_window g = {0};
    double now = 5.;
    ck_assert(after(&g, &now, 1., BATCH_RATE * 4, false));
    ck_assert(batch_window_took(&g, 1, true, now)); /* one is none */
    ck_assert(after(&g, &now, 1., BATCH_RATE * 4, false));
    ck_assert(!after(&g, &now, 1., BATCH_RATE * 4, true));
    ck_assert(after(&g, &now, 1., BATCH_RATE * 4, false));
}
END_TEST

TCase *batch_window_tests(void)
{
    TCase *c = tcase_create("gather");
    tcase_add_test(c, test_rates);
    tcase_add_test(c, test_one_after_a_pause);
    tcase_add_test(c, test_behind);
    return c;
}
