/* hint - reads hint lines and the names of dirty marks. */
#include "dovecot-plugin/protocol/hint.h"

#include <string.h>

#include "dovecot-plugin/protocol/frame.h"

/* \001 escapes: "1" itself, "0" NUL, t, n, r. Returns the length, or -1 when it is no escape or
 * does not fit. */
static int unescape(const char *s, size_t n, char *out, size_t size)
{
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        if (c == '\001') {
            if (++i == n)
                return -1;
            switch (s[i]) {
            case '0': c = '\0'; break;
            case '1': c = '\001'; break;
            case 't': c = '\t'; break;
            case 'n': c = '\n'; break;
            case 'r': c = '\r'; break;
            default: return -1;
            }
        }
        if (len + 1 >= size)
            return -1;
        out[len++] = c;
    }
    out[len] = '\0';
    return (int)len;
}

static bool is_guid(const char *s, size_t n)
{
    return n == 32 && strspn(s, "0123456789abcdef") >= 32;
}

bool hint_parse(const char *line, size_t n, struct hint *h)
{
    const char *field[4];
    size_t len[4], fields = 0;
    for (const char *at = line, *end = line + n; fields < 4; fields++) {
        const char *tab = memchr(at, '\t', (size_t)(end - at));
        field[fields] = at;
        len[fields] = (size_t)((tab ? tab : end) - at);
        at = tab ? tab + 1 : end;
        if (!tab) {
            fields++;
            break;
        }
    }
    if (n >= HINT_MAX || fields < 2 || len[0] != 1 || field[0][0] != '1')
        return false;
    int user = unescape(field[1], len[1], h->user, sizeof h->user);
    if (user < 0 || !frame_user_ok((const uint8_t *)h->user, (size_t)user))
        return false;
    h->guid[0] = '\0';
    h->name_len = 0;
    if (fields < 4)
        return true;
    int name = unescape(field[3], len[3], h->name, sizeof h->name);
    if (name < 0)
        return true;
    h->name_len = (size_t)name;
    if (is_guid(field[2], len[2])) {
        memcpy(h->guid, field[2], 32);
        h->guid[32] = '\0';
    }
    return true;
}

size_t hint_last(const char *line, size_t n)
{
    const char *tab = line + n;
    for (int i = 0; i < 3; i++)
        if (!(tab = memrchr(line, '\t', (size_t)(tab - line))))
            return 0;
    return tab - line > 1 && tab[-1] == '1' ? (size_t)(tab - line) - 1 : 0;
}

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

bool hint_mark(const char *f, char user[256], bool *all_r)
{
    size_t n = 0;
    *all_r = !strcmp(f, "+all");
    if (*all_r)
        return true;
    for (; *f; f++) {
        char c = *f;
        if (c == '%') {
            int a = hex(f[1]), b = a < 0 ? -1 : hex(f[2]);
            if (b < 0)
                return false;
            c = (char)(a << 4 | b);
            f += 2;
        } else if (!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-", c)) {
            return false;
        }
        if (n == 255)
            return false;
        user[n++] = c;
    }
    user[n] = '\0';
    return frame_user_ok((const uint8_t *)user, n);
}
