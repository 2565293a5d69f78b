/* tables - see tables.h. Indexed tables are dumped by postmap -s, those of patterns are read as
 * text. */
#include "lib/postfix/tables.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "lib/base/mem.h"
#include "lib/postfix/postconf.h"
#include "lib/base/subprocess.h"

#define NESTED_MOST 8 /* tables in results of tables */

struct look {
    const char *directory;
    unsigned depth;
    char *found;
    bool access_next; /* in a list of restrictions: the next word is a table */
};

static void look_into(struct look *, const char *table);
static void look_at_restrictions(struct look *, const char *list);

static bool starts(const char *s, const char *with)
{
    return strncasecmp(s, with, strlen(with)) == 0;
}

static bool found(struct look *l, const char *where, const char *what, size_t len)
{
    if (!l->found)
        l->found = mem_printf("%s: %.*s", where, (int)(len > 60 ? 60 : len), what);
    return true;
}

/* A result of an access or checks table. */
static void look_at_result(struct look *l, const char *where, const char *result)
{
    static const char *const acts[] = {"HOLD", "FILTER", "REDIRECT", "BCC"};
    result += strspn(result, " \t");
    size_t len = strcspn(result, " \t\r\n,");
    for (size_t i = 0; i < 4; i++)
        if (len == strlen(acts[i]) && starts(result, acts[i])) {
            found(l, where, result, strcspn(result, "\r\n"));
            return;
        }
    if (strcasestr(result, "_access")) /* access(5): a result may be a list of restrictions */
        look_at_restrictions(l, result);
}

/* ---- text ---- */

static bool read_file(const char *path, struct buf *text)
{
    char bytes[65536];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = -1;
    if (fd < 0)
        return false;
    while (text->len < (64u << 20) && (n = read(fd, bytes, sizeof bytes)) > 0)
        buf_add(text, bytes, (size_t)n);
    close(fd);
    if (!text->data)
        buf_adds(text, "");
    return n == 0;
}

/* "!/pattern/flags result": the result. */
static const char *after_pattern(const char *s)
{
    if (*s == '!')
        s++;
    char mark = *s++;
    while (*s && *s != mark)
        s += *s == '\\' && s[1] ? 2 : 1;
    return *s ? s + 1 + strcspn(s + 1, " \t") : s;
}

static const char *result_of(const char *line, bool patterns)
{
    if (!patterns)
        return line + strcspn(line, " \t");
    if (starts(line, "if") && isspace((unsigned char)line[2]))
        return "";
    return starts(line, "endif") ? "" : after_pattern(line);
}

/* Logical lines: what begins with a blank goes on, # is a comment. */
static void look_at_lines(struct look *l, const char *name, char *text, bool patterns)
{
    unsigned number = 0, first = 0;
    struct buf logical = {0};
    for (char *line = text; line && !l->found;) {
        char *next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        number++;
        bool more = (*line == ' ' || *line == '\t') && logical.len;
        bool empty = line[strspn(line, " \t\r")] == '\0' || line[strspn(line, " \t")] == '#';
        if (!empty && !more && logical.len) {
            char *where = mem_printf("%s, line %u", name, first);
            look_at_result(l, where, result_of(logical.data, patterns));
            free(where);
            logical.len = 0;
        }
        if (!empty) {
            if (!more)
                first = number;
            buf_adds(&logical, line);
        }
        line = next;
    }
    if (logical.len && !l->found) {
        char *where = mem_printf("%s, line %u", name, first);
        look_at_result(l, where, result_of(logical.data, patterns));
        free(where);
    }
    buf_free(&logical);
}

static char *without_braces(const char *word)
{
    size_t n = strlen(word);
    return n >= 2 && *word == '{' && word[n - 1] == '}' ? mem_strndup(word + 1, n - 2)
                                                        : mem_strdup(word);
}

struct rules {
    struct look *look;
    const char *name;
    bool patterns;
};

/* One {rule} of an inline table. */
static bool look_at_rule(void *arg, const char *word)
{
    struct rules *r = arg;
    char *rule = without_braces(word);
    const char *text = rule + strspn(rule, " \t");
    look_at_result(r->look, r->name, result_of(text, r->patterns));
    free(rule);
    return !r->look->found;
}

static void look_at_patterns(struct look *l, const char *table, const char *name, bool patterns)
{
    struct buf text = {0};
    if (*name == '{') {
        struct rules r = {l, table, patterns};
        char *rules = without_braces(name);
        postconf_words(rules, look_at_rule, &r);
        free(rules);
    } else if (read_file(name, &text)) {
        look_at_lines(l, table, text.data, patterns);
    } else if (!l->found) {
        l->found = mem_printf("%s cannot be read: %s", table, strerror(errno));
    }
    buf_free(&text);
}

/* ---- indexed ---- */

static void look_at_index(struct look *l, const char *table, const char *name)
{
    const char *argv[] = {"postmap", "-c", l->directory, "-s", table, NULL};
    struct subprocess_result r = subprocess_run(argv, NULL, 0, 20000);
    struct buf text = {0};
    if (r.status == 0) {
        for (char *save, *line = r.out.data ? strtok_r(r.out.data, "\n", &save) : NULL;
             line && !l->found; line = strtok_r(NULL, "\n", &save)) {
            char *tab = strchr(line, '\t');
            if (!tab)
                continue;
            *tab = '\0';
            char *where = mem_printf("%s, key %.60s", table, line);
            look_at_result(l, where, tab + 1);
            free(where);
        }
    } else if (read_file(name, &text)) {
        look_at_lines(l, table, text.data, false);
    } else {
        l->found =
            mem_printf("%s cannot be looked into (postmap -s failed, and there is no readable %s)",
                       table, name);
    }
    subprocess_free(&r);
    buf_free(&text);
}

static bool look_at_member(void *arg, const char *word)
{
    look_into(arg, word);
    return !((struct look *)arg)->found;
}

static void look_into(struct look *l, const char *table)
{
    if (starts(table, "proxy:"))
        table += 6;
    const char *colon = strchr(table, ':');
    if (l->found || l->depth >= NESTED_MOST || !colon)
        return;
    const char *name = colon + 1;
    size_t n = (size_t)(colon - table);
    char *type = mem_strndup(table, n);
    l->depth++;
    static const char *const indexed[] = {"hash", "btree", "lmdb",     "cdb",
                                          "dbm",  "sdbm",  "texthash", "inline"};
    bool index = false;
    for (size_t i = 0; i < sizeof indexed / sizeof *indexed; i++)
        index |= !strcmp(type, indexed[i]);
    if (index) {
        look_at_index(l, table, name);
    } else if (!strcmp(type, "regexp") || !strcmp(type, "pcre")) {
        look_at_patterns(l, table, name, true);
    } else if (!strcmp(type, "cidr")) {
        look_at_patterns(l, table, name, false);
    } else if (!strcmp(type, "static")) {
        char *value = without_braces(name);
        look_at_result(l, table, value);
        free(value);
    } else if (!strcmp(type, "unionmap") || !strcmp(type, "pipemap")) {
        char *members = without_braces(name);
        postconf_words(members, look_at_member, l);
        free(members);
    } else if (strcmp(type, "fail") && strcmp(type, "randmap")) {
        l->found = mem_printf("%s cannot be looked into", table);
    }
    l->depth--;
    free(type);
}

/* ---- restrictions ---- */

static bool look_at_restriction(void *arg, const char *word)
{
    struct look *l = arg;
    if (l->access_next) {
        l->access_next = false;
        char *table = without_braces(word); /* { table, search_order = ... } */
        char *first = table + strspn(table, " \t");
        if (*word == '{')
            first[strcspn(first, " \t,")] = '\0';
        look_into(l, first);
        free(table);
    } else {
        size_t n = strlen(word);
        l->access_next = starts(word, "check_") && n > 7 && !strcasecmp(word + n - 7, "_access");
        if (!l->access_next && strchr(word, ':') &&
            (starts(word, "hash:") || starts(word, "btree:") || starts(word, "cidr:") ||
             starts(word, "pcre:")))
            look_into(l, word); /* the old form: a bare table among the restrictions */
    }
    return !l->found;
}

static void look_at_restrictions(struct look *l, const char *list)
{
    bool before = l->access_next;
    l->access_next = false;
    if (l->depth < NESTED_MOST) {
        l->depth++;
        postconf_words(list, look_at_restriction, l);
        l->depth--;
    }
    l->access_next = before;
}

char *table_effect(const char *directory, const char *table)
{
    struct look l = {.directory = directory};
    look_into(&l, table);
    return l.found;
}

char *restrictions_effect(const char *directory, const char *list)
{
    struct look l = {.directory = directory};
    look_at_restrictions(&l, list);
    return l.found;
}
