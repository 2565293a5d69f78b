/* config, placement - where copies may be, by settings and by the labels of nodes; and the digest of
 * what must be equal on all hosts. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

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

static void digest_of(const char *text, char out[CONFIG_DIGEST])
{
    read_text(text);
    ck_assert_msg(c != NULL, "%s", error);
    config_digest(c, out);
    forget();
}

START_TEST(test_the_digest_tells_what_must_be_equal_on_all_hosts)
{
    static const char *const differs[] = {
        "copies = 1\n",
        "settle = 6s\n",
        "divert = {\"smtp:[h]:1\"}\n",
        "lane_time = 2h\n",
        "copies = 1\nnode a { redis = \"h:1\"\ntls = no }\n",
        "destination \"smtp:[h]:1\" { tls = may }\n",
        "destination \"smtp:[h]:1\" { tls = encrypt }\n",
        "destination \"smtp:[h]:2\" { tls = encrypt }\n",
        "destination \"*\" { discard_ehlo_keywords = {\"DSN\"} }\n",
        "spread_least = 2\n",
        "destination \"*\" { spread_least = 2 }\n",
        "node a { redis = \"h:1\"\ntls = no\nsite = fra }\nnode b { redis = \"h:2\"\ntls = no }\n",
        "node a { redis = \"h:1\"\ntls = no\nzone = fra }\nnode b { redis = \"h:2\"\ntls = no }\n"};
    char none[CONFIG_DIGEST], one[CONFIG_DIGEST], last[CONFIG_DIGEST];
    digest_of("", none);
    digest_of("log = \"syslog\"\nbounce_port = \"127.0.0.1:26\"\nhost_name = \"x\"\n", one);
    ck_assert_str_eq(none, one);
    memcpy(last, none, sizeof last);
    for (size_t i = 0; i < sizeof differs / sizeof *differs; i++) {
        digest_of(differs[i], one);
        ck_assert_str_ne(none, one);
        ck_assert_str_ne(last, one);
        memcpy(last, one, sizeof last);
    }
    /* Where one list ends and the next begins counts. */
    digest_of("divert = {\"smtp:[h]:1\", \"smtp:[h]:2\"}\n", one);
    digest_of("divert = {\"smtp:[h]:2\", \"smtp:[h]:1\"}\n", last);
    ck_assert_str_ne(one, last);
}
END_TEST

START_TEST(test_classes_are_in_the_digest)
{
    char none[CONFIG_DIGEST], one[CONFIG_DIGEST], other[CONFIG_DIGEST];
    digest_of("", none);
    digest_of("class a { match = {all} }\n", one);
    ck_assert_str_ne(none, one);
    digest_of("class a { match = {all} weight = 2 }\n", other);
    ck_assert_str_ne(one, other);
    digest_of("class a { match = {\"sasl_user *\"} }\n", other);
    ck_assert_str_ne(one, other);
    digest_of("class a { match = {all} weight = 1 }\n", other);
    ck_assert_str_eq(one, other);
}
END_TEST

START_TEST(test_copies_are_kept_apart_by_the_strictest_of_the_settings)
{
    read_text(LABELLED "node c { redis = \"127.0.0.1:3\"\nsite = fra\nzone = x }\n"
                       "node d { redis = \"127.0.0.1:4\"\nsite = ams\nzone = x }\n"
                       "spread_over = site\nspread_least = 2\nprefer = near\n"
                       "destination \"smtp:[h]:1\" { spread_over = node }\n"
                       "destination \"smtp:[h]:2\" { spread_least = 1\nprefer = listed }\n");
    ck_assert_msg(c != NULL, "%s", error);
    struct config_placement all = config_placement(c, config_destination(c, "smtp:[h]:0")),
                            node = config_placement(c, config_destination(c, "smtp:[h]:1")),
                            one = config_placement(c, config_destination(c, "smtp:[h]:2"));
    ck_assert_int_eq(all.over, SPREAD_OVER_SITE);
    ck_assert_uint_eq(all.least, 2);
    ck_assert(all.near && node.near && !one.near);
    ck_assert_int_eq(node.over, SPREAD_OVER_NODE);
    ck_assert_uint_eq(node.least, 2);
    ck_assert_uint_eq(one.least, 1);
    config_placement_meet(&node, &one);
    ck_assert(node.over == SPREAD_OVER_SITE && node.least == 1 && !node.near);
    config_placement_meet(&node, &all);
    ck_assert_uint_eq(node.least, 2);
    config_placement_meet(&node, &one);
    ck_assert_uint_eq(node.least, 2);
    /* One name of a zone in two sites is two zones; no zone is one, too. */
    size_t site[] = {0, 1, 0, 1}, zone[] = {0, 1, 2, 3};
    for (size_t i = 0; i < 4; i++) {
        ck_assert_uint_eq(config_domain(c, i, SPREAD_OVER_SITE), site[i]);
        ck_assert_uint_eq(config_domain(c, i, SPREAD_OVER_ZONE), zone[i]);
        ck_assert_uint_eq(config_domain(c, i, SPREAD_OVER_NODE), i);
    }
    char *name = config_domain_name(c, 3, SPREAD_OVER_ZONE);
    ck_assert_str_eq(name, "ams/x");
    free(name);
    forget();
}
END_TEST

START_TEST(test_nodes_are_near_a_next_hop_by_their_labels)
{
    char none[CONFIG_DIGEST], one[CONFIG_DIGEST];
    read_text(LABELLED "node c { redis = \"127.0.0.1:3\"\nsite = ams\nzone = x }\n"
                       "node d { redis = \"127.0.0.1:4\"\nzone = x }\n"
                       "destination \"smtp:[h]:1\" { site = ams\nzone = x }\n"
                       "destination \"smtp:[h]:2\" { site = ams }\n"
                       "destination \"smtp:[h]:3\" { zone = x }\n");
    ck_assert_msg(c != NULL, "%s", error);
    static const int apart[][4] = {{2, 2, 2, 2}, {2, 1, 0, 2}, {2, 1, 1, 2}, {2, 2, 2, 0}};
    struct config_placement p[4];
    for (size_t i = 0; i < 4; i++) {
        char name[] = {'s', 'm', 't', 'p', ':', '[', 'h', ']', ':', (char)('0' + i), '\0'};
        p[i] = config_placement(c, config_destination(c, name));
        for (size_t node = 0; node < 4; node++)
            ck_assert_int_eq(config_labels_apart(c, node, p[i].site, p[i].zone), apart[i][node]);
    }
    config_placement_meet(&p[1], &p[2]);
    ck_assert(!strcmp(p[1].site, "ams") && !*p[1].zone);
    config_placement_meet(&p[2], &p[3]);
    ck_assert(!*p[2].site && !*p[2].zone);
    forget();
    digest_of(LABELLED, none);
    digest_of(LABELLED "destination \"*\" { site = fra }\n", one);
    ck_assert_str_ne(none, one);
}
END_TEST

START_TEST(test_a_destination_until_replicated_knows_its_sites)
{
    struct nexthop hop;
    char none[CONFIG_DIGEST], same[CONFIG_DIGEST], other[CONFIG_DIGEST];
    read_text(TWO_SITES "destination \"lmtp:[h]:24, [i]:25\" { delivery_id = yes "
                        "until = replicated replicated_wait = 5min replicated_away = let_go }\n");
    ck_assert_msg(c != NULL, "%s", error);
    ck_assert(config_any_replicated(c));
    const struct config_destination *d = &c->destination[0];
    ck_assert_int_eq(d->until, UNTIL_REPLICATED);
    ck_assert_int_eq(d->sites, 2);
    ck_assert_int_eq(d->replicated_wait, 300000);
    ck_assert_int_eq(d->replicated_away, AWAY_LET_GO);
    ck_assert_int_eq(d->replicated_memory, 40);
    ck_assert(nexthop_parse("lmtp:[h]:24", &hop));
    ck_assert_int_eq(config_replica_at(c, &hop), 0);
    nexthop_free(&hop);
    ck_assert(nexthop_parse("lmtp:[i]:25", &hop));
    ck_assert_int_eq(config_replica_at(c, &hop), 1);
    nexthop_free(&hop);
    ck_assert(nexthop_parse("smtp:[h]:24", &hop));
    ck_assert_int_eq(config_replica_at(c, &hop), -1);
    nexthop_free(&hop);
    forget();
    digest_of("destination \"lmtp:[h]:24\" { }\n", none);
    digest_of("destination \"lmtp:[h]:24\" { until = delivered sites = 2 }\n", same);
    digest_of("destination \"lmtp:[h]:24\" { replicated_wait = 2min }\n", other);
    ck_assert_str_eq(none, same);
    ck_assert_str_ne(none, other);
}
END_TEST

TCase *config_placement_tests(void)
{
    TCase *t = tcase_create("config-placement");
    tcase_add_test(t, test_the_digest_tells_what_must_be_equal_on_all_hosts);
    tcase_add_test(t, test_classes_are_in_the_digest);
    tcase_add_test(t, test_copies_are_kept_apart_by_the_strictest_of_the_settings);
    tcase_add_test(t, test_nodes_are_near_a_next_hop_by_their_labels);
    tcase_add_test(t, test_a_destination_until_replicated_knows_its_sites);
    return t;
}
