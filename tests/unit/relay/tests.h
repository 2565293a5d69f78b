#include <check.h>

TCase *reply_tests(void);
TCase *dots_tests(void);
TCase *compose_tests(void);
TCase *retry_tests(void);
TCase *ownership_tests(void);
TCase *nexthop_tests(void);
