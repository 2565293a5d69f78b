#include "lib/shape/backoff.h"

#include <errno.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lib/base/mem.h"
#include "lib/base/units.h"
#include "lib/shape/shape_rules.h"
#include "lib/shape/shape_work.h"

#define TEXT_MOST 2000 /* bytes of a reply that are looked at */
#define LONGEST (7 * 86400000LL)
#define CONNECTIONS_MOST 100000

struct rule {
    struct backoff_rule is;
    bool nothing;  /* not handed out */
    char *pattern; /* NULL: any next hop */
    char code[4];
    char *dsn; /* NULL: any */
    regex_t regex;
    bool has_regex;
};

struct backoff_rules {
    size_t n;
    struct rule *rule;
};

static const char *const kind_name[] = {"suspend", "rate", "connections"};

/* ---- reading: one line ---- */

/* The next word, cut off at the blank behind it; NULL at the end. */
static char *next_word(char **rest)
{
    char *s = *rest + strspn(*rest, " \t"), *end = s + strcspn(s, " \t");
    if (!*s)
        return NULL;
    *rest = *end ? end + 1 : end;
    *end = '\0';
    return s;
}

static bool is_code(const char *s)
{
    return strlen(s) == 3 && (*s == '4' || *s == '5') && strspn(s + 1, "0123456789xX") == 2;
}

static bool is_dsn(const char *s)
{
    return (*s == '4' || *s == '5') && s[1] == '.' && strlen(s) <= 12 &&
           strspn(s, "0123456789.*") == strlen(s);
}

/* "a text", with \" for a quote. NULL, or what is wrong. */
static char *read_text(char **rest, char **text_r)
{
    char *s = *rest + strspn(*rest, " \t"), *to;
    *text_r = NULL;
    if (*s == '*' && (s[1] == ' ' || s[1] == '\t')) {
        *rest = s + 1;
        return NULL;
    }
    if (*s++ != '"')
        return mem_strdup("behind the enhanced code comes the \"text\" in quotes, or * for any");
    for (*text_r = to = s; *s && *s != '"'; s++) {
        if (*s == '\\' && s[1] == '"')
            s++;
        *to++ = *s;
    }
    if (!*s)
        return mem_strdup("the quote behind the text is missing");
    *rest = s + 1;
    *to = '\0';
    return NULL;
}

/* glibc takes \1, too, and needs time without bound then: a next hop could stop the relay. */
static bool refers_back(const char *regex)
{
    for (const char *s = strchr(regex, '\\'); s && s[1]; s = strchr(s + 2, '\\'))
        if (s[1] >= '1' && s[1] <= '9')
            return true;
    return false;
}

static char *read_regex(struct rule *r, const char *text)
{
    char why[120];
    if (!text)
        return NULL;
    if (refers_back(text))
        return mem_printf("\"%s\": no \\1 to \\9, a hostile reply makes such an expression run "
                          "for ever",
                          text);
    int e = regcomp(&r->regex, text, REG_EXTENDED | REG_ICASE | REG_NOSUB);
    r->has_regex = !e;
    if (!e)
        return NULL;
    regerror(e, &r->regex, why, sizeof why);
    return mem_printf("\"%s\": %s", text, why);
}

static char *read_amount(struct rule *r, const char *value)
{
    char *end;
    bool rate = r->is.kind == BACKOFF_RATE;
    r->is.value = value && *value >= '0' && *value <= '9' ? strtod(value, &end) : 0;
    if (r->is.value > 0 && !*end &&
        (r->is.value < 1 ||
         (!rate && r->is.value <= CONNECTIONS_MOST && r->is.value == (double)(int)r->is.value)))
        return NULL;
    return mem_printf(rate ? "rate %s: write a factor above 0 and below 1 and a time: rate 0.5 30m"
                           : "connections %s: write how many, or a factor below 1, and a time: "
                             "connections 1 10m",
                      value ? value : "");
}

static char *read_action(struct rule *r, char *rest)
{
    char *kind = next_word(&rest);
    int i = kind ? 2 : -1;
    r->nothing = kind && !strcasecmp(kind, "nothing") && !rest[strspn(rest, " \t")];
    if (r->nothing) {
        r->is.name = mem_strdup(kind);
        return NULL;
    }
    while (i >= 0 && strcasecmp(kind, kind_name[i]) != 0)
        i--;
    if (i < 0)
        return mem_printf(
            "%s is no action: suspend 15m, rate 0.5 30m, connections 1 10m, or nothing",
            kind ? kind : "nothing");
    r->is.kind = (enum backoff_kind)i;
    char *value = i == BACKOFF_SUSPEND ? NULL : next_word(&rest),
         *wrong = i == BACKOFF_SUSPEND ? NULL : read_amount(r, value);
    if (wrong)
        return wrong;
    char *time = next_word(&rest), *more = next_word(&rest);
    if (!time || !units_time(time, &r->is.ms) || r->is.ms < 1000 || r->is.ms > LONGEST)
        return mem_printf("%s is no time from 1s to 7d, write it like %s", time ? time : "nothing",
                          UNITS_TIMES);
    if (more)
        return mem_printf("%s is too much: the time is the last word of a rule", more);
    r->is.name = mem_printf("%s%s%s %s", kind_name[i], value ? " " : "", value ? value : "", time);
    return NULL;
}

static char *read_rule(struct rule *r, char *line)
{
    char *rest = line, *word = next_word(&rest), *text, *wrong;
    if (!is_code(word)) {
        wrong = shape_pattern_wrong(word);
        if (wrong)
            return wrong;
        r->pattern = mem_strdup(word);
        word = next_word(&rest);
    }
    if (!word || !is_code(word))
        return mem_printf("%s is no code of a refusal: 421, 45x, 4xx, 554",
                          word ? word : "nothing");
    memcpy(r->code, word, sizeof r->code);
    word = next_word(&rest);
    if (!word || (strcmp(word, "*") != 0 && !is_dsn(word)))
        return mem_printf("%s is no enhanced code: 4.7.28, 4.7.*, or * for any",
                          word ? word : "nothing");
    r->dsn = strcmp(word, "*") != 0 ? mem_strdup(word) : NULL;
    wrong = read_text(&rest, &text);
    if (!wrong)
        wrong = read_regex(r, text);
    return wrong ? wrong : read_action(r, rest);
}

/* ---- reading: the file ---- */

static void rule_clear(struct rule *r)
{
    if (r->has_regex)
        regfree(&r->regex);
    free(r->pattern);
    free(r->dsn);
    free(r->is.name);
}

void backoff_rules_free(struct backoff_rules *all)
{
    if (!all)
        return;
    for (size_t i = 0; i < all->n; i++)
        rule_clear(&all->rule[i]);
    free(all->rule);
    free(all);
}

/* NULL, or the error. */
static char *take_line(struct backoff_rules *all, char *line, const char *path, unsigned number)
{
    const char *file = strrchr(path, '/');
    struct rule r = {.is.line = number};
    line[strcspn(line, "\r\n")] = '\0';
    line += strspn(line, " \t");
    if (!*line || *line == '#')
        return NULL;
    char *wrong = read_rule(&r, line), *action = r.is.name;
    if (wrong) {
        char *error = mem_printf("%s:%u: %s", path, number, wrong);
        free(wrong);
        rule_clear(&r);
        return error;
    }
    r.is.name = mem_printf("%s:%u (%s)", file ? file + 1 : path, number, action);
    free(action);
    all->rule = mem_grow(all->rule, (all->n + 1) * sizeof *all->rule);
    all->rule[all->n++] = r;
    return NULL;
}

struct backoff_rules *backoff_rules_read(const char *path, char **error_r)
{
    struct backoff_rules *all = mem_zero(sizeof *all);
    char *line = NULL, *error = NULL;
    size_t size = 0;
    unsigned number = 0;
    FILE *in = fopen(path, "re");
    if (!in)
        error = mem_printf("%s: %s", path, strerror(errno));
    while (!error && getline(&line, &size, in) > 0)
        error = take_line(all, line, path, ++number);
    if (!error && ferror(in))
        error = mem_printf("%s: %s", path, strerror(errno));
    free(line);
    if (in)
        fclose(in);
    if (!error)
        return all;
    backoff_rules_free(all);
    *error_r = error;
    return NULL;
}

size_t backoff_rules_count(const struct backoff_rules *all)
{
    return all->n;
}

const struct backoff_rule *backoff_rules_at(const struct backoff_rules *all, size_t n)
{
    return &all->rule[n].is;
}

/* ---- finding ---- */

static bool fits_code(const char *pattern, int code)
{
    char digits[16];
    snprintf(digits, sizeof digits, "%03d", code);
    if (strlen(digits) != 3)
        return false;
    for (int i = 0; i < 3; i++)
        if (pattern[i] != digits[i] && pattern[i] != 'x' && pattern[i] != 'X')
            return false;
    return true;
}

/* Part by part: "4.7.*" fits "4.7.28". */
static bool fits_dsn(const char *pattern, const char *dsn)
{
    for (;;) {
        size_t n = strcspn(pattern, "."), m = strcspn(dsn, ".");
        if (strncmp(pattern, "*", n) != 0 && (n != m || strncmp(pattern, dsn, n) != 0))
            return false;
        if (!pattern[n] || !dsn[m])
            return pattern[n] == dsn[m];
        pattern += n + 1;
        dsn += m + 1;
    }
}

/* In one line, without the enhanced code that the lines of a reply begin with; malloc'd. */
static char *in_one_line(const char *text, const char *dsn)
{
    struct buf b = {0};
    size_t n = strlen(dsn);
    bool begins = true;
    for (const char *s = text; *s && b.len < TEXT_MOST; s++) {
        bool blank = *s == ' ' || *s == '\t' || *s == '\r' || *s == '\n';
        if (begins && n && !strncmp(s, dsn, n) && (!s[n] || strchr(" \t\r\n", s[n]))) {
            s += n - 1;
            continue;
        }
        if (!blank)
            buf_addc(&b, *s);
        else if (b.len && b.data[b.len - 1] != ' ')
            buf_addc(&b, ' ');
        begins = blank;
    }
    return b.data ? b.data : mem_strdup("");
}

const struct backoff_rule *backoff_rules_find(const struct backoff_rules *all,
                                              const char *destination, int code, const char *dsn,
                                              const char *text)
{
    const struct rule *r = NULL, *end = all->rule + all->n;
    if (!dsn)
        dsn = "";
    char *line = in_one_line(text ? text : "", dsn);
    for (r = all->rule; r < end; r++)
        if (fits_code(r->code, code) && (!r->dsn || fits_dsn(r->dsn, dsn)) &&
            (!r->pattern || shape_pattern_fits(r->pattern, destination)) &&
            (!r->has_regex || !regexec(&r->regex, line, 0, NULL, 0)))
            break;
    free(line);
    return r < end && !r->nothing ? &r->is : NULL;
}
