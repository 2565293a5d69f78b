/* Sections `class`: what mail is of a class, and how much it gets (docs/classes.md). */
#include "lib/config/config_work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

const struct config_class *config_class(const struct config *c, const char *name)
{
    for (size_t i = 0; i < c->nclasses; i++)
        if (!strcmp(c->class[i].name, name))
            return &c->class[i];
    return NULL;
}

/* ---- choices ---- */

void config_class_line(struct buf *out, const char *word)
{
    static const char user[] = "sasl_user ";
    if (!strncmp(word, user, strlen(user)))
        buf_printf(out, "sasl-user %s\n", word + strlen(user));
    else
        buf_printf(out, "%s%s\n", word, strcmp(word, "all") ? "" : " ");
}

char *config_class_choice(const struct config_class *class, size_t n)
{
    struct buf lines = {0};
    size_t at = 0;
    for (; at < class->match.n && n; at++)
        n -= !strcmp(class->match.v[at], CONFIG_CLASS_OR);
    if (n || !class->match.n)
        return NULL;
    buf_adds(&lines, "");
    for (; at < class->match.n && strcmp(class->match.v[at], CONFIG_CLASS_OR); at++)
        config_class_line(&lines, class->match.v[at]);
    return lines.data;
}

void config_classes_free(struct config *c)
{
    for (size_t i = 0; i < c->nclasses; i++) {
        struct config_class *class = &c->class[i];
        for (size_t k = 0; k < class->match.n; k++)
            free(class->match.v[k]);
        free(class->match.v);
        free(class->name);
    }
    free(c->class);
}

void config_classes_mix(const struct config *c, void (*mix)(uint64_t *, const char *), uint64_t *h)
{
    char weight[24];
    for (size_t i = 0; i < c->nclasses; i++) {
        const struct config_class *class = &c->class[i];
        mix(h, "class");
        mix(h, class->name);
        for (size_t k = 0; k < class->match.n; k++)
            mix(h, class->match.v[k]);
        snprintf(weight, sizeof weight, "%lld", (long long)class->weight);
        mix(h, weight);
    }
}
