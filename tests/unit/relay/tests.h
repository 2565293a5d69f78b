#include <check.h>

TCase *reply_tests(void);
TCase *dots_tests(void);
TCase *compose_tests(void);
TCase *retry_tests(void);
TCase *ownership_tests(void);
TCase *batch_window_tests(void);
TCase *poison_tests(void);
TCase *delivery_log_tests(void);
TCase *body_tests(void);
TCase *session_tests(void);
TCase *delivery_id_tests(void);
TCase *role_tests(void);
TCase *class_shares_tests(void);
TCase *contact_tests(void);
