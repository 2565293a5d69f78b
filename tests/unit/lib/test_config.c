#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/config/config.h"
#include "lib/config/nexthop.h"
#include "tests/unit/lib/tests.h"

static struct config *c;
static char *error;

static void read_text(const char *text)
{
    error = NULL;
    c = config_of_text(text, &error);
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
    ck_assert_int_eq(c->takeover, TAKEOVER_AUTOMATIC);
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
    read_text(
        "store_deadline = 1.2s\nretry_most = 2h\nbulk_entry = 512kB\non_store_failure = tempfail\n"
        "node mx1 { redis = \"127.0.0.1:7001\" }\nnode mx2 { redis = \"unix:/run/x\" }\ndivert = "
        "{\"lmtp:[10.0.0.5]:24\", \"smtp:[h]\", \"lmtp:unix:/run/x\"}\n");
    ck_assert_msg(c != NULL, "%s", error);
    ck_assert_int_eq(c->store_deadline, 1200);
    ck_assert_int_eq(c->retry_most, 7200000);
    ck_assert_int_eq(c->bulk_entry, 524288);
    ck_assert_int_eq(c->on_store_failure, ON_STORE_FAILURE_TEMPFAIL);
    ck_assert_str_eq(c->node[1].redis, "unix:/run/x");
    ck_assert_int_eq(config_node_index(c, "mx2"), 1);
    ck_assert(config_list_has(&c->divert, "lmtp:[10.0.0.5]:24"));
    forget();
    /* Postfix's letters, too. */
    read_text("smtp_mail_timeout = 5m\nlane_time = 2h\nretry_most = 1d\nconnection_idle = "
              "45s\nreplace_after = 1w\nmax_entry = 20M\nbulk_entry = 300k\nalone_wait = 90min\n");
    ck_assert_msg(c != NULL, "%s", error);
    ck_assert_int_eq(c->smtp_mail_timeout, 300000);
    ck_assert_int_eq(c->lane_time, 7200000);
    ck_assert_int_eq(c->retry_most, 86400000);
    ck_assert_int_eq(c->connection_idle, 45000);
    ck_assert_int_eq(c->replace_after, 604800000);
    ck_assert_int_eq(c->max_entry, 20971520);
    ck_assert_int_eq(c->bulk_entry, 307200);
    ck_assert_int_eq(c->alone_wait, 5400000);
    forget();
}
END_TEST

START_TEST(test_a_next_hop_has_its_section_or_the_common_one)
{
    read_text("");
    ck_assert_msg(c != NULL, "%s", error);
    const struct config_destination *d = config_destination(c, "smtp:[h]:25");
    ck_assert_int_eq(d->tls, TLS_POSTFIX);
    ck_assert_int_eq(d->trust, TRUST_POSTFIX);
    ck_assert(!config_destination_says(d, "tls") && !config_destination_says(d, "trust"));
    ck_assert(!d->delivery_id && !*d->tls_name && !d->discard_ehlo_keywords.n);
    forget();
    read_text("group_key_file = \"/k\"\ndestination \"lmtp:[h]:24\" { tls = verify delivery_id = "
              "yes discard_ehlo_keywords = {CHUNKING, DSN} }\n"
              "destination \"*\" { trust = xforward }\n");
    ck_assert_msg(c != NULL, "%s", error);
    d = config_destination(c, "lmtp:[h]:24");
    ck_assert(config_destination_says(d, "tls") && !config_destination_says(d, "tls_name"));
    ck_assert(config_destination_says(d, "discard_ehlo_keywords"));
    ck_assert(!config_destination_says(d, "") && !config_destination_says(d, "lane_time"));
    ck_assert_int_eq(d->tls, TLS_VERIFY);
    ck_assert_int_eq(d->trust, TRUST_POSTFIX);
    ck_assert(d->delivery_id && config_list_has(&d->discard_ehlo_keywords, "DSN"));
    d = config_destination(c, "smtp:[h]:25");
    ck_assert_int_eq(d->tls, TLS_POSTFIX);
    ck_assert_int_eq(d->trust, TRUST_XFORWARD);
    ck_assert_int_eq(c->smtp_data_done_timeout, 600000);
    forget();
}
END_TEST

START_TEST(test_classes_have_choices)
{
    read_text("class fast { match = {\"sasl_user *\", \"size <1MB\", or, \"client 10.0.0.0/8\"}\n"
              " weight = 8 }\nclass rest { match = {all} }\n");
    ck_assert_msg(c != NULL, "%s", error);
    ck_assert_uint_eq(c->nclasses, 2);
    ck_assert_ptr_null(config_class(c, "other"));
    const struct config_class *fast = config_class(c, "fast"), *rest = config_class(c, "rest");
    ck_assert_int_eq(fast->weight, 8);
    ck_assert_int_eq(rest->weight, 1);
    char *one = config_class_choice(fast, 0), *two = config_class_choice(fast, 1),
         *all = config_class_choice(rest, 0);
    ck_assert_str_eq(one, "sasl-user *\nsize <1MB\n");
    ck_assert_str_eq(two, "client 10.0.0.0/8\n");
    ck_assert_str_eq(all, "all \n");
    ck_assert_ptr_null(config_class_choice(fast, 2));
    ck_assert_ptr_null(config_class_choice(rest, 1));
    free(one);
    free(two);
    free(all);
    forget();
}
END_TEST

static const struct {
    const char *text, *expected;
} bad[] = {
    {"copies = 9\n", ":1: copies = 9, allowed is 1 to 8"},
    {"\n\nstore_deadline = 5 parsecs\n", "store_deadline"},
    {"store_deadline = \"5 parsecs\"\n", ":1: store_deadline = 5 parsecs is no time, write it like "
                                         "400ms, 1.5s, 5m or 5min, 1h, 2d, 1w"},
    {"store_deadline = 5\n", ":1: store_deadline = 5 is no time, write it like"},
    {"max_entry = 5m5\n",
     ":1: max_entry = 5m5 is no size, write it like 512, 256kB or 256k, 25MB or 25M, 1GB or 1G"},
    {"max_entry = \"1TB\"\n", "max_entry = 1TB is no size"},
    {"on_store_failure = panic\n", "on_store_failure = panic, allowed is one of queue|tempfail"},
    {"spread_over = rack\n", "spread_over = rack, allowed is one of node|zone|site"},
    {"spread_least = 9\n", ":1: spread_least = 9, allowed is 1 to 8"},
    {LABELLED "spread_over = site\nspread_least = 3\n",
     "spread_over = site with spread_least = 3: that is more than copies = 2: raise "
     "copies, or lower spread_least"},
    {LABELLED "spread_over = zone\n",
     "spread_over = zone, but node a says no zone: write zone = \"...\" in its section"},
    {LABELLED "destination \"*\" { site = Ams }\n",
     "destination \"*\": site = \"Ams\": it has 1 to 64 of the characters"},
    {LABELLED "destination \"smtp:[h]:1\" { site = amz }\n",
     "destination \"smtp:[h]:1\": no node has site = \"amz\": write the labels of a node that"},
    {LABELLED "destination \"*\" { site = ams\nzone = x }\n",
     "destination \"*\": no node has site = \"ams\" and zone = \"x\": write the labels"},
    {LABELLED "destination \"*\" { spread_over = zone }\n",
     "destination \"*\": spread_over = zone, but node a says no zone"},
    {LABELLED "copies = 3\nspread_over = site\nspread_least = 3\n"
              "node c { redis = \"127.0.0.1:3\"\nsite = fra }\n",
     "spread_over = site with spread_least = 3, but all nodes are in 2: add nodes in other ones, "
     "or "
     "lower spread_least"},
    {"node a { redis = \"127.0.0.1:1\"\nsite = \"Fra 1\" }\n",
     "node a: site = \"Fra 1\": it has 1 to 64 of the characters a-z 0-9 . -"},
    {"node a { redis = \"127.0.0.1:1\"\nsite = \"-\" }\n", "node a: site = \"-\""},
    {"node a { redis = \"127.0.0.1:1\"\nzone = \"x/y\" }\n", "node a: zone = \"x/y\""},
    {LABELLED "takeover = manual\nprefer = near\n",
     "prefer = near needs takeover = automatic: the answers to its beats are what is measured"},
    {"no_such_setting = 1\n",
     ":1: no setting is named no_such_setting; dovelane.conf(5) lists them"},
    {"\nsmtp_conect_timeout = 3s\n",
     ":2: no setting is named smtp_conect_timeout; is smtp_connect_timeout meant?"},
    {"connect_timeout = 30s\n", ":1: connect_timeout is gone, write smtp_connect_timeout"},
    {"command_timeout = 5min\n",
     "command_timeout is gone, write smtp_helo_timeout, smtp_mail_timeout"},
    {"final_timeout = 10min\n", "final_timeout is gone, write smtp_data_done_timeout"},
    {"tls_ca_file = \"/x\"\n",
     ":1: tls_ca_file is only for a destination section, write destination NAME { tls_ca"},
    {"tls = may\n", "or destination NAME { tls = ... }"},
    {"node a { redis = \"10.0.0.1:1\" }\n", "node a: 10.0.0.1:1 is reached over a network"},
    {"node a { redis = \"127.0.0.1:1\"\nstandby = \"10.0.0.1:1\" }\n",
     "node a: 10.0.0.1:1 is reached over a network"},
    {"node a { redis = \"127.0.0.1:1\"\nstandby = \"10.0.0.1\" }\n",
     "standby = 10.0.0.1 is no address"},
    {"node a { redis = \"127.0.0.1:1\"\nstandby = \"127.0.0.1:1\" }\n",
     "standby = 127.0.0.1:1 is its redis, too"},
    {"node a { redis = \"127.0.0.1:1\" }\nnode b { redis = \"127.0.0.2:1\"\nstandby = "
     "\"127.0.0.1:1\" }\n",
     "nodes a and b have the same address 127.0.0.1:1"},
    {"node a { redis = \"127.0.0.1:1\"\ntls = maybe }\n", "tls = maybe, allowed is yes or no"},
    {"node a { redis = \"unix:/x\"\ntls = yes }\n", "over which Redis speaks no TLS"},
    {"node a { redis = \"127.0.0.1:1\"\ntls_name = x }\n", "tls_name = x without tls = yes"},
    {"node_user_file = x\n", "node_user_file = x must be an absolute path"},
    {"replica_user_file = x\n", "replica_user_file = x must be an absolute path"},
    {"replica_user_file = \"/x\"\n", "replica_user_file = /x has no %r for the replica's name"},
    {"node_key_file = \"/x\"\n", "node_key_file without node_cert_file"},
    {"replicate_namespaces = { inbox }\nreplica a { id = 1\n redis = \"10.0.0.1:1\" }\n",
     "replica a: 10.0.0.1:1 is reached over a network"},
    {"path_timeout = 1500ms\ncopies = 1\nnode a { redis = \"127.0.0.1:1\"\nstandby = "
     "\"127.0.0.2:1\" }\n",
     "path_timeout = 1500ms must be below store_deadline = 1500ms"},
    {"destination \"*\" {\n tls = may\n tls_cafile = \"/x\"\n}\n",
     ":3: no setting is named tls_cafile in section destination; is tls_ca_file meant?"},
    {"destination \"*\" { tls = may\nlog = syslog\n",
     ":2: log does not belong into a destination section, write it outside; or is a } missing"},
    {"destinaton \"*\" { tls = may }\n", "is destination meant?"},
    {"destination \"*\" { tls = may\n", "section destination \"*\" is not closed: a } is missing"},
    {"class bulk { weight = 2 }\n",
     ":1: class \"bulk\": it has no match: write which mail is meant, match = { \"sasl_user *\" }"},
    {"class Bulk { match = {all} }\n", "class \"Bulk\": a class's name has 1 to 15 of the "
                                       "characters a-z 0-9 -"},
    {"class a-much-too-long-1 { match = {all} }\n", "a class's name has 1 to 15"},
    {"class bulk {\n match = {all}\n weight = 0\n}\n", ":3: weight = 0, allowed is 1 to 1000"},
    {"class bulk { match = {\"size 5x\"} }\n",
     "class \"bulk\": match has \"size 5x\": size 5x: write it like 512"},
    {"class bulk { match = {\"colour red\"} }\n",
     "match has \"colour red\": each of its texts is \"all\", \"or\", or one of sender, rcpt"},
    {"class bulk { match = {\"age 1h\"} }\n",
     "match has \"age 1h\", but mail has no age when it comes: use sender, rcpt"},
    {"class bulk { match = {or, all} }\n", "match has \"or\" with nothing before it"},
    {"class bulk { match = {all, or} }\n", "match has \"or\" with nothing behind it"},
    {"class a { match = {all} }\nclass b { match = {all} }\nclass c { match = {all} }\n"
     "class d { match = {all} }\nclass e { match = {all} }\nclass f { match = {all} }\n"
     "class g { match = {all} }\nclass h { match = {all} }\nclass i { match = {all} }\n",
     ":9: class \"i\": it is the ninth, and there may be 8 classes: take one out"},
    {"class a { match = {all} }\nclass a { match = {all} }\n", "a"},
    {"copies = 2\nbounce_port = \"h:26\n", "the file ends in the middle of a setting"},
    {"destination \"*\" {\n discard_ehlo_keywords = { chunking, CHUNKNG }\n}\n",
     ":2: discard_ehlo_keywords has CHUNKNG, allowed are PIPELINING|CHUNKING|"},
    {"destination \"*\" { tls_ca_file = \"/ca\" }\n",
     "destination *: tls_ca_file without tls: write tls = verify"},
    {"node mx1 { redis = \"127.0.0.1\" }\n", "redis = 127.0.0.1 is no address"},
    {"node mx1 { }\n", "node mx1 has no address"},
    {"node MX1 { redis = \"a:1\"\ntls = no }\n", "a node's name has"},
    {"node a { redis = \"h:1\"\ntls = no }\nnode b { redis = \"h:1\"\ntls = no }\n",
     "nodes a and b have the same redis"},
    {"node a { redis = \"h:1\"\ntls = no }\nnode a { redis = \"h:2\"\ntls = no }\n", "a"},
    {"dead = {mx9}\n", "dead names mx9"},
    {"reinject_port = \"10627\"\n", "reinject_port = 10627 is no address"},
    {"reinject_port = \"h:26\"\nbounce_port = \"h:26\"\n",
     "reinject_port and bounce_port are both h:26"},
    {"state_directory = \"x\"\n", "state_directory = x must be an absolute path"},
    {"node a { redis = \"h:1\"\ntls = no }\ndivert = {\"smtp:[h]:25\"}\n",
     "copies = 2, but only 1 nodes are configured"},
    {"node a { redis = \"h:1\"\ntls = no }\nnode b { redis = \"h:2\"\ntls = no }\ndivert = "
     "{\"smtp:example.org\"}\n",
     "only next hops with an address"},
    {"node a { redis = \"h:1\"\ntls = no }\nnode b { redis = \"h:2\"\ntls = no }\ndivert = "
     "{\"local:[x]\"}\n",
     "must begin with smtp:"},
    {"node a { redis = \"h:1\"\ntls = no }\n", "copies = 2, but only 1 nodes are configured"},
    {"copies = 1\nnode a { redis = \"h:1\"\ntls = no }\ndivert = "
     "{\"lmtp:unix:private/dovecot-lmtp\"}\n",
     "the socket's path must be absolute"},
    {"copies = 1\nnode a { redis = \"h:1\"\ntls = no }\nsocket_at = {\"private/lmtp\"}\n",
     "write it as"},
    {"copies = 1\nnode a { redis = \"h:1\"\ntls = no }\nsocket_at = {\"private/lmtp=lmtp\"}\n",
     "write it as"},
    {"copies = 1\nnode a { redis = \"h:1\"\ntls = no }\ndivert = {\"lmtp:[h]:99999\"}\n",
     "write the next hop like"},
    {"copies = 1\nnode a { redis = \"h:1\"\ntls = no }\n"
     "divert = {\"lmtp:b\303\274cher.example\"}\n",
     "write the name in ASCII"},
    {"bounce_port = 10626\n", "bounce_port = 10626 is no address"},
    {"milter_socket = \"inet:8899@localhost\"\n", "must be the absolute path"},
    {"log = sysloog\n", "log = sysloog, allowed is"},
    {"retry_first = 1h\n", "retry_first = 3600000ms is more than retry_most"},
    {"settle = 2s\n", "settle = 2000ms must be at least"},
    {"max_entry = 200MB\n", "settle = 5000ms must be at least"},
    {"smtp_mail_timeout = 2h\n", ":1: smtp_mail_timeout = 2h, allowed is 100ms to 1h"},
    {"max_entry = 3\n", ":1: max_entry = 3, allowed is 1kB to 256MB"},
    {"destination \"smtp:[h]\" {\n tls = always\n}\n",
     ":2: tls = always, allowed is one of none|may|encrypt|verify"},
    {"destination \"[h]:25\" { }\n",
     "the title of a destination section has \"[h]:25\": it must begin with smtp:"},
    {"destination \"smtp:[h]\" { }\ndestination \"smtp:[h]\" { }\n", "smtp:[h]"},
    {"destination \"*\" { tls_ca_file = \"ca.pem\" }\n",
     "destination *: tls_ca_file = ca.pem must be an absolute path"},
    {"destination \"*\" { tls_key_file = \"/key\" }\n", "tls_key_file without tls_cert_file"},
    {"destination \"lmtp:unix:/x\" { tls = verify }\n", "needs tls_name"},
    {"destination \"*\" { delivery_id = yes }\n",
     "delivery_id = yes needs group_key_file: write group_key_file = "},
    {"copies = 1\nnode a { redis = \"h:1\"\ntls = no }\nroute = {\"a.example=smtp:[h]:1\", "
     "\"b.example=smtp:[h]:1\", \"A.example=smtp:[h]:2\"}\n",
     "\"A.example=smtp:[h]:2\" for the same addresses"},
    {"destination \"lmtp:[h]:24\" { sites = 65 }\n", ":1: sites = 65, allowed is 2 to 64"},
    {"destination \"lmtp:[h]:24\" { replicated_wait = 5 }\n", "replicated_wait = 5 is no time"},
    {"destination \"smtp:[h]:24\" { until = replicated }\n", "is for lmtp: to our own Dovecot"},
    {"destination \"*\" { until = replicated }\n", "needs a section for each next hop"},
    {"destination \"lmtp:[h]:24\" { until = replicated }\n", "needs delivery_id = yes"},
    {TWO_SITES "destination \"lmtp:[h]:24\" { delivery_id = yes until = replicated sites = 3 }\n",
     "sites = 3, but there are 2 replica sections"},
    {TWO_SITES "destination \"lmtp:[h]:24, [x]:24\" { delivery_id = yes until = replicated }\n",
     "lmtp:[x]:24 is no replica's lmtp: write lmtp = \"[x]:24\""},
    {"replicate_namespaces = {inbox}\nreplica a { id = 1 redis = \"unix:/a\" lmtp = \"[h]\" }\n"
     "replica b { id = 2 redis = \"unix:/b\" lmtp = \"[h]\" }\n",
     "have the same lmtp = \"[h]\""},
    {"replicate_namespaces = {inbox}\nreplica a { id = 1 redis = \"unix:/a\" lmtp = \"a, b\" }\n",
     "is a list: write the one host"},
    {"replicate_namespaces = {inbox}\nreplica a { id = 1 redis = \"unix:/a\" lmtp = \"[\" }\n",
     "is no next hop: write it like"},
    {"group_key_file = \"key\"\n", "group_key_file = key must be an absolute path"},
    /* Whatever stands before them, the lines are the file's. */
    {"# a comment\n\n// another\n/* and\none */ log = syslog # here, too\ncopies = 9\n",
     ":6: copies = 9, allowed is"},
    {"host_name = \"a # b // c /* d\"\nstate_directory = /a//b\nlog = 'it\\'s # x'\ncopies = 9\n",
     ":4: copies = 9, allowed is"},
    {"syslog_name = x# \"\ncopies = 9 # \"\n", ":2: copies = 9, allowed is"},
    {"copies = 1\n /* \nlog = syslog\n",
     ":2: the comment that begins here is not closed: a */ is missing"},
    /* What stands twice. */
    {"copies = 1\nlog = syslog\n# copies = 3\n\ncopies = 1\n",
     ":5: copies is set a second time: line 1 has it already, take one of the two out"},
    {"copies = 1 copies = 1\n", ":1: copies is set a second time: line 1 has it already"},
    {"divert = { \"smtp:[h]:1\",\n \"smtp:[h]:2\" }\ndivert = {}\n",
     ":3: divert is set a second time: line 1 has it already"},
    {"divert = {}\ndivert = \"smtp:[h]:1\"\n",
     ":2: divert is set a second time: line 1 has it already"},
    {"ignore += {a}\nignore = {b}\n", ":2: ignore is set a second time: line 1 has it already"},
    {"host_name = \"${DOVELANE_NONE:-\"}\"\nhost_name = b\n",
     ":2: host_name is set a second time: line 1 has it already"},
    {"host_name = ${DOVELANE_NONE:-#}\nhost_name = b\n",
     ":2: host_name is set a second time: line 1 has it already"},
    {"copies = 1\nnode a {\n redis = \"127.0.0.1:1\"\n tls = no\n redis = \"127.0.0.1:2\"\n}\n",
     ":5: redis is set a second time in section node a: line 3 has it already"},
    {"destination \"*\" { tls = may tls_ca_file = \"/x\"\n tls = none }\n",
     ":2: tls is set a second time in section destination \"*\": line 1 has it already"},
    {"destination \"*\" { tls = may }\nlog = syslog\ndestination \"smtp:[h]\" { tls = may }\nlog = "
     "syslog\n",
     ":4: log is set a second time: line 2 has it already"},
};

START_TEST(test_errors_name_the_thing_the_value_and_the_way_out)
{
    read_text(bad[_i].text);
    ck_assert_msg(c == NULL, "accepted: %s", bad[_i].text);
    ck_assert_msg(strstr(error, bad[_i].expected) != NULL, "said: %s", error);
    forget();
}
END_TEST

START_TEST(test_what_is_in_two_sections_or_is_added_to_does_not_stand_twice)
{
    read_text(
        "host_name = 'log = syslog'\n# copies = 2\ncopies = 1 /* copies = 3 */ // copies = 4\nnode "
        "a { redis = \"127.0.0.1:1\" tls = no }\nnode b { redis = \"127.0.0.1:2\" tls = no }\n"
        "ignore = {a, copies}\nignore += {b}\nignore += c\nstate_directory = "
        "/copies//x\ndestination \"*\" { tls = may tls_ca_file = \"/x\" }\n"
        "destination \"smtp:[h]\" { tls = none }\nnode_ca_file = \"/\\\"copies = 2\"\nlog = "
        "syslog");
    ck_assert_msg(c != NULL, "%s", error);
    ck_assert_int_eq(c->copies, 1);
    ck_assert_uint_eq(c->ignore.n, 4);
    ck_assert_str_eq(c->ignore.v[3], "c");
    ck_assert_str_eq(c->state_directory, "/copies//x");
    ck_assert_str_eq(c->host_name, "log = syslog");
    ck_assert_str_eq(c->node_ca_file, "/\"copies = 2");
    ck_assert_str_eq(c->log, "syslog");
    ck_assert_int_eq(c->other.tls, TLS_MAY);
    forget();
}
END_TEST

START_TEST(test_a_file_with_a_nul_byte_is_no_config)
{
    char path[] = "/tmp/dovelane-config-XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_eq(write(fd, "copies = 1\n\0log = syslog\n", 25), 25);
    close(fd);
    error = NULL;
    c = config_read(path, &error);
    unlink(path);
    ck_assert_ptr_null(c);
    ck_assert_msg(strstr(error, ": has a NUL byte") != NULL, "said: %s", error);
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
    ck_assert_msg(strstr(error, "/nonexistent/dovelane.conf: No such file") != NULL, "said: %s",
                  error);
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
    static const char *const wrong[] = {
        "",        "host",         "host:",         ":1",    "host:0", "host:65536",
        "host:1x", "fd00::1:6379", "[fd00::1:6379", "unix:", "host:-1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        ck_assert_msg(config_address(wrong[i], buf, sizeof buf, &host, &port) < 0, "accepted %s",
                      wrong[i]);
}
END_TEST

#define GROUP "replicate_namespaces = {\"inbox\"}\nreplica a { id = 1\n redis = \"127.0.0.1:1\" }\n"

static void refused(const char *text, const char *because)
{
    read_text(text);
    ck_assert_msg(c == NULL, "accepted: %s", text);
    ck_assert_msg(strstr(error, because) != NULL, "%s does not say: %s", error, because);
    forget();
}

START_TEST(test_replicas_are_read)
{
    read_text(
        GROUP
        "replica site-b { id = 7\n redis = \"unix:/run/r\"\n node = mx2 }\nbacklog_age = 2d\n");
    ck_assert_msg(c != NULL, "%s", error);
    ck_assert_uint_eq(c->nreplicas, 2);
    ck_assert_int_eq(config_replica_index(c, "site-b"), 1);
    ck_assert_int_eq(config_replica_index(c, "b"), -1);
    ck_assert_int_eq(c->replica[1].id, 7);
    ck_assert_str_eq(c->replica[1].node, "mx2");
    ck_assert_str_eq(c->replica[0].node, "");
    ck_assert_int_eq(c->backlog_age, 172800000);
    ck_assert(!config_is_backup(&c->replica[1]));
    forget();
    read_text(GROUP "replica b { id = 2\n redis = \"127.0.0.1:2\"\n role = backup }\n"
                    "keep_expunged = 90d\n");
    ck_assert_msg(c != NULL, "%s", error);
    ck_assert(!config_is_backup(&c->replica[0]) && config_is_backup(&c->replica[1]));
    ck_assert_int_eq(c->keep_expunged, 90LL * 86400 * 1000);
    forget();
    read_text(GROUP "replica b { id = 2\n redis = \"127.0.0.1:2\"\n role = on-demand }\n"
                    "on_demand_from = 1M\n");
    ck_assert_msg(c != NULL, "%s", error);
    ck_assert(!config_is_on_demand(&c->replica[0]) && config_is_on_demand(&c->replica[1]));
    ck_assert_int_eq(c->on_demand_from, 1048576);
    ck_assert_int_eq(c->on_demand_wait, 20000);
    forget();
}
END_TEST

START_TEST(test_replicas_must_be_told_apart)
{
    refused("replica a { id = 1\n redis = \"127.0.0.1:1\" }\n", "replicate_namespaces is empty");
    refused("replica a { redis = \"127.0.0.1:1\" }\n",
            ":1: replica a: id = 0, allowed is 1 to 1000000");
    refused("replica a { id = 1 }\nreplicate_namespaces = { inbox }\n",
            ":1: replica a has no address");
    refused(GROUP "replica b { id = 2\n redis = \"here\" }\n",
            ":5: replica b: redis = here is no address");
    refused(GROUP "replica b { id = 1\n redis = \"127.0.0.1:2\" }\n",
            ":5: replicas a and b have the same id = 1");
    refused(GROUP "replica b { id = 2\n redis = \"127.0.0.1:1\" }\n",
            ":5: replicas a and b have the same redis");
    refused(GROUP "replica \"B b\" { id = 2\n redis = \"127.0.0.1:2\" }\n",
            ":5: replica \"B b\": a replica's name");
    refused(GROUP "replica a { id = 2\n redis = \"127.0.0.1:2\" }\n", ":4: ");
    refused(GROUP "replica b { id = one }\n", ":4: ");
    refused(GROUP "replica b { id = 2\n redis = \"127.0.0.1:2\"\n role = spare }\n",
            ":6: replica b: role = spare is no role: full, on-demand (of large mails");
    refused("replica a { id = 1\n redis = \"127.0.0.1:1\"\n role = on-demand }\n"
            "replica b { id = 2\n redis = \"127.0.0.1:2\"\n role = backup }\n"
            "replicate_namespaces = { inbox }\n",
            "replica a: role = on-demand, and no replica has role = full");
    refused("replicate_namespaces = { inbox }\nreplica a { id = 1\n redis = \"127.0.0.1:1\"\n role "
            "= backup }\n",
            "replica a: role = backup, and no replica is left for clients");
    refused(GROUP "keep_expunged = 30\n", "keep_expunged");
    refused(GROUP "dirty_dir = x\n", "absolute path");
    refused("resend_after = 10min\n", "more than resend_most");
}
END_TEST

#define NODE "node mx1 { redis = \"127.0.0.1:7001\" }\n"

/* Every condition of docs/takeover/times.md, "Times", at the largest that the times may become. */
static void keeps_the_conditions(void)
{
    double suspect = config_far_time(c, FAR_SUSPECT_AFTER).most,
           store = config_far_time(c, FAR_STORE_DEADLINE).most;
    size_t sizes[] = {0, 10000, 1 << 20, (size_t)c->max_entry, (size_t)c->max_entry * 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        double promise = (double)config_promise(c, sizes[i]) / 1000.;
        ck_assert_double_le(promise, (double)(c->settle - 500) / 1000.);
        ck_assert_double_le(config_acked(c, sizes[i], store), promise);
        ck_assert_double_ge(config_acked(c, sizes[i], store),
                            config_acked(c, sizes[i], (double)c->store_deadline / 1000.));
        ck_assert_double_le(suspect + promise + (double)c->beat / 1000.,
                            (double)c->dead_after / 1000. + 1e-9);
    }
    ck_assert_double_le(config_far_time(c, FAR_PATH_TIMEOUT).most, store);
}

START_TEST(test_times_of_far_nodes_keep_the_conditions_of_takeover)
{
    static const char *const texts[] = {
        NODE "copies = 1\n",
        NODE "copies = 1\nsettle = 60s\n",
        NODE "copies = 1\ndead_after = 7s\n",
        NODE "copies = 1\nsettle = 2s\nmax_entry = 1kB\n",
        NODE "copies = 1\nmax_entry = 1kB\ndead_after = 5500ms\n",
        NODE "copies = 1\nsettle = 20s\nmax_entry = 100MB\ndead_after = 60s\nbeat = 1s\n",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        read_text(texts[i]);
        ck_assert_msg(c != NULL, "%s", error);
        keeps_the_conditions();
        config_free(c);
    }
}
END_TEST

START_TEST(test_a_time_that_the_file_names_does_not_follow)
{
    read_text(NODE "copies = 1\npath_timeout = 400ms\nsuspect_after = 2s\n");
    ck_assert_msg(c != NULL, "%s", error);
    struct far_time path = config_far_time(c, FAR_PATH_TIMEOUT),
                    suspect = config_far_time(c, FAR_SUSPECT_AFTER),
                    store = config_far_time(c, FAR_STORE_DEADLINE);
    ck_assert(c->says.path_timeout && c->says.suspect_after && !c->says.store_deadline);
    ck_assert_double_eq(far_time_at(&path, 10.), .4);
    ck_assert_double_eq(far_time_at(&suspect, 10.), 2.);
    ck_assert_double_eq(far_time_at(&store, 10.), 2.5);
    config_free(c);
}
END_TEST

TCase *config_tests(void)
{
    TCase *t = tcase_create("config");
    tcase_add_test(t, test_defaults_come_from_the_table);
    tcase_add_test(t, test_times_of_far_nodes_keep_the_conditions_of_takeover);
    tcase_add_test(t, test_a_time_that_the_file_names_does_not_follow);
    tcase_add_test(t, test_units_are_understood);
    tcase_add_test(t, test_classes_have_choices);
    tcase_add_loop_test(t, test_errors_name_the_thing_the_value_and_the_way_out, 0,
                        sizeof bad / sizeof *bad);
    tcase_add_test(t, test_what_is_in_two_sections_or_is_added_to_does_not_stand_twice);
    tcase_add_test(t, test_a_file_with_a_nul_byte_is_no_config);
    tcase_add_test(t, test_a_directory_is_no_config);
    tcase_add_test(t, test_a_missing_file_is_named);
    tcase_add_test(t, test_addresses);
    tcase_add_test(t, test_a_next_hop_has_its_section_or_the_common_one);
    tcase_add_test(t, test_replicas_are_read);
    tcase_add_test(t, test_replicas_must_be_told_apart);
    return t;
}
