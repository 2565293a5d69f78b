#include "lib/config/nexthop.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lib/config/config.h"
#include "lib/base/mem.h"

/* The rest behind a prefix, or NULL. */
static const char *behind(const char *s, const char *prefix)
{
    size_t n = strlen(prefix);
    return strncmp(s, prefix, n) ? NULL : s + n;
}

/* The names that Postfix knows without /etc/services (known_tcp_ports). */
static const struct {
    const char *name, *port;
} known[] = {{"lmtp", "24"},
             {"smtp", "25"},
             {"submission", "587"},
             {"submissions", "465"},
             {"smtps", "465"}};

/* Malloc'd; NULL: there is no such port. */
static char *port_of(const char *s)
{
    struct servent found, *is = NULL;
    char buf[1024], *end;
    long port = strtol(s, &end, 10);
    if (*s >= '0' && *s <= '9')
        return !*end && end - s <= 5 && port > 0 && port < 65536 ? mem_strdup(s) : NULL;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcasecmp(s, known[i].name))
            return mem_strdup(known[i].port);
    if (!*s || getservbyname_r(s, "tcp", &found, buf, sizeof buf, &is) || !is)
        return NULL;
    return mem_printf("%u", ntohs((uint16_t)is->s_port));
}

/* How long the host is, and where it begins: "[::1]:24", "mail.example:24". 0: none. */
static size_t host_part(const char *s, bool bare, const char **host)
{
    for (const char *at = s; *at; at++)
        if (*at & 0x80)
            return 0; /* DNS has it in ASCII (RFC 5890 section 2.3.2.1) */
    const char *end = *s == '[' ? strchr(s, ']') : NULL;
    *host = end ? s + 1 : s;
    if (end && !strncasecmp(*host, "ipv6:", 5) && *host + 5 < end)
        *host += 5; /* as Postfix lets one write it in a transport map */
    if (end)
        return (size_t)(end - *host);
    return bare && *s != '[' ? strcspn(s, ":] ,\t") : 0;
}

/* bare: brackets may be missing. */
static bool parse_host(const char *s, bool bare, const char *default_port, struct nexthop *out)
{
    const char *host;
    size_t n = host_part(s, bare, &host);
    const char *rest = host + n + (*s == '[');
    char *port = !n             ? NULL
                 : !*rest       ? mem_strdup(default_port)
                 : *rest == ':' ? port_of(rest + 1)
                                : NULL;
    if (!port)
        return false;
    out->host = mem_strndup(host, n);
    out->port = port;
    return true;
}

/* Behind "smtp:" and so on, or NULL. */
static const char *hop_of(const char *destination, bool *lmtp)
{
    const char *hop = behind(destination, "lmtp:");
    *lmtp = hop;
    if (!hop && !(hop = behind(destination, "smtp:")))
        hop = behind(destination, "relay:");
    return hop;
}

static bool parse_one(const char *destination, struct nexthop *out)
{
    *out = (struct nexthop){0};
    const char *hop = hop_of(destination, &out->lmtp);
    if (!hop)
        return false;
    const char *path = behind(hop, "unix:");
    if (path) {
        if (!*path)
            return false;
        out->host = mem_strdup(path);
        return true;
    }
    const char *inet = behind(hop, "inet:");
    return parse_host(inet ? inet : hop, out->lmtp, out->lmtp ? "24" : "25", out);
}

/* ---- lists ---- */

#define BETWEEN ", \t\r\n"

/* Where its hosts begin; NULL: it cannot have more than one. */
static const char *hosts_of(const char *destination)
{
    bool lmtp;
    const char *hop = hop_of(destination, &lmtp);
    return hop && !behind(hop, "unix:") ? hop : NULL;
}

/* "inet:" is of the whole list, and Postfix takes it from its first host. */
char *nexthop_host(const char *destination, size_t n)
{
    const char *hop = hosts_of(destination), *at = hop;
    if (!hop)
        return n ? NULL : mem_strdup(destination);
    for (;; n--) {
        at += strspn(at, BETWEEN);
        if (!*at)
            return NULL;
        if (!n)
            break;
        at += strcspn(at, BETWEEN);
    }
    return mem_printf("%.*s%.*s", (int)(hop - destination), destination, (int)strcspn(at, BETWEEN),
                      at);
}

char *nexthop_spell(const char *destination)
{
    const char *hop = hosts_of(destination);
    struct buf out = {0};
    if (!hop)
        return mem_strdup(destination);
    buf_add(&out, destination, (size_t)(hop - destination));
    for (const char *at = hop + strspn(hop, BETWEEN); *at;) {
        size_t n = strcspn(at, BETWEEN);
        if (out.len > (size_t)(hop - destination))
            buf_addc(&out, ',');
        buf_add(&out, at, n);
        at += n;
        at += strspn(at, BETWEEN);
    }
    return out.data;
}

bool nexthop_by_name(const char *destination)
{
    const char *hop = hosts_of(destination);
    char *host;
    bool bare = false;
    for (size_t i = 0; hop && !bare && (host = nexthop_host(destination, i)); i++) {
        const char *at = host + (hop - destination), *inet = behind(at, "inet:");
        bare = *(inet ? inet : at) != '[';
        free(host);
    }
    return bare;
}

bool nexthop_parse(const char *destination, struct nexthop *out)
{
    struct nexthop other;
    char *host = nexthop_host(destination, 0);
    bool good = host && parse_one(host, out);
    free(host);
    for (size_t i = 1; good && (host = nexthop_host(destination, i)); i++) {
        bool lmtp;
        const char *hop = hop_of(host, &lmtp);
        good = i < NEXTHOP_HOSTS_MAX && !behind(hop, "inet:") && !behind(hop, "unix:") &&
               parse_one(host, &other);
        if (good)
            nexthop_free(&other);
        else
            nexthop_free(out);
        free(host);
    }
    if (!good)
        *out = (struct nexthop){0};
    return good;
}

bool nexthop_from_address(const char *address, struct nexthop *out)
{
    *out = (struct nexthop){0};
    size_t size = strlen(address) + 1;
    char *buf = mem_alloc(size);
    const char *host, *port;
    bool ok = config_address(address, buf, size, &host, &port) == 0;
    if (ok) {
        out->host = mem_strdup(host);
        out->port = port ? mem_strdup(port) : NULL;
    }
    free(buf);
    return ok;
}

void nexthop_free(struct nexthop *hop)
{
    free(hop->host);
    free(hop->port);
    *hop = (struct nexthop){0};
}
