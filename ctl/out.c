#include "ctl/out.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- what a terminal may get ---- */

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

static void escape(struct buf *b, const char *s, size_t len, const char *allowed)
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

void out_escape(struct buf *b, const char *s, size_t len)
{
    escape(b, s, len, "");
}

/* ---- printf's conversions ---- */

struct spec {
    char flags[8];
    int width, precision; /* -1: none */
    char length;          /* of the argument: 0 int, l long, L long long, z size_t */
    char conversion;
};

struct arguments {
    va_list ap;
};

static int number(const char **s, struct arguments *a)
{
    int n = 0;
    if (**s == '*') {
        ++*s;
        return va_arg(a->ap, int);
    }
    for (; **s >= '0' && **s <= '9'; ++*s)
        n = 10 * n + (**s - '0');
    return n;
}

/* s: behind the '%'. Returns what follows the conversion. */
static const char *parse(const char *s, struct spec *p, struct arguments *a)
{
    size_t n = strspn(s, "-+ #0");
    *p = (struct spec){.precision = -1};
    memcpy(p->flags, s, n < sizeof p->flags ? n : sizeof p->flags - 1);
    s += n;
    p->width = number(&s, a);
    if (p->width < 0) { /* as printf has it */
        p->width = -p->width;
        strcpy(p->flags, "-");
    }
    if (*s == '.') {
        s++;
        p->precision = number(&s, a);
    }
    if (*s == 'z' || *s == 'l')
        p->length = *s++;
    if (*s == 'l')
        p->length = 'L', s++;
    p->conversion = *s;
    return s + 1;
}

static void add_string(struct buf *b, const struct spec *p, const char *s)
{
    struct buf shown = {0};
    escape(&shown, s, p->precision >= 0 ? strnlen(s, (size_t)p->precision) : strlen(s), "");
    size_t blanks = (size_t)p->width > shown.len ? (size_t)p->width - shown.len : 0;
    bool left = strchr(p->flags, '-') != NULL;
    buf_printf(b, "%*s", left ? 0 : (int)blanks, "");
    buf_add(b, shown.data ? shown.data : "", shown.len);
    buf_printf(b, "%*s", left ? (int)blanks : 0, "");
    buf_free(&shown);
}

static void add_number(struct buf *b, const struct spec *p, struct arguments *a)
{
    char format[32];
    bool fraction = p->conversion == 'f', sign = p->conversion == 'd' || p->conversion == 'i';
    snprintf(format, sizeof format, "%%%s*.*%s%c", p->flags, fraction ? "" : "ll", p->conversion);
    if (fraction)
        buf_printf(b, format, p->width, p->precision, va_arg(a->ap, double));
    else if (p->length == 'z')
        buf_printf(b, format, p->width, p->precision, (unsigned long long)va_arg(a->ap, size_t));
    else if (p->length == 'L')
        buf_printf(b, format, p->width, p->precision, va_arg(a->ap, long long));
    else if (p->length == 'l')
        buf_printf(b, format, p->width, p->precision,
                   sign ? va_arg(a->ap, long) : (long long)va_arg(a->ap, unsigned long));
    else
        buf_printf(b, format, p->width, p->precision,
                   sign ? va_arg(a->ap, int) : (long long)va_arg(a->ap, unsigned));
}

static void add(struct buf *b, const struct spec *p, struct arguments *a)
{
    char one;
    switch (p->conversion) {
    case '%': buf_addc(b, '%'); break;
    case 's': add_string(b, p, va_arg(a->ap, const char *)); break;
    case 'c':
        one = (char)va_arg(a->ap, int);
        escape(b, &one, 1, "");
        break;
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'f': add_number(b, p, a); break;
    default: abort(); /* a conversion that nothing here needed */
    }
}

static void print(FILE *f, const char *format, va_list ap)
{
    struct buf b = {0};
    struct arguments a;
    struct spec p;
    va_copy(a.ap, ap);
    while (*format) {
        size_t n = strcspn(format, "%");
        buf_add(&b, format, n);
        format += n;
        if (*format) {
            format = parse(format + 1, &p, &a);
            add(&b, &p, &a);
        }
    }
    va_end(a.ap);
    fwrite(b.data, 1, b.len, f);
    buf_free(&b);
}

/* ---- printing ---- */

void out_list(const char *format, va_list ap)
{
    print(stdout, format, ap);
}

void out_error_list(const char *format, va_list ap)
{
    print(stderr, format, ap);
}

void out(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    print(stdout, format, ap);
    va_end(ap);
}

void out_error(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    print(stderr, format, ap);
    va_end(ap);
}

void out_json(const char *text)
{
    struct buf b = {0};
    uint32_t point = 0;
    size_t len = strlen(text);
    for (size_t i = 0, n; i < len; i += n) {
        n = character((const unsigned char *)text + i, len - i, &point);
        if (n && obeyed(point))
            buf_printf(&b, "\\u%04x", (unsigned)point);
        else
            buf_add(&b, text + i, n += !n);
    }
    buf_addc(&b, '\n');
    fwrite(b.data, 1, b.len, stdout);
    buf_free(&b);
}

void out_body(const char *data, size_t len)
{
    struct buf b = {0};
    if (!isatty(STDOUT_FILENO)) {
        fwrite(data, 1, len, stdout);
        return;
    }
    for (size_t i = 0, n; i < len; i += n) { /* CRLF is how its lines end */
        const char *end = memmem(data + i, len - i, "\r\n", 2);
        n = end ? (size_t)(end - data) - i : len - i;
        escape(&b, data + i, n, "\n\t");
        if (end)
            buf_adds(&b, "\n"), n += 2;
    }
    fwrite(b.data ? b.data : "", 1, b.len, stdout);
    buf_free(&b);
}
