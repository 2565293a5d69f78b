#include "relay/smtp/nexthop.h"

#include <stdlib.h>
#include <string.h>

#include "lib/config/config.h"
#include "lib/base/mem.h"

/* The rest behind a prefix, or NULL. */
static const char *behind(const char *s, const char *prefix)
{
    size_t n = strlen(prefix);
    return strncmp(s, prefix, n) ? NULL : s + n;
}

static bool port_valid(const char *s)
{
    size_t n = strspn(s, "0123456789");
    if (!n || n > 5 || s[n])
        return false;
    long port = strtol(s, NULL, 10);
    return port > 0 && port < 65536;
}

static bool parse_bracketed(const char *s, const char *default_port, struct nexthop *out)
{
    const char *end = *s == '[' ? strchr(s, ']') : NULL;
    if (!end || end == s + 1)
        return false;
    const char *port = default_port;
    if (end[1]) {
        if (end[1] != ':' || !port_valid(end + 2))
            return false;
        port = end + 2;
    }
    const char *host = s + 1;
    /* "[ipv6:fe80::1]" is how Postfix lets one write it in a transport map. */
    if (!strncasecmp(host, "ipv6:", 5) && host + 5 < end)
        host += 5;
    out->host = mem_strndup(host, (size_t)(end - host));
    out->port = mem_strdup(port);
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
    return parse_bracketed(inet ? inet : hop, out->lmtp ? "24" : "25", out);
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
