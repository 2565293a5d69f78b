#include <check.h>

struct config;

#define TWO_SITES                                               \
    "group_key_file = \"/k\"\nreplicate_namespaces = {inbox}\n" \
    "replica a { id = 1 redis = \"unix:/a\" lmtp = \"[h]\" }\n" \
    "replica b { id = 7 redis = \"unix:/b\" lmtp = \"[i]:25\" }\n"

#define LABELLED                                       \
    "node a { redis = \"127.0.0.1:1\"\nsite = fra }\n" \
    "node b { redis = \"127.0.0.1:2\"\nsite = ams }\n"

/* NULL and *error_r, the caller's, when it is refused. */
struct config *config_of_text(const char *text, char **error_r);

TCase *address_tests(void);
TCase *agents_tests(void);
TCase *assert_tests(void);
TCase *backoff_tests(void);
TCase *beat_reader_tests(void);
TCase *config_placement_tests(void);
TCase *config_shape_tests(void);
TCase *config_tests(void);
TCase *depth_tests(void);
TCase *disk_question_tests(void);
TCase *envelope_tests(void);
TCase *wire_tests(void);
TCase *tls_tests(void);
TCase *nexthop_tests(void);
TCase *node_tests(void);
TCase *log_tests(void);
TCase *match_tests(void);
TCase *liveness_tests(void);
TCase *members_tests(void);
TCase *metrics_tests(void);
TCase *metrics_http_tests(void);
TCase *placement_tests(void);
TCase *queue_tests(void);
TCase *listener_tests(void);
TCase *shape_tests(void);
TCase *store_tests(void);
TCase *subprocess_tests(void);
TCase *verdict_tests(void);
