#include <stdlib.h>

#include "tests/unit/relay/tests.h"

int main(void)
{
    Suite *s = suite_create("relay");
    suite_add_tcase(s, reply_tests());
    suite_add_tcase(s, dots_tests());
    suite_add_tcase(s, body_tests());
    suite_add_tcase(s, session_tests());
    suite_add_tcase(s, delivery_id_tests());
    suite_add_tcase(s, compose_tests());
    suite_add_tcase(s, retry_tests());
    suite_add_tcase(s, ownership_tests());
    suite_add_tcase(s, role_tests());
    suite_add_tcase(s, contact_tests());
    suite_add_tcase(s, batch_window_tests());
    suite_add_tcase(s, class_shares_tests());
    suite_add_tcase(s, poison_tests());
    suite_add_tcase(s, delivery_log_tests());
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
