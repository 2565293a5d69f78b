#include "lib/mail/address.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

#include "lib/base/mem.h"

/* ---- plain ones ---- */

static bool atom_char(unsigned char c, bool utf8)
{
    return isalnum(c) ? c < 128 : c >= 128 ? utf8 : c && strchr("#$&'*+-/=?^_`{|}~", c) != NULL;
}

static bool local_plain(const char *s, size_t n, bool utf8)
{
    if (!n || n > 255 || *s == '.' || *s == '-' || s[n - 1] == '.')
        return false;
    for (size_t i = 0; i < n; i++)
        if (s[i] == '.' ? s[i + 1] == '.' : !atom_char((unsigned char)s[i], utf8))
            return false;
    return true;
}

static bool domain_plain(const char *s, bool utf8)
{
    bool dot = false, letter = false;
    size_t n = strlen(s);
    if (!n || n > 255 || *s == '.' || s[n - 1] == '.')
        return false;
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '.') {
            if (s[1] == '.')
                return false;
            dot = true;
        } else if (c >= 128 ? !utf8 : !isalnum(c) && c != '-' && c != '_') {
            return false;
        }
        letter |= c >= 128 || isalpha(c);
    }
    return dot && letter;
}

bool address_plain(const char *address, bool utf8)
{
    const char *at = strchr(address, '@');
    return at && local_plain(address, (size_t)(at - address), utf8) && domain_plain(at + 1, utf8);
}

bool address_rewritten(const char *address, const char *resolved)
{
    return !resolved || strcasecmp(address, resolved) != 0;
}

/* ---- quotes ---- */

/* RFC 5321's Dot-string, and what RFC 6531 adds. */
static bool is_dot_atom(const char *s, size_t n)
{
    if (!n || *s == '.' || s[n - 1] == '.')
        return false;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c <= ' ' || c == 0x7f || strchr("()<>@,;:\\\"[]", c) || (c == '.' && s[i + 1] == '.'))
            return false;
    }
    return true;
}

char *address_quoted(const char *bare)
{
    struct buf b = {0};
    const char *at = strrchr(bare, '@');
    size_t n = at ? (size_t)(at - bare) : strlen(bare);
    bool atom = is_dot_atom(bare, n) || !*bare;
    if (!atom)
        buf_addc(&b, '"');
    for (size_t i = 0; i < n; i++) {
        if (!atom && strchr("\"\\\r\n", bare[i]))
            buf_addc(&b, '\\');
        buf_addc(&b, bare[i]);
    }
    buf_adds(&b, atom ? "" : "\"");
    buf_adds(&b, bare + n);
    return b.data ? b.data : mem_strdup("");
}

char *address_unquoted(const char *quoted)
{
    struct buf b = {0};
    bool inside = false;
    for (const char *s = quoted; *s; s++) {
        if (*s == '@' && !inside) { /* behind it there is a domain */
            buf_adds(&b, s);
            break;
        }
        if (*s == '\\' && s[1])
            buf_addc(&b, *++s);
        else if (*s == '"')
            inside = !inside;
        else
            buf_addc(&b, *s);
    }
    return b.data ? b.data : mem_strdup("");
}
