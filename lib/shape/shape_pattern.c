/* Which next hops a rule is for. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lib/base/mem.h"
#include "lib/shape/shape_rules.h"
#include "lib/shape/shape_work.h"

#define PATTERN_MOST 512 /* bytes */

enum shape_level shape_pattern_level(const char *pattern)
{
    if (!strcmp(pattern, "*"))
        return SHAPE_ALL;
    if (strchr(pattern, '*'))
        return SHAPE_GLOB;
    return *pattern == '.' ? SHAPE_DOMAIN : SHAPE_EXACT;
}

bool shape_pattern_is_exact(const char *pattern)
{
    return shape_pattern_level(pattern) == SHAPE_EXACT;
}

char *shape_pattern_wrong(const char *pattern)
{
    static const char way[] = "write smtp:[mx1.example.net]:25 for one next hop, .example.net for "
                              "the hosts of a domain, smtp:*.example.net* or * for several";
    if (!*pattern)
        return mem_printf("a rule needs a pattern of next hops: %s", way);
    if (strlen(pattern) > PATTERN_MOST)
        return mem_printf("a pattern of next hops has at most %d bytes", PATTERN_MOST);
    for (const char *s = pattern; *s; s++)
        if (*s <= ' ' || *s > '~')
            return mem_printf("\"%s\" is no pattern of next hops, it has blanks, or other bytes "
                              "that no next hop has: %s",
                              pattern, way);
    if (*pattern == '.' && (strchr(pattern, '*') || !pattern[1] || strchr(pattern, ':')))
        return mem_printf("\"%s\" is no domain, and no pattern: %s", pattern, way);
    if (shape_pattern_level(pattern) == SHAPE_EXACT && !strchr(pattern, ':'))
        return mem_printf("\"%s\" is no next hop: %s", pattern, way);
    return NULL;
}

char *shape_class_wrong(const char *class)
{
    size_t len = strlen(class);
    if (len && len < SHAPE_CLASS_NAME &&
        strspn(class, "abcdefghijklmnopqrstuvwxyz0123456789-") == len)
        return NULL;
    return mem_printf("class = \"%s\": a class's name has 1 to %d of the characters a-z 0-9 -",
                      class, SHAPE_CLASS_NAME - 1);
}

char *shape_class_word_wrong(const char *class, const char *word)
{
    static const char *const of_class[] = {"weight", "accept_entries", "accept_age", "over"};
    for (size_t i = 0; i < sizeof of_class / sizeof *of_class; i++)
        if (!strcmp(word, of_class[i]))
            return NULL;
    return mem_printf("%s is not for one class (%s), but for all that a next hop gets: write it "
                      "into a rule without a class. For a class are weight, accept_entries, "
                      "accept_age and over",
                      word, class);
}

/* ---- does it fit ---- */

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + 'a' - 'A') : c;
}

/* * is any bytes; all others mean themselves, brackets too. */
static bool fits_glob(const char *pattern, const char *text)
{
    const char *star = NULL, *from = NULL;
    while (*text) {
        if (*pattern == '*') {
            star = pattern++;
            from = text;
        } else if (lower(*pattern) == lower(*text)) {
            pattern++;
            text++;
        } else if (star) {
            pattern = star + 1;
            text = ++from;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return !*pattern;
}

/* The length without the port that counts anyway: lmtp 24, else 25. */
static size_t without_port(const char *destination)
{
    size_t len = strlen(destination);
    const char *port = !strncasecmp(destination, "lmtp:", 5) ? "]:24" : "]:25";
    return len > 4 && !strcmp(destination + len - 4, port) ? len - 3 : len;
}

static bool fits_exactly(const char *a, const char *b)
{
    size_t n = without_port(a);
    return n == without_port(b) && !strncasecmp(a, b, n);
}

/* The host at s, which ends before end: without brackets, port and "inet:". */
static const char *host_at(const char *s, const char *end, size_t *len_r)
{
    if (end - s > 5 && !strncasecmp(s, "inet:", 5))
        s += 5;
    const char *close =
        *s == '[' ? memchr(s, ']', (size_t)(end - s)) : memrchr(s, ':', (size_t)(end - s));
    if (*s == '[')
        s++;
    *len_r = (size_t)((close ? close : end) - s);
    return s;
}

/* One of its hosts ends so. */
static bool fits_domain(const char *domain, const char *destination)
{
    size_t n = strlen(domain), len;
    const char *s = strchr(destination, ':');
    if (!s || !strncasecmp(s, ":unix:", 6))
        return false;
    for (s++; *s;) {
        const char *end = s + strcspn(s, ","), *host = host_at(s, end, &len);
        if (len > n && !strncasecmp(host + len - n, domain, n))
            return true;
        s = end + strspn(end, ", ");
    }
    return false;
}

bool shape_pattern_fits(const char *pattern, const char *destination)
{
    switch (shape_pattern_level(pattern)) {
    case SHAPE_ALL: return true;
    case SHAPE_GLOB: return fits_glob(pattern, destination);
    case SHAPE_DOMAIN: return fits_domain(pattern, destination);
    default: return fits_exactly(pattern, destination);
    }
}
