/* Sections `class`, as libconfuse reads them. What needs no file is in config_classes.c. */
#include <confuse.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/config/config_work.h"
#include "lib/mail/lanename.h"
#include "lib/mail/match.h"

/* ---- checks, as libconfuse reads ---- */

#define KINDS "sender, rcpt, dest, sasl_user, client, size or header, and its value"

/* NULL, or malloc'd. */
static char *word_wrong(const char *word)
{
    struct match m = {0};
    struct buf line = {0};
    if (strchr(word, '\n'))
        return mem_printf("match has a text of more than one line: \"%.*s...\"",
                          (int)strcspn(word, "\n"), word);
    config_class_line(&line, word);
    char *error = match_parse(&m, line.data, line.len), *wrong = NULL;
    if (error && !strncmp(error, "--", 2)) /* the command's option */
        wrong = mem_printf("match has \"%s\": %s", word, error + 2);
    else if (error || !m.n)
        wrong = mem_printf("match has \"%s\": each of its texts is \"all\", \"or\", or one "
                           "of " KINDS ": \"sasl_user *\"",
                           word);
    else if (match_has(&m, MATCH_ID) || match_has(&m, MATCH_AGE) || match_has(&m, MATCH_ERROR))
        wrong = mem_printf("match has \"%s\", but mail has no %.*s when it comes: use " KINDS, word,
                           (int)strcspn(word, " "), word);
    free(error);
    buf_free(&line);
    match_free(&m);
    return wrong;
}

static char *match_wrong(cfg_t *section)
{
    unsigned n = cfg_size(section, "match");
    bool open = true; /* a choice has begun, and has nothing yet */
    for (unsigned i = 0; i < n; i++) {
        const char *word = cfg_getnstr(section, "match", i);
        bool is_or = !strcmp(word, CONFIG_CLASS_OR);
        char *wrong = is_or ? NULL : word_wrong(word);
        if (wrong)
            return wrong;
        if (is_or && (open || i + 1 == n))
            return mem_printf("match has \"or\" with nothing %s it: it stands between two choices",
                              open ? "before" : "behind");
        open = is_or;
    }
    return n ? NULL
             : mem_strdup(
                   "it has no match: write which mail is meant, match = { \"sasl_user *\" }, "
                   "or { \"all\" }");
}

/* Called when a section ends, so that the error has a line: that of its closing brace. */
int config_class_check(struct cfg_t *cfg, struct cfg_opt_t *opt)
{
    unsigned n = cfg_opt_size(opt) - 1;
    cfg_t *section = cfg_opt_getnsec(opt, n);
    const char *name = cfg_title(section);
    char *wrong = NULL;
    if (!lanename_class_ok(name))
        wrong = mem_printf("a class's name has 1 to %d of the characters a-z 0-9 -",
                           LANENAME_CLASS_MAX);
    else if (n >= CONFIG_CLASSES_MAX)
        wrong = mem_printf("it is the ninth, and there may be %d classes: take one out",
                           CONFIG_CLASSES_MAX);
    else
        wrong = match_wrong(section);
    if (!wrong)
        return 0;
    cfg_error(cfg, "class \"%s\": %s", name, wrong);
    free(wrong);
    return -1;
}

/* ---- in the config ---- */

static struct config_list copy(cfg_t *section, const char *setting)
{
    struct config_list l = {cfg_size(section, setting), NULL};
    l.v = mem_zero(l.n * sizeof *l.v);
    for (size_t i = 0; i < l.n; i++)
        l.v[i] = mem_strdup(cfg_getnstr(section, setting, (unsigned)i));
    return l;
}

void config_classes_read(struct config *c, struct cfg_t *cfg)
{
    c->nclasses = cfg_size(cfg, "class");
    c->class = mem_zero(c->nclasses * sizeof *c->class);
    for (size_t i = 0; i < c->nclasses; i++) {
        cfg_t *section = cfg_getnsec(cfg, "class", (unsigned)i);
        struct config_class *class = &c->class[i];
        class->name = mem_strdup(cfg_title(section));
#define CLASS_LIST(name, help) class->name = copy(section, #name);
#define CLASS_INT(name, unit, def, least, most, help) class->name = cfg_getint(section, #name);
#include "lib/config/settings.def"
    }
}
