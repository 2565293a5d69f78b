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
                              "smtp:[a]:25, [b]:25",
                              "smtp:[a]:-1",
                              "lmtp:a:",
                              "lmtp::24",
                              "lmtp:inet:",
                              "lmtp:a b",
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
    tcase_add_test(t, test_an_address_of_the_config);
    return t;
}
