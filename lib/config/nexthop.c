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

bool nexthop_parse(const char *destination, struct nexthop *out)
{
    *out = (struct nexthop){0};
    const char *hop = behind(destination, "lmtp:");
    if (hop)
        out->lmtp = true;
    else if (!(hop = behind(destination, "smtp:")))
        hop = behind(destination, "relay:");
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
