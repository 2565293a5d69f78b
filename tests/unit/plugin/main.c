#include "dovecot-plugin/compat.h"

#include <stdlib.h>

#include "tests/unit/plugin/tests.h"

int main(void)
{
    Suite *s = suite_create("plugin");
    SRunner *r;
    int failed;

    lib_init(); /* Dovecot's data stack */
    suite_add_tcase(s, line_tests());
    suite_add_tcase(s, admin_reply_tests());
    suite_add_tcase(s, delivery_id_tests());
    suite_add_tcase(s, stub_tests());
    r = srunner_create(s);
    srunner_set_fork_status(r, CK_NOFORK);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    lib_deinit();
    return failed != 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
