#include "proxy/command.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lib/mail/address.h"
#include "lib/base/mem.h"

static bool blank(char c)
{
    return c == ' ' || c == '\t';
}

/* ---- MAIL and RCPT ---- */

static const char *skip_word(const char *s, const char *word)
{
    size_t n = strlen(word);
    return strncasecmp(s, word, n) ? NULL : s + n;
}

static char *one_blank_between(const char *s)
{
    struct buf b = {0};
    while (*(s += strspn(s, " \t"))) {
        size_t n = strcspn(s, " \t");
        if (b.len)
            buf_addc(&b, ' ');
        buf_add(&b, s, n);
        s += n;
    }
    return b.data;
}

static bool has_arg(const char *args, const char *keyword)
{
    size_t n = strlen(keyword);
    for (const char *s = args; s && *s; s += strcspn(s, " "), s += *s == ' ')
        if (!strncasecmp(s, keyword, n) && (s[n] == '=' || s[n] == ' ' || !s[n]))
            return true;
    return false;
}

bool command_path(const char *line, const char *verb, const char *keyword, struct command_path *out)
{
    *out = (struct command_path){0};
    const char *s = skip_word(line, verb);
    if (!s || !blank(*s))
        return false;
    s = skip_word(s + strspn(s, " \t"), keyword);
    if (!s || *s != ':')
        return false;
    s++;
    s += strspn(s, " \t");
    const char *end = *s == '<' ? strchr(s, '>') : NULL;
    if (!end || (end[1] && !blank(end[1])))
        return true; /* Postfix may know what that is */
    char *args = one_blank_between(end + 1), *address = mem_strndup(s + 1, (size_t)(end - s - 1));
    bool utf8 = true; /* whether it was asked for is known for the mail as a whole */
    bool empty = !*address && !strcasecmp(keyword, "FROM");
    if ((empty || address_plain(address, utf8)) && !has_arg(args, "XVERP") &&
        !has_arg(args, "REQUIRETLS")) {
        *out = (struct command_path){true, address, args};
        return true;
    }
    free(address);
    free(args);
    return true;
}

void command_path_free(struct command_path *p)
{
    free(p->address);
    free(p->args);
    *p = (struct command_path){0};
}

char *command_args_without(const char *args, const char *keyword)
{
    struct buf b = {0};
    for (const char *s = args; s && *s;) {
        size_t n = strcspn(s, " ");
        char *word = mem_strndup(s, n);
        if (!has_arg(word, keyword)) {
            if (b.len)
                buf_addc(&b, ' ');
            buf_adds(&b, word);
        }
        free(word);
        s += n;
        s += *s == ' ';
    }
    return b.data;
}

/* Words of the line, but for what stands in quotes or in <>. */
char *command_line_without(const char *line, const char *keyword)
{
    struct buf b = {0};
    bool quoted = false, inside = false;
    for (const char *s = line; *s;) {
        bool word = !quoted && !inside && s > line && blank(s[-1]);
        size_t n = strcspn(s, " \t");
        char *this = mem_strndup(s, n);
        if (word && has_arg(this, keyword)) {
            s += n;
            s += strspn(s, " \t");
            free(this);
            continue;
        }
        free(this);
        if (*s == '\\' && s[1])
            buf_addc(&b, *s++);
        else if (*s == '"')
            quoted = !quoted;
        else if (!quoted && (*s == '<' || *s == '>'))
            inside = *s == '<';
        buf_addc(&b, *s++);
    }
    while (b.len && blank(b.data[b.len - 1]))
        b.data[--b.len] = '\0';
    return b.data ? b.data : mem_strdup("");
}

/* ---- XFORWARD ---- */

const char *const command_xforward_name[XFORWARD_ATTRIBUTES] = {"NAME", "ADDR",  "PORT",  "PROTO",
                                                                "HELO", "IDENT", "SOURCE"};

static int hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* RFC 3461 section 4; NULL: it is none, or has a NUL. */
static char *xtext(const char *s, size_t n)
{
    char *text = mem_alloc(n + 1), *p = text;
    for (size_t i = 0; i < n; i++) {
        if (s[i] != '+') {
            *p++ = s[i];
            continue;
        }
        int high = n - i > 2 ? hex(s[i + 1]) : -1, low = n - i > 2 ? hex(s[i + 2]) : -1;
        if (high < 0 || low < 0 || (!high && !low)) {
            free(text);
            return NULL;
        }
        *p++ = (char)(high * 16 + low);
        i += 2;
    }
    *p = '\0';
    return text;
}

static int attribute(const char *s, size_t n)
{
    for (int i = 0; i < XFORWARD_ATTRIBUTES; i++)
        if (strlen(command_xforward_name[i]) == n && !strncasecmp(s, command_xforward_name[i], n))
            return i;
    return -1;
}

bool command_xforward(const char *line, char *value[XFORWARD_ATTRIBUTES])
{
    const char *s = skip_word(line, "XFORWARD");
    if (!s || !blank(*s))
        return false;
    while (*(s += strspn(s, " \t"))) {
        size_t n = strcspn(s, " \t");
        const char *sign = memchr(s, '=', n);
        int which = sign ? attribute(s, (size_t)(sign - s)) : -1;
        if (which < 0)
            return false;
        size_t len = n - (size_t)(sign + 1 - s);
        char *text = xtext(sign + 1, len);
        if (!text)
            return false;
        free(value[which]);
        bool unavailable = !strcasecmp(text, "[UNAVAILABLE]");
        value[which] = unavailable ? NULL : text;
        if (unavailable)
            free(text);
        s += n;
    }
    return true;
}
