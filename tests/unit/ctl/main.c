#include <stdlib.h>

#include "tests/unit/ctl/tests.h"

int main(void)
{
    Suite *s = suite_create("ctl");
    suite_add_tcase(s, held_lanes_case());
    suite_add_tcase(s, row_case());
    suite_add_tcase(s, top_model_case());
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
