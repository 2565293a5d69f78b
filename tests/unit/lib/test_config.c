#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "tests.h"

static struct config *c;
static char *error;

static void read_text(const char *text)
{
    char path[] = "/tmp/dovelane-config-XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    error = NULL;
    c = config_read(path, &error);
    unlink(path);
}

static void forget(void)
{
    config_free(c);
    free(error);
    c = NULL;
    error = NULL;
}

START_TEST(test_defaults_come_from_the_table)
{
    read_text("");
    ck_assert_msg(c != NULL, "%s", error);
    ck_assert_int_eq(c->copies, 2);
    ck_assert_int_eq(c->store_deadline, 1500);
    ck_assert_int_eq(c->max_entry, 26214400);
    ck_assert_int_eq(c->on_store_failure, ON_STORE_FAILURE_QUEUE);
    ck_assert_uint_eq(c->divert.n, 0);
    ck_assert_uint_eq(c->nnodes, 0);
    forget();
}
END_TEST

START_TEST(test_units_are_understood)
{
    read_text("store_deadline = 1.2s\nretry_most = 2h\nbulk_entry = 512kB\non_store_failure = tempfail\n"
              "node mx1 { redis = \"127.0.0.1:7001\" }\nnode mx2 { redis = \"unix:/run/x\" }\ndivert = {\"lmtp:[10.0.0.5]:24\", \"smtp:[h]\", \"lmtp:unix:/run/x\"}\n");
    ck_assert_msg(c != NULL, "%s", error);
    ck_assert_int_eq(c->store_deadline, 1200);
    ck_assert_int_eq(c->retry_most, 7200000);
    ck_assert_int_eq(c->bulk_entry, 524288);
    ck_assert_int_eq(c->on_store_failure, ON_STORE_FAILURE_TEMPFAIL);
    ck_assert_str_eq(c->node[1].redis, "unix:/run/x");
    ck_assert_int_eq(config_node_index(c, "mx2"), 1);
    ck_assert(config_list_has(&c->divert, "lmtp:[10.0.0.5]:24"));
    forget();
}
END_TEST

static const struct {
    const char *text, *expected;
} bad[] = {
    {"copies = 9\n", ":1: copies = 9, allowed is 1 to 8"},
    {"\n\nstore_deadline = 5 parsecs\n", "store_deadline"},
    {"store_deadline = \"5 parsecs\"\n", ":1: store_deadline = 5 parsecs is no time, write it like"},
    {"max_entry = \"1TB\"\n", "max_entry = 1TB is no size"},
    {"on_store_failure = panic\n", "on_store_failure = panic, allowed is one of queue|tempfail"},
    {"no_such_setting = 1\n", "no_such_setting"},
    {"node mx1 { redis = \"127.0.0.1\" }\n", "redis = 127.0.0.1 is no address"},
    {"node mx1 { }\n", "node mx1 has no address"},
    {"node MX1 { redis = \"a:1\" }\n", "a node's name has"},
    {"node a { redis = \"h:1\" }\nnode b { redis = \"h:1\" }\n", "nodes a and b have the same redis"},
    {"node a { redis = \"h:1\" }\nnode a { redis = \"h:2\" }\n", "a"},
    {"dead = {mx9}\n", "dead names mx9"},
    {"node a { redis = \"h:1\" }\ndivert = {\"smtp:[h]:25\"}\n", "copies = 2, but only 1 nodes are configured"},
    {"node a { redis = \"h:1\" }\nnode b { redis = \"h:2\" }\ndivert = {\"smtp:example.org\"}\n", "only next hops with an address"},
    {"node a { redis = \"h:1\" }\nnode b { redis = \"h:2\" }\ndivert = {\"local:[x]\"}\n", "must begin with smtp:"},
    {"node a { redis = \"h:1\" }\n", "copies = 2, but only 1 nodes are configured"},
    {"copies = 1\nnode a { redis = \"h:1\" }\ndivert = {\"lmtp:unix:private/dovecot-lmtp\"}\n", "the socket's path must be absolute"},
    {"copies = 1\nnode a { redis = \"h:1\" }\ndivert = {\"lmtp:[h]:99999\"}\n", "write the next hop like"},
    {"bounce_port = 10026\n", "bounce_port = 10026 is no address"},
    {"milter_socket = \"inet:8899@localhost\"\n", "must be the absolute path"},
    {"log = sysloog\n", "log = sysloog, allowed is"},
    {"retry_first = 1h\n", "retry_first = 3600000ms is more than retry_most"},
    {"settle = 2s\n", "settle = 2000ms must be at least"},
    {"max_entry = 200MB\n", "settle = 5000ms must be at least"},
};

START_TEST(test_errors_name_the_thing_the_value_and_the_way_out)
{
    read_text(bad[_i].text);
    ck_assert_msg(c == NULL, "accepted: %s", bad[_i].text);
    ck_assert_msg(strstr(error, bad[_i].expected) != NULL, "said: %s", error);
    forget();
}
END_TEST

START_TEST(test_a_directory_is_no_config)
{
    error = NULL;
    c = config_read("/tmp", &error);
    ck_assert_ptr_null(c);
    ck_assert_str_eq(error, "/tmp: is a directory");
    forget();
}
END_TEST

START_TEST(test_a_missing_file_is_named)
{
    error = NULL;
    c = config_read("/nonexistent/dovelane.conf", &error);
    ck_assert_ptr_null(c);
    ck_assert_msg(strstr(error, "/nonexistent/dovelane.conf: No such file") != NULL, "said: %s", error);
    forget();
}
END_TEST

START_TEST(test_addresses)
{
    char buf[64];
    const char *host, *port;
    ck_assert_int_eq(config_address("10.0.0.1:6379", buf, sizeof buf, &host, &port), 0);
    ck_assert_str_eq(host, "10.0.0.1");
    ck_assert_str_eq(port, "6379");
    ck_assert_int_eq(config_address("[fd00::1]:6379", buf, sizeof buf, &host, &port), 0);
    ck_assert_str_eq(host, "fd00::1");
    ck_assert_int_eq(config_address("unix:/a/b", buf, sizeof buf, &host, &port), 0);
    ck_assert_str_eq(host, "/a/b");
    ck_assert_ptr_null(port);
    static const char *const wrong[] = {"", "host", "host:", ":1", "host:0", "host:65536", "host:1x", "fd00::1:6379", "[fd00::1:6379", "unix:", "host:-1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        ck_assert_msg(config_address(wrong[i], buf, sizeof buf, &host, &port) < 0, "accepted %s", wrong[i]);
}
END_TEST

TCase *config_tests(void)
{
    TCase *t = tcase_create("config");
    tcase_add_test(t, test_defaults_come_from_the_table);
    tcase_add_test(t, test_units_are_understood);
    tcase_add_loop_test(t, test_errors_name_the_thing_the_value_and_the_way_out, 0, sizeof bad / sizeof *bad);
    tcase_add_test(t, test_a_directory_is_no_config);
    tcase_add_test(t, test_a_missing_file_is_named);
    tcase_add_test(t, test_addresses);
    return t;
}
