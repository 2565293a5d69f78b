#ifndef DOVELANE_TESTS_UNIT_REPLICATOR_TESTS_H
#define DOVELANE_TESTS_UNIT_REPLICATOR_TESTS_H

#include <check.h>

TCase *frame_tests(void);
TCase *directory_tests(void);
TCase *hint_tests(void);
TCase *parcel_tests(void);

#endif
