#include <stdlib.h>

#include "lib/base/mem.h"
#include "lib/config/nexthop.h"
#include "tests/unit/lib/tests.h"

static void expect(const char *destination, bool lmtp, const char *host, const char *port)
{
    struct nexthop hop;
    ck_assert_msg(nexthop_parse(destination, &hop), "%s", destination);
    ck_assert_int_eq(hop.lmtp, lmtp);
    ck_assert_str_eq(hop.host, host);
    ck_assert_pstr_eq(hop.port, port);
    nexthop_free(&hop);
}

START_TEST(test_what_postfix_writes)
{
    expect("smtp:[10.0.0.5]:2525", false, "10.0.0.5", "2525");
    expect("smtp:[10.0.0.5]", false, "10.0.0.5", "25");
    expect("relay:[mail.example]", false, "mail.example", "25");
    expect("lmtp:[::1]", true, "::1", "24");
    expect("lmtp:[ipv6:fe80::1]:24", true, "fe80::1", "24");
    expect("lmtp:inet:[10.0.0.5]:24", true, "10.0.0.5", "24");
    expect("lmtp:unix:/run/dovecot/lmtp", true, "/run/dovecot/lmtp", NULL);
    expect("lmtp:unix:private/dovecot-lmtp", true, "private/dovecot-lmtp", NULL);
    /* LMTP looks up no MX: it needs no brackets. */
    expect("lmtp:mail.example", true, "mail.example", "24");
    expect("lmtp:mail.example:2424", true, "mail.example", "2424");
    expect("lmtp:inet:mail.example:24", true, "mail.example", "24");
    expect("lmtp:inet:10.0.0.5", true, "10.0.0.5", "24");
    expect("smtp:inet:[10.0.0.5]:25", false, "10.0.0.5", "25");
    expect("smtp:[mail.example]:submission", false, "mail.example", "587");
    expect("smtp:[mail.example]:SMTPS", false, "mail.example", "465");
    expect("lmtp:mail.example:lmtp", true, "mail.example", "24");
    expect("lmtp:xn--bcher-kva.example", true, "xn--bcher-kva.example", "24");
    expect("smtp:[mail.example]:domain", false, "mail.example", "53"); /* of /etc/services */
}
END_TEST

START_TEST(test_what_we_do_not_deliver_to)
{
    const char *const no[] = {"",
                              "smtp",
                              "smtp:",
                              "smtp:example.com",
                              "smtp:example.com:25",
                              "local:[10.0.0.5]",
                              "smtp:[]:25",
                              "smtp:[a",
                              "smtp:[a]25",
                              "smtp:[a]:",
                              "smtp:[a]:0",
                              "smtp:[a]:65536",
                              "smtp:[a]:25x",
                              "smtp:inet:mail.example:25",
                              "smtp:[a]:no-such-port",
                              "smtp:[a]:25, b",
                              "smtp:,",
                              "smtp:[a] [b]x",
                              "lmtp:inet:a, inet:b",
                              "lmtp:inet:a, unix:/b",
                              "smtp:[a]:-1",
                              "lmtp:a:",
                              "lmtp::24",
                              "lmtp:inet:",
                              "lmtp:fe80::1",
                              "lmtp:unix:",
                              "smtp:[b\303\274cher.example]:25",
                              "lmtp:b\303\274cher.example",
                              "error:[a]:25"};
    struct nexthop hop;
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        ck_assert_msg(!nexthop_parse(no[i], &hop), "%s", no[i]);
}
END_TEST

START_TEST(test_a_list_has_at_most_so_many_hosts)
{
    struct nexthop hop;
    struct buf list = {0};
    buf_adds(&list, "smtp:");
    for (size_t i = 0; i < NEXTHOP_HOSTS_MAX; i++)
        buf_printf(&list, "%s[10.0.0.%zu]", i ? "," : "", i);
    ck_assert(nexthop_parse(list.data, &hop));
    nexthop_free(&hop);
    buf_adds(&list, ",[10.0.1.1]");
    ck_assert(!nexthop_parse(list.data, &hop));
    buf_free(&list);
}
END_TEST

static void expect_list(const char *destination, const char *spelled, const char *const *host)
{
    char *all = nexthop_spell(destination);
    ck_assert_str_eq(all, spelled);
    for (size_t i = 0; host[i]; i++) {
        char *each = nexthop_host(destination, i), *same = nexthop_host(all, i);
        ck_assert_pstr_eq(each, host[i]);
        ck_assert_pstr_eq(same, host[i]);
        free(each);
        free(same);
        ck_assert(host[i + 1] || !nexthop_host(destination, i + 1));
    }
    free(all);
}

START_TEST(test_lists_of_hosts)
{
    static const struct {
        const char *is, *spelled, *host[4];
    } list[] = {
        {"smtp:[a], [b]:587", "smtp:[a],[b]:587", {"smtp:[a]", "smtp:[b]:587"}},
        {"smtp:[a],[b]", "smtp:[a],[b]", {"smtp:[a]", "smtp:[b]"}},
        {"relay: [a] ,\t[b]\n[c],", "relay:[a],[b],[c]", {"relay:[a]", "relay:[b]", "relay:[c]"}},
        {"lmtp:inet:a, b:2424", "lmtp:inet:a,b:2424", {"lmtp:inet:a", "lmtp:b:2424"}},
        {"lmtp:a b", "lmtp:a,b", {"lmtp:a", "lmtp:b"}},
        {"smtp:[a],", "smtp:[a]", {"smtp:[a]"}},
        {"smtp:[a]", "smtp:[a]", {"smtp:[a]"}},
        {"lmtp:unix:/a, b", "lmtp:unix:/a, b", {"lmtp:unix:/a, b"}},
        {"error:5.1.1 no, thanks", "error:5.1.1 no, thanks", {"error:5.1.1 no, thanks"}},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        expect_list(list[i].is, list[i].spelled, list[i].host);
    expect("smtp:[a], [b]:587", false, "a", "25");
    expect("lmtp:inet:a, b:2424", true, "a", "24");
    expect("lmtp:unix:/a, b", true, "/a, b", NULL);
}
END_TEST

START_TEST(test_next_hops_that_dns_may_say_more_about)
{
    ck_assert(nexthop_by_name("lmtp:mail.example:24"));
    ck_assert(nexthop_by_name("lmtp:inet:mail.example"));
    ck_assert(nexthop_by_name("lmtp:[a],b"));
    ck_assert(!nexthop_by_name("lmtp:inet:[a],[b]:24"));
    ck_assert(!nexthop_by_name("smtp:[a]"));
    ck_assert(!nexthop_by_name("lmtp:unix:/a"));
}
END_TEST

START_TEST(test_an_address_of_the_config)
{
    struct nexthop hop;
    ck_assert(nexthop_from_address("127.0.0.1:10626", &hop));
    ck_assert_str_eq(hop.host, "127.0.0.1");
    ck_assert_str_eq(hop.port, "10626");
    nexthop_free(&hop);
    ck_assert(nexthop_from_address("unix:/run/bounce", &hop));
    ck_assert_ptr_null(hop.port);
    nexthop_free(&hop);
    ck_assert(!nexthop_from_address("nonsense", &hop));
}
END_TEST

TCase *nexthop_tests(void)
{
    TCase *t = tcase_create("nexthop");
    tcase_add_test(t, test_what_postfix_writes);
    tcase_add_test(t, test_what_we_do_not_deliver_to);
    tcase_add_test(t, test_lists_of_hosts);
    tcase_add_test(t, test_a_list_has_at_most_so_many_hosts);
    tcase_add_test(t, test_next_hops_that_dns_may_say_more_about);
    tcase_add_test(t, test_an_address_of_the_config);
    return t;
}
