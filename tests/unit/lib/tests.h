#include <check.h>

TCase *address_tests(void);
TCase *agents_tests(void);
TCase *assert_tests(void);
TCase *beat_reader_tests(void);
TCase *config_tests(void);
TCase *envelope_tests(void);
TCase *wire_tests(void);
TCase *tls_tests(void);
TCase *node_tests(void);
TCase *log_tests(void);
TCase *match_tests(void);
TCase *liveness_tests(void);
TCase *members_tests(void);
TCase *listener_tests(void);
TCase *store_tests(void);
TCase *verdict_tests(void);
