/* The other way in: do the smtpd before dovelane-proxy and the one behind it fit together. */
#include "ctl/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/units.h"
#include "lib/postfix/sockets.h"

static bool is_ours(const struct config *c, const struct postconf *conf,
                    const struct postconf_service *s)
{
    return sockets_named(conf, s, postconf_get(conf, s->key, "smtpd_proxy_filter"),
                         c->proxy_socket);
}

static void check_before(struct ctl *ctl, const struct postconf *conf,
                         const struct postconf_service *s)
{
    char about[120];
    const char *milters = postconf_get(conf, s->key, "smtpd_milters"),
               *timeout = postconf_get(conf, s->key, "smtpd_proxy_timeout");
    double patience = (double)ctl->config->proxy_timeout / 1000;
    snprintf(about, sizeof about, "service %.80s", s->name);
    check_good(ctl, about, "its mail goes to our proxy");
    if (*milters)
        check_say(ctl, FINDING_WARNING, FOUND_PROXY_BEFORE_MILTERS, about,
                  "-o smtpd_milters=, or the milter's way in",
                  "it has milters (%s): before a proxy they see the envelope and no content",
                  milters);
    if (units_postfix_seconds(timeout) <= patience)
        check_say(ctl, FINDING_CRITICAL, FOUND_PROXY_TIMEOUT, about,
                  "-o smtpd_proxy_timeout=100s, or a shorter proxy_timeout",
                  "smtpd_proxy_timeout is %s: Postfix gives up while the proxy still waits for "
                  "proxy_next (%.0f s)",
                  timeout, patience);
}

static void check_behind(struct ctl *ctl, const struct postconf *conf,
                         const struct postconf_service *s, const char *about)
{
    const char *filter = postconf_get(conf, s->key, "smtpd_proxy_filter"),
               *milters = postconf_get(conf, s->key, "smtpd_milters");
    if (*filter)
        check_say(ctl, FINDING_CRITICAL, FOUND_PROXY_BEHIND_PROXY, about, "-o smtpd_proxy_filter=",
                  "smtpd_proxy_filter is %s: what is left to Postfix comes back to a proxy",
                  filter);
    if (*milters && !config_list_has(&ctl->config->ignore, "smtpd_milters"))
        check_say(ctl, FINDING_CRITICAL, FOUND_PROXY_BEHIND_MILTERS, about,
                  "-o smtpd_milters=, or the milter's way in",
                  "it has milters (%s): diverted mail would miss them, so diverting is off",
                  milters);
    char *cleanup = mem_printf("%s/unix", postconf_get(conf, s->key, "cleanup_service_name"));
    if (strcmp(postconf_get(conf, s->key, "message_size_limit"), "0") ||
        strcmp(postconf_get(conf, cleanup, "message_size_limit"), "0"))
        check_say(ctl, FINDING_WARNING, FOUND_PROXY_SIZE, about,
                  "-o message_size_limit=0 for it and for its cleanup, as examples/master-proxy.cf "
                  "has them",
                  "it has a message_size_limit: a mail just below it that the smtpd before took "
                  "may be refused here, after its other copies were stored");
    free(cleanup);
    if (!*postconf_get(conf, s->key, "smtpd_authorized_xforward_hosts"))
        check_say(ctl, FINDING_WARNING, FOUND_PROXY_XFORWARD, about,
                  "-o smtpd_authorized_xforward_hosts=127.0.0.0/8",
                  "it does not take XFORWARD: in its log all mail comes from this host");
}

/* Where the proxy leaves mail to Postfix. NULL: it is not known which service of master.cf that
 * is. */
static const struct postconf_service *check_next(struct ctl *ctl, const struct postconf *conf,
                                                 const char *about, enum finding otherwise)
{
    const char *next = ctl->config->proxy_next, *host, *port, *why;
    char buf[512];
    bool inet = strncmp(next, "unix:", 5);
    const struct postconf_service *behind = inet && *next ? postconf_listener(conf, next) : NULL;
    if (inet && !behind)
        check_say(ctl, otherwise, FOUND_PROXY_NEXT_MISSING, about,
                  "the lines of examples/master-proxy.cf",
                  "no service of master.cf listens there: the proxy cannot leave mail to Postfix");
    else if (config_address(next, buf, sizeof buf, &host, &port) == 0 &&
             (why = check_listens(host, port)))
        check_say(ctl, otherwise, FOUND_PROXY_NEXT_SILENT, about,
                  inet ? "`postfix check`, and `systemctl reload postfix`: master.cf has it"
                       : "the smtpd behind the proxy, or proxy_next",
                  "nobody answers there (%s): the proxy cannot leave mail to Postfix", why);
    else
        check_good(ctl, about, "answers");
    return behind;
}

const struct postconf_service *check_proxy(struct ctl *ctl, const struct postconf *conf,
                                           bool milter)
{
    const struct postconf_service *s, *behind = NULL;
    const char *next = ctl->config->proxy_next;
    char about[160];
    size_t users = 0;
    for (size_t i = 0; (s = postconf_service(conf, i)); i++) {
        if (strcmp(s->command, "smtpd") || !is_ours(ctl->config, conf, s))
            continue;
        users++;
        check_before(ctl, conf, s);
    }
    if (!users && (milter || !*next))
        return NULL;
    snprintf(about, sizeof about, "proxy_next %.120s", next);
    behind = check_next(ctl, conf, about, users ? FINDING_CRITICAL : FINDING_WARNING);
    if (!users)
        return NULL;
    if (!ctl->config->route.n)
        check_say(ctl, FINDING_WARNING, FOUND_ROUTE_EMPTY, "config",
                  "route = { \"example.com=lmtp:[10.0.0.5]:24\" }",
                  "route is empty: the proxy diverts nothing");
    if (behind)
        check_behind(ctl, conf, behind, about);
    return behind ? behind : postconf_service(conf, 0);
}
