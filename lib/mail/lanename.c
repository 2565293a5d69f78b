#include "lib/mail/lanename.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

#define CLASS_MARK "|+" /* no origin begins with + */

static bool plain(char c)
{
    return c > ' ' && c <= '~' && c != '%' && c != '|' && c != '>';
}

static void encode(struct buf *out, const char *s)
{
    for (const char *from = s;; s++) {
        if (plain(*s))
            continue;
        buf_add(out, from, (size_t)(s - from));
        if (!*s)
            return;
        buf_printf(out, "%%%02X", (unsigned char)*s);
        from = s + 1;
    }
}

static int hexval(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* NULL when the part is empty or wrongly encoded. */
static char *decode(const char *s, size_t n)
{
    char *out = mem_alloc(n + 1), *p = out;
    for (size_t i = 0; i < n; i++) {
        if (s[i] != '%') {
            *p++ = s[i];
            continue;
        }
        int hi = i + 2 < n ? hexval(s[i + 1]) : -1;
        int lo = i + 2 < n ? hexval(s[i + 2]) : -1;
        if (hi < 0 || lo < 0 || (hi == 0 && lo == 0)) {
            free(out);
            return NULL;
        }
        *p++ = (char)(hi * 16 + lo);
        i += 2;
    }
    *p = '\0';
    if (p == out) {
        free(out);
        return NULL;
    }
    return out;
}

char *lanename_make(const char *destination, const char *const *owner, size_t nowners,
                    const char *origin, uint64_t generation, const char *class)
{
    struct buf b = {0};
    buf_adds(&b, LANENAME_PREFIX);
    encode(&b, destination);
    for (size_t i = 0; i < nowners; i++) {
        buf_addc(&b, i ? '>' : '|');
        encode(&b, owner[i]);
    }
    if (origin && generation) {
        buf_addc(&b, '|');
        encode(&b, origin);
        buf_printf(&b, ".%" PRIu64, generation);
    }
    if (class)
        buf_printf(&b, CLASS_MARK "%s", class);
    return b.data;
}

bool lanename_class_ok(const char *class)
{
    size_t n = strlen(class);
    return n && n <= LANENAME_CLASS_MAX &&
           strspn(class, "abcdefghijklmnopqrstuvwxyz0123456789-") == n;
}

void lanename_free(struct lanename *n)
{
    free(n->destination);
    free(n->origin);
    free(n->class);
    for (size_t i = 0; i < n->nowners; i++)
        free(n->owner[i]);
    *n = (struct lanename){0};
}

static bool parse_owners(const char *s, const char *end, struct lanename *out)
{
    for (;;) {
        const char *stop = memchr(s, '>', (size_t)(end - s));
        if (!stop)
            stop = end;
        if (out->nowners == LANENAME_OWNERS_MAX)
            return false;
        char *owner = decode(s, (size_t)(stop - s));
        if (!owner)
            return false;
        out->owner[out->nowners++] = owner;
        if (stop == end)
            return true;
        s = stop + 1;
    }
}

/* "<origin>.<generation>": digits behind the last dot, that make a number from 1 on. */
static bool parse_generation(const char *s, const char *end, struct lanename *out)
{
    const char *dot = memrchr(s, '.', (size_t)(end - s));
    uint64_t n = 0;
    if (!dot || end - dot < 2 || end - dot > 20 || memchr(s, '|', (size_t)(end - s)))
        return false;
    for (const char *p = dot + 1; p < end; p++) {
        if (*p < '0' || *p > '9')
            return false;
        n = 10 * n + (uint64_t)(*p - '0');
    }
    out->origin = decode(s, (size_t)(dot - s));
    out->generation = n;
    return out->origin && n;
}

/* What is behind the last "|+". *end is moved to where the other parts end. */
static bool parse_class(const char *s, const char **end, struct lanename *out)
{
    const char *bar = memrchr(s, '|', (size_t)(*end - s));
    if (!bar || *end - bar < 2 || bar[1] != CLASS_MARK[1])
        return true;
    out->class = mem_strndup(bar + 2, (size_t)(*end - bar - 2));
    *end = bar;
    return lanename_class_ok(out->class);
}

bool lanename_same_series(const struct lanename *a, const struct lanename *b)
{
    return a->generation && b->generation && !strcmp(a->origin, b->origin) &&
           !strcmp(a->destination, b->destination);
}

bool lanename_of_replicas(const char *name)
{
    return strncmp(name, LANENAME_REPLICA, strlen(LANENAME_REPLICA)) == 0;
}

bool lanename_parse(const char *name, size_t len, struct lanename *out)
{
    *out = (struct lanename){0};
    size_t prefix = strlen(LANENAME_PREFIX);
    if (len <= prefix || memcmp(name, LANENAME_PREFIX, prefix) || memchr(name, '\0', len))
        return false;
    const char *s = name + prefix, *end = name + len;
    const char *bar = memchr(s, '|', (size_t)(end - s));
    if (!bar)
        return false;
    const char *owners = bar + 1;
    bool ok = parse_class(owners, &end, out);
    const char *bar2 = memchr(owners, '|', (size_t)(end - owners));
    out->destination = decode(s, (size_t)(bar - s));
    ok = ok && out->destination && parse_owners(owners, bar2 ? bar2 : end, out);
    if (ok && bar2)
        ok = parse_generation(bar2 + 1, end, out);
    if (!ok)
        lanename_free(out);
    return ok;
}
