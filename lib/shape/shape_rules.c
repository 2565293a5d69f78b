/* Rules as text, and changes to them. */
#include "lib/shape/shape_rules.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- one rule ---- */

static void rule_clear(struct shape_rule *r)
{
    for (size_t i = 0; i < r->n; i++) {
        free(r->setting[i].word);
        free(r->setting[i].value);
    }
    free(r->setting);
    free(r->pattern);
    free(r->class);
    free(r->by);
}

static void replace(char **text, const char *fresh)
{
    free(*text);
    *text = mem_strdup(fresh);
}

void shape_rule_set(struct shape_rule *r, const char *word, const char *value)
{
    size_t i = 0;
    while (i < r->n && strcmp(r->setting[i].word, word) != 0)
        i++;
    if (i < r->n && value) {
        replace(&r->setting[i].value, value);
    } else if (value) {
        r->setting = mem_grow(r->setting, (r->n + 1) * sizeof *r->setting);
        r->setting[r->n++] = (struct shape_setting){mem_strdup(word), mem_strdup(value)};
    } else if (i < r->n) {
        free(r->setting[i].word);
        free(r->setting[i].value);
        memmove(&r->setting[i], &r->setting[i + 1], (--r->n - i) * sizeof *r->setting);
    }
}

const char *shape_rule_value(const struct shape_rule *r, const char *word)
{
    for (size_t i = 0; i < r->n; i++)
        if (!strcmp(r->setting[i].word, word))
            return r->setting[i].value;
    return NULL;
}

/* ---- all of them ---- */

struct shape_rule *shape_rules_find(const struct shape_rules *all, const char *pattern,
                                    const char *class)
{
    for (size_t i = 0; i < all->n; i++)
        if (!strcasecmp(all->rule[i].pattern, pattern) && !strcmp(all->rule[i].class, class))
            return &all->rule[i];
    return NULL;
}

static struct shape_rule *add(struct shape_rules *all, const struct shape_rule *r)
{
    all->rule = mem_grow(all->rule, (all->n + 1) * sizeof *all->rule);
    all->rule[all->n] = *r;
    return &all->rule[all->n++];
}

struct shape_rule *shape_rules_get(struct shape_rules *all, const char *pattern, const char *class)
{
    struct shape_rule *r = shape_rules_find(all, pattern, class);
    return r ? r
             : add(all, &(struct shape_rule){.pattern = mem_strdup(pattern),
                                             .class = mem_strdup(class),
                                             .by = mem_strdup("")});
}

void shape_rules_remove(struct shape_rules *all, struct shape_rule *r)
{
    size_t i = (size_t)(r - all->rule);
    rule_clear(r);
    memmove(r, r + 1, (--all->n - i) * sizeof *r);
}

void shape_rules_free(struct shape_rules *all)
{
    for (size_t i = 0; i < all->n; i++)
        rule_clear(&all->rule[i]);
    free(all->rule);
    *all = (struct shape_rules){0};
}

/* ---- as text ---- */

static void print_rule(const struct shape_rule *r, struct buf *out)
{
    buf_adds(out, r->pattern);
    if (*r->class)
        buf_printf(out, "\tclass=%s", r->class);
    if (*r->by)
        buf_printf(out, "\tby=%s", r->by);
    if (r->at)
        buf_printf(out, "\tat=%lld", (long long)r->at);
    for (size_t i = 0; i < r->n; i++)
        buf_printf(out, "\t%s=%s", r->setting[i].word, r->setting[i].value);
    buf_addc(out, '\n');
}

void shape_rules_print(const struct shape_rules *all, struct buf *out)
{
    for (size_t i = 0; i < all->n; i++)
        print_rule(&all->rule[i], out);
}

/* NULL, or what is wrong. */
static char *take_field(struct shape_rule *r, char *field)
{
    char *value = strchr(field, '=');
    if (!value || value == field)
        return mem_printf("rule %s: \"%s\" is no word with a value, write it like rate=100/s",
                          r->pattern, field);
    *value++ = '\0';
    if (!strcmp(field, "class"))
        replace(&r->class, value);
    else if (!strcmp(field, "by"))
        replace(&r->by, value);
    else if (!strcmp(field, "at"))
        r->at = strtoll(value, NULL, 10);
    else
        shape_rule_set(r, field, value);
    return NULL;
}

static char *parse_line(struct shape_rule *r, char *line)
{
    char *rest = line, *pattern = strsep(&rest, "\t"), *wrong = shape_pattern_wrong(pattern);
    *r = (struct shape_rule){
        .pattern = mem_strdup(pattern), .class = mem_strdup(""), .by = mem_strdup("")};
    while (rest && !wrong)
        wrong = take_field(r, strsep(&rest, "\t"));
    if (!wrong && *r->class)
        wrong = shape_class_wrong(r->class);
    return wrong;
}

void shape_rules_parse(struct shape_rules *all, const char *text,
                       void (*wrong)(void *arg, const char *why), void *arg)
{
    while (*text) {
        size_t len = strcspn(text, "\n");
        char *line = mem_strndup(text, len), *why = NULL;
        struct shape_rule r = {0};
        if (len)
            why = parse_line(&r, line);
        if (len && !why)
            add(all, &r);
        else
            rule_clear(&r);
        if (why && wrong)
            wrong(arg, why);
        free(why);
        free(line);
        text += len + (text[len] == '\n');
    }
}
