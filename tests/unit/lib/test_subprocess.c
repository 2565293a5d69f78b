#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/subprocess.h"
#include "tests/unit/lib/tests.h"

/* dovelane(1) does not ignore SIGPIPE: for its own output it means what it always does. */
START_TEST(test_a_program_that_does_not_read_its_input_ends_nobody)
{
    const char *const argv[] = {"true", NULL};
    size_t len = 4 << 20;
    char *input = calloc(1, len);
    signal(SIGPIPE, SIG_DFL);
    struct subprocess_result r = subprocess_run(argv, input, len, 60000);
    ck_assert_ptr_null(r.failure);
    ck_assert_int_eq(r.status, 0);
    ck_assert(signal(SIGPIPE, SIG_DFL) == SIG_DFL);
    subprocess_free(&r);
    free(input);
}
END_TEST

TCase *subprocess_tests(void)
{
    TCase *t = tcase_create("subprocess");
    tcase_add_test(t, test_a_program_that_does_not_read_its_input_ends_nobody);
    return t;
}
