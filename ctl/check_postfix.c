/* main.cf and master.cf: is the milter where it must be, and what would diverted mail miss. */
#include "ctl/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "lib/postfix/features.h"
#include "lib/base/mem.h"
#include "lib/config/nexthop.h"
#include "lib/postfix/agents.h"
#include "lib/postfix/postconf.h"
#include "lib/postfix/sockets.h"
#include "lib/redis/control_keys.h"
#include "lib/base/units.h"

#define MAPS_PATIENCE 5.  /* seconds that asking maps may take (lib/postfix/maps.h) */
#define CONTENT_LEAST 16. /* seconds: the milter's own patience is 10 (milter/session.c) */

struct look {
    struct ctl *ctl;
    struct postconf *conf;
    const struct postconf_service *service;
    char about[120];
};

/* ---- the list of milters ---- */

#define MILTERS_MOST 32

struct milters {
    char *word[MILTERS_MOST]; /* "{ unix:dovelane/milter.sock, default_action=accept }" */
    size_t n;
};

static bool add_milter(void *arg, const char *word)
{
    struct milters *m = arg;
    m->word[m->n++] = mem_strdup(word);
    return m->n < MILTERS_MOST;
}

/* "unix:dovelane/milter.sock" out of "{ unix:dovelane/milter.sock, default_action=accept }". */
static char *address_of(const char *word)
{
    word += strspn(word, "{ \t");
    return mem_strndup(word, strcspn(word, ", \t}"));
}

static bool is_ours(const struct look *l, const char *word)
{
    return sockets_named(l->conf, l->service, word, l->ctl->config->milter_socket);
}

/* An option in braces, or the parameter that stands for all milters; malloc'd. */
static char *option_of(const struct look *l, const char *word, const char *option,
                       const char *parameter)
{
    char *key = mem_printf("%s=", option);
    const char *at = *word == '{' ? strstr(word, key) : NULL;
    size_t n = strlen(key);
    free(key);
    return at ? mem_strndup(at + n, strcspn(at + n, ", \t}"))
              : mem_strdup(postconf_get(l->conf, l->service->key, parameter));
}

static void check_our_entry(struct look *l, const char *word)
{
    const struct config *c = l->ctl->config;
    char *action = option_of(l, word, "default_action", "milter_default_action"),
         *content = option_of(l, word, "content_timeout", "milter_content_timeout");
    const char *protocol = postconf_get(l->conf, l->service->key, "milter_protocol");
    char *address = address_of(word);
    double least = config_far_time(c, FAR_STORE_DEADLINE).most + (double)c->revoke_wait / 1000. +
                   MAPS_PATIENCE;
    if (least < CONTENT_LEAST)
        least = CONTENT_LEAST;
    if (l->service->chroot && address[5] == '/')
        check_say(l->ctl, FINDING_WARNING, FOUND_MILTER_PATH, l->about, "unix:dovelane/milter.sock",
                  "%s is an absolute path in a chroot: it is looked for below queue_directory",
                  address);
    if (c->on_store_failure == ON_STORE_FAILURE_QUEUE && strcmp(action, "accept"))
        check_say(
            l->ctl, FINDING_CRITICAL, FOUND_MILTER_ACTION, l->about,
            "{ unix:dovelane/milter.sock, default_action=accept, ... }",
            "default_action is %s: without the milter mail is refused%s instead of queued as ever",
            action, strcmp(action, "shutdown") ? "" : ", and the client hung up on,");
    else
        check_good(l->ctl, l->about, "default_action is %s", action);
    if (units_postfix_seconds(content) < least)
        check_say(l->ctl, FINDING_CRITICAL, FOUND_MILTER_TIMEOUT_SHORT, l->about,
                  "content_timeout=60s",
                  "content_timeout is %s: Postfix gives up while the milter still asks maps, "
                  "stores or takes copies back (it needs %.1f s)",
                  content, least);
    else if (units_postfix_seconds(content) > 120)
        check_say(l->ctl, FINDING_WARNING, FOUND_MILTER_TIMEOUT_LONG, l->about,
                  "content_timeout=60s",
                  "content_timeout is %s: a milter that hangs holds sessions for so long", content);
    if (*protocol && atoi(protocol) && atoi(protocol) < 6)
        check_say(l->ctl, FINDING_CRITICAL, FOUND_MILTER_PROTOCOL, l->about, "milter_protocol = 6",
                  "milter_protocol is %s", protocol);
    free(action);
    free(content);
    free(address);
}

/* Of most hosts most mail comes by TLS. */
static void check_tls_line(struct look *l)
{
    static const char name[] = "smtpd_tls_received_header";
    if (strcasecmp(postconf_get(l->conf, l->service->key, name), "yes"))
        return;
    if (config_list_has(&l->ctl->config->ignore, name))
        check_good(l->ctl, l->about, "%s = yes: diverted mail misses it, as `ignore` says it may",
                   name);
    else
        check_say(l->ctl, FINDING_WARNING, FOUND_TLS_LINE, l->about,
                  "ignore = { \"smtpd_tls_received_header\" } if diverted mail may miss that line",
                  "%s = yes: a mail that came by TLS stays in Postfix's queue, since a milter does "
                  "not get all that its Received line says",
                  name);
}

/* A service to which a content filter gives mail back often says no_milters. */
static void check_asked(struct look *l)
{
    if (strstr(postconf_get(l->conf, l->service->key, "receive_override_options"), "no_milters"))
        check_say(l->ctl, FINDING_WARNING, FOUND_MILTER_UNASKED, l->about,
                  "receive_override_options without no_milters",
                  "no_milters in receive_override_options: our milter is asked for no mail, and "
                  "nothing is diverted");
}

/* True when this service uses our milter. */
static bool check_milters(struct look *l)
{
    struct milters m = {0};
    postconf_words(postconf_get(l->conf, l->service->key, "smtpd_milters"), add_milter, &m);
    size_t n = m.n, at = n;
    for (size_t i = 0; i < n; i++)
        if (is_ours(l, m.word[i]))
            at = i;
    bool ours = at < n;
    if (ours) {
        if (at != n - 1)
            check_say(l->ctl, FINDING_CRITICAL, FOUND_MILTER_ORDER, l->about,
                      "put it last in smtpd_milters",
                      "our milter is not the last: what later ones would refuse or sign is stored "
                      "already");
        else
            check_good(l->ctl, l->about, "our milter is the last");
        check_our_entry(l, m.word[at]);
        check_asked(l);
        check_tls_line(l);
        for (size_t i = 0; i < at; i++) {
            char *address = address_of(m.word[i]);
            if (!strncmp(address, "inet:", 5))
                check_say(l->ctl, FINDING_WARNING, FOUND_MILTER_TCP, l->about,
                          "its UNIX socket, where it has one",
                          "%s is a milter over TCP: each mail may wait 43 ms for a delayed "
                          "acknowledgement",
                          address);
            free(address);
        }
    }
    for (size_t i = 0; i < n; i++)
        free(m.word[i]);
    return ours;
}

/* ---- what a diverted mail would miss ---- */

/* What an agent does as it delivers: of the next hops in divert that it delivers to. */
static void say_of_transport(struct look *l, const struct postfix_feature *b)
{
    const struct config *c = l->ctl->config;
    size_t n = strlen(b->transport);
    char mend[300];
    snprintf(mend, sizeof mend,
             "%s%s%s%signore = { \"%s\" } if diverted mail may miss it, or `divert` without that "
             "next hop",
             *b->unless ? "`" : "", b->unless,
             *b->unless ? "` in the destination's section, or " : "",
             strstr(b->parameter, "_fallback_relay")
                 ? "each host in brackets if it needs no MX record, or "
                 : "",
             b->parameter);
    for (size_t i = 0; i < c->divert.n; i++) {
        const char *to = c->divert.v[i];
        if (strncmp(to, b->transport, n) || to[n] != ':' || (b->by_name && !nexthop_by_name(to)) ||
            config_destination_says(config_destination(c, to), b->unless))
            continue;
        if (b->ignored)
            check_good(l->ctl, "master.cf",
                       "%s = %s: mail to %s misses it, as `ignore` says it may", b->parameter,
                       b->what, to);
        else
            check_say(l->ctl, FINDING_CRITICAL, FOUND_TRANSPORT_SETTING, "master.cf", mend,
                      "%s = %s of %s/unix: %s, so mail to %s is not diverted", b->parameter,
                      b->what, b->transport, b->why, to);
    }
}

static void say_feature(void *arg, const struct postfix_feature *b)
{
    struct look *l = arg;
    char mend[300];
    if (b->transport) {
        say_of_transport(l, b);
        return;
    }
    if (b->kind == FEATURE_FOR_SENDERS || b->kind == FEATURE_FOR_RECIPIENTS) {
        if (b->ignored)
            check_good(l->ctl, l->about,
                       "%s = %s: diverted mail misses it, as `ignore` says it may", b->parameter,
                       b->what);
        else if (*l->ctl->config->postfix_config)
            check_good(l->ctl, l->about,
                       "%s = %s: a mail that it would change stays in Postfix's queue",
                       b->parameter, b->what);
        else
            check_say(
                l->ctl, FINDING_WARNING, FOUND_MAPS_UNSEEN, l->about,
                "postfix_config = \"/etc/postfix\"",
                "%s = %s: postfix_config is empty, so nobody looks whether it would change a mail",
                b->parameter, b->what);
    } else if (b->ignored) {
        check_good(l->ctl, l->about, "%s = %s: diverted mail misses it, as `ignore` says it may",
                   b->parameter, b->what);
    } else if (b->kind == FEATURE_RESULT) {
        snprintf(
            mend, sizeof mend,
            "REJECT%s instead, or `dovelane hold --add` for a HOLD%s, or ignore = { \"%s\" } if "
            "diverted mail may miss it",
            strcmp(b->parameter, "milter_header_checks") ? " or DISCARD" : "",
            b->in_cleanup ? ", a cleanup_service_name of its own without that table" : "",
            b->parameter);
        check_say(l->ctl, FINDING_CRITICAL, FOUND_TABLE_RESULT, l->about, mend,
                  "%s: %s: diverted mail would escape it, so diverting is off", b->parameter,
                  b->what);
    } else if (b->in_cleanup) {
        snprintf(mend, sizeof mend,
                 "%s is cleanup(8)'s: -o cleanup_service_name=NAME for this service, and a service "
                 "NAME unix ... cleanup with -o %s=; "
                 "or ignore = { \"%s\" } if diverted mail may miss it",
                 b->parameter, b->parameter, b->parameter);
        check_say(l->ctl, FINDING_CRITICAL, FOUND_CLEANUP_SETTING, l->about, mend,
                  "%s = %s: diverted mail would miss it, so diverting is off", b->parameter,
                  b->what);
    } else if (!strcmp(l->about, "main.cf")) {
        snprintf(mend, sizeof mend,
                 "%s = in main.cf, or ignore = { \"%s\" } if diverted mail may miss it",
                 b->parameter, b->parameter);
        check_say(l->ctl, FINDING_CRITICAL, FOUND_MAIN_SETTING, l->about, mend,
                  "%s = %s: diverted mail would miss it, so diverting is off", b->parameter,
                  b->what);
    } else {
        bool filter =
            !strcmp(b->parameter, "content_filter") || !strcmp(b->parameter, "smtpd_proxy_filter");
        snprintf(mend, sizeof mend,
                 "-o %s= for this service%s, or ignore = { \"%s\" } if diverted mail may miss it",
                 b->parameter,
                 filter ? " if it needs no filter, or our milter on the smtpd that gets the "
                          "filter's mail back instead (docs/stacks.md)"
                        : "",
                 b->parameter);
        check_say(l->ctl, FINDING_CRITICAL, FOUND_SERVICE_SETTING, l->about, mend,
                  "%s = %s: diverted mail would miss it, so diverting is off", b->parameter,
                  b->what);
    }
}

static bool any_word(void *arg, const char *word)
{
    return true;
}

/* ---- ports of our own ---- */

/* What port 25 refused as a loop comes here to be bounced, or to be drained: it must not be
 * refused again. */
static void check_hops(struct look *l, const struct postconf_service *s, const char *about,
                       bool bounces)
{
    char *cleanup = mem_printf("%s/unix", postconf_get(l->conf, s->key, "cleanup_service_name")),
         mend[200];
    long usual = atol(postconf_get(l->conf, NULL, "hopcount_limit")),
         own = atol(postconf_get(l->conf, s->key, "hopcount_limit"));
    long in_cleanup = atol(postconf_get(l->conf, cleanup, "hopcount_limit"));
    snprintf(mend, sizeof mend,
             "-o hopcount_limit=1000 and -o cleanup_service_name=dovelane-%s, and that service "
             "with -o hopcount_limit=1000, as in examples/master.cf",
             bounces ? "bounce" : "reinject");
    if (own <= usual || in_cleanup <= usual)
        check_say(l->ctl, FINDING_WARNING, FOUND_HOPS, about, mend,
                  "its hopcount_limit is %ld, in its cleanup service %ld: a mail that went in "
                  "circles is refused here, too, and stays in its lane",
                  own, in_cleanup);
    free(cleanup);
}

/* Whether it is Postfix that answers there: by its banner, which the service has from
 * smtpd_banner. */
static void check_answer(struct look *l, const struct postconf_service *s, const char *about,
                         const char *address)
{
    const char *colon = strrchr(address, ':');
    char banner[600], *host = colon ? mem_strndup(address, (size_t)(colon - address)) : NULL;
    const char *expected = postconf_get(l->conf, s->key, "smtpd_banner"),
               *why = host ? check_greeting(host, colon + 1, banner, sizeof banner) : NULL;
    /* without its name, which another main.cf than the running one's may have */
    const char *words = expected + strcspn(expected, " ");
    if (why)
        check_say(l->ctl, FINDING_CRITICAL, FOUND_PORT_SILENT, about,
                  "systemctl start postfix; where it runs: postfix reload, when the lines of "
                  "master.cf are right",
                  "nothing answers there: %s", why);
    else if (host && (strncmp(banner, "220 ", 4) || !strstr(banner, words)))
        check_say(l->ctl, FINDING_CRITICAL, FOUND_PORT_STRANGER, about,
                  "another port, here and in master.cf; ss -lntp says what has that one",
                  "something else than this Postfix answers there: %.200s", banner);
    else
        check_good(l->ctl, about, "Postfix answers there");
    free(host);
}

static void check_port(struct look *l, const char *setting, const char *address, bool bounces)
{
    char about[120];
    const struct postconf_service *s =
        *address && strncmp(address, "unix:", 5) ? postconf_listener(l->conf, address) : NULL;
    if (!*address || !strncmp(address, "unix:", 5))
        return;
    snprintf(about, sizeof about, "%s %s", setting, address);
    if (!s) {
        check_say(l->ctl, FINDING_CRITICAL, FOUND_PORT_MISSING, about,
                  "the lines of the admin guide in master.cf",
                  "no service of master.cf listens there");
        return;
    }
    const char *milters = postconf_get(l->conf, s->key, "smtpd_milters"),
               *filter = postconf_get(l->conf, s->key, "content_filter");
    if (*milters)
        check_say(l->ctl, FINDING_CRITICAL, FOUND_PORT_MILTERS, about, "-o smtpd_milters=",
                  "it has milters (%s): what comes back would be diverted again, or filtered twice",
                  milters);
    bool error = !strncmp(filter, "error:", 6);
    if (bounces && !error)
        check_say(
            l->ctl, FINDING_CRITICAL, FOUND_PORT_DELIVERS, about,
            "-o { content_filter = error:5.0.0 delivery failed }",
            "its content_filter is \"%s\": what it gets would be delivered instead of bounced",
            filter);
    if (!bounces && !strstr(postconf_get(l->conf, s->key, "smtpd_helo_restrictions"), POISON_HELO))
        check_say(l->ctl, FINDING_WARNING, FOUND_PORT_POISON, about,
                  "-o { smtpd_helo_restrictions = check_helo_access inline:{{ " POISON_HELO
                  " = HOLD relays died with it in hand }} }",
                  "a mail that relays died of is delivered by Postfix instead of held for you to "
                  "look at");
    if (!bounces && error)
        check_say(l->ctl, FINDING_CRITICAL, FOUND_PORT_BOUNCES, about, "another port",
                  "its content_filter is \"%s\": what comes back would bounce", filter);
    check_hops(l, s, about, bounces);
    check_answer(l, s, about, address);
}

/* ---- our name ---- */

static void check_name(struct ctl *ctl, const char *directory)
{
    struct agents *name = agents_find(ctl->config->host_name, directory ? directory : "", false);
    if (agents_wrong(name))
        check_say(ctl, FINDING_WARNING, FOUND_OUR_NAME, "host_name",
                  "host_name = \"mx1.example.org\" in dovelane.conf, or myhostname in main.cf",
                  "%s", agents_wrong(name));
    else
        check_good(ctl, "host_name", "next hops are greeted as %s (by %s)",
                   agents_for(name, NULL)->name, agents_source(name));
    agents_free(name);
}

/* ---- all ---- */

static void check_main(struct look *l)
{
    const char *delay = postconf_get(l->conf, NULL, "in_flow_delay"),
               *ids = postconf_get(l->conf, NULL, "enable_long_queue_ids");
    const char *local = postconf_get(l->conf, NULL, "non_smtpd_milters");
    if (units_postfix_seconds(delay) > 0)
        check_say(l->ctl, FINDING_CRITICAL, FOUND_FLOW_DELAY, "main.cf", "in_flow_delay = 0",
                  "in_flow_delay is %s: 20 mails a second, since diverted mail never gives its "
                  "token back",
                  delay);
    else
        check_good(l->ctl, "main.cf", "in_flow_delay is 0");
    if (strcmp(ids, "yes"))
        check_say(l->ctl, FINDING_WARNING, FOUND_QUEUE_IDS, "main.cf",
                  "enable_long_queue_ids = yes",
                  "queue ids are short: they repeat within minutes when files vanish at once");
    if (strstr(local, "dovelane"))
        check_say(l->ctl, FINDING_WARNING, FOUND_LOCAL_MILTER, "main.cf",
                  "non_smtpd_milters =", "non_smtpd_milters has our milter: it is for smtpd alone");
}

/* A port of submission, by name or by number, with or without an address before it. */
static bool is_submission(const struct postconf_service *s)
{
    static const char *const ports[] = {"submission", "submissions", "smtps", "587", "465"};
    const char *colon = strrchr(s->name, ':'), *port = colon ? colon + 1 : s->name;
    for (size_t i = 0; i < sizeof ports / sizeof *ports; i++)
        if (!strcmp(port, ports[i]))
            return true;
    return false;
}

void check_postfix(struct ctl *ctl, const char *directory)
{
    struct look l = {.ctl = ctl};
    size_t users = 0;
    if (!directory && *ctl->config->postfix_config)
        directory = ctl->config->postfix_config;
    char *error;
    check_name(ctl, directory);
    l.conf = postconf_read(directory, &error);
    if (!l.conf) {
        check_say(ctl, FINDING_WARNING, FOUND_NO_POSTFIX, "postfix",
                  "install it, or say --postfix-config DIR with the directory of main.cf; without "
                  "Postfix here: `dovelane check config nodes`",
                  "postconf does not work here (%s)", error);
        free(error);
        return;
    }
    check_main(&l);
    for (size_t i = 0; (l.service = postconf_service(l.conf, i)); i++) {
        if (strcmp(l.service->command, "smtpd"))
            continue;
        snprintf(l.about, sizeof l.about, "service %.80s", l.service->name);
        if (!check_milters(&l))
            continue;
        users++;
        features_of_service(l.conf, l.service->key, &ctl->config->ignore, say_feature, any_word,
                            &l);
        if (is_submission(l.service))
            check_say(ctl, FINDING_WARNING, FOUND_OWN_USERS, l.about,
                      "-o smtpd_milters without ours",
                      "mail of your own users is diverted, too; their bounces and notices are then "
                      "the relay's matter");
    }
    const struct postconf_service *behind = check_proxy(ctl, l.conf, users > 0);
    if (behind) {
        users++;
        snprintf(l.about, sizeof l.about, "behind the proxy: service %.80s", behind->name);
        features_of_service(l.conf, behind->key, &ctl->config->ignore, say_feature, any_word, &l);
        features_behind_proxy(l.conf, behind->key, &ctl->config->ignore, say_feature, &l);
    }
    if (!users)
        check_say(ctl, FINDING_WARNING, FOUND_MILTER_UNUSED, "master.cf",
                  "-o { smtpd_milters = { unix:dovelane/milter.sock, default_action=accept, ... } "
                  "} for port 25",
                  "no smtpd uses the milter at %s: nothing is diverted (right until the guide's "
                  "step for Postfix)",
                  ctl->config->milter_socket);
    if (users) {
        snprintf(l.about, sizeof l.about, "main.cf");
        features_of_delivery(l.conf, &ctl->config->ignore, say_feature, &l);
        check_parameters(ctl, directory);
    }
    check_port(&l, "bounce_port", ctl->config->bounce_port, true);
    check_port(&l, "reinject_port", ctl->config->reinject_port, false);
    postconf_free(l.conf);
}
