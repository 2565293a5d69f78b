#include "lib/ingress/route.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lib/base/mem.h"

struct line {
    const char *pattern, *hop; /* pattern ends with '=' */
    size_t len;
};

struct route {
    size_t n;
    struct line line[];
};

static int compare(const char *a, size_t na, const char *b, size_t nb)
{
    int c = strncasecmp(a, b, na < nb ? na : nb);
    return c ? c : na < nb ? -1 : na > nb;
}

static int by_pattern(const void *a, const void *b)
{
    const struct line *x = a, *y = b;
    return compare(x->pattern, x->len, y->pattern, y->len);
}

struct route *route_new(const struct config *c)
{
    struct route *r = mem_zero(sizeof *r + c->route.n * sizeof r->line[0]);
    for (size_t i = 0; i < c->route.n; i++) {
        const char *text = c->route.v[i], *sign = strchr(text, '=');
        if (sign)
            r->line[r->n++] = (struct line){text, sign + 1, (size_t)(sign - text)};
    }
    qsort(r->line, r->n, sizeof r->line[0], by_pattern);
    return r;
}

void route_free(struct route *r)
{
    free(r);
}

static const char *find(const struct route *r, const char *key)
{
    const struct line wanted = {key, NULL, strlen(key)},
                      *found = bsearch(&wanted, r->line, r->n, sizeof r->line[0], by_pattern);
    return found ? found->hop : NULL;
}

/* "user+extension@domain" as "user@domain". */
static const char *find_without_extension(const struct route *r, const char *address,
                                          const char *at, const char *delimiter)
{
    size_t user = *address ? 1 + strcspn(address + 1, delimiter) : 0;
    if (!*delimiter || user >= (size_t)(at - address))
        return NULL;
    char *base = mem_printf("%.*s%s", (int)user, address, at);
    const char *hop = find(r, base);
    free(base);
    return hop;
}

const char *route_of(const struct route *r, const char *address, const char *delimiter)
{
    const char *at = strrchr(address, '@'), *hop = r->n && at ? find(r, address) : NULL;
    if (!hop && r->n && at)
        hop = find_without_extension(r, address, at, delimiter);
    if (hop || !r->n || !at)
        return hop;
    hop = find(r, at + 1);
    for (const char *dot = strchr(at + 1, '.'); dot && !hop; dot = strchr(dot + 1, '.'))
        hop = find(r, dot);
    return hop;
}
