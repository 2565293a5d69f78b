/* features - asks the table of parameters about each setting of a service. */
#include "lib/postfix/features.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/config/nexthop.h"
#include "lib/postfix/parameters.h"
#include "lib/postfix/tables.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

#define MILTER_CHECKS "milter_header_checks" /* whatever receive_override_options says */

static const char *const checks[] = {"header_checks", "mime_header_checks", "nested_header_checks",
                                     "body_checks", MILTER_CHECKS};
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
    const char *qmgr;           /* its service, "qmgr/unix" */
    struct postfix_feature now; /* of the list whose tables are looked at */
};

static void tell(const struct walk *w, enum feature_kind kind, const char *parameter,
                 const char *what, bool ignored)
{
    const struct postfix_feature b = {.kind = kind,
                                      .parameter = parameter,
                                      .what = what,
                                      .why = "",
                                      .unless = "",
                                      .in_cleanup = w->in_cleanup,
                                      .ignored = ignored};
    w->fn(w->arg, &b);
}

/* A row of the table that forbids. transport: of that one's mail alone, or NULL. */
static void tell_row(const struct walk *w, const struct parameter *p, const char *name,
                     const char *value, const char *transport)
{
    if (parameter_is_off(p, value))
        return;
    const struct postfix_feature b = {.kind = FEATURE_SETTING,
                                      .parameter = name,
                                      .what = value,
                                      .why = p->why,
                                      .transport = transport,
                                      .unless = p->unless,
                                      .by_name = p->reader == PARAMETER_READER_BY_NAME,
                                      .in_cleanup = w->in_cleanup,
                                      .ignored = config_list_has(w->ignore, name)};
    w->fn(w->arg, &b);
}

static void walk_rows(const struct walk *w, const char *service, enum parameter_reader reader)
{
    const struct parameter *p;
    for (size_t i = 0; (p = parameter_row(i)); i++)
        if (p->class == PARAMETER_FORBIDS && p->reader == reader)
            tell_row(w, p, p->names, postconf_get(w->conf, service, p->names), NULL);
}

static bool is_qmgr(const struct postconf_service *s)
{
    return !strcmp(s->command, "qmgr") || !strcmp(s->command, "oqmgr");
}

static const char *qmgr_of(const struct postconf *conf)
{
    const struct postconf_service *s;
    for (size_t i = 0; (s = postconf_service(conf, i)); i++)
        if (is_qmgr(s))
            return s->key;
    return NULL;
}

/* The milter hears where smtpd(8) would have the mail go; qmgr(8) asks again. */
static void walk_rewrite(const struct walk *w)
{
    static const char name[] = "rewrite_service_name";
    const char *its = postconf_get(w->conf, w->service, name);
    if (strcmp(its, postconf_get(w->conf, qmgr_of(w->conf), name)))
        tell(w, FEATURE_SETTING, name, its, config_list_has(w->ignore, name));
}

static void walk_restrictions(struct walk *w, const char *parameter, const char *list)
{
    postconf_words(list, w->word_fn, w->arg);
    char *effect = config_list_has(w->ignore, parameter)
                       ? NULL
                       : restrictions_effect(postconf_directory(w->conf), list, w->word_fn, w->arg);
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
    enum table_kind kind = !strcmp(w->now.parameter, MILTER_CHECKS)     ? TABLE_MILTER_CHECKS
                           : !strcmp(w->now.parameter, "header_checks") ? TABLE_HEADER_CHECKS
                                                                        : TABLE_ACCESS;
    char *effect = config_list_has(w->ignore, table)
                       ? NULL
                       : table_effect(postconf_directory(w->conf), table, kind, w->word_fn, w->arg);
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
        walk_rows(w, cleanup, PARAMETER_READER_CLEANUP);
    for (size_t i = 0; i < COUNT(of_addresses) && addresses; i++) {
        const char *tables = postconf_get(w->conf, cleanup, of_addresses[i].parameter);
        w->now = (struct postfix_feature){.kind = of_addresses[i].kind,
                                          .parameter = of_addresses[i].parameter};
        postconf_words(tables, w->word_fn, w->arg);
        postconf_words(tables, walk_addresses, w);
    }
    for (size_t i = 0; i < COUNT(checks); i++) {
        const char *tables = postconf_get(w->conf, cleanup, checks[i]);
        if (!contents && strcmp(checks[i], MILTER_CHECKS))
            continue;
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
    walk_rows(&w, service, PARAMETER_READER_SMTPD);
    walk_rewrite(&w);
    for (size_t i = 0; i < COUNT(restrictions); i++)
        walk_restrictions(&w, restrictions[i], postconf_get(conf, service, restrictions[i]));
    postconf_words(postconf_get(conf, service, "smtpd_restriction_classes"), walk_class, &w);
    walk_cleanup(&w);
}

void features_behind_proxy(const struct postconf *conf, const char *service,
                           const struct config_list *ignore, features_fn *fn, void *arg)
{
    struct walk w = {.conf = conf, .ignore = ignore, .fn = fn, .arg = arg, .in_cleanup = true};
    char *cleanup = mem_printf("%s/unix", postconf_get(conf, service, "cleanup_service_name"));
    const char *overrides = postconf_get(conf, service, "receive_override_options"),
               *milters = postconf_get(conf, service, "smtpd_milters");
    bool contents = !strstr(overrides, "no_header_body_checks");
    const struct parameter *p;
    if (*milters && !strstr(overrides, "no_milters"))
        tell(&w, FEATURE_SETTING, "smtpd_milters", milters,
             config_list_has(ignore, "smtpd_milters"));
    for (size_t i = 0; (p = parameter_row(i)); i++)
        if (p->reader == PARAMETER_READER_PROXY && (contents || !strstr(p->names, "_checks")))
            tell_row(&w, p, p->names, postconf_get(conf, cleanup, p->names), NULL);
    free(cleanup);
}

/* ---- delivery ---- */

/* "slow_rate_delay" of transport slow, else "default_rate_delay". */
static void walk_transport_row(const struct walk *w, const struct parameter *p,
                               const char *transport)
{
    char *own = mem_printf("%s_%s", transport, p->names),
         *common = mem_printf("default_%s", p->names);
    const char *value = postconf_get(w->conf, w->qmgr, own);
    if (*value)
        tell_row(w, p, own, value, transport);
    else
        tell_row(w, p, common, postconf_get(w->conf, w->qmgr, common), transport);
    free(own);
    free(common);
}

static void walk_agent_row(const struct walk *w, const struct parameter *p,
                           const struct postconf_service *s)
{
    char *name = p->reader == PARAMETER_READER_AGENT ? mem_printf("%s_%s", s->command, p->names)
                                                     : mem_strdup(p->names);
    tell_row(w, p, name, postconf_get(w->conf, s->key, name), s->name);
    free(name);
}

/* A delivery agent reads it, too; what qmgr(8) has is told for all mail. */
static void walk_qmgr_row(const struct walk *w, const struct parameter *p,
                          const struct postconf_service *s)
{
    if (parameter_is_off(p, postconf_get(w->conf, w->qmgr, p->names)))
        tell_row(w, p, p->names, postconf_get(w->conf, s->key, p->names), s->name);
}

static void tell_service(const struct walk *w, const char *parameter, const char *what,
                         const char *why, const char *transport)
{
    const struct postfix_feature b = {.kind = FEATURE_SETTING,
                                      .parameter = parameter,
                                      .what = what,
                                      .why = why,
                                      .transport = transport,
                                      .unless = "",
                                      .ignored = config_list_has(w->ignore, parameter)};
    w->fn(w->arg, &b);
}

/* pipe(8)'s flags that smtp(8) has, too: lines of trace are added as it delivers. */
static void walk_flags(const struct walk *w, const struct postconf_service *s)
{
    if (*s->flags)
        tell_service(w, "flags", s->flags, "the relay adds no line for it", s->name);
}

/* Whether the relay finds the same hosts as smtp(8). "inet:" and "unix:" mean nothing here. */
static bool fallback_reachable(const char *command, const char *value, bool srv)
{
    char *all = mem_printf("%s:%s", command, value);
    struct nexthop hop;
    value += strspn(value, ", \t");
    bool good = strncmp(value, "inet:", 5) && strncmp(value, "unix:", 5) &&
                !(srv && nexthop_by_name(all)) && nexthop_parse(all, &hop);
    if (good)
        nexthop_free(&hop);
    free(all);
    return good;
}

static void walk_fallback(const struct walk *w, const struct postconf_service *s)
{
    char *name = mem_printf("%s_fallback_relay", s->command);
    const char *value = postconf_get(w->conf, s->key, name);
    bool srv = *postconf_get(w->conf, s->key, "use_srv_lookup");
    if (*value && !fallback_reachable(s->command, value, srv))
        tell_service(w, name, value, "the relay looks up no MX or SRV record", s->name);
    free(name);
}

static void walk_agent(const struct walk *w, const struct postconf_service *s)
{
    const struct parameter *p;
    for (size_t i = 0; (p = parameter_row(i)); i++) {
        if (p->reader == PARAMETER_READER_AGENT || p->reader == PARAMETER_READER_ANY_AGENT ||
            p->reader == PARAMETER_READER_BY_NAME)
            walk_agent_row(w, p, s);
        else if (p->reader == PARAMETER_READER_TRANSPORT)
            walk_transport_row(w, p, s->name);
        else if (p->reader == PARAMETER_READER_QMGR)
            walk_qmgr_row(w, p, s);
    }
    walk_flags(w, s);
    walk_fallback(w, s);
}

static bool delivers(const struct postconf_service *s)
{
    return !s->inet && (!strcmp(s->command, "smtp") || !strcmp(s->command, "lmtp"));
}

struct disabled {
    const struct walk *walk;
    const char *transport;
};

/* "smtp/unix", "smtp.unix", "unix". */
static bool walk_disabled(void *arg, const char *word)
{
    const struct disabled *d = arg;
    size_t n = strlen(d->transport);
    bool its = !strncmp(word, d->transport, n) && (word[n] == '/' || word[n] == '.');
    if (!strcmp(its ? word + n + 1 : word, "unix"))
        tell_service(d->walk, "master_service_disable", word, "its mail waits for an admin",
                     d->transport);
    return true;
}

/* An admin who wants nothing to go out has discard(8) or error(8) there, or no line at all. */
static void walk_command(const struct walk *w, const char *transport, const char *command)
{
    const struct postconf_service *s;
    char *key = mem_printf("%s/unix", transport);
    for (size_t i = 0; (s = postconf_service(w->conf, i)); i++)
        if (!s->inet && !strcmp(s->name, transport))
            break;
    if (!s || strcmp(s->command, command))
        tell_service(w, key, s ? s->command : "no service of master.cf",
                     "Postfix has no agent there that speaks as the relay does", transport);
    free(key);
    struct disabled d = {w, transport};
    postconf_words(postconf_get(w->conf, NULL, "master_service_disable"), walk_disabled, &d);
}

/* What postconf(1) made of such a line may be anything. */
static void walk_misread(const struct walk *w, const struct postconf_service *s)
{
    bool whole = !strcmp(s->command, "smtpd") || !strcmp(s->command, "cleanup") || is_qmgr(s);
    if (!s->misread || !(whole || delivers(s)))
        return;
    char *what = mem_printf("%s: write -o NAME=VALUE", s->key);
    tell_service(w, "-oNAME=VALUE", what, "postconf(1) reads that otherwise than Postfix",
                 whole ? NULL : s->name);
    free(what);
}

struct listed {
    const struct walk *walk;
    const struct parameter *parameter;
};

static bool walk_listed(void *arg, const char *transport)
{
    const struct listed *l = arg;
    tell_row(l->walk, l->parameter, l->parameter->names, transport, transport);
    return true;
}

void features_of_delivery(const struct postconf *conf, const struct config_list *ignore,
                          features_fn *fn, void *arg)
{
    struct walk w = {.conf = conf, .ignore = ignore, .fn = fn, .arg = arg, .qmgr = qmgr_of(conf)};
    const struct postconf_service *s;
    const struct parameter *p;
    for (size_t i = 0; (s = postconf_service(conf, i)); i++)
        walk_misread(&w, s);
    walk_command(&w, "smtp", "smtp");
    walk_command(&w, "relay", "smtp");
    walk_command(&w, "lmtp", "lmtp");
    walk_rows(&w, w.qmgr, PARAMETER_READER_QMGR);
    for (size_t i = 0; (p = parameter_row(i)); i++) {
        struct listed l = {&w, p};
        if (p->reader == PARAMETER_READER_LISTED)
            postconf_words(postconf_get(conf, w.qmgr, p->names), walk_listed, &l);
    }
    for (size_t i = 0; (s = postconf_service(conf, i)); i++)
        if (delivers(s))
            walk_agent(&w, s);
}
