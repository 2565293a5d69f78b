#ifndef DOVELANE_TESTS_UNIT_CTL_TESTS_H
#define DOVELANE_TESTS_UNIT_CTL_TESTS_H

#include <check.h>

TCase *held_lanes_case(void);
TCase *row_case(void);
TCase *top_model_case(void);

#endif
