#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/log.h"
#include "tests/unit/lib/tests.h"

START_TEST(test_what_does_not_hold_is_named_and_ends_the_program)
{
    char where[64], text[512] = "", place[64];
    int status, line = __LINE__ + 6, two = 2;
    snprintf(where, sizeof where, "file:/tmp/dovelane-assert-%d", (int)getpid());
    ASSERT(two == 2);
    pid_t pid = fork();
    if (!pid) {
        log_open("test", where, LOG_LEVEL_INFO);
        ASSERT(two == 3);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    FILE *f = fopen(where + 5, "r");
    ck_assert_ptr_nonnull(f);
    ck_assert_ptr_nonnull(fgets(text, sizeof text, f));
    fclose(f);
    unlink(where + 5);
    snprintf(place, sizeof place, " tests/unit/lib/test_assert.c:%d: ", line);
    ck_assert_msg(strstr(text, place) && strstr(text, "two == 3"), "logged: %s", text);
}
END_TEST

TCase *assert_tests(void)
{
    TCase *c = tcase_create("assert");
    tcase_add_test(c, test_what_does_not_hold_is_named_and_ends_the_program);
    return c;
}
