#include <check.h>

TCase *config_tests(void);
TCase *envelope_tests(void);
TCase *wire_tests(void);
TCase *log_tests(void);
