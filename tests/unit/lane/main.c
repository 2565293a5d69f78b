#include <stdlib.h>

#include "tests/unit/lane/world.h"

int main(void)
{
    SRunner *runner = srunner_create(push_suite());
    srunner_add_suite(runner, take_suite());
    srunner_add_suite(runner, blocks_suite());
    srunner_add_suite(runner, arena_suite());
    srunner_add_suite(runner, memory_suite());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
