#include "ctl/escape.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Bytes of the UTF-8 character at s, its code point in *point; 0: there is none. */
static size_t character(const unsigned char *s, size_t len, uint32_t *point)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = *s < 0x80 ? 1 : *s < 0xc2 ? 0 : *s < 0xe0 ? 2 : *s < 0xf0 ? 3 : *s < 0xf5 ? 4 : 0;
    if (!n || n > len)
        return 0;
    *point = n == 1 ? *s : *s & (0xffu >> (n + 1));
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        *point = *point << 6 | (s[i] & 0x3f);
    }
    bool none = *point < least[n] || (*point >= 0xd800 && *point < 0xe000) || *point > 0x10ffff;
    return none ? 0 : n;
}

/* Control characters, also those above 0x7f, which some terminals obey; what turns the direction
 * of text, so that a line reads as another; separators of lines. */
static bool obeyed(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || c == 0x200e || c == 0x200f ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || c == 0xfeff;
}

void escape_to_utf8(struct buf *b, const char *s, size_t len)
{
    uint32_t point = 0;
    for (size_t i = 0, n; i < len; i += n) {
        n = character((const unsigned char *)s + i, len - i, &point);
        if (n)
            buf_add(b, s + i, n);
        else
            buf_printf(b, "\\x%02x", (unsigned char)s[i]), n = 1;
    }
}

void escape_for_terminal(struct buf *b, const char *s, size_t len, const char *allowed)
{
    uint32_t point = 0;
    for (size_t i = 0, n; i < len; i += n) {
        n = character((const unsigned char *)s + i, len - i, &point);
        if (n && (!obeyed(point) || (point && point < 0x80 && strchr(allowed, (int)point)))) {
            buf_add(b, s + i, n);
            continue;
        }
        n += !n;
        for (size_t k = 0; k < n; k++)
            buf_printf(b, "\\x%02x", (unsigned char)s[i + k]);
    }
}

void escape_json(struct buf *b, const char *s, size_t len)
{
    uint32_t point = 0;
    for (size_t i = 0, n; i < len; i += n) {
        n = character((const unsigned char *)s + i, len - i, &point);
        if (n && obeyed(point))
            buf_printf(b, "\\u%04x", (unsigned)point);
        else
            buf_add(b, s + i, n += !n);
    }
}
