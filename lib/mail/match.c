#include "lib/mail/match.h"

#include <arpa/inet.h>
#include <fnmatch.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lib/base/clock.h"
#include "lib/base/units.h"

static const char *const kind_name[MATCH_KINDS] = {
    "id", "sender", "rcpt", "dest", "sasl-user", "client", "age", "size", "error", "header", "all"};

const char *match_name(enum match_kind kind)
{
    return kind_name[kind];
}

struct match_rule {
    enum match_kind kind;
    char *text;
    bool below;   /* age, size */
    double limit; /* seconds; bytes */
    regex_t regex;
    bool has_regex;
    int family; /* client as a network, 0: a glob */
    unsigned char net[16];
    unsigned bits;
};

/* ---- taking them in ---- */

static char *network(struct match_rule *r)
{
    char *address = mem_strdup(r->text), *slash = strchr(address, '/'), *wrong = NULL;
    unsigned most = strchr(address, ':') ? 128 : 32;
    r->bits = most;
    if (slash) {
        char *end;
        *slash = '\0';
        unsigned long bits = strtoul(slash + 1, &end, 10);
        if (!slash[1] || *end || bits > most)
            wrong = mem_printf("--client %s: a network has 0 to %u bits", r->text, most);
        r->bits = (unsigned)bits;
    }
    int family = most == 128 ? AF_INET6 : AF_INET;
    if (!wrong && inet_pton(family, address, r->net) == 1)
        r->family = family;
    else if (!wrong && slash)
        wrong = mem_printf("--client %s: %s is no address", r->text, address);
    free(address);
    return wrong;
}

/* glibc takes \1, too, and needs time without bound then: with a rule of the milter's, every
 * sender could stop it. */
static bool refers_back(const char *regex)
{
    for (const char *s = strchr(regex, '\\'); s && s[1]; s = strchr(s + 2, '\\'))
        if (s[1] >= '1' && s[1] <= '9')
            return true;
    return false;
}

static char *take_value(struct match_rule *r)
{
    if (strchr(r->text, '\n'))
        return mem_printf("--%s: more than one line", kind_name[r->kind]);
    if (r->kind == MATCH_CLIENT)
        return network(r);
    if (r->kind == MATCH_AGE || r->kind == MATCH_SIZE) {
        r->below = *r->text == '<';
        bool age = r->kind == MATCH_AGE;
        const char *text = r->text + strspn(r->text, "<> =");
        int64_t v;
        if (age ? !units_time(text, &v) : !units_size(text, &v))
            return mem_printf("--%s %s: write it like %s", kind_name[r->kind], r->text,
                              age ? UNITS_TIMES "; with < in front for less"
                                  : UNITS_SIZES "; with < in front for smaller");
        r->limit = age ? (double)v / 1000. : (double)v;
        return NULL;
    }
    if (r->kind != MATCH_ERROR && r->kind != MATCH_HEADER)
        return NULL;
    if (refers_back(r->text))
        return mem_printf(
            "--%s %s: no \\1 to \\9, a hostile mail makes such an expression run for ever",
            kind_name[r->kind], r->text);
    int e = regcomp(&r->regex, r->text, REG_EXTENDED | REG_ICASE | REG_NOSUB | REG_NEWLINE);
    r->has_regex = !e;
    if (!e)
        return NULL;
    char why[120];
    regerror(e, &r->regex, why, sizeof why);
    return mem_printf("--%s %s: %s", kind_name[r->kind], r->text, why);
}

char *match_add(struct match *m, enum match_kind kind, const char *value)
{
    struct match_rule r = {.kind = kind, .text = mem_strdup(value ? value : "")};
    char *wrong = take_value(&r);
    if (wrong) {
        free(r.text);
        return wrong;
    }
    m->rule = mem_grow(m->rule, (m->n + 1) * sizeof *m->rule);
    m->rule[m->n++] = r;
    return NULL;
}

bool match_has(const struct match *m, enum match_kind kind)
{
    for (size_t i = 0; i < m->n; i++)
        if (m->rule[i].kind == kind)
            return true;
    return false;
}

void match_free(struct match *m)
{
    for (size_t i = 0; i < m->n; i++) {
        free(m->rule[i].text);
        if (m->rule[i].has_regex)
            regfree(&m->rule[i].regex);
    }
    free(m->rule);
    *m = (struct match){0};
}

/* ---- as texts ---- */

char *match_text(const struct match *m)
{
    struct buf b = {0};
    for (size_t i = 0; i < m->n; i++) {
        buf_printf(&b, "%s--%s", i ? " " : "", kind_name[m->rule[i].kind]);
        if (m->rule[i].kind != MATCH_ALL)
            buf_printf(&b, " '%s'", m->rule[i].text);
    }
    return b.data ? b.data : mem_strdup("");
}

void match_print(const struct match *m, struct buf *out)
{
    for (size_t i = 0; i < m->n; i++)
        buf_printf(out, "%s %s\n", kind_name[m->rule[i].kind], m->rule[i].text);
}

static char *parse_line(struct match *m, const char *line, size_t len)
{
    for (int kind = 0; kind < MATCH_KINDS; kind++) {
        size_t n = strlen(kind_name[kind]);
        if (len <= n || strncmp(line, kind_name[kind], n) || line[n] != ' ')
            continue;
        char *value = mem_strndup(line + n + 1, len - n - 1),
             *wrong = match_add(m, (enum match_kind)kind, value);
        free(value);
        return wrong;
    }
    return mem_printf("unknown: %.*s", (int)(len > 80 ? 80 : len), line);
}

char *match_parse(struct match *m, const char *text, size_t len)
{
    const char *end = text + len;
    while (text < end) {
        const char *eol = memchr(text, '\n', (size_t)(end - text));
        size_t n = (size_t)((eol ? eol : end) - text);
        char *wrong = n ? parse_line(m, text, n) : NULL;
        if (wrong)
            return wrong;
        text += n + 1;
    }
    return NULL;
}

/* ---- does it fit ---- */

/* What is written exactly like the text fits, whatever it has of *, ? and [. */
static bool glob(const char *pattern, const char *text)
{
    if (!text)
        text = "";
    return !strcasecmp(pattern, text) || fnmatch(pattern, text, FNM_CASEFOLD) == 0;
}

/* A next hop is written with brackets ("smtp:[10.0.0.5]:25"), and these mean themselves. Beside
 * * and ? a set of letters works, too, as in other globs. */
static bool glob_destination(const char *pattern, const char *text)
{
    struct buf plain = {0};
    buf_adds(&plain, "");
    for (const char *s = pattern; *s; s++)
        buf_printf(&plain, "%s%c", *s == '[' ? "\\" : "", *s);
    bool fits = glob(plain.data, text) || glob(pattern, text);
    buf_free(&plain);
    return fits;
}

static bool in_network(const struct match_rule *r, const char *address)
{
    unsigned char a[16];
    if (!address || inet_pton(r->family, address, a) != 1)
        return false;
    unsigned whole = r->bits / 8, rest = r->bits % 8;
    return !memcmp(a, r->net, whole) && (!rest || !((a[whole] ^ r->net[whole]) >> (8 - rest)));
}

static bool open_still(const struct recipient *r)
{
    return r->state == RECIPIENT_WAITING || r->state == RECIPIENT_FAILED;
}

static bool any_recipient(const struct match_rule *r, const struct match_facts *f)
{
    for (size_t i = 0; i < f->envelope->nrecipients; i++) {
        const struct recipient *to = &f->envelope->recipient[i];
        const char *error = r->kind == MATCH_ERROR && f->error ? f->error(f->arg, to) : "";
        if (open_still(to) &&
            (r->kind == MATCH_RCPT ? glob(r->text, to->address)
                                   : *error && !regexec(&r->regex, error, 0, NULL, 0)))
            return true;
    }
    return false;
}

/* Header lines, each unfolded. */
static bool any_header(const struct match_rule *r, const struct match_facts *f)
{
    struct buf line = {0};
    bool found = false;
    const char *s;
    size_t len;
    if (!f->message || !f->message(f->arg, &s, &len))
        return false;
    const char *end = s + len;
    while (s < end && !found) {
        const char *lf = memchr(s, '\n', (size_t)(end - s)), *eol = lf ? lf : end;
        size_t n = (size_t)(eol - s);
        if (n && s[n - 1] == '\r')
            n--;
        if (!n)
            break;
        buf_add(&line, s, n);
        s = eol + 1;
        if (s < end && (*s == ' ' || *s == '\t'))
            continue;
        found = strlen(line.data) == line.len && !regexec(&r->regex, line.data, 0, NULL, 0);
        buf_consume(&line, line.len);
    }
    buf_free(&line);
    return found;
}

static bool id_fits(const struct match_rule *r, const struct match_facts *f)
{
    char hex[ENTRYID_HEX];
    if (f->id) {
        entryid_hex(f->id, hex);
        if (!strcasecmp(r->text, hex))
            return true;
    }
    return f->envelope && f->envelope->queue_id && !strcmp(r->text, f->envelope->queue_id);
}

static bool fits(const struct match_rule *r, const struct match_facts *f)
{
    const struct envelope *e = f->envelope;
    if (r->kind == MATCH_ALL)
        return true;
    if (r->kind == MATCH_ID)
        return id_fits(r, f);
    if (r->kind == MATCH_DEST)
        return f->destination && glob_destination(r->text, f->destination);
    if (!e)
        return false;
    double age = (double)(clock_wall() - e->arrived) / 1e6, size = (double)e->size;
    switch (r->kind) {
    case MATCH_SENDER: return glob(r->text, e->sender);
    case MATCH_SASL_USER: return e->login && *e->login && glob(r->text, e->login);
    case MATCH_CLIENT:
        return r->family ? in_network(r, e->client_addr)
                         : glob(r->text, e->client_addr) || glob(r->text, e->client_name);
    case MATCH_AGE: return r->below ? age < r->limit : age >= r->limit;
    case MATCH_SIZE: return r->below ? size < r->limit : size >= r->limit;
    case MATCH_RCPT:
    case MATCH_ERROR: return any_recipient(r, f);
    default: return any_header(r, f);
    }
}

/* skip: kinds, as bits, that count as fitting. */
static bool all_kinds_fit(const struct match *m, const struct match_facts *f, unsigned skip)
{
    /* The dear one, which reads the message, is the last kind but one. */
    for (int kind = 0; kind < MATCH_KINDS; kind++) {
        bool asked = false, fitted = false;
        for (size_t i = 0; i < m->n && !fitted; i++)
            if ((int)m->rule[i].kind == kind && !(skip >> kind & 1)) {
                asked = true;
                fitted = fits(&m->rule[i], f);
            }
        if (asked && !fitted)
            return false;
    }
    return true;
}

bool match_fits(const struct match *m, const struct match_facts *f)
{
    return all_kinds_fit(m, f, 0);
}

bool match_may_fit(const struct match *m, const struct match_facts *f)
{
    return all_kinds_fit(
        m, f, 1u << MATCH_SASL_USER | 1u << MATCH_CLIENT | 1u << MATCH_SIZE | 1u << MATCH_HEADER);
}
