/* What diverted mail misses of what main.cf sets, and which parameters of this Postfix nobody has
 * classified (lib/postfix/parameters.h). */
#include "ctl/check.h"

#include <stdlib.h>

#include "lib/base/mem.h"
#include "lib/postfix/parameters.h"
#include "lib/postfix/postconf.h"

struct look {
    char **set; /* the names of what main.cf sets */
    size_t n;
    struct buf unknown; /* "a, b" */
};

static void add_name(struct buf *list, const char *name)
{
    buf_printf(list, "%s%s", list->len ? ", " : "", name);
}

static bool note_set(void *arg, const char *name)
{
    struct look *l = arg;
    l->set = mem_grow(l->set, (l->n + 1) * sizeof *l->set);
    l->set[l->n++] = mem_strdup(name);
    return true;
}

static bool note_unknown(void *arg, const char *name)
{
    struct look *l = arg;
    if (!parameter_find(name))
        add_name(&l->unknown, name);
    return true;
}

static void say_given_up(struct ctl *ctl, const struct look *l, const struct parameter *row)
{
    struct buf found = {0};
    for (size_t i = 0; i < l->n; i++)
        if (parameter_find(l->set[i]) == row)
            add_name(&found, l->set[i]);
    if (found.len)
        check_good(ctl, "main.cf", "not for diverted mail: %s: %s", found.data, row->why);
    buf_free(&found);
}

void check_parameters(struct ctl *ctl, const char *directory)
{
    struct look l = {0};
    const struct parameter *row;
    postconf_names(directory, true, note_set, &l);
    for (size_t i = 0; (row = parameter_row(i)); i++)
        if (row->class == PARAMETER_GIVEN_UP)
            say_given_up(ctl, &l, row);
    if (postconf_names(directory, false, note_unknown, &l) && l.unknown.len)
        check_say(ctl, FINDING_WARNING, FOUND_PARAMETER_UNKNOWN, "postfix",
                  "a newer dovelane; until then leave these at their defaults",
                  "this Postfix has parameters that dovelane %s has not heard of: %.600s",
                  DOVELANE_VERSION, l.unknown.data);
    for (size_t i = 0; i < l.n; i++)
        free(l.set[i]);
    free(l.set);
    buf_free(&l.unknown);
}
