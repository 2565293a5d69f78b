/* features - see features.h. */
#include "lib/postfix/features.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/postfix/tables.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static const char *const of_smtpd[] = {"content_filter", "smtpd_proxy_filter"};
static const char *const of_cleanup[] = {"always_bcc", "sender_bcc_maps", "masquerade_domains"};
static const char *const of_delivery[] = {"smtp_generic_maps",         "lmtp_generic_maps",
                                          "smtp_header_checks",        "smtp_mime_header_checks",
                                          "smtp_nested_header_checks", "smtp_body_checks",
                                          "lmtp_header_checks",        "lmtp_mime_header_checks",
                                          "lmtp_nested_header_checks", "lmtp_body_checks"};
static const char *const checks[] = {"header_checks", "mime_header_checks", "nested_header_checks",
                                     "body_checks"};
static const char *const restrictions[] = {
    "smtpd_client_restrictions",     "smtpd_helo_restrictions",      "smtpd_sender_restrictions",
    "smtpd_relay_restrictions",      "smtpd_recipient_restrictions", "smtpd_data_restrictions",
    "smtpd_end_of_data_restrictions"};
static const struct {
    enum feature_kind kind;
    const char *parameter;
} of_addresses[] = {{FEATURE_FOR_RECIPIENTS, "virtual_alias_maps"},
                    {FEATURE_FOR_RECIPIENTS, "recipient_canonical_maps"},
                    {FEATURE_FOR_RECIPIENTS, "canonical_maps"},
                    {FEATURE_FOR_RECIPIENTS, "recipient_bcc_maps"},
                    {FEATURE_FOR_SENDERS, "sender_canonical_maps"},
                    {FEATURE_FOR_SENDERS, "canonical_maps"}};

struct walk {
    const struct postconf *conf;
    const char *service;
    const struct config_list *ignore;
    features_fn *fn;
    features_word_fn *word_fn;
    void *arg;
    bool in_cleanup;
    struct postfix_feature now; /* of the list whose tables are looked at */
};

static void tell(const struct walk *w, enum feature_kind kind, const char *parameter,
                 const char *what, bool ignored)
{
    const struct postfix_feature b = {kind, parameter, what, w->in_cleanup, ignored};
    w->fn(w->arg, &b);
}

static void walk_settings(const struct walk *w, const char *service, const char *const *name,
                          size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *value = postconf_get(w->conf, service, name[i]);
        if (*value)
            tell(w, FEATURE_SETTING, name[i], value, config_list_has(w->ignore, name[i]));
    }
}

static void walk_restrictions(struct walk *w, const char *parameter, const char *list)
{
    postconf_words(list, w->word_fn, w->arg);
    char *effect = config_list_has(w->ignore, parameter)
                       ? NULL
                       : restrictions_effect(postconf_directory(w->conf), list);
    if (effect)
        tell(w, FEATURE_RESULT, parameter, effect, false);
    free(effect);
}

static bool walk_class(void *arg, const char *class)
{
    struct walk *w = arg;
    walk_restrictions(w, class, postconf_get(w->conf, NULL, class));
    return true;
}

static bool walk_checks(void *arg, const char *table)
{
    struct walk *w = arg;
    char *effect =
        config_list_has(w->ignore, table) ? NULL : table_effect(postconf_directory(w->conf), table);
    if (effect)
        tell(w, FEATURE_RESULT, w->now.parameter, effect, false);
    free(effect);
    return true;
}

static bool walk_addresses(void *arg, const char *table)
{
    struct walk *w = arg;
    tell(w, w->now.kind, w->now.parameter, table,
         config_list_has(w->ignore, w->now.parameter) || config_list_has(w->ignore, table));
    return true;
}

static void walk_cleanup(struct walk *w)
{
    const char *overrides = postconf_get(w->conf, w->service, "receive_override_options");
    char *cleanup =
        mem_printf("%s/unix", postconf_get(w->conf, w->service, "cleanup_service_name"));
    bool addresses = !strstr(overrides, "no_address_mappings"),
         contents = !strstr(overrides, "no_header_body_checks");
    w->in_cleanup = true;
    if (addresses)
        walk_settings(w, cleanup, of_cleanup, COUNT(of_cleanup));
    for (size_t i = 0; i < COUNT(of_addresses) && addresses; i++) {
        const char *tables = postconf_get(w->conf, cleanup, of_addresses[i].parameter);
        w->now = (struct postfix_feature){.kind = of_addresses[i].kind,
                                          .parameter = of_addresses[i].parameter};
        postconf_words(tables, w->word_fn, w->arg);
        postconf_words(tables, walk_addresses, w);
    }
    for (size_t i = 0; i < COUNT(checks) && contents; i++) {
        const char *tables = postconf_get(w->conf, cleanup, checks[i]);
        w->now.parameter = checks[i];
        postconf_words(tables, w->word_fn, w->arg);
        if (!config_list_has(w->ignore, checks[i]))
            postconf_words(tables, walk_checks, w);
    }
    w->in_cleanup = false;
    free(cleanup);
}

void features_of_service(const struct postconf *conf, const char *service,
                         const struct config_list *ignore, features_fn *fn,
                         features_word_fn *word_fn, void *arg)
{
    struct walk w = {.conf = conf,
                     .service = service,
                     .ignore = ignore,
                     .fn = fn,
                     .word_fn = word_fn,
                     .arg = arg};
    walk_settings(&w, service, of_smtpd, COUNT(of_smtpd));
    for (size_t i = 0; i < COUNT(restrictions); i++)
        walk_restrictions(&w, restrictions[i], postconf_get(conf, service, restrictions[i]));
    postconf_words(postconf_get(conf, service, "smtpd_restriction_classes"), walk_class, &w);
    walk_cleanup(&w);
}

void features_of_delivery(const struct postconf *conf, const struct config_list *ignore,
                          features_fn *fn, void *arg)
{
    struct walk w = {.conf = conf, .ignore = ignore, .fn = fn, .arg = arg};
    walk_settings(&w, NULL, of_delivery, COUNT(of_delivery));
}
