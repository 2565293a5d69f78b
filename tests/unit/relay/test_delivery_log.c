/* The delays in the lines about mails are what printf would have made of them, two significant
 * digits. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "relay/delivery/delivery_log.h"
#include "tests/unit/relay/tests.h"

static const char *by_printf(double s, char out[32])
{
    if (s < 0.01)
        snprintf(out, 32, "0");
    else if (s < 0.1)
        snprintf(out, 32, "%.2f", s);
    else if (s < 10.)
        snprintf(out, 32, "%.2g", s);
    else
        snprintf(out, 32, "%.0f", s);
    return out;
}

START_TEST(test_delays_are_printed_as_postfix_does)
{
    char out[16], wanted[32];
    /* Not at halves, where printf looks at all digits of the binary number. */
    for (long n = -100; n < 3000000; n += n < 20000 ? 7 : 977) {
        if (n % 5 == 0)
            continue;
        double s = (double)n / 10000.;
        ck_assert_str_eq(delivery_seconds(s, out), by_printf(s, wanted));
    }
    ck_assert_str_eq(delivery_seconds(0.0999, out), "0.10");
    ck_assert_str_eq(delivery_seconds(0.999, out), "1");
    ck_assert_str_eq(delivery_seconds(9.99, out), "10");
    ck_assert_str_eq(delivery_seconds(1e300, out), "1000000000");
}
END_TEST

TCase *delivery_log_tests(void)
{
    TCase *t = tcase_create("delivery log");
    tcase_add_test(t, test_delays_are_printed_as_postfix_does);
    return t;
}
