/* shown - escapes the bytes of a name that a storage cannot hold, and reads them back. */
#include "dovecot-plugin/orset/state/shown.h"

#include <string.h>

/* Bytes that are escaped though they need not be, until a form is free; then NULs behind it, which
 * no component has. */
#define MORE_MAX 16
#define NULS_MAX 4

static int hex_value(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

static bool is_escape(const char *s, size_t len)
{
    return len >= 3 && s[0] == '%' && hex_value(s[1]) >= 0 && hex_value(s[2]) >= 0;
}

/* Lengths of sequences as RFC 3629, section 4, has them; what is no such sequence is 0. */
static size_t utf8_length(const unsigned char *s, size_t len)
{
    unsigned char low = 0x80, high = 0xbf;
    size_t n = s[0] < 0x80                    ? 1
               : s[0] >= 0xc2 && s[0] <= 0xdf ? 2
               : s[0] >= 0xe0 && s[0] <= 0xef ? 3
               : s[0] >= 0xf0 && s[0] <= 0xf4 ? 4
                                              : 0;
    if (n > len || n < 2)
        return n > len ? 0 : n;
    if (s[0] == 0xe0)
        low = 0xa0;
    else if (s[0] == 0xed)
        high = 0x9f;
    else if (s[0] == 0xf0)
        low = 0x90;
    else if (s[0] == 0xf4)
        high = 0x8f;
    for (size_t i = 1; i < n; i++, low = 0x80, high = 0xbf)
        if (s[i] < low || s[i] > high)
            return 0;
    return n;
}

static bool is_utf8(const char *s, size_t len)
{
    for (size_t at = 0, n; at < len; at += n)
        if ((n = utf8_length((const unsigned char *)s + at, len - at)) == 0)
            return false;
    return true;
}

/* more: of the first bytes, escaped in any case. out: 3 * len bytes. */
static size_t escape(const struct orset_layout *l, const char *s, size_t len, size_t more,
                     char *out)
{
    static const char digit[] = "0123456789ABCDEF";
    bool dots = (len == 1 && s[0] == '.') || (len == 2 && s[0] == '.' && s[1] == '.');
    bool utf8 = is_utf8(s, len);
    size_t n = 0;
    while (utf8 && more < len && ((unsigned char)s[more] & 0xc0) == 0x80)
        more++; /* all of a sequence: what is left is UTF-8 */
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)s[i];
        if (i < more || c < 0x20 || c == 0x7f || strchr(l->special, c) || (c == '~' && i == 0) ||
            dots || (c >= 0x80 && !utf8) || is_escape(s + i, len - i)) {
            out[n++] = '%';
            out[n++] = digit[c >> 4];
            out[n++] = digit[c & 15];
        } else {
            out[n++] = s[i];
        }
    }
    return n;
}

/* The form of that number. out: 3 * (len + NULS_MAX) bytes. Its length; 0: there is no more. */
static size_t form_of(const struct orset_layout *l, const char *s, size_t len, size_t number,
                      char *out)
{
    size_t most = len < MORE_MAX ? len : MORE_MAX;
    if (number > most + NULS_MAX)
        return 0;
    size_t n = escape(l, s, len, number < most ? number : most, out);
    for (size_t i = most; i < number; i++, n += 3)
        memcpy(out + n, "%00", 3);
    return n;
}

/* The last component begins at part, and is put behind the shown ones. Length of all; 0: no. */
static size_t show_part(const struct orset_layout *l, const char *name, size_t part, size_t len,
                        char *out, size_t n, bool last)
{
    char real[ORSET_NAME_MAX];
    memcpy(out + n, name + part, len - part);
    if (l->holds(l->arg, out, n + len - part, last))
        return n + len - part;
    memcpy(real, name, part);
    for (size_t i = 0, k; (k = form_of(l, name + part, len - part, i, out + n)) > 0; i++) {
        if (!l->holds(l->arg, out, n + k, last))
            continue;
        if (part + k > sizeof real)
            return n + k; /* no folder has such a name */
        memcpy(real + part, out + n, k);
        if (!l->exists(l->arg, real, part + k))
            return n + k;
    }
    return 0;
}

size_t orset_show(const struct orset_layout *l, const char *name, size_t len, char *out)
{
    size_t part = strnlen(name, len) + 1, n = part;
    if (part > len || len > ORSET_NAME_MAX)
        return 0;
    memcpy(out, name, part);
    for (;;) {
        size_t end = part + strnlen(name + part, len - part);
        if ((n = show_part(l, name, part, end, out, n, end == len)) == 0)
            return 0;
        if (end == len)
            break;
        out[n++] = '\0';
        part = end + 1;
    }
    out[n] = '\0';
    return n;
}

static size_t unescape(const char *s, size_t len, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        bool escaped = is_escape(s + i, len - i);
        out[n++] = escaped ? (char)(hex_value(s[i + 1]) << 4 | hex_value(s[i + 2])) : s[i];
        i += escaped ? 2 : 0;
    }
    while (n > 0 && out[n - 1] == '\0')
        n--;
    return n;
}

/* The component at out + n, of k bytes, is one that the storage shows as s. */
static bool is_shown_as(const struct orset_layout *l, const char *shown, size_t part, size_t end,
                        const char *out, size_t n, size_t k, bool last)
{
    char again[4 * ORSET_NAME_MAX + 3 * NULS_MAX];
    if (k == 0 || k == end - part || memchr(out + n, '\0', k) || n + k > ORSET_NAME_MAX ||
        part > ORSET_NAME_MAX)
        return false;
    if (!l->exists(l->arg, out, n + k))
        return false;
    memcpy(again, shown, part);
    size_t len = show_part(l, out, n, n + k, again, part, last);
    return len == end && memcmp(again, shown, end) == 0;
}

size_t orset_unshow(const struct orset_layout *l, const char *shown, size_t len, char *out)
{
    size_t part = strnlen(shown, len) + 1, n = part;
    if (part > len)
        return 0;
    memcpy(out, shown, part);
    for (;;) {
        size_t end = part + strnlen(shown + part, len - part);
        size_t k = unescape(shown + part, end - part, out + n);
        if (!is_shown_as(l, shown, part, end, out, n, k, end == len)) {
            k = end - part;
            memcpy(out + n, shown + part, k);
        }
        n += k;
        if (end == len)
            break;
        out[n++] = '\0';
        part = end + 1;
    }
    out[n] = '\0';
    return n;
}
