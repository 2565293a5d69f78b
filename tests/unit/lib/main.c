#include <stdlib.h>

#include "tests/unit/lib/tests.h"

int main(void)
{
    Suite *s = suite_create("lib");
    suite_add_tcase(s, address_tests());
    suite_add_tcase(s, beat_reader_tests());
    suite_add_tcase(s, config_placement_tests());
    suite_add_tcase(s, config_shape_tests());
    suite_add_tcase(s, config_tests());
    suite_add_tcase(s, depth_tests());
    suite_add_tcase(s, disk_question_tests());
    suite_add_tcase(s, envelope_tests());
    suite_add_tcase(s, wire_tests());
    suite_add_tcase(s, tls_tests());
    suite_add_tcase(s, node_tests());
    suite_add_tcase(s, log_tests());
    suite_add_tcase(s, assert_tests());
    suite_add_tcase(s, match_tests());
    suite_add_tcase(s, liveness_tests());
    suite_add_tcase(s, members_tests());
    suite_add_tcase(s, metrics_tests());
    suite_add_tcase(s, metrics_http_tests());
    suite_add_tcase(s, placement_tests());
    suite_add_tcase(s, queue_tests());
    suite_add_tcase(s, listener_tests());
    suite_add_tcase(s, backoff_tests());
    suite_add_tcase(s, shape_tests());
    suite_add_tcase(s, store_tests());
    suite_add_tcase(s, subprocess_tests());
    suite_add_tcase(s, verdict_tests());
    suite_add_tcase(s, agents_tests());
    suite_add_tcase(s, nexthop_tests());
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
