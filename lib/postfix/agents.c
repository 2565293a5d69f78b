/* agents - reads the settings of smtp and lmtp, and resolves what they name. */
#include "lib/postfix/agents.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/mem.h"
#include "lib/base/subprocess.h"
#include "lib/config/config.h"
#include "lib/config/nexthop.h"
#include "lib/postfix/postconf.h"

struct agents {
    struct agent *agent; /* the first one is smtp's */
    size_t n;
    char *source, *wrong, *unread;
    bool by_postfix;
};

/* One word of a command's line. */
static bool speakable(const char *name)
{
    for (const char *s = name; *s; s++)
        if (*s <= ' ' || *s > '~')
            return false;
    return *name && strlen(name) <= 255;
}

/* reject_non_fqdn_helo_hostname: a dot within it, or an address in brackets. */
static bool qualified(const char *name)
{
    const char *dot = strchr(name, '.');
    return *name == '[' || (dot && dot > name && dot[1]);
}

static struct agent *add(struct agents *all, const char *transport, const char *name)
{
    all->agent = mem_grow(all->agent, (all->n + 1) * sizeof *all->agent);
    struct agent *a = &all->agent[all->n++];
    *a = (struct agent){.transport = mem_strdup(transport),
                        .name = mem_strdup(name),
                        .tls = TLS_NONE,
                        .trust = TRUST_NONE,
                        .v4 = true,
                        .v6 = true,
                        .first = AF_UNSPEC,
                        .addresses = 5,
                        .sessions = 2};
    return a;
}

static bool is_word(const char *value, const char *word)
{
    return !strcasecmp(value, word);
}

/* A service's parameter, by the name that its command has for it: "smtp_..." or "lmtp_...". */
static const char *parameter(const struct postconf *conf, const char *key, const char *command,
                             const char *name)
{
    char *whole = mem_printf("%s_%s", command, name);
    const char *value = postconf_get(conf, key, whole);
    free(whole);
    return value;
}

/* "192.0.2.1", "[2001:db8::1]", "fe80::1%eth0". False: it is none of that family; out has the text
 * then, and no length. */
static bool literal(const char *s, sa_family_t family, struct socket_address *out)
{
    const struct addrinfo hints = {
        .ai_family = family, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
    struct addrinfo *found = NULL;
    *out = (struct socket_address){.sa.ss_family = family};
    s += *s == '[';
    snprintf(out->text, sizeof out->text, "%.*s", (int)strcspn(s, "]"), s);
    if (getaddrinfo(out->text, NULL, &hints, &found) || !found)
        return false;
    memcpy(&out->sa, found->ai_addr, found->ai_addrlen);
    out->len = found->ai_addrlen;
    freeaddrinfo(found);
    return true;
}

static bool is_loopback(const struct socket_address *a)
{
    const struct sockaddr_in *in = (const struct sockaddr_in *)&a->sa;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&a->sa;
    return a->sa.ss_family == AF_INET ? ntohl(in->sin_addr.s_addr) >> 24 == 127
                                      : IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
}

/* The one address of that family among inet_interfaces, as smtp(8) of a virtual host takes it. */
static struct socket_address only_one(const char *interfaces, sa_family_t family)
{
    struct socket_address found = {0}, each;
    char *words = mem_strdup(interfaces), *rest = words, *word;
    unsigned n = 0;
    while ((word = strtok_r(rest, ", \t", &rest))) {
        const struct addrinfo hints = {.ai_family = family, .ai_socktype = SOCK_STREAM};
        struct addrinfo *named = NULL;
        if (!strcmp(word, "all") || !strcmp(word, "loopback-only"))
            n += 2; /* loopback addresses are among them */
        else if (literal(word, family, &each)) {
            n += !n || strcmp(found.text, each.text) != 0; /* twice is once */
            found = each;
        } else if (getaddrinfo(word, NULL, &hints, &named) == 0 && named &&
                   getnameinfo(named->ai_addr, named->ai_addrlen, each.text, sizeof each.text, NULL,
                               0, NI_NUMERICHOST) == 0 &&
                   literal(each.text, family, &each)) {
            n += named->ai_next ? 2 : !n || strcmp(found.text, each.text) != 0;
            found = each;
        }
        if (named)
            freeaddrinfo(named);
    }
    free(words);
    return n == 1 && !is_loopback(&found) ? found : (struct socket_address){0};
}

/* A word that is no address at all ends smtp(8) before it connects. */
static bool set_literal(const char *word, sa_family_t family, struct socket_address *out)
{
    struct socket_address other;
    return literal(word, family, out) ||
           literal(word, family == AF_INET ? AF_INET6 : AF_INET, &other);
}

static void set_from(struct agent *a, const struct postconf *conf, const char *key,
                     const char *command)
{
    const char *from4 = parameter(conf, key, command, "bind_address"),
               *from6 = parameter(conf, key, command, "bind_address6"),
               *interfaces = postconf_get(conf, key, "inet_interfaces");
    bool good4 = true, good6 = true;
    if (!*from4)
        a->from4 = only_one(interfaces, AF_INET);
    else
        good4 = set_literal(from4, AF_INET, &a->from4);
    if (!*from6)
        a->from6 = only_one(interfaces, AF_INET6);
    else
        good6 = set_literal(from6, AF_INET6, &a->from6);
    a->from_enforced =
        !good4 || !good6 || is_word(parameter(conf, key, command, "bind_address_enforce"), "yes");
}

/* One that cannot be had keeps mail in Postfix (features.h); what waits goes without it. */
static void set_fallback(struct agent *a, const struct postconf *conf, const char *key,
                         const char *command)
{
    char *whole = mem_printf("%s:%s", command, parameter(conf, key, command, "fallback_relay")),
         *spelled = nexthop_spell(whole);
    struct nexthop hop;
    if (nexthop_parse(spelled, &hop)) {
        a->fallback = hop.port ? mem_strdup(spelled) : NULL;
        nexthop_free(&hop);
    }
    a->addresses = (unsigned)atoi(parameter(conf, key, command, "mx_address_limit"));
    a->sessions = (unsigned)atoi(parameter(conf, key, command, "mx_session_limit"));
    free(spelled);
    free(whole);
}

static void add_service(struct agents *all, const struct postconf *conf, const char *host_name,
                        const char *transport, const char *command)
{
    char *key = mem_printf("%s/unix", transport);
    const char *said = parameter(conf, key, command,
                                 is_word(command, "lmtp") ? "lhlo_name" : "helo_name"),
               *host = postconf_get(conf, NULL, "myhostname"),
               *level = parameter(conf, key, command, "tls_security_level"),
               *protocols = postconf_get(conf, key, "inet_protocols"),
               *first = parameter(conf, key, command, "address_preference");
    bool all_of_them = !*protocols || strcasestr(protocols, "all");
    struct agent *a = add(all, transport, *host_name ? host_name : speakable(said) ? said : host);
    a->tls = !*level || is_word(level, "none") ? TLS_NONE
             : is_word(level, "may")           ? TLS_MAY
                                               : TLS_ENCRYPT;
    a->trust = is_word(parameter(conf, key, command, "send_xforward_command"), "yes")
                   ? TRUST_XFORWARD
                   : TRUST_NONE;
    a->v4 = all_of_them || strcasestr(protocols, "ipv4");
    a->v6 = all_of_them || strcasestr(protocols, "ipv6");
    a->first = is_word(first, "ipv4") ? AF_INET : is_word(first, "ipv6") ? AF_INET6 : AF_UNSPEC;
    set_from(a, conf, key, command);
    set_fallback(a, conf, key, command);
    free(key);
}

/* What may not be looked at, or is a link to nothing, is there. */
static bool is_there(const char *file)
{
    struct stat st;
    return lstat(file, &st) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

/* False: there is no Postfix that could be asked. host_name: "" or what it calls itself instead. */
static bool by_postfix(struct agents *all, const char *host_name, const char *directory,
                       bool expected)
{
    char *error = NULL, *file = mem_printf("%s/main.cf", directory),
         *services = mem_printf("%s/master.cf", directory);
    bool missing = *directory && !is_there(file);
    bool there =
        *directory && (expected || !missing || is_there(services) || subprocess_exists("postconf"));
    struct postconf *conf = there ? postconf_read(directory, &error) : NULL;
    const struct postconf_service *s;
    bool good = conf && (*host_name || speakable(postconf_get(conf, NULL, "myhostname")));
    if (good)
        add_service(all, conf, host_name, "smtp", "smtp");
    for (size_t i = 0; good && (s = postconf_service(conf, i)); i++)
        if (!s->inet && strcmp(s->name, "smtp") &&
            (!strcmp(s->command, "smtp") || !strcmp(s->command, "lmtp")))
            add_service(all, conf, host_name, s->name, s->command);
    if (good)
        all->source = *host_name ? mem_strdup("host_name") : mem_strdup(file);
    all->by_postfix = good;
    if (missing && there)
        all->unread = mem_printf("there is a Postfix, but no %s: put it back, or set "
                                 "postfix_config = \"\" if this host's Postfix is not to be used",
                                 file);
    else if (!good && there)
        all->unread = error ? error : mem_printf("%s has no myhostname", file);
    if (all->unread != error)
        free(error);
    postconf_free(conf);
    free(services);
    free(file);
    return good;
}

/* Malloc'd; NULL when it knows none. */
static char *by_resolver(const char *host)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_CANONNAME};
    struct addrinfo *found = NULL;
    char *name = NULL;
    if (getaddrinfo(host, NULL, &hints, &found) == 0 && found && found->ai_canonname)
        name = mem_strdup(found->ai_canonname);
    if (found)
        freeaddrinfo(found);
    /* /etc/hosts of some systems has this host among the names of localhost. */
    if (name && speakable(name) && qualified(name) && strncasecmp(name, "localhost.", 10))
        return name;
    free(name);
    return NULL;
}

static void by_host(struct agents *all, const char *host_name)
{
    char host[256] = "";
    if (gethostname(host, sizeof host - 1) || !speakable(host))
        snprintf(host, sizeof host, "localhost");
    char *full = *host_name || qualified(host) ? NULL : by_resolver(host);
    add(all, "smtp", *host_name ? host_name : full ? full : host);
    all->source = mem_strdup(*host_name ? "host_name" : full ? "the resolver" : "the kernel");
    free(full);
}

/* One line for all: what a next hop would refuse. */
static void judge(struct agents *all, const char *host_name)
{
    if (*host_name && !speakable(host_name)) {
        all->wrong = mem_printf(
            "host_name = \"%.300s\" is no host name, and not used: write it like mx1.example.org",
            host_name);
        return;
    }
    for (size_t i = 0; i < all->n && !all->wrong; i++)
        if (!qualified(all->agent[i].name))
            all->wrong = mem_printf("this host calls itself %s (by %s), a name without a dot, to "
                                    "next hops: some refuse that for good, and the mail bounces. "
                                    "Set host_name = \"%s.example.org\" in dovelane.conf, or "
                                    "myhostname in Postfix's main.cf",
                                    all->agent[i].name, all->source, all->agent[i].name);
}

struct agents *agents_find(const char *host_name, const char *postfix_config, bool expected)
{
    struct agents *all = mem_zero(sizeof *all);
    const char *ours = speakable(host_name) ? host_name : "";
    if (!by_postfix(all, ours, postfix_config, expected))
        by_host(all, ours);
    judge(all, host_name);
    return all;
}

void agents_free(struct agents *all)
{
    if (!all)
        return;
    for (size_t i = 0; i < all->n; i++) {
        free(all->agent[i].transport);
        free(all->agent[i].name);
        free(all->agent[i].fallback);
    }
    free(all->agent);
    free(all->source);
    free(all->wrong);
    free(all->unread);
    free(all);
}

const struct agent *agents_for(const struct agents *all, const char *destination)
{
    for (size_t i = 0; destination && i < all->n; i++) {
        size_t n = strlen(all->agent[i].transport);
        if (!strncmp(destination, all->agent[i].transport, n) && destination[n] == ':')
            return &all->agent[i];
    }
    return &all->agent[0];
}

/* Of a transport; smtp's for one that is not known. */
static const struct agent *agents_at(const struct agents *all, const char *transport)
{
    for (size_t i = 0; i < all->n; i++)
        if (!strcmp(all->agent[i].transport, transport))
            return &all->agent[i];
    return &all->agent[0];
}

const char *agents_source(const struct agents *all)
{
    return all->source;
}

bool agents_by_postfix(const struct agents *all)
{
    return all->by_postfix;
}

const char *agents_unread(const struct agents *all)
{
    return all->unread;
}

void agents_doubt(struct agents *all, char *why)
{
    free(all->unread);
    all->unread = why;
}

/* One that is not known before is like smtp's, as agents_for() has it. */
static struct agent *add_like(struct agents *all, const char *transport)
{
    struct agent like = *agents_at(all, transport);
    struct agent *a = add(all, transport, like.name);
    like.transport = a->transport;
    like.name = a->name;
    like.fallback = like.fallback ? mem_strdup(like.fallback) : NULL;
    *a = like;
    return a;
}

bool agents_tighten(struct agents *all, const struct agents *said)
{
    bool stricter = false;
    for (size_t i = 0; i < said->n; i++) {
        const char *transport = said->agent[i].transport;
        struct agent *a = (struct agent *)agents_at(all, transport);
        if (said->agent[i].tls <= a->tls)
            continue;
        if (strcmp(a->transport, transport) != 0)
            a = add_like(all, transport);
        a->tls = said->agent[i].tls;
        stricter = true;
    }
    return stricter;
}

const char *agents_wrong(const struct agents *all)
{
    return all->wrong;
}

const struct socket_address *agent_from(const struct agent *a, sa_family_t family)
{
    const struct socket_address *from = family == AF_INET    ? &a->from4
                                        : family == AF_INET6 ? &a->from6
                                                             : NULL;
    return from && from->sa.ss_family ? from : NULL;
}

static bool uses(const struct agent *a, sa_family_t family)
{
    return (family != AF_INET || a->v4) && (family != AF_INET6 || a->v6);
}

void agent_sort(const struct agent *a, struct addresses *list)
{
    const struct addresses all = *list;
    list->n = 0;
    for (unsigned pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < all.n; i++) {
            sa_family_t family = all.v[i].sa.ss_family;
            if (uses(a, family) && (pass == 0) == (a->first == AF_UNSPEC || family == a->first))
                list->v[list->n++] = all.v[i];
        }
}
