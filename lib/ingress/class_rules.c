#include "lib/ingress/class_rules.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/log.h"

/* A class has as many of these as it has choices, one after the other. */
struct rule {
    const char *class;
    struct match match;
};

static struct rule *rule;
static size_t nrules;

static void add(const struct config_class *class, const char *lines)
{
    struct rule new = {class->name, {0}};
    char *wrong = match_parse(&new.match, lines, strlen(lines));
    if (wrong) /* config_class_check has found it good */
        log_fatal("class %s: %s", class->name, wrong);
    rule = mem_grow(rule, (nrules + 1) * sizeof *rule);
    rule[nrules++] = new;
}

void class_rules_open(const struct config *c)
{
    for (size_t i = 0; i < c->nclasses; i++) {
        char *lines;
        for (size_t n = 0; (lines = config_class_choice(&c->class[i], n)); n++) {
            add(&c->class[i], lines);
            free(lines);
        }
    }
}

const char *class_rules_fit(const struct match_facts *f)
{
    for (size_t i = 0; i < nrules; i++)
        if (match_fits(&rule[i].match, f))
            return rule[i].class;
    return NULL;
}
