#include "lib/mail/mime.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lib/mail/envelope.h"
#include "lib/base/mem.h"

struct block {
    bool eight;   /* Content-Transfer-Encoding: 8bit, binary */
    bool parts;   /* Content-Type: multipart or message */
    bool message; /* Content-Type: message */
};

static const char *end_of_line(const char *p, const char *end)
{
    const char *lf = memchr(p, '\n', (size_t)(end - p));
    return lf ? lf + 1 : end;
}

static bool blank(char c)
{
    return c == ' ' || c == '\t';
}

/* The value of the header at p when its name is this, without white space before it; else NULL. */
static const char *value_of(const char *p, const char *end, const char *name)
{
    size_t n = strlen(name);
    if ((size_t)(end - p) <= n || strncasecmp(p, name, n) || p[n] != ':')
        return NULL;
    for (p += n + 1; p < end && (blank(*p) || *p == '\r' || *p == '\n'); p++)
        ;
    return p;
}

static bool is(const char *value, const char *end, const char *word)
{
    size_t n = strlen(word);
    while (end > value && (end[-1] == '\n' || end[-1] == '\r'))
        end--;
    return (size_t)(end - value) == n && !strncasecmp(value, word, n);
}

static bool begins(const char *value, const char *end, const char *word)
{
    size_t n = strlen(word);
    return (size_t)(end - value) >= n && !strncasecmp(value, word, n);
}

static void look(const char *p, const char *end, struct block *b)
{
    const char *value = value_of(p, end, "Content-Transfer-Encoding");
    if (value)
        b->eight |= is(value, end, "8bit") || is(value, end, "binary");
    value = value_of(p, end, "Content-Type");
    if (value) {
        b->message = begins(value, end, "message/");
        b->parts = b->message || begins(value, end, "multipart/");
    }
}

/* true when the line has a name and a colon. */
static bool is_header(const char *p, const char *end)
{
    const char *s = p;
    while (s<end && * s> ' ' && *s < 0x7f && *s != ':')
        s++;
    while (s > p && s < end && blank(*s))
        s++;
    return s > p && s < end && *s == ':';
}

/* Reads one header; where its body begins. */
static const char *read_block(const char *p, const char *end, struct block *b)
{
    *b = (struct block){0};
    while (p < end && is_header(p, end)) {
        const char *next = end_of_line(p, end);
        while (next < end && blank(*next))
            next = end_of_line(next, end);
        look(p, next, b);
        p = next;
    }
    if (p < end && (*p == '\n' || (*p == '\r' && p + 1 < end && p[1] == '\n')))
        p = end_of_line(p, end);
    return p;
}

bool mime_says_8bit(const char *message, size_t len)
{
    const char *end = message + len, *p = message;
    struct block b;
    p = read_block(p, end, &b);
    bool parts = b.parts;
    while (!b.eight && parts && p < end) {
        if (b.message) {
            p = read_block(p, end, &b);
        } else if (*p == '-' && p + 1 < end && p[1] == '-') {
            p = read_block(end_of_line(p, end), end, &b);
        } else {
            p = end_of_line(p, end);
        }
    }
    return b.eight;
}

void mime_note_8bit(char **args, const char *message, size_t len)
{
    char *body = envelope_arg(*args, "BODY");
    bool known = body && !strcasecmp(body, "8BITMIME");
    free(body);
    if (known || !mime_says_8bit(message, len))
        return;
    struct buf b = {0};
    for (const char *s = *args ? *args : ""; *s;) {
        size_t n = strcspn(s, " ");
        if (strncasecmp(s, "BODY=", 5)) {
            buf_add(&b, s, n);
            buf_addc(&b, ' ');
        }
        s += n + strspn(s + n, " ");
    }
    buf_adds(&b, "BODY=8BITMIME");
    free(*args);
    *args = b.data;
}
