/* Reads `doveconf -n`: one setting a line, sections in braces. */
#include "ctl/dovecot_conf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/subprocess.h"

#define PATIENCE 30000 /* milliseconds */
#define PATH_MOST 1000

/* ---- reading ---- */

static void add(struct dovecot_conf *c, const char *section, const char *name, const char *value)
{
    c->line = mem_grow(c->line, (c->n + 1) * sizeof *c->line);
    c->line[c->n++] = (struct dovecot_line){
        *section ? mem_printf("%s/%s", section, name) : mem_strdup(name), mem_strdup(value)};
}

/* doveconf quotes what begins or ends with a blank, as a list does that was made of an empty one:
 * " dovelane". In place. */
static char *unquoted(char *value)
{
    size_t len = strlen(value), n = 0;
    if (len < 2 || *value != '"' || value[len - 1] != '"')
        return value;
    for (size_t i = 1; i < len - 1; i++) {
        if (value[i] == '\\' && i + 1 < len - 1)
            i++;
        value[n++] = value[i];
    }
    value[n] = '\0';
    return value;
}

static void read_line(struct dovecot_conf *c, char *section, char *text)
{
    text += strspn(text, " \t");
    size_t len = strcspn(text, "\r\n");
    while (len && (text[len - 1] == ' ' || text[len - 1] == '\t'))
        len--;
    text[len] = '\0';
    char *equals = strstr(text, " =");
    if (*text == '#' || !*text)
        return;
    if (!strcmp(text, "}")) {
        char *slash = strrchr(section, '\n');
        *(slash ? slash : section) = '\0';
    } else if (equals && (equals[2] == ' ' || !equals[2])) {
        *equals = '\0';
        add(c, section, text, equals[2] ? unquoted(equals + 3) : "");
    } else if (len > 2 && !strcmp(text + len - 2, " {")) {
        text[len - 2] = '\0';
        add(c, section, text, "{");
        size_t had = strlen(section);
        snprintf(section + had, PATH_MOST - had, "%s%s", had ? "\n" : "", text);
    }
}

/* "# 2.3.19.1 (9b53102964): /etc/dovecot/dovecot.conf" */
static char *version_of(const char *text)
{
    size_t n = strspn(text, "# ");
    return mem_strndup(text + n, strcspn(text + n, " -(\n"));
}

struct dovecot_conf *dovecot_conf_read(const char *file)
{
    const char *const argv[] = {"doveconf", file ? "-c" : "-n", file ? file : NULL, "-n", NULL};
    struct dovecot_conf *c = mem_zero(sizeof *c);
    struct subprocess_result r = subprocess_run(argv, NULL, 0, PATIENCE);
    char section[PATH_MOST] = "", *rest = NULL;
    c->absent = r.status < 0 ? !r.late : r.status == 127;
    if (r.status != 0 || !r.out.data) {
        const char *said = r.err.data ? r.err.data : r.failure ? r.failure : "it says nothing";
        c->error = mem_strndup(said, strcspn(said, "\n"));
    } else {
        c->version = version_of(r.out.data);
        for (char *at = strtok_r(r.out.data, "\n", &rest); at; at = strtok_r(NULL, "\n", &rest))
            read_line(c, section, at);
    }
    subprocess_free(&r);
    for (size_t i = 0; i < c->n; i++) /* until here a path's own lines divide it: titles have "/" */
        for (char *p = c->line[i].path; (p = strchr(p, '\n')); p++)
            *p = '/';
    return c;
}

char *dovecot_conf_ask(const char *file, const char *name)
{
    const char *const own[] = {"doveconf", "-h", name, NULL}, *const other[] = {"doveconf", "-c",
                                                                                file,       "-h",
                                                                                name,       NULL};
    struct subprocess_result r = subprocess_run(file ? other : own, NULL, 0, PATIENCE);
    bool said = r.status == 0 && r.out.data && *r.out.data != '\n';
    char *value = said ? mem_strndup(r.out.data, strcspn(r.out.data, "\n")) : NULL;
    subprocess_free(&r);
    return value;
}

void dovecot_conf_free(struct dovecot_conf *c)
{
    for (size_t i = 0; i < c->n; i++) {
        free(c->line[i].path);
        free(c->line[i].value);
    }
    free(c->line);
    free(c->version);
    free(c->error);
    free(c);
}

/* ---- asking ---- */

const char *dovecot_conf_get(const struct dovecot_conf *c, const char *path)
{
    for (size_t i = 0; i < c->n; i++)
        if (!strcmp(c->line[i].path, path))
            return c->line[i].value;
    return NULL;
}

const char *dovecot_conf_of(const struct dovecot_conf *c, const char *section, const char *name)
{
    char *path = mem_printf("%s/%s", section, name);
    const char *value = dovecot_conf_get(c, path);
    free(path);
    return value;
}

const char *dovecot_conf_or_global(const struct dovecot_conf *c, const char *section,
                                   const char *name)
{
    const char *own = dovecot_conf_of(c, section, name), *all = dovecot_conf_get(c, name);
    return own && *own ? own : all ? all : "";
}

long long dovecot_conf_number(const struct dovecot_conf *c, const char *section, const char *name,
                              long long otherwise)
{
    const char *value = dovecot_conf_of(c, section, name);
    return value ? atoll(value) : otherwise;
}

bool dovecot_conf_has_word(const char *list, const char *word)
{
    size_t len = strlen(word);
    for (const char *s = list + strspn(list, " "); *s; s += strspn(s, " ")) {
        size_t n = strcspn(s, " ");
        if (n == len && !memcmp(s, word, n))
            return true;
        s += n;
    }
    return false;
}

/* 2.3 has one list, which a section's replaces; 2.4 a yes or no each, and a section's are added. */
bool dovecot_conf_loads(const struct dovecot_conf *c, const char *protocol, const char *plugin)
{
    char *section = mem_printf("protocol %s", protocol),
         *own = mem_printf("%s/mail_plugins/%s", section, plugin),
         *global = mem_printf("mail_plugins/%s", plugin);
    const char *list = dovecot_conf_of(c, section, "mail_plugins"), *one = dovecot_conf_get(c, own);
    if (!list || !strcmp(list, "{"))
        list = dovecot_conf_get(c, "mail_plugins");
    if (!one)
        one = dovecot_conf_get(c, global);
    bool loads = one ? !strcmp(one, "yes") : list && dovecot_conf_has_word(list, plugin);
    free(global);
    free(own);
    free(section);
    return loads;
}
