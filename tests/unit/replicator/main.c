#include <stdlib.h>

#include "tests/unit/replicator/tests.h"

int main(void)
{
    Suite *s = suite_create("replicator");
    suite_add_tcase(s, frame_tests());
    suite_add_tcase(s, directory_tests());
    suite_add_tcase(s, hint_tests());
    suite_add_tcase(s, parcel_tests());
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
