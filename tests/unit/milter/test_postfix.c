/* What Postfix's tables and settings say, by the real postmap and postconf over files made here. */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/config/config.h"
#include "lib/postfix/maps.h"
#include "lib/base/mem.h"
#include "lib/postfix/postconf.h"
#include "lib/postfix/postfix.h"
#include "lib/postfix/sockets.h"
#include "lib/postfix/tables.h"

static char dir[] = "/tmp/dovelane-postfix-XXXXXX";

static char *file(const char *name, const char *text)
{
    char *path = mem_printf("%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    if (!f)
        abort();
    fputs(text, f);
    fclose(f);
    return path;
}

static bool says(const char *table, const char *what)
{
    char *found = table_effect(dir, table, TABLE_ACCESS, NULL, NULL);
    bool as_expected = what ? found && strstr(found, what) : !found;
    if (!as_expected)
        fprintf(stderr, "%s: %s, expected %s\n", table, found ? found : "nothing",
                what ? what : "nothing");
    free(found);
    return as_expected;
}

START_TEST(test_results_in_text_tables)
{
    char *patterns = file("patterns", "# HOLD in a comment\n/a\\/b HOLD/  DUNNO\nif "
                                      "/x/\n/^Subject: (.*)/i\n   PREPEND X: hold\nendif\n");
    char *late = file("late", "/^a/ OK\n!/x/  hold for a look\n");
    char *nets = file("nets", "10.0.0.0/8 OK\n192.0.2.0/24\n    FILTER smtp:[127.0.0.1]:10025\n");
    char *keys = file("keys", "a@b  OK\nhold@x  DUNNO\n");
    char *copy = file("copy", "a@b  OK\nc@d BCC archive@x\n");
    char *t[8] = {mem_printf("regexp:%s", patterns),
                  mem_printf("pcre:%s", late),
                  mem_printf("cidr:%s", nets),
                  mem_printf("texthash:%s", keys),
                  mem_printf("texthash:%s", copy),
                  mem_printf("hash:%s", copy),
                  mem_printf("proxy:unionmap:{texthash:%s, texthash:%s}", keys, copy),
                  mem_printf("proxy:unionmap:{texthash:%s, static:OK}", keys)};
    ck_assert(says(t[0], NULL));
    ck_assert(says(t[1], "line 2: hold"));
    ck_assert(says(t[2], "line 2: FILTER"));
    ck_assert(says(t[3], NULL));
    ck_assert(says(t[4], "BCC archive@x"));
    ck_assert(says(t[5], "BCC")); /* not indexed yet: its source is read */
    ck_assert(says(t[6], "BCC"));
    ck_assert(says(t[7], NULL));
    ck_assert(says("inline:{ {a = OK}, {b = REDIRECT x@y} }", "REDIRECT"));
    ck_assert(says("regexp:{ {/a/ OK}, {/b{2}/ FILTER x:y} }", "FILTER"));
    ck_assert(says("static:{HOLD it}", "HOLD"));
    ck_assert(says("mysql:/etc/postfix/x.cf", "cannot be looked into"));
    ck_assert(says("regexp:/nonexistent", "cannot be read"));
    ck_assert(says("hash:/nonexistent", "cannot be looked into"));
    for (size_t i = 0; i < 8; i++)
        free(t[i]);
    free(patterns), free(late), free(nets), free(keys), free(copy);
}
END_TEST

START_TEST(test_results_behind_patterns_as_postfix_lets_one_write_them)
{
    ck_assert(says("pcre:{{! /ok/ HOLD}}", "HOLD"));
    ck_assert(says("regexp:{{!! /o k/ FILTER x:y}}", "FILTER"));
    ck_assert(says("regexp:{{/a/!/b c/ HOLD}}", "HOLD"));
    ck_assert(says("regexp:{{/a/!/b HOLD/ OK}}", NULL));
    ck_assert(says("cidr:{{! 10.0.0.0/8 HOLD}}", "HOLD"));
    ck_assert(says("pcre:{{if/HOLD x/} {/a/ OK} {endif}}", NULL));
}
END_TEST

START_TEST(test_a_table_that_says_too_much)
{
    struct buf text = {0};
    for (unsigned i = 0; i < 20000; i++) /* few lines, for postmap's sake */
        buf_printf(&text, "user%06u%0900u@example.org OK\n", i, i);
    char *path = file("large", text.data), *table = mem_printf("texthash:%s", path);
    ck_assert(says(table, "too much"));
    free(path), free(table);
    buf_free(&text);
}
END_TEST

static bool kind_says(enum table_kind kind, const char *table, const char *what)
{
    char *found = table_effect(dir, table, kind, NULL, NULL);
    bool as_expected = what ? found && strstr(found, what) : !found;
    if (!as_expected)
        fprintf(stderr, "%s: %s\n", table, found ? found : "nothing");
    free(found);
    return as_expected;
}

START_TEST(test_a_rule_that_may_be_about_our_received_line)
{
    char *rules = file("rules", "if /^Received:/\n/from unknown/ REPLACE X: y\nendif\n"),
         *table = mem_printf("regexp:%s", rules);
    ck_assert(kind_says(TABLE_HEADER_CHECKS, "regexp:{{/^received:.*ESMTPSA/ IGNORE}}", "IGNORE"));
    ck_assert(kind_says(TABLE_HEADER_CHECKS, "pcre:{{/^(X-A|Received):/ STRIP}}", "STRIP"));
    ck_assert(kind_says(TABLE_HEADER_CHECKS, "regexp:{{/^R.*by mail/ REPLACE X: y}}", "REPLACE"));
    ck_assert(kind_says(TABLE_HEADER_CHECKS, "regexp:{{/^Received:/ PREPEND X: y}}", NULL));
    ck_assert(kind_says(TABLE_HEADER_CHECKS, "regexp:{{/^Received:/ REJECT}}", NULL));
    ck_assert(kind_says(TABLE_HEADER_CHECKS, "regexp:{{/^User-Agent:/ IGNORE}}", NULL));
    ck_assert(kind_says(TABLE_ACCESS, "regexp:{{/^Received:/ IGNORE}}", NULL));
    ck_assert(kind_says(TABLE_MILTER_CHECKS, "regexp:{{/^Received:/ IGNORE}}", NULL));
    ck_assert(kind_says(TABLE_HEADER_CHECKS, table, "line 2: REPLACE"));
    free(rules), free(table);
    rules = file("tight", "if!/^X-/\nif/^Received:/\n/nobody@any/ REPLACE X: y\nendif\nendif\n");
    table = mem_printf("regexp:%s", rules);
    ck_assert(kind_says(TABLE_HEADER_CHECKS, table, "line 3: REPLACE"));
    free(rules), free(table);
}
END_TEST

START_TEST(test_what_milter_header_checks_do_behind_our_turn)
{
    ck_assert(kind_says(TABLE_MILTER_CHECKS, "regexp:{{/^X-Spam/ DISCARD}}", "DISCARD"));
    ck_assert(kind_says(TABLE_MILTER_CHECKS, "regexp:{{/^X-Spam/ REDIRECT a@b}}", "REDIRECT"));
    ck_assert(kind_says(TABLE_MILTER_CHECKS, "regexp:{{/^X-Spam/ REJECT}}", NULL));
    ck_assert(kind_says(TABLE_HEADER_CHECKS, "regexp:{{/^X-Spam/ DISCARD}}", NULL));
    ck_assert(kind_says(TABLE_ACCESS, "randmap:{OK, HOLD}", "HOLD"));
    ck_assert(kind_says(TABLE_ACCESS, "randmap:{OK, DUNNO}", NULL));
}
END_TEST

START_TEST(test_restrictions)
{
    char *found =
        restrictions_effect(dir,
                            "permit_mynetworks, check_sender_access { inline:{ {a = OK} }, "
                            "search_order=sender }, reject_unauth_destination",
                            NULL, NULL);
    /* a table in braces with blanks: not understood counts as found */
    ck_assert_ptr_nonnull(found);
    free(found);
    found = restrictions_effect(dir,
                                "permit_mynetworks check_client_access static:OK, "
                                "check_policy_service unix:private/policy, reject",
                                NULL, NULL);
    ck_assert_ptr_null(found);
    found =
        restrictions_effect(dir, "check_client_access {static:HOLD, search_order = x}", NULL, NULL);
    ck_assert_ptr_nonnull(found);
    free(found);
    found = restrictions_effect(
        dir, "check_client_access inline:{ {a = check_sender_access static:HOLD} }", NULL, NULL);
    ck_assert_ptr_nonnull(found);
    free(found);
    found = restrictions_effect(dir, "permit_mynetworks, regexp:{{/x/ HOLD}}, reject", NULL, NULL);
    ck_assert_ptr_nonnull(found); /* the old form */
    free(found);
    found =
        restrictions_effect(dir, "static:OK check_policy_service inet:127.0.0.1:10023", NULL, NULL);
    ck_assert_ptr_null(found);
    /* a table whose results name themselves ends, too */
    char *loop = file("loop", "a check_client_access texthash:PLACEHOLDER\n"),
         *text = mem_printf("a check_client_access texthash:%s\n", loop);
    free(file("loop", text));
    char *list = mem_printf("check_client_access texthash:%s", loop);
    found = restrictions_effect(dir, list, NULL, NULL);
    ck_assert_ptr_null(found);
    free(loop), free(text), free(list);
}
END_TEST

START_TEST(test_maps)
{
    char detail[300];
    struct maps *m = maps_new(dir, "+");
    ck_assert(!maps_change(m, MAPS_RECIPIENT, "a@b", maps_patience(), detail, sizeof detail));
    maps_add(m, MAPS_RECIPIENT, "virtual_alias_maps",
             "inline:{ {a@b = c@d}, {@e = f@g}, {user = x@y} }");
    ck_assert(maps_change(m, MAPS_RECIPIENT, "a@b", maps_patience(), detail, sizeof detail));
    ck_assert_ptr_nonnull(strstr(detail, "virtual_alias_maps"));
    ck_assert(maps_change(m, MAPS_RECIPIENT, "A+ext@B", maps_patience(), detail, sizeof detail));
    ck_assert(maps_change(m, MAPS_RECIPIENT, "any@e", maps_patience(), detail, sizeof detail));
    ck_assert(
        maps_change(m, MAPS_RECIPIENT, "user+x@anywhere", maps_patience(), detail, sizeof detail));
    for (unsigned i = 0; i < 3; i++)
        ck_assert(
            !maps_change(m, MAPS_RECIPIENT, "other@b", maps_patience(), detail, sizeof detail));
    ck_assert(!maps_change(m, MAPS_SENDER, "a@b", maps_patience(), detail, sizeof detail));
    ck_assert(!maps_change(m, MAPS_RECIPIENT, "", maps_patience(), detail, sizeof detail));
    ck_assert(maps_change(m, MAPS_RECIPIENT, "\"a b\"@b", maps_patience(), detail, sizeof detail));
    maps_add(m, MAPS_SENDER, "sender_canonical_maps", "hash:/nonexistent");
    ck_assert(maps_change(m, MAPS_SENDER, "a@b", maps_patience(), detail, sizeof detail));
    ck_assert_ptr_nonnull(strstr(detail, "error"));
    ck_assert(!maps_change(m, MAPS_RECIPIENT, "slow@b", maps_patience(), detail, sizeof detail));
    ck_assert(!maps_change(m, MAPS_RECIPIENT, "slow@b", 0, detail, sizeof detail)); /* kept */
    /* no time left to ask: Postfix's */
    ck_assert(maps_change(m, MAPS_RECIPIENT, "slower@b", 0, detail, sizeof detail));
    ck_assert_ptr_nonnull(strstr(detail, "slow"));
    ck_assert(!maps_change(m, MAPS_RECIPIENT, "slower@b", maps_patience(), detail, sizeof detail));
    maps_free(m);
    m = maps_new(dir, "");
    maps_add(m, MAPS_RECIPIENT, "virtual_alias_maps", "proxy:inline:{ {a@b = c@d} }");
    ck_assert(maps_change(m, MAPS_RECIPIENT, "a@b", maps_patience(), detail, sizeof detail));
    ck_assert_ptr_null(strstr(detail, "error"));
    ck_assert(!maps_change(m, MAPS_RECIPIENT, "other@b", maps_patience(), detail, sizeof detail));
    maps_free(m);
}
END_TEST

START_TEST(test_settings_of_a_service)
{
    free(file("main.cf", "compatibility_level = 3.6\nalways_bcc = a@b\nmynetworks = "
                         "127.0.0.0/8\nsmtpd_client_restrictions = $x\nx = permit\n"));
    free(file("master.cf",
              "smtp inet n - n - - smtpd\n  -o smtpd_milters=unix:dovelane/milter.sock\n  -o { "
              "content_filter = a:b c }\n"
              "2525 inet n - n - - smtpd\ncleanup unix n - n - 0 cleanup\n  -o always_bcc=\n"));
    char *error = NULL;
    struct postconf *p = postconf_read(dir, &error);
    ck_assert_msg(p != NULL, "%s", error);
    ck_assert_str_eq(postconf_directory(p), dir);
    ck_assert_str_eq(postconf_service(p, 0)->key, "smtp/inet");
    ck_assert_str_eq(postconf_service(p, 0)->command, "smtpd");
    ck_assert(postconf_service(p, 0)->inet && !postconf_service(p, 2)->inet);
    ck_assert_str_eq(postconf_service(p, 2)->command, "cleanup");
    ck_assert_ptr_null(postconf_service(p, 3));
    ck_assert_ptr_eq(postconf_listener(p, "127.0.0.1:2525"), postconf_service(p, 1));
    ck_assert_ptr_null(postconf_listener(p, "127.0.0.1:26"));
    ck_assert_str_eq(postconf_get(p, "smtp/inet", "content_filter"), "a:b c");
    ck_assert_str_eq(postconf_get(p, "2525/inet", "content_filter"), "");
    ck_assert_str_eq(postconf_get(p, "cleanup/unix", "always_bcc"), "");
    ck_assert_str_eq(postconf_get(p, NULL, "always_bcc"), "a@b");
    ck_assert_str_eq(postconf_get(p, "smtp/inet", "smtpd_client_restrictions"), "permit");
    postconf_free(p);
    ck_assert_ptr_null(postconf_read("/nonexistent", &error));
    ck_assert_ptr_nonnull(strstr(error, "/nonexistent"));
    free(error);
}
END_TEST

START_TEST(test_an_option_of_a_service_counts_where_another_parameter_names_it)
{
    free(file("main.cf", "compatibility_level = 3.6\nmyhostname = mx.example.org\n"
                         "content_filter = ${scan?{scan:$scan}}\n"
                         "smtpd_client_restrictions = $mine\nmine = permit\n"));
    free(file("master.cf", "smtp inet n - n - - smtpd\n"
                           "2525 inet n - n - - smtpd\n  -o scan=[10.0.0.9]:25\n"
                           "  -o { mine = $other }\n  -o other=reject\n"
                           "smtp unix - - n - - smtp\n"
                           "out unix - - n - - smtp -o myhostname=out.example.org -o "
                           "fallback_relay=[10.0.0.8] -o smtp_tls_security_level=may\n"));
    char *error = NULL;
    struct postconf *p = postconf_read(dir, &error);
    ck_assert_msg(p != NULL, "%s", error);
    ck_assert_str_eq(postconf_get(p, "smtp/inet", "content_filter"), "");
    ck_assert_str_eq(postconf_get(p, "2525/inet", "content_filter"), "scan:[10.0.0.9]:25");
    ck_assert_str_eq(postconf_get(p, "2525/inet", "smtpd_client_restrictions"), "reject");
    ck_assert_str_eq(postconf_get(p, "smtp/unix", "smtp_helo_name"), "mx.example.org");
    ck_assert_str_eq(postconf_get(p, "out/unix", "smtp_helo_name"), "out.example.org");
    ck_assert_str_eq(postconf_get(p, "out/unix", "smtp_fallback_relay"), "[10.0.0.8]");
    ck_assert_str_eq(postconf_get(p, "out/unix", "smtp_tls_security_level"), "may");
    ck_assert_str_eq(postconf_get(p, NULL, "smtp_helo_name"), "mx.example.org");
    postconf_free(p);
}
END_TEST

static bool misread(const char *options)
{
    char *error = NULL, *master = mem_printf("smtp unix - - n - - smtp %s\n", options);
    free(file("main.cf", "compatibility_level = 3.6\n"));
    free(file("master.cf", master));
    struct postconf *p = postconf_read(dir, &error);
    ck_assert_msg(p != NULL, "%s", error);
    bool is = postconf_service(p, 0)->misread;
    postconf_free(p);
    free(master);
    return is;
}

START_TEST(test_an_option_in_one_word_that_postconf_reads_otherwise)
{
    ck_assert(misread("-osoft_bounce=yes"));
    ck_assert(misread("-osmtp_fallback_relay=[mx.foo] -o a=b"));
    ck_assert(misread("-osmtp_x=hello"));
    ck_assert(!misread("-v -osmtp_header_checks=regexp:/x")); /* no o in it */
    ck_assert(!misread("-o soft_bounce=yes -v -o { smtp_helo_name = a b } flags=DRX"));
    ck_assert(!misread("-vo smtp_helo_name=a.b"));
    ck_assert(!misread(""));
}
END_TEST

static const char *listener(const struct postconf *p, const char *address)
{
    const struct postconf_service *s = postconf_listener(p, address);
    return s ? s->name : "";
}

START_TEST(test_a_port_has_its_service_by_number_and_by_name)
{
    free(file("main.cf", "compatibility_level = 3.6\n"));
    free(file("master.cf",
              "127.0.0.2:25 inet n - n - - smtpd\nsmtp inet n - n - - smtpd\n[::1]:10627 inet n - "
              "n - - smtpd\n127.0.0.1:10627 inet n - n - - smtpd\n"));
    char *error = NULL;
    struct postconf *p = postconf_read(dir, &error);
    ck_assert_msg(p != NULL, "%s", error);
    ck_assert_str_eq(listener(p, "127.0.0.1:25"), "smtp");
    ck_assert_str_eq(listener(p, "127.0.0.2:smtp"), "127.0.0.2:25");
    ck_assert_str_eq(listener(p, "[::1]:10627"), "[::1]:10627");
    ck_assert_str_eq(listener(p, "127.0.0.1:10627"), "127.0.0.1:10627");
    ck_assert_str_eq(listener(p, "localhost:10627"), "[::1]:10627"); /* one of that port */
    ck_assert_str_eq(listener(p, "127.0.0.1:26"), "");
    postconf_free(p);
}
END_TEST

static char *wrong_with(const char *interfaces, const char *reinject, const char *bounce)
{
    char *main = mem_printf("compatibility_level = 3.6\ninet_interfaces = %s\n", interfaces);
    free(file("main.cf", main));
    free(file("master.cf", "smtp inet n - y - - smtpd\n -o { smtpd_milters = { "
                           "unix:dovelane/milter.sock, default_action=accept } }\n"
                           "2525 inet n - n - - smtpd -o "
                           "smtpd_proxy_filter=unix:dovelane-proxy/proxy.sock\n127.0.0.1:10627 "
                           "inet n - n - - smtpd\n"));
    char *text =
             mem_printf("postfix_config = \"%s\"\nreinject_port = \"%s\"\nbounce_port = \"%s\"\n",
                        dir, reinject, bounce),
         *path = file("dovelane.conf", text), *error = NULL;
    struct config *c = config_read(path, &error);
    ck_assert_msg(c != NULL, "%s", error);
    char *wrong = postfix_ports_wrong(c);
    config_free(c);
    free(path);
    free(text);
    free(main);
    return wrong ? wrong : mem_strdup("");
}

static bool refuses(const char *interfaces, const char *reinject, const char *bounce,
                    const char *expected)
{
    char *wrong = wrong_with(interfaces, reinject, bounce);
    bool as_expected = *expected ? strstr(wrong, expected) != NULL : !*wrong;
    if (!as_expected)
        fprintf(stderr, "%s, %s, %s: said \"%s\", expected \"%s\"\n", interfaces, reinject, bounce,
                wrong, expected);
    free(wrong);
    return as_expected;
}

START_TEST(test_a_port_on_which_mail_is_diverted_is_none_for_what_comes_back)
{
    ck_assert(refuses(
        "all", "127.0.0.1:25", "",
        "reinject_port = 127.0.0.1:25 is a port on which mail is diverted (service smtp of "));
    ck_assert(refuses("all", "10.0.0.1:25", "", "127.0.0.1:10627"));
    ck_assert(refuses("loopback-only", "[::1]:25", "", "reinject_port = [::1]:25"));
    ck_assert(refuses(
        "all", "127.0.0.1:10627", "localhost:2525",
        "bounce_port = localhost:2525 is a port on which mail is diverted (service 2525 of "));
    ck_assert(refuses("all", "127.0.0.1:10627", "127.0.0.1:10626", ""));
    ck_assert(refuses("all", "unix:/x", "", ""));
    /* Another Postfix of this host, on an address of its own. */
    ck_assert(refuses("10.0.0.1", "127.0.0.1:25", "", ""));
}
END_TEST

/* What keeps all mail in Postfix, "" when nothing does. */
static char *forbidden_with(const char *master)
{
    free(file("main.cf", "compatibility_level = 3.6\n"));
    free(file("master.cf", master));
    char *text = mem_printf("postfix_config = \"%s\"\n"
                            "milter_socket = \"/var/spool/postfix/dovelane/milter.sock\"\n",
                            dir),
         *path = file("dovelane.conf", text), *error = NULL, detail[300] = "";
    struct config *c = config_read(path, &error);
    ck_assert_msg(c != NULL, "%s", error);
    postfix_look(c, POSTFIX_MILTER);
    postfix_forbids(detail, sizeof detail);
    free(path);
    free(text);
    static struct config *in_use; /* what was read refers to it */
    config_free(in_use);
    in_use = c;
    return mem_strdup(detail);
}

START_TEST(test_a_service_that_asks_our_milter_for_some_clients)
{
    char *found =
        forbidden_with("smtp inet n - n - - smtpd -o smtpd_milters=unix:dovelane/milter.sock\n"
                       "2525 inet n - n - - smtpd -o content_filter=a:b\n");
    ck_assert_str_eq(found, "");
    free(found);
    found = forbidden_with(
        "smtp inet n - n - - smtpd -o smtpd_milters=unix:dovelane/milter.sock\n"
        "2525 inet n - n - - smtpd -o smtpd_milter_maps=static:unix:dovelane/milter.sock"
        " -o content_filter=a:b\n");
    ck_assert_str_eq(found, "content_filter");
    free(found);
}
END_TEST

START_TEST(test_our_socket_by_any_way_that_leads_to_it)
{
    static const char *const ways[] = {
        "unix:dovelane/m.sock",
        "unix:/dovelane/m.sock", /* of a chroot */
        "unix:./dovelane/m.sock",
        "unix:dovelane//m.sock",
        "unix:other/../dovelane/m.sock",
        "UNIX:dovelane/m.sock",
        "inet:localhost:8891, { unix:dovelane/m.sock, default_action=accept }",
        "{unix:dovelane/m.sock}",
        "unix:%s/dovelane/m.sock",
        "unix:%s/./other/../dovelane//m.sock",
        "unix:%s/link/m.sock",
        "unix:link/m.sock",
        "unix:link.sock",
        "unix:/queue/of/another/container/dovelane/m.sock",
        "${ours}",
    };
    static const char *const others[] = {"",
                                         "inet:localhost:8891",
                                         "unix:m.sock",
                                         "unix:other/m.sock",
                                         "unix:xdovelane/m.sock",
                                         "unix:dovelane/m.sock.old",
                                         "inet:unix:8891"};
    char *socket = mem_printf("%s/dovelane/m.sock", dir),
         *text = mem_printf("compatibility_level = 3.6\nqueue_directory = %s\n"
                            "ours = unix:dovelane/m.sock\nsmtpd_milters = ${ours}\n",
                            dir),
         *made[] = {mem_printf("%s/dovelane", dir), mem_printf("%s/other", dir),
                    mem_printf("%s/link", dir), mem_printf("%s/link.sock", dir)},
         *error = NULL;
    free(file("main.cf", text));
    free(file("master.cf", "smtp inet n - n - - smtpd\n"));
    ck_assert(!mkdir(made[0], 0700) && !mkdir(made[1], 0700) && !symlink("dovelane", made[2]) &&
              !symlink("dovelane/m.sock", made[3]));
    free(file("dovelane/m.sock", ""));
    struct postconf *p = postconf_read(dir, &error);
    const struct postconf_service *s = postconf_service(p, 0);
    ck_assert_msg(p != NULL, "%s", error);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char list[600];
        snprintf(list, sizeof list, ways[i], dir);
        if (!strcmp(ways[i], "${ours}"))
            snprintf(list, sizeof list, "%s", postconf_get(p, s->key, "smtpd_milters"));
        ck_assert_msg(sockets_named(p, s, list, socket), "%s", list);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        ck_assert_msg(!sockets_named(p, s, others[i], socket), "%s", others[i]);
    postconf_free(p);
    unlink(socket);
    for (size_t i = 0; i < 4; i++) {
        remove(made[3 - i]);
        free(made[3 - i]);
    }
    free(socket);
    free(text);
}
END_TEST

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    if (!mkdtemp(dir))
        return 1;
    free(file("main.cf", "compatibility_level = 3.6\n"));
    Suite *s = suite_create("milter");
    TCase *c = tcase_create("postfix");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, test_results_in_text_tables);
    tcase_add_test(c, test_results_behind_patterns_as_postfix_lets_one_write_them);
    tcase_add_test(c, test_a_table_that_says_too_much);
    tcase_add_test(c, test_a_rule_that_may_be_about_our_received_line);
    tcase_add_test(c, test_what_milter_header_checks_do_behind_our_turn);
    tcase_add_test(c, test_restrictions);
    tcase_add_test(c, test_maps);
    tcase_add_test(c, test_settings_of_a_service);
    tcase_add_test(c, test_an_option_of_a_service_counts_where_another_parameter_names_it);
    tcase_add_test(c, test_an_option_in_one_word_that_postconf_reads_otherwise);
    tcase_add_test(c, test_a_port_has_its_service_by_number_and_by_name);
    tcase_add_test(c, test_a_port_on_which_mail_is_diverted_is_none_for_what_comes_back);
    tcase_add_test(c, test_a_service_that_asks_our_milter_for_some_clients);
    tcase_add_test(c, test_our_socket_by_any_way_that_leads_to_it);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    char *remove = mem_printf("rm -rf %s", dir);
    if (system(remove))
        failed++;
    free(remove);
    return failed ? 1 : 0;
}
