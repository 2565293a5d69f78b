/* Sections `shape`: their words are lib/shape's. */
#include "lib/config/config_work.h"

#include <confuse.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/config/nexthop.h"
#include "lib/shape/shape_rules.h"

/* The pattern of a section, spelled as lanes are named; malloc'd. Its title has a number behind it
 * (config_text_apart). */
static char *pattern_of(struct cfg_t *section)
{
    const char *title = cfg_title(section);
    char *pattern = mem_strndup(title, strcspn(title, CONFIG_TEXT_APART)),
         *spelled = nexthop_spell(pattern);
    free(pattern);
    return spelled;
}

/* "" without. */
static const char *class_of(struct cfg_t *section)
{
    const char *class = cfg_getstr(section, "class");
    return class ? class : "";
}

int config_shape_check_word(struct cfg_t *section, struct cfg_opt_t *opt)
{
    const char *word = cfg_opt_name(opt), *value = cfg_opt_getnstr(opt, cfg_opt_size(opt) - 1);
    char *wrong = !strcmp(word, "class") ? shape_class_wrong(value) : shape_word_wrong(word, value);
    if (!wrong)
        return 0;
    char *pattern = pattern_of(section);
    cfg_error(section, "shape \"%s\": %s", pattern, wrong);
    free(pattern);
    free(wrong);
    return -1;
}

static char *next_hop_wrong(const char *pattern)
{
    struct nexthop hop;
    if (!shape_pattern_is_exact(pattern))
        return NULL;
    if (nexthop_parse(pattern, &hop)) {
        nexthop_free(&hop);
        return NULL;
    }
    return mem_printf("it is no next hop that mail can be diverted for, so the rule is for none. "
                      "Write it as in divert, \"smtp:[mx1.example.net]:25\", or as a pattern, "
                      "\".example.net\" or \"*\"");
}

/* Below it: the sections before. */
static char *twice(struct cfg_t *cfg, const char *pattern, const char *class, unsigned below)
{
    for (unsigned i = 0; i < below; i++) {
        struct cfg_t *other = cfg_getnsec(cfg, "shape", i);
        char *theirs = pattern_of(other);
        bool same = !strcmp(theirs, pattern) && !strcmp(class_of(other), class);
        free(theirs);
        if (same)
            return mem_printf("it has a section already%s%s: put the words into one, or name "
                              "another class",
                              *class ? " for class " : "", class);
    }
    return NULL;
}

static char *class_words_wrong(struct cfg_t *section)
{
    char *wrong = NULL;
    for (size_t i = 0; *class_of(section) && !wrong && shape_word_name(i); i++)
        if (cfg_getstr(section, shape_word_name(i)))
            wrong = shape_class_word_wrong(class_of(section), shape_word_name(i));
    return wrong;
}

/* Called when a section ends, so that the error has a line: that of its closing brace. */
int config_shape_check(struct cfg_t *cfg, struct cfg_opt_t *opt)
{
    unsigned n = cfg_opt_size(opt) - 1;
    struct cfg_t *section = cfg_opt_getnsec(opt, n);
    char *pattern = pattern_of(section), *wrong = shape_pattern_wrong(pattern);
    if (!wrong)
        wrong = next_hop_wrong(pattern);
    if (!wrong)
        wrong = twice(cfg, pattern, class_of(section), n);
    if (!wrong)
        wrong = class_words_wrong(section);
    if (!wrong && cfg_getstr(section, "suspend_until") && !cfg_getstr(section, "suspend"))
        wrong = mem_printf("suspend_until = %s without suspend: write the reason, suspend = "
                           "\"...\", or leave both away",
                           cfg_getstr(section, "suspend_until"));
    if (wrong)
        cfg_error(cfg, "shape \"%s\": %s", pattern, wrong);
    int result = wrong ? -1 : 0;
    free(pattern);
    free(wrong);
    return result;
}

static void read_section(struct shape_rules *all, struct cfg_t *section)
{
    char *pattern = pattern_of(section);
    struct shape_rule *rule = shape_rules_get(all, pattern, class_of(section));
    free(pattern);
    for (size_t i = 0; shape_word_name(i); i++)
        if (cfg_getstr(section, shape_word_name(i)))
            shape_rule_set(rule, shape_word_name(i), cfg_getstr(section, shape_word_name(i)));
}

char *config_shape_read(struct cfg_t *cfg)
{
    struct shape_rules all = {0};
    struct buf text = {0};
    buf_adds(&text, "");
    for (unsigned i = 0; i < cfg_size(cfg, "shape"); i++)
        read_section(&all, cfg_getnsec(cfg, "shape", i));
    shape_rules_print(&all, &text);
    shape_rules_free(&all);
    return text.data ? text.data : mem_strdup("");
}
