#ifndef DOVELANE_TESTS_UNIT_PLUGIN_TESTS_H
#define DOVELANE_TESTS_UNIT_PLUGIN_TESTS_H

#include <check.h>

TCase *line_tests(void);
TCase *admin_reply_tests(void);
TCase *delivery_id_tests(void);
TCase *stub_tests(void);

#endif
