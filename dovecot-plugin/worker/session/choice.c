/* choice - reads the userdb's field. */
#include "dovecot-plugin/worker/session/choice.h"

#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/worker/session/link.h"
#include "dovecot-plugin/worker/session/session.h"

#include <str.h>

static const char *field_of(const char *const *fields)
{
    static const char name[] = CHOICE_FIELD "=";
    for (; fields != NULL && *fields != NULL; fields++)
        if (str_begins_with(*fields, name))
            return *fields + sizeof name - 1;
    return "";
}

/* 0: there is none of that name. */
static uint64_t site_of(const struct group *g, const char *name)
{
    const char *const *all = t_strsplit_spaces(g->replicas, " ");
    size_t n = strlen(name);
    uint64_t site;
    for (; *all != NULL; all++)
        if (strncmp(*all, name, n) == 0 && (*all)[n] == '=' &&
            str_to_uint64(*all + n + 1, &site) == 0)
            return site;
    return 0;
}

static const char *names(const struct group *g)
{
    string_t *text = t_str_new(128);
    for (const char *const *all = t_strsplit_spaces(g->replicas, " "); *all != NULL; all++)
        str_printfa(text, "%s%s", str_len(text) > 0 ? ", " : "", t_strcut(*all, '='));
    return str_c(text);
}

static bool wanted(const struct group *g, const char *const *words, uint64_t site)
{
    for (; *words != NULL; words++)
        if (site_of(g, *words) == site)
            return TRUE;
    return FALSE;
}

bool choice_read(const struct group *g, const char *const *fields, uint64_t *site, unsigned *nsites,
                 bool *slip_r, const char **error_r)
{
    const char *value = field_of(fields);
    const char *const *words = t_strsplit_spaces(value, ", ");
    bool all = *words == NULL || strcasecmp(value, "yes") == 0;
    *nsites = 0;
    *slip_r = FALSE;
    if (strcasecmp(value, "no") == 0) {
        *error_r = "the userdb says " CHOICE_FIELD "=no: he is not replicated";
        return FALSE;
    }
    for (const char *const *word = words; !all && *word != NULL; word++)
        if (site_of(g, *word) == 0) {
            *slip_r = TRUE;
            *error_r = t_strdup_printf("the userdb says " CHOICE_FIELD
                                       "=%s: there is no replica %s in dovelane.conf; yes, no, or "
                                       "some of %s",
                                       value, *word, names(g));
            return FALSE;
        }
    for (unsigned i = 0; i < g->nsites; i++)
        if (all || wanted(g, words, g->site[i]))
            site[(*nsites)++] = g->site[i];
    if (all || wanted(g, words, g->self))
        return TRUE;
    *error_r = t_strdup_printf(
        "the userdb says " CHOICE_FIELD "=%s: he is not replicated at this site", value);
    return FALSE;
}

bool choice_has(const struct session *s, uint64_t site)
{
    for (unsigned i = 0; i < s->nsites; i++)
        if (s->site[i] == site)
            return TRUE;
    return FALSE;
}

void choice_tell(struct session *s)
{
    struct frame f = {.type = FRAME_APART};
    struct orset_buf b = {.alloc = session_alloc()};
    for (unsigned i = 0; i < s->group->nsites; i++)
        if (!choice_has(s, s->group->site[i]))
            orset_buf_u64(&b, s->group->site[i]);
    f.u.apart = (struct text){b.data, b.len};
    if (!b.failed)
        (void)link_send(s->link, &f);
    orset_buf_free(&b);
}
