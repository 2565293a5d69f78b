#include "relay/smtp/smtp_features.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct word {
    const char *name;
    unsigned features;
};

static const struct word keywords[] = {
    {"PIPELINING", SMTP_PIPELINING},
    {"CHUNKING", SMTP_CHUNKING},
    {"8BITMIME", SMTP_8BITMIME},
    {"SMTPUTF8", SMTP_UTF8},
    {"SIZE", SMTP_SIZE},
    {"DSN", SMTP_DSN},
    {"STARTTLS", SMTP_STARTTLS},
    {"XFORWARD", SMTP_XFORWARD},
    {"XCLIENT", SMTP_XCLIENT},
    {"ENHANCEDSTATUSCODES", SMTP_ENHANCED},
};

static const struct word attributes[] = {
    {"NAME", SMTP_XFORWARD_NAME | SMTP_XCLIENT_NAME},
    {"ADDR", SMTP_XFORWARD_ADDR | SMTP_XCLIENT_ADDR},
    {"PORT", SMTP_XFORWARD_PORT | SMTP_XCLIENT_PORT},
    {"PROTO", SMTP_XFORWARD_PROTO | SMTP_XCLIENT_PROTO},
    {"HELO", SMTP_XFORWARD_HELO | SMTP_XCLIENT_HELO},
    {"IDENT", SMTP_XFORWARD_IDENT},
    {"LOGIN", SMTP_XCLIENT_LOGIN},
};

/* A word ends with a blank, its line or the text; some old servers write '=' behind the keyword. */
static size_t word_length(const char *p)
{
    return strcspn(p, " =\n");
}

static unsigned find(const struct word *list, size_t n, const char *p, size_t len)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(list[i].name) == len && !strncasecmp(p, list[i].name, len))
            return list[i].features;
    return 0;
}

static unsigned keyword(const char *p, size_t len)
{
    return find(keywords, sizeof keywords / sizeof *keywords, p, len);
}

unsigned smtp_features_named(const char *name)
{
    return keyword(name, strlen(name));
}

/* Digits only: a number that is cut, or signed, is none. */
static uint64_t size_limit(const char *p)
{
    size_t digits = strspn(p, "0123456789");
    errno = 0;
    unsigned long long v =
        digits && (!p[digits] || p[digits] == ' ' || p[digits] == '\n') ? strtoull(p, NULL, 10) : 0;
    return errno ? 0 : v;
}

static void line(const char *p, struct smtp_features *out)
{
    size_t len = word_length(p);
    unsigned features = keyword(p, len);
    p += len;
    p += strspn(p, " =");
    if (features == SMTP_SIZE) {
        out->size_limit = size_limit(p);
    } else if (features == SMTP_XFORWARD || features == SMTP_XCLIENT) {
        unsigned offered = 0;
        for (; *p && *p != '\n'; p += strspn(p, " =")) {
            len = word_length(p);
            offered |= find(attributes, sizeof attributes / sizeof *attributes, p, len);
            p += len;
        }
        features &= offered;
    }
    out->set |= features;
}

void smtp_features_parse(const struct smtp_reply *r, struct smtp_features *out)
{
    *out = (struct smtp_features){0};
    /* The first line is the server's name and greeting. */
    for (const char *p = r->text.len ? strchr(r->text.data, '\n') : NULL; p;
         p = strchr(p + 1, '\n'))
        line(p + 1, out);
}
